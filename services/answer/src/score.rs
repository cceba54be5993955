//! How good are answers against known ones? SQuAD's measures, citation correctness, and how sure a mean is.

use crate::without_marks;
use std::collections::BTreeMap;

/// The normal quantile of a 95% interval.
const Z_95: f64 = 1.959_964;
/// Resamples of a bootstrap; its interval ends then move by about a hundredth of the interval.
const RESAMPLES: usize = 2_000;

/// A mean with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of values.
    pub count: usize,
}

/// The text as SQuAD's evaluation script compares it: lower case, without ASCII punctuation and the articles a, an,
/// the, words parted by one space.
pub fn normalise(text: &str) -> String {
    let bare: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    bare.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the")).collect::<Vec<_>>().join(" ")
}

/// Is the answer, without its citations, one of the gold answers?
pub fn exact_match<S: AsRef<str>>(answer: &str, golds: &[S]) -> bool {
    let answer = normalise(&without_marks(answer));
    golds.iter().any(|gold| normalise(gold.as_ref()) == answer)
}

/// Does the answer hold one of the gold answers as whole words? A gold answer without a word is in none.
pub fn contains_answer<S: AsRef<str>>(answer: &str, golds: &[S]) -> bool {
    let answer = format!(" {} ", normalise(&without_marks(answer)));
    golds
        .iter()
        .map(|gold| normalise(gold.as_ref()))
        .any(|gold| !gold.is_empty() && answer.contains(&format!(" {gold} ")))
}

/// Token F1 of the answer, without its citations, against the gold answer that fits best; 0 without gold answers.
pub fn f1<S: AsRef<str>>(answer: &str, golds: &[S]) -> f64 {
    let answer = normalise(&without_marks(answer));
    golds.iter().map(|gold| token_f1(&answer, &normalise(gold.as_ref()))).fold(0.0, f64::max)
}

/// F1 = 2PR / (P + R) over words with their counts (Rajpurkar et al. 2016); two empty texts are equal.
fn token_f1(answer: &str, gold: &str) -> f64 {
    let (answer, gold): (Vec<&str>, Vec<&str>) = (answer.split(' ').collect(), gold.split(' ').collect());
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for word in &gold {
        *left.entry(word).or_default() += 1;
    }
    let mut common = 0usize;
    for word in &answer {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    2.0 * common as f64 / (answer.len() + gold.len()) as f64
}

/// How an answer's citations meet the gold source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CitationScore {
    /// At least one citation names the gold source.
    pub cites_gold: bool,
    /// Every citation does, and there is one.
    pub only_gold: bool,
}

/// Compares what was cited with the gold source; `is_gold` tells whether a source number is the gold one.
pub fn citations(cited: impl IntoIterator<Item = usize>, is_gold: impl Fn(usize) -> bool) -> CitationScore {
    let hits: Vec<bool> = cited.into_iter().map(is_gold).collect();
    let cites_gold = hits.contains(&true);
    CitationScore { cites_gold, only_gold: cites_gold && !hits.contains(&false) }
}

/// A share with its Wilson interval, which stays within 0 and 1 for few or one-sided cases too.
pub fn share(hits: usize, count: usize) -> Estimate {
    if count == 0 {
        return Estimate { mean: 0.0, low: 0.0, high: 1.0, count };
    }
    let (n, p) = (count as f64, hits as f64 / count as f64);
    let denominator = 1.0 + Z_95 * Z_95 / n;
    let centre = (p + Z_95 * Z_95 / (2.0 * n)) / denominator;
    let half = Z_95 * (p * (1.0 - p) / n + Z_95 * Z_95 / (4.0 * n * n)).sqrt() / denominator;
    Estimate { mean: p, low: (centre - half).max(0.0), high: (centre + half).min(1.0), count }
}

