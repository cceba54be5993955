//! What would a runner be asked to do? One that computes nothing, answers from a script and holds every plan to its
//! contract; for tests of this and other crates.

use crate::ledger::Ledger;
use crate::{Drawn, RowPlan, RunError, Runner, RunnerLimits, StepOutput, StepPlan, TokenId};
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

/// A scripted runner. Its KV is a [`Ledger`], so a mistake in the block tables or the prefix cache shows as
/// [`RunError::InvalidPlan`], not as odd text.
pub struct FakeRunner {
    limits: RunnerLimits,
    script: Script,
    failures: HashMap<usize, FakeFailure>,
    ledger: Ledger,
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

    /// A runner that draws each token from all tokens before it: a sequence that is given the wrong KV, or loses a token
    /// when it is preempted, goes another way from there on.
    pub fn hashing(limits: RunnerLimits) -> Self {
        let vocab = limits.vocab_tokens.max(1) as u64;
        Self::with(limits, Box::new(move |_, tokens| (fold(tokens) % vocab) as TokenId))
    }

    fn with(limits: RunnerLimits, script: Script) -> Self {
        let ledger = Ledger::new(&limits);
        Self { limits, script, failures: HashMap::new(), ledger, log: FakeLog::default() }
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
}

/// What [`FakeRunner::hashing`] draws after `tokens`, up to the size of the vocabulary (FNV-1a over the tokens).
pub fn fold(tokens: &[TokenId]) -> u64 {
    tokens
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, token| (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3))
        >> 16
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
        for (row, tokens) in plan.rows.iter().zip(self.ledger.run(plan)?) {
            if row.draw.is_some() {
                let token = (self.script)(row, &tokens);
                output.drawn.push(Drawn { seq: row.seq, token, logprob: 0.0, top: Vec::new() });
            }
        }
        if failure.is_some() {
            output.drawn.clear();
        }
        Ok(output)
    }
}
