//! How would the scheduler bear this traffic? `riposte simulate`: a trace on a virtual clock, a table of what came of it.

use crate::cli::{SimulateArgs, SimulateArrivals, SimulateFormat};
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::took;
use budgets::{Coefficients, CostModel, Deadline, Limits, ManualClock};
use comfy_table::{Table, presets};
use sched::sim::{
    Arrivals, Draws, Faults, Listed, Replay, SimOptions, SimReport, SimRunner, SimSlo, Simulation, Spread,
    TraceFormat, TraceRow, read_trace,
};
use sched::{Batching, Policy, RunnerLimits};
use serde_json::{Value, json};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What no run is without: the invariants, now and then.
const CHECK_EVERY_STEPS: u64 = 4_096;

/// Replays the trace and prints what came of it.
///
/// # Errors
/// When the trace cannot be read, a figure makes no sense, or something does not hold that always must.
pub fn run(args: &SimulateArgs, config: &Config) -> Result<(), Failure> {
    let rows = rows(args)?;
    let began = Instant::now();
    let report = replay(args, &rows, &config.limits, &policy(args, config))?;
    let wall = began.elapsed();
    let text = match args.json {
        true => serde_json::to_string_pretty(&figures(&report, wall)).map_err(Failure::new)? + "\n",
        false => table(&report, wall),
    };
    Ok(anstream::stdout().write_all(text.as_bytes())?)
}

fn rows(args: &SimulateArgs) -> Result<Vec<TraceRow>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", args.trace.display()));
    let text = std::fs::read_to_string(&args.trace).map_err(|error| failed(&error))?;
    let jsonl = args.trace.extension().is_some_and(|extension| extension == "jsonl");
    let format = match args.format {
        Some(SimulateFormat::Azure) => TraceFormat::Azure,
        Some(SimulateFormat::Mooncake) => TraceFormat::Mooncake,
        None if jsonl => TraceFormat::Mooncake,
        None => TraceFormat::Azure,
    };
    let mut rows = read_trace(&text, format)
        .map_err(|error| failed(&error).hint("--format azure or --format mooncake"))?;
    rows.truncate(args.requests.unwrap_or(usize::MAX));
    match rows.is_empty() {
        true => Err(failed(&"no requests")),
        false => Ok(rows),
    }
}

fn policy(args: &SimulateArgs, config: &Config) -> Policy {
    Policy {
        prefix_cache: !args.no_prefix_cache,
        chunked_prefill: !args.no_chunks,
        batching: if args.static_batches { Batching::Static } else { Batching::Continuous },
        ..config.engine.policy()
    }
}

fn replay(
    args: &SimulateArgs,
    rows: &[TraceRow],
    limits: &Limits,
    policy: &Policy,
) -> Result<SimReport, Failure> {
    let runner_limits = RunnerLimits {
        block_tokens: 16,
        blocks_total: args.blocks,
        context_tokens_max: args.context_tokens,
        vocab_tokens: 151_936,
    };
    let clock = Arc::new(ManualClock::default());
    let runner = SimRunner::new(runner_limits, cost(&args.cost_us)?, clock, Draws::Cheap)
        .with_faults(Faults { noise: args.noise.clamp(0.0, 1.0), ..Faults::default() }, args.seed);
    let slo = SimSlo { ttft: Duration::from_millis(args.ttft_ms), tpot: Duration::from_millis(args.tpot_ms) };
    let options = SimOptions { check_every: CHECK_EVERY_STEPS, slo, ..SimOptions::default() };
    let replay = Replay { scale: args.scale, arrivals: arrivals(args, rows)?, seed: args.seed };
    let mut traffic = Listed(replay.requests(rows, &runner_limits).map(|mut asked| {
        if args.slo {
            asked.request.first_token_deadline = Deadline::after(asked.request.arrived, slo.ttft);
            asked.request.tpot = Some(slo.tpot);
        }
        asked
    }));
    let mut simulation = Simulation::new(runner, limits, policy, options);
    simulation.run(&mut traffic).map_err(|error| Failure::new(format!("a defect of the scheduler: {error}")))
}

