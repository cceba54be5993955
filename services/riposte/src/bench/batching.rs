//! What does it cost to let a whole batch wait for its longest? Static against continuous batching.

use super::Found;
use super::drive::{Job, Outcome, Rig, Words, exactly};
use super::figures::{Figure, Rounds, percentile};
use crate::cli::SchedulingArgs;
use crate::config::Config;
use crate::failure::Failure;
use budgets::Limits;
use engine::{Batching, Policy};
use serde_json::json;
use std::time::Duration;

/// Rows of a real trace: prompt and output tokens. The whole file can be given with `--trace`.
const EXCERPT: &str = include_str!("../../../../engine/sched/tests/data/azure_conv.csv");

/// The lengths of the trace, in order.
///
/// # Errors
/// When the file cannot be read or is no such trace.
pub fn lengths(args: &SchedulingArgs) -> Result<Vec<(usize, usize)>, Failure> {
    let text = match &args.trace {
        None => EXCERPT.to_string(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?,
    };
    let rows = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    let row = |line: &str| {
        let mut fields = line.split(',').skip(1).map(|field| field.trim().parse::<usize>().ok());
        fields.next().flatten().zip(fields.next().flatten())
    };
    let rows: Vec<_> = rows.map_while(row).collect();
    if rows.is_empty() {
        return Err(Failure::new("the trace has no rows of time, prompt tokens and output tokens"));
    }
    Ok(rows)
}

/// The figures of one run.
struct Run {
    seconds: f64,
    tokens_per_s: f64,
    ttft_p50: Duration,
    total_p50: Duration,
}

impl Run {
    fn of(outcomes: &[Outcome]) -> Self {
        let seconds = outcomes.iter().map(|outcome| outcome.ended).max().unwrap_or_default().as_secs_f64();
        let tokens: usize = outcomes.iter().map(|outcome| outcome.finished.usage.completion_tokens).sum();
        let p50 =
            |time: fn(&Outcome) -> Duration| percentile(&outcomes.iter().map(time).collect::<Vec<_>>(), 0.5);
        Self {
            seconds,
            tokens_per_s: tokens as f64 / seconds,
            ttft_p50: p50(Outcome::ttft),
            total_p50: p50(Outcome::total),
        }
    }
}

/// Runs both in turn, `--rounds` times.
///
/// # Errors
/// When the model cannot be loaded or a request fails.
pub async fn run(args: &SchedulingArgs, config: &Config) -> Result<Found, Failure> {
    let lengths: Vec<_> = lengths(args)?.into_iter().take(args.requests).collect();
    let scaled = |tokens: usize, max: usize| (tokens / args.scale).clamp(4, max);
    let limits = Limits { queue_requests_max: args.requests.max(1), ..config.limits.clone() };
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        for (batching, runs) in [Batching::Static, Batching::Continuous].into_iter().zip(&mut runs) {
            // Without the prefix cache, so that the rounds are alike and batching alone differs.
            let policy = Policy { batching, prefix_cache: false, ..config.engine.policy() };
            let rig = Rig::start(config, &limits, &policy)?;
            let words = Words::load(&rig.engine)?;
            let job = |(nth, (prompt, output)): (usize, &(usize, usize))| Job {
                at: Duration::ZERO,
                request: exactly(
                    words.cut(nth * 997, scaled(*prompt, limits.prompt_tokens_max)),
                    scaled(*output, limits.output_tokens_max),
                ),
            };
            let jobs = lengths.iter().enumerate().map(job).collect();
            runs.push(Run::of(&rig.run(jobs).await?));
            rig.stop().await;
        }
    }
    Ok(found(args, lengths.len(), &runs))
}

fn found(args: &SchedulingArgs, requests: usize, runs: &[Vec<Run>; 2]) -> Found {
    let rounds = |runs: &[Run], figure: fn(&Run) -> f64| Rounds::of(runs.iter().map(figure));
    let ratio = |figure: fn(&Run) -> f64| {
        Rounds::of(runs[0].iter().zip(&runs[1]).map(|(fixed, open)| figure(fixed) / figure(open)))
    };
    let figures: [Figure<Run>; 4] = [
        ("seconds in all", |run| run.seconds, 1),
        ("output tokens/s", |run| run.tokens_per_s, 1),
        ("TTFT p50, s", |run| run.ttft_p50.as_secs_f64(), 2),
        ("total p50, s", |run| run.total_p50.as_secs_f64(), 2),
    ];
    let header = ["", "static", "continuous", "static / continuous"].map(str::to_string).to_vec();
    let rows = figures.map(|(name, figure, digits)| {
        let both = runs.each_ref().map(|runs| rounds(runs, figure).show(digits));
        let [fixed, open] = both;
        vec![name.to_string(), fixed, open, ratio(figure).show(2)]
    });
    let json = figures.map(|(name, figure, _)| {
        let [fixed, open] = runs.each_ref().map(|runs| rounds(runs, figure));
        json!({"figure": name, "static": fixed, "continuous": open, "ratio": ratio(figure)})
    });
    Found {
        title: format!(
            "Batching: {requests} requests at once, lengths of the trace divided by {}, median [least to most] of {} rounds in turn",
            args.scale, args.rounds
        ),
        table: std::iter::once(header).chain(rows).collect(),
        notes: vec!["static: nobody joins a batch before its last sequence has ended".to_string()],
        json: json.to_vec().into(),
    }
}
