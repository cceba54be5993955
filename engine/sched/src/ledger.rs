//! Does a plan read the KV that it needs? A stand-in for KV memory that knows which tokens each slot was computed from.

use crate::{BlockId, RowPlan, RunError, RunnerLimits, StepPlan, TokenId};

/// One slot: its token, and a fingerprint of the token with all before it, since KV depends on all of them.
type Slot = Option<(TokenId, u64)>;

/// KV memory without KV. A slot may be read at the position and after the tokens for which it was written, by whatever
/// sequence; everything else is refused.
#[derive(Debug)]
pub(crate) struct Ledger {
    block_tokens: usize,
    /// `[block][slot]`.
    slots: Vec<Slot>,
}

impl Ledger {
    pub(crate) fn new(limits: &RunnerLimits) -> Self {
        let block_tokens = limits.block_tokens.max(1);
        Self { block_tokens, slots: vec![None; limits.blocks_total.saturating_mul(block_tokens)] }
    }

    /// Copies, then writes every row, as the memory would see it; returns each row's tokens up to its end, read through
    /// its block table. The plan has passed [`StepPlan::check`].
    pub(crate) fn run(&mut self, plan: &StepPlan) -> Result<Vec<Vec<TokenId>>, RunError> {
        for copy in &plan.copies {
            let from = copy.from.0 as usize * self.block_tokens;
            self.slots.copy_within(from..from + self.block_tokens, copy.to.0 as usize * self.block_tokens);
        }
        plan.rows.iter().map(|row| self.write(row)).collect()
    }

    /// Forgets all that `plan` wrote or copied: after a step that failed nobody may read it.
    pub(crate) fn spoil(&mut self, plan: &StepPlan) {
        let written = plan.rows.iter().flat_map(|row| {
            let skipped = row.spans.iter().map(|span| span.len).sum::<usize>() - row.tokens.len();
            let blocks: Vec<BlockId> =
                row.spans.iter().flat_map(|span| span.blocks.iter().copied()).collect();
            (skipped..skipped + row.tokens.len())
                .map(|position| self.slot(&blocks, position))
                .collect::<Vec<_>>()
        });
        let written: Vec<usize> = written.collect();
        let copied = plan.copies.iter().map(|copy| copy.to.0 as usize * self.block_tokens);
        let copied: Vec<usize> = copied.flat_map(|first| first..first + self.block_tokens).collect();
        written.into_iter().chain(copied).for_each(|slot| self.slots[slot] = None);
    }

    fn write(&mut self, row: &RowPlan) -> Result<Vec<TokenId>, RunError> {
        let blocks: Vec<BlockId> = row.spans.iter().flat_map(|span| span.blocks.iter().copied()).collect();
        let (mut tokens, mut print) = (Vec::new(), 0);
        for position in 0..row.start {
            let slot = self.slot(&blocks, position);
            match self.slots[slot] {
                Some((token, known)) if known == extend(print, token) => {
                    tokens.push(token);
                    print = known;
                }
                other => {
                    let message = format!(
                        "{:?} reads position {position} from slot {slot}, which holds {other:?}",
                        row.seq
                    );
                    return Err(RunError::InvalidPlan(message));
                }
            }
        }
        for (nth, token) in row.tokens.iter().enumerate() {
            print = extend(print, *token);
            let slot = self.slot(&blocks, row.start + nth);
            self.slots[slot] = Some((*token, print));
            tokens.push(*token);
        }
        Ok(tokens)
    }

    fn slot(&self, blocks: &[BlockId], position: usize) -> usize {
        blocks[position / self.block_tokens].0 as usize * self.block_tokens + position % self.block_tokens
    }
}

/// The fingerprint of what `print` stands for and one more token (the mixing function of splitmix64).
fn extend(print: u64, token: TokenId) -> u64 {
    let mut z = (print ^ u64::from(token)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockCopy, SeqId, Span};

    const LIMITS: RunnerLimits =
        RunnerLimits { block_tokens: 2, blocks_total: 5, context_tokens_max: 8, vocab_tokens: 10 };

    fn row(seq: u64, start: usize, tokens: &[TokenId], blocks: &[u32]) -> StepPlan {
        let blocks = blocks.iter().copied().map(BlockId).collect();
        let spans = vec![Span { blocks, len: start + tokens.len(), shift: 0 }];
        let row = RowPlan { seq: SeqId(seq), tokens: tokens.to_vec(), start, spans, draw: None };
        StepPlan { copies: Vec::new(), rows: vec![row] }
    }

    fn copying(mut plan: StepPlan, from: u32, to: u32) -> StepPlan {
        plan.copies.push(BlockCopy { from: BlockId(from), to: BlockId(to) });
        plan
    }

    /// Runs `plans` one after another; all but the last must pass. What the last reads, or `None` when it is refused.
    fn check(plans: &[StepPlan], read: Option<&[TokenId]>) {
        let mut ledger = Ledger::new(&LIMITS);
        let mut results: Vec<_> = plans.iter().map(|plan| ledger.run(plan).ok()).collect();
        let last = results.pop().flatten();
        assert!(results.iter().all(Option::is_some));
        assert_eq!(last.map(|rows| rows.concat()).as_deref(), read);
    }

    #[test]
    fn only_what_was_computed_from_the_same_tokens_may_be_read() {
        let prompt = row(1, 0, &[1, 2, 3], &[0, 1]);
        check(&[prompt.clone(), row(1, 3, &[4], &[0, 1])], Some(&[1, 2, 3, 4]));
        check(&[prompt.clone(), row(1, 3, &[4], &[1, 0])], None); // The table is out of order.
        check(&[prompt.clone(), row(1, 4, &[4], &[0, 1, 2])], None); // Position 3 was left out.
        check(&[prompt.clone(), row(2, 2, &[7], &[0, 2])], Some(&[1, 2, 7])); // Another sequence, same beginning.
        // The same tokens after different ones are different KV.
        check(&[prompt.clone(), row(2, 0, &[9, 9], &[2]), row(3, 3, &[4], &[2, 1])], None);
        check(&[prompt, row(2, 0, &[7], &[0]), row(1, 3, &[4], &[0, 1])], None); // Overwritten meanwhile.
    }

    #[test]
    fn a_copy_is_as_good_as_its_source() {
        let prompt = row(1, 0, &[1, 2, 3, 4], &[0, 1]);
        let second = copying(row(2, 3, &[9], &[0, 2]), 1, 2);
        check(&[prompt.clone(), second.clone()], Some(&[1, 2, 3, 9]));
        check(&[prompt.clone(), second.clone(), row(1, 4, &[5], &[0, 1, 3])], Some(&[1, 2, 3, 4, 5]));
        check(&[prompt, copying(row(2, 3, &[9], &[0, 2]), 0, 2)], None);
    }
}
