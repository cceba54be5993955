//! Does a plan keep the contract of [`crate::StepPlan`]? What every runner may rely on, written once.

use crate::{BlockId, RowPlan, RunError, RunnerLimits, StepPlan};
use std::collections::HashSet;

impl StepPlan {
    /// Checks the plan against a runner: rows are not empty and each of another sequence; tokens are in the
    /// vocabulary, positions in the context, blocks in the pool; the spans hold exactly the positions up to the
    /// row's last; a block that one row writes is in no other row; and each copy fills the first block that some row
    /// writes.
    ///
    /// # Errors
    /// [`RunError::InvalidPlan`] names the first breach.
    pub fn check(&self, limits: &RunnerLimits) -> Result<(), RunError> {
        let mut seqs = HashSet::new();
        // How many rows read each block. A row names a block once, so a count is enough.
        let mut readers = vec![0u32; limits.blocks_total];
        for row in &self.rows {
            check_row(row, limits).map_err(|broken| invalid(row, &broken))?;
            if !seqs.insert(row.seq) {
                return Err(invalid(row, "is in the plan twice"));
            }
            for block in row.spans.iter().flat_map(|span| &span.blocks) {
                readers[block.0 as usize] += 1;
            }
        }
        let mut first_written = HashSet::new();
        for row in &self.rows {
            let written = row.written_blocks(limits.block_tokens);
            first_written.extend(written.first().copied());
            if let Some(block) = written.iter().find(|block| readers[block.0 as usize] > 1) {
                return Err(invalid(row, &format!("writes {block:?}, which another row reads")));
            }
        }
        for copy in &self.copies {
            // Each target once: a row could not continue two blocks in one.
            if copy.from.0 as usize >= limits.blocks_total || !first_written.remove(&copy.to) {
                return Err(RunError::InvalidPlan(format!(
                    "{copy:?} fills no block that a row goes on to write"
                )));
            }
        }
        Ok(())
    }
}

impl RowPlan {
    /// The blocks into which the row's new keys and values go: the tail of its last span.
    pub fn written_blocks(&self, block_tokens: usize) -> Vec<BlockId> {
        let Some(span) = self.spans.last() else { return Vec::new() };
        let block_tokens = block_tokens.max(1);
        let first = span.len.saturating_sub(self.tokens.len()) / block_tokens;
        span.blocks.iter().take(span.len.div_ceil(block_tokens)).skip(first).copied().collect()
    }
}

fn check_row(row: &RowPlan, limits: &RunnerLimits) -> Result<(), String> {
    let end = row.start + row.tokens.len();
    let held: usize = row.spans.iter().map(|span| span.len).sum();
    if row.tokens.is_empty() {
        return Err("has no tokens".to_string());
    }
    if let Some(token) = row.tokens.iter().find(|token| **token as usize >= limits.vocab_tokens) {
        return Err(format!("has token {token} outside the vocabulary"));
    }
    if end > limits.context_tokens_max {
        return Err(format!("reaches position {end}, past the context"));
    }
    if held != end {
        return Err(format!("ends at position {end} and its spans hold {held}"));
    }
    for span in &row.spans {
        if span.blocks.len() != span.len.div_ceil(limits.block_tokens.max(1)) {
            return Err(format!("holds {} positions in {} blocks", span.len, span.blocks.len()));
        }
        if let Some(block) = span.blocks.iter().find(|block| block.0 as usize >= limits.blocks_total) {
            return Err(format!("names {block:?}, which the pool does not have"));
        }
    }
    let distinct: HashSet<&BlockId> = row.spans.iter().flat_map(|span| &span.blocks).collect();
    if distinct.len() != row.spans.iter().map(|span| span.blocks.len()).sum::<usize>() {
        return Err("names a block twice".to_string());
    }
    match row.spans.last() {
        Some(last) if last.len >= row.tokens.len() => Ok(()),
        _ => Err("writes more than its last span holds".to_string()),
    }
}

fn invalid(row: &RowPlan, broken: &str) -> RunError {
    RunError::InvalidPlan(format!("sequence {} {broken}", row.seq.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockCopy, SeqId, Span};

    const LIMITS: RunnerLimits =
        RunnerLimits { block_tokens: 4, blocks_total: 4, context_tokens_max: 16, vocab_tokens: 10 };

    fn row(seq: u64, start: usize, tokens: &[u32], blocks: &[u32]) -> RowPlan {
        let blocks = blocks.iter().copied().map(BlockId).collect();
        let spans = vec![Span { blocks, len: start + tokens.len(), shift: 0 }];
        RowPlan { seq: SeqId(seq), tokens: tokens.to_vec(), start, spans, draw: None }
    }

    fn check(rows: Vec<RowPlan>, breach: Option<&str>) {
        let got = StepPlan { rows, ..StepPlan::default() }.check(&LIMITS);
        match (got, breach) {
            (Ok(()), None) => {}
            (Err(RunError::InvalidPlan(message)), Some(breach)) if message.contains(breach) => {}
            (got, breach) => panic!("got {got:?}, wanted {breach:?}"),
        }
    }

    #[test]
    fn a_sound_plan_passes_and_each_breach_is_named() {
        check(vec![row(1, 0, &[1, 2, 3], &[0]), row(2, 4, &[5], &[1, 3])], None);
        check(vec![row(1, 0, &[], &[])], Some("no tokens"));
        check(vec![row(1, 0, &[10], &[0])], Some("vocabulary"));
        check(vec![row(1, 16, &[1], &[0, 1, 2, 3])], Some("context"));
        check(vec![row(1, 0, &[1], &[4])], Some("pool"));
        check(vec![row(1, 4, &[1], &[0])], Some("5 positions in 1 blocks"));
        check(vec![row(1, 4, &[1], &[0, 0])], Some("twice"));
        check(vec![row(1, 0, &[1], &[0]), row(1, 0, &[1], &[1])], Some("twice"));
        check(vec![row(1, 0, &[1], &[0]), row(2, 0, &[1], &[0])], Some("another row"));
        let mut gap = row(1, 3, &[1], &[0]);
        gap.start = 2;
        check(vec![gap], Some("its spans hold 4"));
    }

    #[test]
    fn a_copy_fills_the_block_that_its_row_goes_on_to_write() {
        let copies = |copies: &[(u32, u32)]| {
            let copies = copies.iter().map(|(from, to)| BlockCopy { from: BlockId(*from), to: BlockId(*to) });
            let plan = StepPlan { copies: copies.collect(), rows: vec![row(1, 2, &[1, 2, 3], &[1, 2])] };
            plan.check(&LIMITS).is_ok()
        };
        assert!(copies(&[(0, 1)]));
        assert!(!copies(&[(0, 2)])); // The row writes it from its first position on.
        assert!(!copies(&[(0, 3)]));
        assert!(!copies(&[(4, 1)]));
        assert!(!copies(&[(0, 1), (3, 1)]));
    }

    #[test]
    fn full_blocks_may_be_shared_by_readers() {
        check(vec![row(1, 4, &[5], &[0, 1]), row(2, 4, &[5], &[0, 2])], None);
    }
}
