//! What has the engine done so far? Plain counts; whoever exports metrics turns them into its own format.

use crate::{FinishReason, Histograms};
use budgets::CostError;
use sched::StepPlan;
use std::time::Duration;

/// A snapshot of the engine: what is there now, and sums since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Requests for which nothing was computed yet.
    pub waiting: usize,
    /// Sequences in prefill or decode.
    pub running: usize,
    /// KV blocks without content.
    pub blocks_free: usize,
    /// KV blocks that only the prefix cache keeps; they are there for whoever needs blocks.
    pub blocks_cached: usize,
    /// KV blocks in block tables.
    pub blocks_held: usize,
    /// All KV blocks.
    pub blocks_total: usize,
    /// Ended requests by reason.
    pub finished: FinishCounts,
    /// Requests turned away because the queue was full.
    pub queue_full: u64,
    /// Prompt tokens of requests that were taken.
    pub prompt_tokens: u64,
    /// Prompt tokens that were looked up in the prefix cache, once for each request.
    pub prefix_query_tokens: u64,
    /// Those of them whose KV was there.
    pub prefix_hit_tokens: u64,
    /// Cached blocks that were given to others.
    pub evicted_blocks: u64,
    /// Sequences that gave way and were queued again.
    pub preemptions: u64,
    /// How far the cost model was off in the last steps.
    pub cost_error: Option<CostError>,
    /// Tokens made.
    pub completion_tokens: u64,
    /// Steps run, failed ones among them.
    pub steps: u64,
    /// Steps that failed.
    pub steps_failed: u64,
    /// Time spent in steps.
    pub step_seconds: f64,
    /// Prompt tokens computed in steps, and what preempted sequences had computed again.
    pub prefill_tokens: u64,
    /// Tokens computed in steps by decoding sequences.
    pub decode_tokens: u64,
    /// What requests took.
    pub histograms: Histograms,
}

/// Ended requests by [`FinishReason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of the reasons.
pub struct FinishCounts {
    pub end_of_text: u64,
    pub stop_string: u64,
    pub length: u64,
    pub expired_in_queue: u64,
    pub expired_in_prefill: u64,
    pub expired_in_decode: u64,
    pub cancelled: u64,
    pub failed: u64,
}

impl FinishCounts {
    /// Every reason's name (as [`FinishReason::name`] gives it) and its count.
    pub fn by_name(&self) -> [(&'static str, u64); 8] {
        [
            ("end_of_text", self.end_of_text),
            ("stop_string", self.stop_string),
            ("length", self.length),
            ("expired_in_queue", self.expired_in_queue),
            ("expired_in_prefill", self.expired_in_prefill),
            ("expired_in_decode", self.expired_in_decode),
            ("cancelled", self.cancelled),
            ("failed", self.failed),
        ]
    }

    /// All ended requests.
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn add(&mut self, reason: &FinishReason) {
        let count = match reason {
            FinishReason::EndOfText => &mut self.end_of_text,
            FinishReason::StopString(_) => &mut self.stop_string,
            FinishReason::Length => &mut self.length,
            FinishReason::ExpiredInQueue => &mut self.expired_in_queue,
            FinishReason::ExpiredInPrefill => &mut self.expired_in_prefill,
            FinishReason::ExpiredInDecode => &mut self.expired_in_decode,
            FinishReason::Cancelled => &mut self.cancelled,
            FinishReason::Failed(_) => &mut self.failed,
        };
        *count += 1;
    }
}

impl EngineStats {
    pub(crate) fn count_step(&mut self, plan: &StepPlan, took: Duration) {
        let tokens: usize = plan.rows.iter().map(|row| row.tokens.len()).sum();
        // A row of one token that is not its sequence's first draw; more tokens are a preempted sequence's return.
        let decodes = plan
            .rows
            .iter()
            .filter(|row| row.tokens.len() == 1 && row.draw.as_ref().is_some_and(|draw| draw.index > 0));
        let decode_tokens = decodes.count();
        self.steps += 1;
        self.step_seconds += took.as_secs_f64();
        self.decode_tokens += decode_tokens as u64;
        self.prefill_tokens += (tokens - decode_tokens) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_counted_under_its_own_name() {
        let reasons = [
            FinishReason::EndOfText,
            FinishReason::StopString("x".to_string()),
            FinishReason::Length,
            FinishReason::ExpiredInQueue,
            FinishReason::ExpiredInPrefill,
            FinishReason::ExpiredInDecode,
            FinishReason::Cancelled,
            FinishReason::Failed("x".to_string()),
        ];
        for reason in &reasons {
            let mut counts = FinishCounts::default();
            counts.add(reason);
            let counted: Vec<_> = counts.by_name().into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(counted, [(reason.name(), 1)]);
        }
    }
}
