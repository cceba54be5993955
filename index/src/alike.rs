//! Do two passages say the same in nearly the same words? By the share of their runs of words in common (Broder,
//! "On the resemblance and containment of documents", 1997).

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Words of a run.
const RUN_WORDS: usize = 4;
/// Share of the smaller passage's runs that the larger one holds too, from which on they are alike. A passage that another
/// one contains adds nothing to it, so the smaller one is the measure.
const ALIKE_SHARE: f32 = 0.8;

/// The runs of words of a passage, as hashes; case and signs do not count.
#[derive(Clone, Debug)]
pub(crate) struct Runs(HashSet<u64>);

impl Runs {
    pub(crate) fn of(text: &str) -> Runs {
        let words: Vec<String> = text
            .split(|sign: char| !sign.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        // A shorter text is one run.
        let runs = words.windows(RUN_WORDS.min(words.len().max(1)));
        Runs(
            runs.map(|run| {
                let mut hasher = DefaultHasher::new();
                run.hash(&mut hasher);
                hasher.finish()
            })
            .collect(),
        )
    }

    pub(crate) fn alike(&self, other: &Runs) -> bool {
        let (small, large) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        let common = small.0.iter().filter(|run| large.0.contains(run)).count();
        !small.0.is_empty() && common as f32 >= ALIKE_SHARE * small.0.len() as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "The defense gave up just 308 points, which was sixth in the league, and led it in \
        interceptions with 24; four of its players were chosen for the Pro Bowl.";

    fn alike(a: &str, b: &str) -> bool {
        let found = Runs::of(a).alike(&Runs::of(b));
        assert_eq!(found, Runs::of(b).alike(&Runs::of(a)), "order matters for {a:?} and {b:?}");
        found
    }

    #[test]
    fn one_changed_word_or_other_signs_are_alike_and_another_text_is_not() {
        assert!(alike(TEXT, TEXT));
        assert!(alike(TEXT, &TEXT.replace(", ", " - ").to_uppercase()));
        // One word of 30 is in four of 27 runs: 85 % are left.
        assert!(alike(TEXT, &TEXT.replace("interceptions", "sacks")));
        assert!(!alike(TEXT, "The defense gave up points in the league, and four players were chosen."));
    }

    #[test]
    fn a_passage_within_another_is_alike() {
        assert!(alike(TEXT, &format!("Before this. {TEXT} And after it came something else, quite long.")));
    }

    #[test]
    fn texts_without_words_are_like_nothing() {
        assert!(!alike("", ""));
        assert!(!alike("---", TEXT));
        assert!(alike("Yes", "yes!"));
    }
}
