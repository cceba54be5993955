//! How long would a step take, and what would it draw? A runner that moves a virtual clock and computes nothing.

use super::Random;
use crate::fake::fold;
use crate::ledger::Ledger;
use crate::{Drawn, RunError, Runner, RunnerLimits, SeqId, StepOutput, StepPlan, TokenId};
use budgets::{CostModel, ManualClock};
use std::sync::Arc;
use std::time::Duration;

/// No step takes less, so that time goes on even where a model predicts nothing.
const STEP_MIN: Duration = Duration::from_micros(1);

/// Where drawn tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    /// From all tokens before, read through the block tables of a ledger that refuses wrong KV; as
    /// [`crate::FakeRunner::hashing`]. Costs time in proportion to the context.
    Folded,
    /// From the sequence's name and the draw's index; nothing is checked and long traces run fast.
    Cheap,
}

/// What goes wrong, at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Standard deviation of a step's time, as a share of it.
    pub noise: f64,
    /// Share of steps that are slow.
    pub slow_share: f64,
    /// How many times as long a slow step takes.
    pub slow_factor: f64,
    /// Share of steps that fail after they have written.
    pub fail_share: f64,
    /// Share of steps with draws in which one of them has no finite logits.
    pub draw_fail_share: f64,
}

/// The simulated runner.
#[derive(Debug)]
pub struct SimRunner {
    limits: RunnerLimits,
    cost: CostModel,
    clock: Arc<ManualClock>,
    ledger: Option<Ledger>,
    faults: Faults,
    random: Random,
}

impl SimRunner {
    /// A runner whose steps take what `cost` predicts on `clock`, without faults.
    pub fn new(limits: RunnerLimits, cost: CostModel, clock: Arc<ManualClock>, draws: Draws) -> Self {
        let ledger = (draws == Draws::Folded).then(|| Ledger::new(&limits));
        Self { limits, cost, clock, ledger, faults: Faults::default(), random: Random::new(0) }
    }

    /// Lets things go wrong, in the same way for the same seed.
    #[must_use]
    pub fn with_faults(self, faults: Faults, seed: u64) -> Self {
        Self { faults, random: Random::new(seed), ..self }
    }

    /// The clock that its steps move.
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// What its steps take without faults.
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }

    fn pass_time(&mut self, plan: &StepPlan) {
        let mut took = self.cost.predict(&plan.shape());
        if self.faults.noise > 0.0 {
            took = took.mul_f64((1.0 + self.faults.noise * self.random.normal()).max(0.1));
        }
        if self.random.chance(self.faults.slow_share) {
            took = took.mul_f64(self.faults.slow_factor.max(1.0));
        }
        self.clock.advance(took.max(STEP_MIN));
    }
}

/// A token that depends on nothing but the sequence and the index.
fn cheap(seq: SeqId, index: u64, vocab_tokens: u64) -> TokenId {
    (Random::new(seq.0.rotate_left(32) ^ index).bits() % vocab_tokens) as TokenId
}

impl Runner for SimRunner {
    fn limits(&self) -> RunnerLimits {
        self.limits
    }

    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError> {
        plan.check(&self.limits)?;
        self.pass_time(plan);
        let fails = self.random.chance(self.faults.fail_share);
        let vocab = self.limits.vocab_tokens.max(1) as u64;
        let mut read = match &mut self.ledger {
            Some(ledger) => ledger.run(plan)?.into_iter(),
            None => Vec::new().into_iter(),
        };
        let mut output = StepOutput::default();
        for row in &plan.rows {
            let tokens = read.next();
            let Some(draw) = &row.draw else { continue };
            let token = match tokens {
                Some(tokens) => (fold(&tokens) % vocab) as TokenId,
                None => cheap(row.seq, draw.index, vocab),
            };
            output.drawn.push(Drawn { seq: row.seq, token, logprob: 0.0, top: Vec::new() });
        }
        if fails {
            if let Some(ledger) = &mut self.ledger {
                ledger.spoil(plan);
            }
            return Err(RunError::Device("a scripted fault".to_string()));
        }
        if !output.drawn.is_empty() && self.random.chance(self.faults.draw_fail_share) {
            return Err(RunError::NotFinite(self.random.pick(&output.drawn).seq));
        }
        Ok(output)
    }
}