fn arrivals(args: &SimulateArgs, rows: &[TraceRow]) -> Result<Arrivals, Failure> {
    let span = rows.last().map_or(Duration::ZERO, |row| row.at).as_secs_f64();
    match (args.arrivals, args.rate) {
        (_, Some(rate)) if !(rate.is_finite() && rate > 0.0) => Err(Failure::usage("--rate must be above 0")),
        (SimulateArrivals::Recorded, rate) => Ok(Arrivals::Recorded(rate)),
        (SimulateArrivals::Poisson, Some(rate)) => Ok(Arrivals::Poisson(rate)),
        (SimulateArrivals::Poisson, None) if span > 0.0 => Ok(Arrivals::Poisson(rows.len() as f64 / span)),
        (SimulateArrivals::Poisson, None) => {
            Err(Failure::usage("the trace takes no time, so it has no rate").hint("--rate"))
        }
    }
}

fn cost(micros: &[f64]) -> Result<CostModel, Failure> {
    let wrong = || Failure::usage("--cost-us takes seven times of at least 0, the first above 0");
    let seconds: [f64; 7] = micros.try_into().map_err(|_| wrong())?;
    if seconds[0] <= 0.0 || seconds.iter().any(|micros| !micros.is_finite() || *micros < 0.0) {
        return Err(wrong());
    }
    Ok(CostModel::from_coefficients(Coefficients::from_array(seconds.map(|micros| micros * 1e-6))))
}

fn percentiles(spread: &Spread) -> [Duration; 5] {
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| spread.quantile(share));
    [spread.mean(), p50, p90, p99, spread.max()]
}

fn table(report: &SimReport, wall: Duration) -> String {
    let mut times = Table::new();
    times.load_style(presets::NOTHING);
    times.set_header(["", "mean", "p50", "p90", "p99", "longest"]);
    for (label, spread) in
        [("first token", &report.ttft), ("between tokens", &report.itl), ("end", &report.e2e)]
    {
        let row = percentiles(spread).map(took);
        times.add_row(std::iter::once(label.to_string()).chain(row));
    }
    let SimReport { ends, counts, .. } = report;
    let [queue, prefill, decode] = ends.expired;
    let share = |part: f64| format!("{:.1} %", part * 100.0);
    let per_second = |count: u64| format!("{:.2}", count as f64 / report.elapsed.as_secs_f64());
    let rows = [
        ("virtual time", format!("{:.2} hours in {}", report.elapsed.as_secs_f64() / 3_600.0, took(wall))),
        (
            "completed",
            format!("{} of {}, {} a second", ends.completed, ends.total(), per_second(ends.completed)),
        ),
        ("within their SLOs", format!("{}, {:.2} a second", report.good, report.goodput())),
        ("too late", format!("{queue} in the queue, {prefill} in prefill, {decode} in decode")),
        ("refused", format!("{} too long, {} with a full queue", ends.never_fits, ends.queue_full)),
        ("tokens drawn", format!("{}, {} a second", report.output_tokens, per_second(report.output_tokens))),
        ("tokens prefilled", report.prefill_tokens.to_string()),
        ("found in the cache", format!("{} ({})", counts.prefix_hit_tokens, share(report.hit_rate()))),
        (
            "steps",
            format!(
                "{}, busy {}",
                report.steps,
                share(report.busy.as_secs_f64() / report.elapsed.as_secs_f64())
            ),
        ),
        (
            "rows a step",
            format!("{:.1}, at most {}", report.rows as f64 / report.steps.max(1) as f64, report.rows_max),
        ),
        (
            "pool in use",
            format!(
                "{}, at most {} of {} blocks",
                share(report.pool_use()),
                report.held_max,
                report.blocks_total
            ),
        ),
        (
            "gave way / evicted",
            format!("{} sequences / {} blocks", counts.preemptions, counts.evicted_blocks),
        ),
    ];
    let mut facts = Table::new();
    facts.load_style(presets::NOTHING);
    facts.add_rows(rows.map(|(label, value)| [label.to_string(), value]));
    format!("{times}\n\n{facts}\n")
}

