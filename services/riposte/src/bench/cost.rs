//! How well does the engine know how long its steps take? The cost model's error under mixed load.

use super::Found;
use super::drive::{Job, Rig, Words, exactly};
use super::figures::{Figure, Rounds};
use crate::cli::SchedulingArgs;
use crate::config::Config;
use crate::failure::Failure;
use budgets::Limits;
use engine::StepRecord;
use serde_json::json;
use std::time::Duration;

/// The error of one run.
struct Run {
    steps: usize,
    median: f64,
    p95: f64,
    /// The same over the first hundred steps, when the model knows little but its calibration.
    early_median: f64,
    planned_us_p50: f64,
}

impl Run {
    fn of(records: &[StepRecord]) -> Self {
        let error = |record: &StepRecord| {
            let measured = record.measured.as_secs_f64().max(1e-9);
            (record.predicted.as_secs_f64() - measured).abs() / measured
        };
        let errors: Vec<f64> = records.iter().filter(|record| !record.failed).map(error).collect();
        let planned = records.iter().map(|record| record.planned.as_secs_f64() * 1e6).collect();
        Self {
            steps: errors.len(),
            median: at(errors.clone(), 0.5),
            p95: at(errors.clone(), 0.95),
            early_median: at(errors.into_iter().take(100).collect(), 0.5),
            planned_us_p50: at(planned, 0.5),
        }
    }
}

fn at(mut figures: Vec<f64>, share: f64) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let rank = (share * figures.len() as f64).ceil() as usize;
    figures.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// What [`step`] gives of each step, so that other models can be fitted to the same figures.
const COLUMNS: [&str; 8] = [
    "prefill_tokens",
    "prefill_rows",
    "prefill_draws",
    "prefill_context",
    "decode_rows",
    "decode_context",
    "predicted_us",
    "measured_us",
];

fn step(record: &StepRecord) -> [u64; 8] {
    let shape = &record.shape;
    let counts = [
        shape.prefill_tokens,
        shape.prefill_rows,
        shape.prefill_draws,
        shape.prefill_context,
        shape.decode_rows,
        shape.decode_context,
    ];
    let mut row = [0; 8];
    row.iter_mut().zip(counts).for_each(|(place, count)| *place = count as u64);
    [row[6], row[7]] = [record.predicted, record.measured].map(|time| time.as_micros() as u64);
    row
}

/// A mixed load: prompts of 20 to 1,500 tokens that come at uneven times, answers of 8 to 120.
fn jobs(words: &Words, count: usize) -> Vec<Job> {
    let mut at = Duration::ZERO;
    let job = |nth: usize| {
        // Prime strides give every mixture of lengths and gaps, the same in every round.
        let (prompt, output) = (20 + nth * 389 % 1_480, 8 + nth * 53 % 112);
        at += Duration::from_millis((nth * 271 % 900) as u64);
        Job { at, request: exactly(words.cut(nth * 1_409, prompt), output) }
    };
    (0..count).map(job).collect()
}

/// Runs the load `--rounds` times, each with a fresh engine.
///
/// # Errors
/// When the model cannot be loaded or a request fails.
pub async fn run(args: &SchedulingArgs, config: &Config) -> Result<Found, Failure> {
    let limits = Limits { queue_requests_max: args.requests.max(1), ..config.limits.clone() };
    let mut runs = Vec::new();
    let mut steps = Vec::new();
    for _ in 0..args.rounds {
        let rig = Rig::start(config, &limits, &config.engine.policy())?;
        let words = Words::load(&rig.engine)?;
        rig.run(jobs(&words, args.requests)).await?;
        let records = rig.engine.step_records(0);
        runs.push(Run::of(&records));
        steps.push(records.iter().map(step).collect::<Vec<_>>());
        rig.stop().await;
    }
    let figures: [Figure<Run>; 5] = [
        ("steps", |run| run.steps as f64, 0),
        ("median error, %", |run| run.median * 100.0, 1),
        ("p95 error, %", |run| run.p95 * 100.0, 1),
        ("median error of the first 100 steps, %", |run| run.early_median * 100.0, 1),
        ("planning a step, microseconds (median)", |run| run.planned_us_p50, 1),
    ];
    let rounds = |figure: fn(&Run) -> f64| Rounds::of(runs.iter().map(figure));
    let rows = figures.map(|(name, figure, digits)| vec![name.to_string(), rounds(figure).show(digits)]);
    Ok(Found {
        title: format!(
            "Cost model: |predicted - measured| / measured under mixed load, {} requests, median [least to most] of {} rounds",
            args.requests, args.rounds
        ),
        table: std::iter::once(vec![String::new(), "all steps".to_string()]).chain(rows).collect(),
        notes: vec!["each step is predicted before it is learnt from".to_string()],
        json: json!({
            "figures": figures.map(|(name, figure, _)| json!({"figure": name, "value": rounds(figure)})),
            "columns": COLUMNS,
            "steps": steps,
        }),
    })
}
