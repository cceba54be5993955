//! How good is a ranked list of documents, when it is known which are relevant?

use std::collections::{BTreeMap, HashSet};

/// Documents that are relevant to a query, and how much (grades from 1).
pub type Judged = BTreeMap<String, u32>;

/// Normalised discounted cumulative gain of the first `depth` places, as trec_eval defines it (`ndcg_cut`): the gain is
/// the grade, the discount log2(place + 1); 1 when no order could be better. Zero when nothing is relevant.
pub fn ndcg(ranked: &[String], judged: &Judged, depth: usize) -> f64 {
    let gain = |(place, grade): (usize, u32)| f64::from(grade) / (place as f64 + 2.0).log2();
    let found = ranked.iter().take(depth).map(|document| judged.get(document).copied().unwrap_or(0));
    let mut best: Vec<u32> = judged.values().copied().collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    let ideal: f64 = best.into_iter().take(depth).enumerate().map(gain).sum();
    if ideal > 0.0 { found.enumerate().map(gain).sum::<f64>() / ideal } else { 0.0 }
}

/// Share of the relevant documents that stand in the first `depth` places.
pub fn recall(ranked: &[String], judged: &Judged, depth: usize) -> f64 {
    let relevant = judged.values().filter(|grade| **grade > 0).count();
    let front: HashSet<&String> = ranked.iter().take(depth).collect();
    let held = judged.iter().filter(|(document, grade)| **grade > 0 && front.contains(document)).count();
    if relevant > 0 { held as f64 / relevant as f64 } else { 0.0 }
}

/// One over the place of the first relevant document within `depth`; zero without one.
pub fn reciprocal_rank(ranked: &[String], judged: &Judged, depth: usize) -> f64 {
    let relevant = |document: &String| judged.get(document).is_some_and(|grade| *grade > 0);
    ranked.iter().take(depth).position(relevant).map_or(0.0, |place| 1.0 / (place as f64 + 1.0))
}

/// The first place only: is the best document relevant?
pub fn first(ranked: &[String], judged: &Judged) -> f64 {
    reciprocal_rank(ranked, judged, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_string).collect()
    }

    fn judged(pairs: &[(&str, u32)]) -> Judged {
        pairs.iter().map(|(name, grade)| ((*name).to_string(), *grade)).collect()
    }

    #[test]
    fn the_worked_example_of_the_literature_comes_out() {
        // Grades 3, 2, 3, 0, 1, 2 in places 1 to 6: DCG 6.861, ideal 7.141, nDCG 0.961 (the usual textbook example).
        let judged = judged(&[("a", 3), ("b", 2), ("c", 3), ("e", 1), ("f", 2)]);
        let found = ndcg(&ranked("a b c d e f"), &judged, 6);
        assert!((found - 0.9608).abs() < 1e-4, "{found}");
    }

    #[test]
    fn places_past_the_depth_count_for_nothing() {
        let judged = judged(&[("x", 1), ("y", 1)]);
        assert!((recall(&ranked("a x b y"), &judged, 3) - 0.5).abs() < 1e-12);
        assert!((reciprocal_rank(&ranked("a x b y"), &judged, 3) - 0.5).abs() < 1e-12);
        assert_eq!(reciprocal_rank(&ranked("a b x"), &judged, 2), 0.0);
        assert_eq!(first(&ranked("a x"), &judged), 0.0);
        // One relevant document in second place of two wanted: 1/log2(3) over 1 + 1/log2(3).
        let wanted = (1.0 / 3f64.log2()) / (1.0 + 1.0 / 3f64.log2());
        assert!((ndcg(&ranked("a x"), &judged, 2) - wanted).abs() < 1e-12);
    }

    #[test]
    fn without_relevant_documents_every_measure_is_zero() {
        let none = judged(&[("x", 0)]);
        assert_eq!([ndcg(&ranked("x"), &none, 10), recall(&ranked("x"), &none, 10)], [0.0, 0.0]);
    }
}
