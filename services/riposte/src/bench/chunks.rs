//! Does a long prompt stall the streams that run? The gaps of six streams, with chunked prefill and without.

use super::Found;
use super::drive::{Job, Outcome, Rig, Words, exactly};
use super::figures::{Figure, Rounds, percentile};
use crate::cli::SchedulingArgs;
use crate::config::Config;
use crate::failure::Failure;
use budgets::Limits;
use engine::Policy;
use serde_json::json;
use std::time::Duration;

const STREAMS: usize = 6;
const LONG_PROMPT_TOKENS: usize = 4_000;

struct Run {
    /// Between the pieces of the streams before the long prompt came.
    quiet_gap_ms: f64,
    /// Over all gaps of the streams until the long prompt's first token.
    median_gap_ms: f64,
    longest_gap_ms: f64,
    long_ttft_s: f64,
}

impl Run {
    fn of(streams: &[Outcome], long: &Outcome) -> Self {
        let (mut quiet, mut all) = (Vec::new(), Vec::new());
        let first = long.came + long.ttft();
        for stream in streams {
            for pair in stream.deltas.windows(2).filter(|pair| pair[0] <= first) {
                let gap = pair[1] - pair[0];
                all.push(gap);
                if pair[1] <= long.came {
                    quiet.push(gap);
                }
            }
        }
        let ms = |gap: Duration| gap.as_secs_f64() * 1e3;
        Self {
            quiet_gap_ms: ms(percentile(&quiet, 0.5)),
            median_gap_ms: ms(percentile(&all, 0.5)),
            longest_gap_ms: ms(percentile(&all, 1.0)),
            long_ttft_s: long.ttft().as_secs_f64(),
        }
    }
}

/// Runs both in turn, `--rounds` times.
///
/// # Errors
/// When the model cannot be loaded or a request fails.
pub async fn run(args: &SchedulingArgs, config: &Config) -> Result<Found, Failure> {
    let limits = Limits { prompt_tokens_max: LONG_PROMPT_TOKENS.max(512), ..config.limits.clone() };
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        for (chunked, runs) in [false, true].into_iter().zip(&mut runs) {
            let policy = Policy { chunked_prefill: chunked, ..config.engine.policy() };
            let rig = Rig::start(config, &limits, &policy)?;
            let words = Words::load(&rig.engine)?;
            let mut jobs: Vec<Job> = (0..STREAMS)
                .map(|nth| Job {
                    at: Duration::ZERO,
                    // Long enough to be running until the long prompt is through.
                    request: exactly(words.cut(nth * 5_003, 64), limits.output_tokens_max.min(500)),
                })
                .collect();
            jobs.push(Job {
                at: Duration::from_secs(4),
                request: exactly(words.cut(777, LONG_PROMPT_TOKENS), 8),
            });
            let mut outcomes = rig.run(jobs).await?;
            if let Some(long) = outcomes.pop() {
                runs.push(Run::of(&outcomes, &long));
            }
            rig.stop().await;
        }
    }
    Ok(found(args, &runs))
}

fn found(args: &SchedulingArgs, runs: &[Vec<Run>; 2]) -> Found {
    let figures: [Figure<Run>; 6] = [
        ("median gap before the long prompt, ms", |run| run.quiet_gap_ms, 1),
        ("median gap until its first token, ms", |run| run.median_gap_ms, 1),
        ("longest gap, ms", |run| run.longest_gap_ms, 1),
        ("longest / median", |run| run.longest_gap_ms / run.median_gap_ms, 2),
        ("longest / median before", |run| run.longest_gap_ms / run.quiet_gap_ms, 2),
        ("TTFT of the long prompt, s", |run| run.long_ttft_s, 2),
    ];
    let rounds = |runs: &[Run], figure: fn(&Run) -> f64| Rounds::of(runs.iter().map(figure));
    let header = ["", "whole prompts", "chunks"].map(str::to_string).to_vec();
    let rows = figures.map(|(name, figure, digits)| {
        let [whole, cut] = runs.each_ref().map(|runs| rounds(runs, figure).show(digits));
        vec![name.to_string(), whole, cut]
    });
    let json = figures.map(|(name, figure, _)| {
        let [whole, cut] = runs.each_ref().map(|runs| rounds(runs, figure));
        json!({"figure": name, "whole": whole, "chunks": cut})
    });
    Found {
        title: format!(
            "Chunked prefill: a prompt of {LONG_PROMPT_TOKENS} tokens among {STREAMS} streams, median [least to most] of {} rounds in turn",
            args.rounds
        ),
        table: std::iter::once(header).chain(rows).collect(),
        notes: vec!["a gap is the time between two pieces of a stream's text".to_string()],
        json: json.to_vec().into(),
    }
}