fn figures(report: &SimReport, wall: Duration) -> Value {
    let seconds = |spread: &Spread| {
        let [mean, p50, p90, p99, max] = percentiles(spread).map(|time| time.as_secs_f64());
        json!({"count": spread.len(), "mean": mean, "p50": p50, "p90": p90, "p99": p99, "max": max})
    };
    let SimReport { ends, counts, .. } = report;
    let [queue, prefill, decode] = ends.expired;
    json!({
        "wall_s": wall.as_secs_f64(),
        "virtual_s": report.elapsed.as_secs_f64(),
        "busy_s": report.busy.as_secs_f64(),
        "completed": ends.completed,
        "never_fits": ends.never_fits,
        "queue_full": ends.queue_full,
        "expired_in_queue": queue,
        "expired_in_prefill": prefill,
        "expired_in_decode": decode,
        "good": report.good,
        "goodput_per_s": report.goodput(),
        "ttft_s": seconds(&report.ttft),
        "itl_s": seconds(&report.itl),
        "e2e_s": seconds(&report.e2e),
        "steps": report.steps,
        "rows": report.rows,
        "rows_max": report.rows_max,
        "output_tokens": report.output_tokens,
        "prefill_tokens": report.prefill_tokens,
        "prefix_query_tokens": counts.prefix_query_tokens,
        "prefix_hit_tokens": counts.prefix_hit_tokens,
        "preemptions": counts.preemptions,
        "evicted_blocks": counts.evicted_blocks,
        "pool_use": report.pool_use(),
        "held_blocks_max": report.held_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn args(flags: &[&str]) -> SimulateArgs {
        let excerpt = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/sched/tests/data/");
        let trace = format!("{excerpt}{}", flags[0]);
        let words = ["riposte", "simulate", "--trace", &trace].into_iter().chain(flags[1..].iter().copied());
        match Cli::parse_from(words).command {
            Command::Simulate(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn simulate(flags: &[&str]) -> Result<Value, Failure> {
        let args = args(flags);
        let rows = rows(&args)?;
        let report = replay(&args, &rows, &Limits::default(), &policy(&args, &Config::default()))?;
        assert!(table(&report, Duration::from_secs(1)).contains("virtual time"));
        Ok(figures(&report, Duration::ZERO))
    }

    #[test]
    fn an_excerpt_of_each_trace_is_replayed() {
        let azure = simulate(&["azure_conv.csv", "--scale", "16", "--requests", "100"]).unwrap();
        assert_eq!((&azure["completed"], &azure["never_fits"]), (&json!(100), &json!(0)));
        let mooncake =
            ["mooncake_conversation.jsonl", "--scale", "32", "--arrivals", "poisson", "--rate", "0.5"];
        let with = simulate(&mooncake).unwrap();
        let without = simulate(&[&mooncake[..], &["--no-prefix-cache"]].concat()).unwrap();
        assert!(with["prefix_hit_tokens"].as_u64() > Some(0) && without["prefix_hit_tokens"] == json!(0));
        assert_eq!(with["output_tokens"], without["output_tokens"]);
    }

    #[test]
    fn requests_that_ask_for_the_slo_end_when_it_cannot_be_kept() {
        let crowd = ["azure_conv.csv", "--scale", "4", "--rate", "4"];
        let (patient, asking) =
            (simulate(&crowd).unwrap(), simulate(&[&crowd[..], &["--slo"]].concat()).unwrap());
        assert_eq!((&patient["completed"], &patient["expired_in_queue"]), (&json!(300), &json!(0)));
        let of = |name: &str| asking[name].as_u64().unwrap();
        assert_eq!(of("completed") + of("expired_in_queue") + of("expired_in_prefill"), 300);
        assert!(of("expired_in_queue") > 0 && of("good") > patient["good"].as_u64().unwrap(), "{asking}");
    }

    #[test]
    fn figures_without_sense_are_named() {
        for flags in
            [&["azure_conv.csv", "--rate", "0"][..], &["azure_conv.csv", "--cost-us", "0,1,1,1,1,1,1"]]
        {
            assert!(simulate(flags).is_err(), "{flags:?}");
        }
        assert!(simulate(&["azure_conv.csv", "--format", "mooncake"]).is_err());
        assert!(simulate(&["no-such-file.csv"]).is_err());
    }
}
