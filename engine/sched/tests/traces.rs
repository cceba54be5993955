//! What does real traffic do to the scheduler? Excerpts of two public traces, replayed on a virtual clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use budgets::{Coefficients, CostModel, Limits, ManualClock};
use sched::sim::{
    Arrivals, Draws, Faults, Listed, Replay, SimOptions, SimReport, SimRunner, Simulation, TraceFormat,
    TraceRow, read_trace,
};
use sched::{Batching, Policy, RunnerLimits};
use std::sync::Arc;
use std::time::Duration;

const AZURE: &str = include_str!("data/azure_conv.csv");
const MOONCAKE: &str = include_str!("data/mooncake_conversation.jsonl");

const RUNNER: RunnerLimits =
    RunnerLimits { block_tokens: 16, blocks_total: 20_000, context_tokens_max: 8_192, vocab_tokens: 50_000 };

fn replay(rows: &[TraceRow], arrivals: Arrivals, policy: &Policy, draws: Draws) -> SimReport {
    let cost = CostModel::from_coefficients(Coefficients {
        step: 0.010,
        prefill_token: 0.000_5,
        decode_row: 0.001,
        decode_context: 0.000_000_5,
        ..Coefficients::default()
    });
    let faults = Faults { noise: 0.1, slow_share: 0.001, slow_factor: 10.0, ..Faults::default() };
    let runner = SimRunner::new(RUNNER, cost, Arc::new(ManualClock::default()), draws).with_faults(faults, 5);
    let limits = Limits { running_sequences_max: 32, queue_requests_max: 1_000, ..Limits::default() };
    let options = SimOptions { check_every: 20, calibrated: false, ..SimOptions::default() };
    let replay = Replay { scale: 16, arrivals, seed: 7 };
    let mut simulation = Simulation::new(runner, &limits, policy, options);
    let report = simulation.run(&mut Listed(replay.requests(rows, &RUNNER))).unwrap();
    assert_eq!((report.ends.completed, report.ends.total()), (rows.len() as u64, rows.len() as u64));
    report
}

fn output_tokens(rows: &[TraceRow]) -> u64 {
    rows.iter().map(|row| row.output_tokens.div_ceil(16).max(1) as u64).sum()
}

#[test]
fn azure_conversations_all_finish_and_continuous_batching_beats_static() {
    let rows = read_trace(AZURE, TraceFormat::Azure).unwrap();
    assert_eq!(rows.len(), 300);
    for arrivals in [Arrivals::Recorded(None), Arrivals::Poisson(5.0)] {
        let run =
            |batching| replay(&rows, arrivals, &Policy { batching, ..Policy::default() }, Draws::Folded);
        let [whole, continuous] = [Batching::Static, Batching::Continuous].map(run);
        assert_eq!(continuous.output_tokens, output_tokens(&rows));
        // No two prompts are alike in more than a token or two.
        assert!(continuous.hit_rate() < 0.001, "{continuous:?}");
        let (late, soon) = (whole.ttft.quantile(0.9), continuous.ttft.quantile(0.9));
        assert!(soon * 2 < late, "p90 of TTFT: static {late:?}, continuous {soon:?}");
    }
}

#[test]
fn mooncake_conversations_find_the_prefixes_that_the_trace_names() {
    let rows = read_trace(MOONCAKE, TraceFormat::Mooncake).unwrap();
    assert_eq!(rows.len(), 300);
    // The hit rate with endless memory: ids seen before, from the start of each prompt on.
    let mut seen = std::collections::HashSet::new();
    let (mut hits, mut all) = (0, 0);
    for row in &rows {
        let known = row.hash_ids.iter().take_while(|id| seen.contains(*id)).count();
        hits += (known * 32).min(row.prompt_tokens.div_ceil(16) - 1);
        all += row.prompt_tokens.div_ceil(16);
        seen.extend(row.hash_ids.iter().copied());
    }
    let possible = hits as f64 / all as f64;
    let run = |prefix_cache| {
        replay(
            &rows,
            Arrivals::Recorded(Some(2.0)),
            &Policy { prefix_cache, ..Policy::default() },
            Draws::Cheap,
        )
    };
    let (with, without) = (run(true), run(false));
    assert!(possible > 0.05);
    assert_eq!((with.output_tokens, without.counts.prefix_hit_tokens), (output_tokens(&rows), 0));
    let found = with.hit_rate();
    assert!(found > 0.95 * possible && found < possible + 0.02, "{found} of {possible}");
    assert!(with.prefill_tokens < without.prefill_tokens);
    assert!(with.ttft.mean() < without.ttft.mean());
}

#[test]
fn an_hour_of_traffic_runs_in_a_moment_and_the_same_seed_is_the_same_run() {
    let rows = read_trace(AZURE, TraceFormat::Azure).unwrap();
    let run = || replay(&rows, Arrivals::Recorded(Some(300.0 / 3_600.0)), &Policy::default(), Draws::Cheap);
    let (one, other) = (run(), run());
    assert!(one.elapsed > Duration::from_secs(3_500), "{:?}", one.elapsed);
    assert_eq!((one.steps, one.elapsed, one.ttft.mean()), (other.steps, other.elapsed, other.ttft.mean()));
}