/// A mean with its bootstrap percentile interval; the same values and seed give the same interval.
pub fn mean(values: &[f64], seed: u64) -> Estimate {
    let count = values.len();
    if count == 0 {
        return Estimate { mean: 0.0, low: 0.0, high: 0.0, count };
    }
    let mut random = SplitMix64(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| (0..count).map(|_| values[random.below(count)]).sum::<f64>() / count as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let quantile = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
    Estimate {
        mean: values.iter().sum::<f64>() / count as f64,
        low: quantile(0.025),
        high: quantile(0.975),
        count,
    }
}

/// Steele, Lea and Flood 2014; enough for resampling.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; the high half of the product avoids a division and its bias is below bound / 2^64.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn normalises_as_the_squad_script_does() {
        for (text, want) in [
            ("The  Cat's hat!", "cats hat"),
            ("an A-B theatre", "ab theatre"),
            ("1,024 (thousand)", "1024 thousand"),
            ("A", ""),
            ("Éclair “x”", "éclair “x”"),
        ] {
            assert_eq!(normalise(text), want);
        }
    }

    /// Expected values worked out by hand.
    fn check(answer: &str, golds: &[&str], exact: bool, contains: bool, want: f64) {
        assert_eq!(exact_match(answer, golds), exact, "exact: {answer}");
        assert_eq!(contains_answer(answer, golds), contains, "contains: {answer}");
        assert!((f1(answer, golds) - want).abs() < 1e-9, "f1: {answer}: {}", f1(answer, golds));
    }

    #[test]
    fn scores_by_hand() {
        check("Denver Broncos [1].", &["The Denver Broncos"], true, true, 1.0);
        // 2 of 5 words and 2 of 2: P = 0.4, R = 1.
        check("It was the Denver Broncos team.", &["Denver Broncos"], false, true, 4.0 / 7.0);
        // "red red" against "red": one in common of 2 and 1.
        check("red red", &["red"], false, true, 2.0 / 3.0);
        check("blue", &["red", "deep blue"], false, false, 2.0 / 3.0);
        check("In 18891.", &["1889"], false, false, 0.0);
        check("nothing", &[], false, false, 0.0);
        check("the", &["a"], true, false, 1.0);
    }

    #[test]
    fn citations_by_hand() {
        let score = |cited: &[usize]| citations(cited.iter().copied(), |number| number == 2);
        assert_eq!(score(&[]), CitationScore { cites_gold: false, only_gold: false });
        assert_eq!(score(&[2, 2]), CitationScore { cites_gold: true, only_gold: true });
        assert_eq!(score(&[1, 2]), CitationScore { cites_gold: true, only_gold: false });
        assert_eq!(score(&[1]), CitationScore { cites_gold: false, only_gold: false });
    }

    #[test]
    fn wilson_as_in_the_textbook() {
        // 5 of 10: Newcombe's method 3 gives 0.2366 to 0.7634; 0 of 10: 0 to 0.2775.
        let half = share(5, 10);
        assert!((half.low - 0.2366).abs() < 1e-4 && (half.high - 0.7634).abs() < 1e-4, "{half:?}");
        let none = share(0, 10);
        assert!(none.low == 0.0 && (none.high - 0.2775).abs() < 1e-4, "{none:?}");
        assert_eq!(share(0, 0).high, 1.0);
    }

    #[test]
    fn the_bootstrap_comes_near_the_normal_interval() {
        // 400 values of 0 and 1 in equal parts: 0.5 +- 1.96 * 0.5 / 20 = 0.451 to 0.549.
        let values: Vec<f64> = (0..400).map(|place| f64::from(place % 2)).collect();
        let estimate = mean(&values, 7);
        assert!(
            estimate.mean == 0.5
                && (estimate.low - 0.451).abs() < 0.01
                && (estimate.high - 0.549).abs() < 0.01
        );
        assert_eq!(mean(&values, 7), estimate);
        assert_eq!(mean(&[], 7).count, 0);
        assert_eq!((mean(&[0.3], 1).low, mean(&[0.3], 1).high), (0.3, 0.3));
    }

    proptest! {
        #[test]
        fn f1_is_a_share_and_symmetric(a in "[a-d ]{0,20}", b in "[a-d ]{0,20}") {
            let there = f1(&a, &[b.as_str()]);
            prop_assert!((0.0..=1.0).contains(&there));
            prop_assert!((there - f1(&b, &[a.as_str()])).abs() < 1e-12);
            prop_assert!(!exact_match(&a, &[b.as_str()]) || there == 1.0);
        }
    }
}
