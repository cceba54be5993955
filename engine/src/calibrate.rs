//! How long do this runner's steps take? Made-up steps before the first request, so that it is planned with knowledge.

use budgets::{Clock, CostModel};
use sched::{BlockId, Draw, RowPlan, Runner, RunnerLimits, Sampling, SeqId, Span, StepPlan};
use std::sync::Arc;
use std::time::Duration;

/// A row of a made-up step: its position and its tokens; one token draws, as a decode does.
type Row = (usize, usize);

/// Steps that tell the cost model's terms apart, those that tell most first: few and many rows, short and long chunks,
/// early and late positions, and mixtures of them.
const STEPS: [&[Row]; 10] = [
    &[(20, 1)],
    &[(0, 64)],
    &[(200, 1), (210, 1), (220, 1), (230, 1)],
    &[(512, 32)],
    &[(300, 1), (600, 1), (40, 20)],
    &[(0, 16)],
    &[(900, 1)],
    &[(0, 128)],
    &[(100, 1), (200, 1), (300, 1), (400, 1), (500, 1), (600, 1), (700, 1), (800, 1)],
    &[(128, 48), (0, 24)],
];

/// Steps that are run first and not learnt from: they touch memory for the first time.
const WARM_UP: usize = 2;

/// Runs made-up steps until `budget` is spent and teaches them to `model`. A runner that refuses one ends it: what
/// cannot be measured now is learnt from the first requests. The blocks that the steps write are as free as before.
pub(crate) fn calibrate(runner: &mut dyn Runner, clock: &dyn Clock, model: &mut CostModel, budget: Duration) {
    let began = clock.now();
    let limits = runner.limits();
    let rounds = STEPS.iter().take(WARM_UP).chain(STEPS.iter().cycle().take(STEPS.len() * 4));
    for (nth, rows) in rounds.enumerate() {
        let before = clock.now();
        if before.since(began) >= budget {
            break;
        }
        let Some(plan) = plan(rows, &limits) else { continue };
        if let Err(error) = runner.run(&plan) {
            tracing::debug!(%error, "the runner refuses made-up steps");
            break;
        }
        if nth >= WARM_UP {
            model.observe(&plan.shape(), clock.now().since(before));
        }
    }
    tracing::info!(took = ?clock.now().since(began), coefficients = ?model.coefficients(), "calibrated");
}

/// The step, if the runner has room for it.
fn plan(rows: &[Row], limits: &RunnerLimits) -> Option<StepPlan> {
    let mut plan = StepPlan::default();
    let mut next_block = 0;
    for (start, tokens) in rows {
        let len = start + tokens;
        let blocks = len.div_ceil(limits.block_tokens);
        if len > limits.context_tokens_max || next_block + blocks > limits.blocks_total {
            return None;
        }
        // The last position of a chunk is left out of its prompt, so that only rows of one token draw.
        let draw = (*tokens == 1).then(|| Draw {
            sampling: Arc::new(Sampling::default()),
            index: 1,
            seen: Vec::new(),
            banned: Arc::new([]),
            allowed: None,
        });
        plan.rows.push(RowPlan {
            seq: SeqId(plan.rows.len() as u64),
            tokens: (0..*tokens)
                .map(|at| ((start + at) * 7_919 % limits.vocab_tokens.max(1)) as u32)
                .collect(),
            start: *start,
            spans: vec![Span {
                blocks: (next_block..next_block + blocks).map(|block| BlockId(block as u32)).collect(),
                len,
                shift: 0,
            }],
            draw,
        });
        next_block += blocks;
    }
    Some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use budgets::{Coefficients, ManualClock};
    use sched::{RunError, StepOutput};

    /// Takes a known time for each step.
    struct Machine {
        limits: RunnerLimits,
        clock: Arc<ManualClock>,
        truth: CostModel,
        steps: usize,
    }

    impl Runner for Machine {
        fn limits(&self) -> RunnerLimits {
            self.limits
        }

        fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError> {
            plan.check(&self.limits)?;
            self.steps += 1;
            self.clock.advance(self.truth.predict(&plan.shape()));
            Ok(StepOutput::default())
        }
    }

    /// Calibrates on a machine of that size and speed: steps run, time taken, the model.
    fn check(blocks_total: usize, context_tokens_max: usize, scale: f64) -> (usize, Duration, CostModel) {
        let clock = Arc::new(ManualClock::default());
        let truth = CostModel::from_coefficients(Coefficients {
            step: 12e-3 * scale,
            prefill_token: 0.8e-3 * scale,
            prefill_row: 0.5e-3 * scale,
            prefill_draw: 0.0,
            prefill_context: 1.1e-6 * scale,
            decode_row: 1.6e-3 * scale,
            decode_context: 2.5e-6 * scale,
        });
        let limits = RunnerLimits { block_tokens: 16, blocks_total, context_tokens_max, vocab_tokens: 100 };
        let mut runner = Machine { limits, clock: Arc::clone(&clock), truth, steps: 0 };
        let mut model = CostModel::default();
        calibrate(&mut runner, &*clock, &mut model, Duration::from_millis(800));
        (runner.steps, clock.now().since(budgets::Moment::default()), model)
    }

    #[test]
    fn a_machine_is_known_within_the_budget() {
        let (steps, took, model) = check(1_000, 4_096, 1.0);
        assert!(steps > STEPS.len() && took < Duration::from_millis(1_000), "{steps} steps in {took:?}");
        for (start, tokens, decodes) in [(0, 256, 0), (1_000, 40, 6), (0, 0, 16), (600, 100, 1)] {
            let mut shape = budgets::StepShape::default();
            (0..decodes).for_each(|row| shape.add_decode(row * 90));
            if tokens > 0 {
                shape.add_prefill(start, tokens, false);
            }
            let truth = 12e-3
                + 0.8e-3 * shape.prefill_tokens as f64
                + 0.5e-3 * shape.prefill_rows as f64
                + 1.1e-6 * shape.prefill_context as f64
                + 1.6e-3 * shape.decode_rows as f64
                + 2.5e-6 * shape.decode_context as f64;
            let predicted = model.predict(&shape).as_secs_f64();
            assert!((predicted - truth).abs() / truth < 0.1, "{shape:?}: {predicted} for {truth}");
        }
    }

    #[test]
    fn small_and_slow_and_timeless_machines_are_no_trouble() {
        let (steps, _, model) = check(1, 32, 1.0);
        assert!(steps >= 1 && model.is_calibrated());
        assert_eq!(check(1, 8, 1.0).0, 0);
        let (steps, took, _) = check(1_000, 4_096, 100.0);
        assert!(steps == 1 && took < Duration::from_secs(3), "{steps} steps in {took:?}");
        let (steps, took, model) = check(1_000, 4_096, 0.0);
        assert!(steps > 0 && took.is_zero() && !model.is_calibrated());
    }
}
