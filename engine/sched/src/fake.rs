//! What would a runner be asked to do? One that computes nothing, answers from a script and holds every plan to its
//! contract; for tests of this and other crates.

use crate::{BlockId, Drawn, RowPlan, RunError, Runner, RunnerLimits, SeqId, StepOutput, StepPlan, TokenId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What goes wrong in a step.
#[derive(Clone, Debug)]
pub enum FakeFailure {
    /// The runner returns this error.
    Error(RunError),
    /// The runner panics.
    Panic,
    /// The runner forgets every draw.
    NoDraws,
}

/// The plans that a [`FakeRunner`] was given; a clone sees the same list.
#[derive(Clone, Debug, Default)]
pub struct FakeLog(Arc<Mutex<Vec<StepPlan>>>);

impl FakeLog {
    /// All plans so far.
    pub fn plans(&self) -> Vec<StepPlan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of plans so far.
    pub fn steps(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Adds a plan and tells its number.
    fn push(&self, plan: StepPlan) -> usize {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.push(plan);
        plans.len() - 1
    }
}

/// Chooses a token, given a row and all tokens up to its end.
type Script = Box<dyn FnMut(&RowPlan, &[TokenId]) -> TokenId + Send>;

/// What stands in a KV slot: whose, at which position, which token.
type Slot = (SeqId, usize, TokenId);

/// A scripted runner. It keeps what was written into each KV slot and refuses a plan that would read a slot which
/// its sequence did not write: a mistake in the block tables shows as [`RunError::InvalidPlan`], not as odd text.
pub struct FakeRunner {
    limits: RunnerLimits,
    script: Script,
    failures: HashMap<usize, FakeFailure>,
    slots: HashMap<(BlockId, usize), Slot>,
    log: FakeLog,
}

impl FakeRunner {
    /// A runner that asks `script` for the token of each row with a draw. The script may block or move a clock.
    pub fn new(limits: RunnerLimits, mut script: impl FnMut(&RowPlan) -> TokenId + Send + 'static) -> Self {
        Self::with(limits, Box::new(move |row, _| script(row)))
    }

    /// A runner that answers a prompt with `reply(prompt)` and then draws `end`. The reply is asked for at every
    /// draw, so it must depend on the prompt alone.
    pub fn replying(
        limits: RunnerLimits,
        end: TokenId,
        reply: impl Fn(&[TokenId]) -> Vec<TokenId> + Send + 'static,
    ) -> Self {
        Self::with(
            limits,
            Box::new(move |row, tokens| {
                let index = row.draw.as_ref().map_or(0, |draw| draw.index as usize);
                let prompt = &tokens[..tokens.len().saturating_sub(index)];
                reply(prompt).get(index).copied().unwrap_or(end)
            }),
        )
    }

    fn with(limits: RunnerLimits, script: Script) -> Self {
        Self { limits, script, failures: HashMap::new(), slots: HashMap::new(), log: FakeLog::default() }
    }

    /// Lets step number `step` (from 0) go wrong.
    #[must_use]
    pub fn failing_at(mut self, step: usize, failure: FakeFailure) -> Self {
        self.failures.insert(step, failure);
        self
    }

    /// The plans that it is given, readable while an engine owns the runner.
    pub fn log(&self) -> FakeLog {
        self.log.clone()
    }

    /// Writes the row's tokens into its last span.
    fn write(&mut self, row: &RowPlan) {
        let Some(span) = row.spans.last() else { return };
        let first = span.len - row.tokens.len();
        for (nth, token) in row.tokens.iter().enumerate() {
            let slot = self.slot(&span.blocks, first + nth);
            self.slots.insert(slot, (row.seq, row.start + nth, *token));
        }
    }

    /// All tokens up to the row's end, read through its block table.
    fn read(&self, row: &RowPlan) -> Result<Vec<TokenId>, RunError> {
        let places = row.spans.iter().flat_map(|span| (0..span.len).map(|at| self.slot(&span.blocks, at)));
        let tokens = places.enumerate().map(|(position, slot)| match self.slots.get(&slot) {
            Some((seq, written, token)) if (*seq, *written) == (row.seq, position) => Ok(*token),
            other => Err(RunError::InvalidPlan(format!(
                "{:?} reads position {position} from slot {slot:?}, which holds {other:?}",
                row.seq
            ))),
        });
        tokens.collect()
    }

    fn slot(&self, blocks: &[BlockId], at: usize) -> (BlockId, usize) {
        (blocks[at / self.limits.block_tokens], at % self.limits.block_tokens)
    }
}

impl Runner for FakeRunner {
    fn limits(&self) -> RunnerLimits {
        self.limits
    }

    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError> {
        let step = self.log.push(plan.clone());
        plan.check(&self.limits)?;
        let failure = self.failures.remove(&step);
        match &failure {
            Some(FakeFailure::Error(error)) => return Err(error.clone()),
            Some(FakeFailure::Panic) => std::panic::panic_any("the scripted panic"),
            Some(FakeFailure::NoDraws) | None => {}
        }
        let mut output = StepOutput::default();
        for row in &plan.rows {
            self.write(row);
            let tokens = self.read(row)?;
            if row.draw.is_some() {
                let token = (self.script)(row, &tokens);
                output.drawn.push(Drawn { seq: row.seq, token, logprob: 0.0 });
            }
        }
        if failure.is_some() {
            output.drawn.clear();
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    const LIMITS: RunnerLimits =
        RunnerLimits { block_tokens: 2, blocks_total: 4, context_tokens_max: 8, vocab_tokens: 10 };

    fn row(seq: u64, start: usize, tokens: &[TokenId], blocks: &[u32]) -> StepPlan {
        let blocks = blocks.iter().copied().map(BlockId).collect();
        let spans = vec![Span { blocks, len: start + tokens.len(), shift: 0 }];
        StepPlan {
            rows: vec![RowPlan { seq: SeqId(seq), tokens: tokens.to_vec(), start, spans, draw: None }],
        }
    }

    /// Runs `plans` one after another; all but the last must pass.
    fn check(plans: &[StepPlan], last_passes: bool) {
        let mut runner = FakeRunner::new(LIMITS, |_| 0);
        let results: Vec<bool> = plans.iter().map(|plan| runner.run(plan).is_ok()).collect();
        let mut want = vec![true; plans.len()];
        want[plans.len() - 1] = last_passes;
        assert_eq!(results, want);
    }

    #[test]
    fn only_what_a_sequence_wrote_itself_may_be_read() {
        let prompt = row(1, 0, &[1, 2, 3], &[0, 1]);
        check(&[prompt.clone(), row(1, 3, &[4], &[0, 1])], true);
        check(&[prompt.clone(), row(1, 3, &[4], &[1, 0])], false); // The table is out of order.
        check(&[prompt.clone(), row(1, 4, &[4], &[0, 1, 2])], false); // Position 3 was left out.
        check(&[prompt.clone(), row(2, 3, &[4], &[0, 1])], false); // The blocks are another's.
        check(&[prompt, row(2, 0, &[7], &[0]), row(1, 3, &[4], &[0, 1])], false); // Overwritten meanwhile.
    }
}
