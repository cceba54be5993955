//! What changed with the step that was computed? Tokens join their sequences; full blocks join the tree.

use crate::scheduler::{Expired, InFlight, Scheduler};
use crate::{SeqId, StepOutput, TokenId};
use budgets::Moment;
use thiserror::Error;

/// A token that became part of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// Whose.
    pub seq: SeqId,
    /// The token.
    pub token: TokenId,
    /// See [`crate::Drawn::logprob`].
    pub logprob: f32,
    /// See [`crate::Drawn::top`].
    pub top: Vec<(TokenId, f32)>,
    /// It is the last that the sequence may have: the sequence is gone from the scheduler.
    pub last: bool,
}

/// What a step changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Committed {
    /// New tokens, in row order.
    pub tokens: Vec<NewToken>,
    /// Sequences whose token came after their deadline; that token is not theirs.
    pub expired: Vec<Expired>,
}

/// A step's output that does not answer its plan: a defect of the runner.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the runner's output does not match the plan: {0}")]
pub struct OutputMismatch(pub String);

impl Scheduler {
    /// Takes in what the planned step produced. A token that comes at or after its sequence's deadline is too late
    /// and expires the sequence.
    ///
    /// # Errors
    /// When `output` does not answer the plan, or names a token outside the vocabulary; then nothing is changed and
    /// [`Scheduler::fail_step`] is due.
    pub fn commit(&mut self, output: StepOutput, now: Moment) -> Result<Committed, OutputMismatch> {
        self.check_output(&output)?;
        let mut committed = Committed::default();
        let mut late = Vec::new();
        let mut drawn = output.drawn.into_iter();
        for row in std::mem::take(&mut self.in_flight) {
            let drawn = if row.draws { drawn.next() } else { None };
            // Ended between schedule and commit: what was computed for it is dropped.
            let Some(at) = self.place(&row) else { continue };
            let sequence = &mut self.running[at];
            sequence.computed += row.tokens;
            if self.policy.prefix_cache {
                sequence.share(&mut self.cache);
            }
            let Some(drawn) = drawn else { continue };
            if sequence.due().expired(now) {
                late.push(row.seq);
                continue;
            }
            sequence.push(drawn.token);
            let last = sequence.full();
            committed.tokens.push(NewToken {
                seq: row.seq,
                token: drawn.token,
                logprob: drawn.logprob,
                top: drawn.top,
                last,
            });
        }
        for token in committed.tokens.iter().filter(|token| token.last) {
            self.end(token.seq);
        }
        for seq in late {
            committed.expired.extend(self.end(seq).map(|phase| Expired { seq, phase }));
        }
        Ok(committed)
    }

    /// Where the row's sequence stands now.
    fn place(&self, row: &InFlight) -> Option<usize> {
        match self.running.get(row.at) {
            Some(sequence) if sequence.id == row.seq => Some(row.at),
            _ => self.running.iter().position(|known| known.id == row.seq),
        }
    }

    fn check_output(&self, output: &StepOutput) -> Result<(), OutputMismatch> {
        let want = self.in_flight.iter().filter(|row| row.draws).map(|row| row.seq);
        let got = output.drawn.iter().map(|drawn| drawn.seq);
        if !want.clone().eq(got.clone()) {
            let (want, got): (Vec<_>, Vec<_>) = (want.collect(), got.collect());
            return Err(OutputMismatch(format!("draws were due for {want:?} and came for {got:?}")));
        }
        match output.drawn.iter().find(|drawn| drawn.token as usize >= self.runner.vocab_tokens) {
            Some(drawn) => Err(OutputMismatch(format!("token {} is not in the vocabulary", drawn.token))),
            None => Ok(()),
        }
    }

    /// Ends `failed`, whose own trouble cost the planned step its output, and lets the others' rows be planned again. The
    /// step's copies are not, so they must have been made. What `failed` computed is not found by others any more, unless
    /// they use it already: it may be what the trouble came from. `false`, and nothing is changed, when the step has no
    /// such row: then nobody's end would help, and [`Scheduler::fail_step`] is due.
    pub fn repeat_step_without(&mut self, failed: SeqId) -> bool {
        let Some(row) = self.in_flight.iter().find(|row| row.seq == failed).copied() else { return false };
        if let Some(at) = self.place(&row) {
            let mut sequence = self.running.remove(at);
            let path = std::mem::take(&mut sequence.path);
            sequence.release(&mut self.cache, false);
            self.cache.unlock(&path);
            self.cache.forget(&path);
        }
        self.in_flight.clear();
        true
    }

    /// Ends every sequence of the planned step, because the step failed: the blocks that it wrote cannot be trusted.
    pub fn fail_step(&mut self) -> Vec<SeqId> {
        let rows = std::mem::take(&mut self.in_flight);
        rows.into_iter().filter_map(|row| self.remove(row.seq, false).map(|_| row.seq)).collect()
    }
}
