//! How many sequences fit into the same memory? Blocks on demand against memory for the longest sequence.

use super::Found;
use super::batching::lengths;
use crate::cli::SchedulingArgs;
use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use budgets::{Limits, Moment};
use sched::{Drawn, Policy, Reservation, RunnerLimits, Scheduler, SeqRequest, StepOutput, StepPlan};
use serde_json::json;

/// What one reservation held.
struct Held {
    /// Sequences running, mean over the steps in which others waited.
    mean: f64,
    most: usize,
    preemptions: u64,
}

/// Plans the trace's lengths, unscaled, on the configured model's KV pool, without computing anything.
///
/// # Errors
/// When the model cannot be loaded or the trace not be read.
pub fn run(args: &SchedulingArgs, config: &Config) -> Result<Found, Failure> {
    let (model, _) = compose::language_model(config)?;
    // The longest sequence that this service takes, not the longest that the model could.
    let longest = config.limits.prompt_tokens_max + config.limits.output_tokens_max;
    let known = model.runner.limits();
    let runner = RunnerLimits { context_tokens_max: longest.min(known.context_tokens_max), ..known };
    let lengths: Vec<_> = lengths(args)?
        .into_iter()
        .filter(|(prompt, output)| prompt + output < runner.context_tokens_max)
        .collect();
    let [contiguous, paged] =
        [Reservation::Contiguous, Reservation::Paged].map(|reservation| fill(&runner, &lengths, reservation));
    let (contiguous, paged) = (contiguous?, paged?);
    let row = |name: &str, held: &Held| {
        vec![
            name.to_string(),
            format!("{:.1}", held.mean),
            held.most.to_string(),
            held.preemptions.to_string(),
        ]
    };
    let header =
        ["reservation", "running, mean", "running, most", "preemptions"].map(str::to_string).to_vec();
    Ok(Found {
        title: format!(
            "Capacity: {} sequences with the trace's lengths in {} blocks of {} tokens",
            lengths.len(),
            runner.blocks_total,
            runner.block_tokens
        ),
        table: vec![
            header,
            row(&format!("contiguous, {} tokens each", runner.context_tokens_max), &contiguous),
            row("paged", &paged),
        ],
        notes: vec![
            format!(
                "paged holds {:.1} times as many; mean over the steps in which others waited",
                paged.mean / contiguous.mean
            ),
            "planned by the scheduler without computing, so it is exact and has no spread".to_string(),
        ],
        json: json!({
            "blocks": runner.blocks_total,
            "contiguous": {"mean": contiguous.mean, "most": contiguous.most},
            "paged": {"mean": paged.mean, "most": paged.most, "preemptions": paged.preemptions},
            "ratio": paged.mean / contiguous.mean,
        }),
    })
}

fn fill(
    runner: &RunnerLimits,
    lengths: &[(usize, usize)],
    reservation: Reservation,
) -> Result<Held, Failure> {
    let limits = Limits {
        queue_requests_max: lengths.len().clamp(1, 1 << 16),
        running_sequences_max: usize::MAX,
        step_prefill_tokens_max: 8_192,
        ..Limits::default()
    };
    let policy = Policy { reservation, prefix_cache: false, ..Policy::default() };
    let mut scheduler = Scheduler::new(*runner, &limits, &policy);
    for (prompt, output) in lengths {
        let request = SeqRequest::new(vec![0; (*prompt).max(1)], (*output).max(1), Moment::default());
        scheduler.submit(request).map_err(Failure::new)?;
    }
    let (mut steps, mut running, mut most) = (0_usize, 0_usize, 0);
    loop {
        let plan = scheduler.schedule(Moment::default());
        if plan.rows.is_empty() {
            break;
        }
        if scheduler.waiting() > 0 {
            steps += 1;
            running += scheduler.running();
            most = most.max(scheduler.running());
        }
        scheduler.commit(zeros(&plan), Moment::default()).map_err(Failure::new)?;
    }
    let mean = running as f64 / steps.max(1) as f64;
    Ok(Held { mean, most, preemptions: scheduler.counts().preemptions })
}

/// A step's output in which every draw is token 0.
fn zeros(plan: &StepPlan) -> StepOutput {
    let draws = plan.rows.iter().filter(|row| row.draw.is_some());
    StepOutput {
        drawn: draws.map(|row| Drawn { seq: row.seq, token: 0, logprob: 0.0, top: Vec::new() }).collect(),
    }
}
