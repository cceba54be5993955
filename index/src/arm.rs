//! What do both arms of a search have in common? A ranked list of rows, how complete it is, and ways to have none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A passage by its row in the generation, and the arm's score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) row: usize,
    pub(crate) score: f32,
}

/// What an arm found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    /// Best first.
    pub(crate) ranked: Vec<Ranked>,
    /// How much of its work it did before its deadline, 0 to 1.
    pub(crate) share: f32,
}

impl Found {
    /// Nothing.
    pub(crate) const NOTHING: Found = Found { ranked: Vec::new(), share: 0.0 };
}

/// Why an arm gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArmError {
    /// The query did not go to it.
    NotAsked,
    /// Its deadline passed.
    Expired,
    /// It broke; the message says how.
    Failed(String),
}

/// Keeps the best rows of many; among equal scores the smaller row wins, so that results do not depend on the order of
/// offers.
pub(crate) struct TopRows {
    depth: usize,
    worst_first: BinaryHeap<Reverse<Entry>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry(OrderedScore, Reverse<usize>);

struct OrderedScore(f32);

impl PartialEq for OrderedScore {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedScore {}

impl PartialOrd for OrderedScore {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedScore {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl TopRows {
    /// Keeps `depth` rows.
    pub(crate) fn new(depth: usize) -> TopRows {
        TopRows { depth, worst_first: BinaryHeap::new() }
    }

    /// Takes `row` if it is among the best so far.
    pub(crate) fn offer(&mut self, row: usize, score: f32) {
        let entry = Entry(OrderedScore(score), Reverse(row));
        if self.worst_first.len() < self.depth {
            self.worst_first.push(Reverse(entry));
        } else if let Some(mut worst) = self.worst_first.peek_mut()
            && entry > worst.0
        {
            *worst = Reverse(entry);
        }
    }

    /// What was kept, best first.
    pub(crate) fn into_ranked(self) -> Vec<Ranked> {
        let best_first = self.worst_first.into_sorted_vec();
        best_first
            .into_iter()
            .map(|Reverse(Entry(score, Reverse(row)))| Ranked { row, score: score.0 })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn top_rows_are_the_front_of_a_full_sort(scores in prop::collection::vec(0u8..20, 0..60), depth in 0usize..20) {
            let mut top = TopRows::new(depth);
            for (row, score) in scores.iter().enumerate() {
                top.offer(row, f32::from(*score));
            }
            let mut all: Vec<(u8, usize)> = scores.iter().copied().zip(0..).collect();
            all.sort_by_key(|(score, row)| (Reverse(*score), *row));
            let expected: Vec<usize> = all.into_iter().map(|(_, row)| row).take(depth).collect();
            let found: Vec<usize> = top.into_ranked().into_iter().map(|ranked| ranked.row).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
