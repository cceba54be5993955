//! What did the last steps do, and what was expected of them? A bounded ring that explains the engine's time.

use crate::shared::lock;
use budgets::{Moment, StepShape};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

/// Records kept: a minute of steps or more.
const RECORDS_MAX: usize = 4_096;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// Counts steps from 1.
    pub number: u64,
    /// When it began, on the engine's clock.
    pub began: Moment,
    /// What was computed.
    pub shape: StepShape,
    /// How long the cost model expected it to take; zero while it knows nothing.
    pub predicted: Duration,
    /// How long the runner took.
    pub measured: Duration,
    /// How long planning took.
    pub planned: Duration,
    /// Prompt tokens whose KV was found in the prefix cache while it was planned.
    pub cached_tokens: u64,
    /// Cached blocks that were given to others while it was planned.
    pub evicted_blocks: u64,
    /// Sequences that gave way while it was planned.
    pub preemptions: u64,
    /// Sequences that were left waiting.
    pub waiting: usize,
    /// Sequences that run.
    pub running: usize,
    /// Blocks without content.
    pub blocks_free: usize,
    /// Blocks that only the prefix cache keeps.
    pub blocks_cached: usize,
    /// It failed.
    pub failed: bool,
}

/// The last steps.
#[derive(Debug, Default)]
pub(crate) struct StepRecords(Mutex<VecDeque<StepRecord>>);

impl StepRecords {
    pub(crate) fn push(&self, record: StepRecord) {
        let mut records = lock(&self.0);
        if records.len() == RECORDS_MAX {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Those after step number `after`, oldest first.
    pub(crate) fn after(&self, after: u64) -> Vec<StepRecord> {
        let records = lock(&self.0);
        let known = records.partition_point(|record| record.number <= after);
        records.range(known..).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> StepRecord {
        StepRecord {
            number,
            began: Moment::default(),
            shape: StepShape::default(),
            predicted: Duration::ZERO,
            measured: Duration::ZERO,
            planned: Duration::ZERO,
            cached_tokens: 0,
            evicted_blocks: 0,
            preemptions: 0,
            waiting: 0,
            running: 0,
            blocks_free: 0,
            blocks_cached: 0,
            failed: false,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_and_gives_what_is_new() {
        let records = StepRecords::default();
        (1..=5_000).for_each(|number| records.push(record(number)));
        let numbers =
            |after| -> Vec<u64> { records.after(after).iter().map(|record| record.number).collect() };
        assert_eq!(numbers(4_998), [4_999, 5_000]);
        assert_eq!(numbers(5_000), [0; 0]);
        assert_eq!(numbers(0).len(), RECORDS_MAX);
        assert_eq!(numbers(0).first(), Some(&905));
    }
}
