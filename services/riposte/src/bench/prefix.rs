//! What does the prefix cache save? Conversations and a real trace's shared prefixes, with the cache off and on.

use super::Found;
use super::drive::{Outcome, Rig, Words, exactly};
use super::figures::{Figure, Rounds, percentile};
use crate::cli::SchedulingArgs;
use crate::config::Config;
use crate::failure::Failure;
use budgets::Limits;
use engine::{GenerateRequest, Policy, TokenId};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// Requests of a real trace with the identities of their prompt blocks.
const EXCERPT: &str = include_str!("../../../../engine/sched/tests/data/mooncake_conversation.jsonl");

/// Tokens of one block of the trace, and what they become here: small models have small contexts.
const BLOCK_TOKENS: usize = 512;

const CONVERSATIONS: usize = 6;
const TURNS: usize = 4;
const TURN_TOKENS: usize = 60;
const ANSWER_TOKENS: usize = 40;
const SYSTEM_TOKENS: usize = 200;

/// A request of the trace.
#[derive(Deserialize)]
struct Recorded {
    input_length: usize,
    output_length: usize,
    hash_ids: Vec<u64>,
}

struct Run {
    ttft: Vec<Duration>,
    seconds: f64,
    hit_share: f64,
}

impl Run {
    fn of(outcomes: &[Outcome]) -> Self {
        let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>() as f64;
        Self {
            ttft: outcomes.iter().map(Outcome::ttft).collect(),
            seconds: outcomes.iter().map(|outcome| outcome.ended).max().unwrap_or_default().as_secs_f64(),
            hit_share: sum(|outcome| outcome.finished.usage.cached_tokens)
                / sum(|outcome| outcome.finished.usage.prompt_tokens),
        }
    }
}

/// Runs both workloads with the cache off and on in turn, `--rounds` times.
///
/// # Errors
/// When the model cannot be loaded or a request fails.
pub async fn run(args: &SchedulingArgs, config: &Config) -> Result<Found, Failure> {
    let limits = Limits { queue_requests_max: 256, ..config.limits.clone() };
    let mut runs: [[Vec<Run>; 2]; 2] = Default::default();
    for _ in 0..args.rounds {
        for (at, prefix_cache) in [false, true].into_iter().enumerate() {
            let policy = Policy { prefix_cache, ..config.engine.policy() };
            let rig = Rig::start(config, &limits, &policy)?;
            let words = Words::load(&rig.engine)?;
            runs[0][at].push(Run::of(&conversations(&rig, &words).await?));
            rig.stop().await;
            let rig = Rig::start(config, &limits, &policy)?;
            runs[1][at].push(Run::of(&trace(&rig, &words, args, &limits).await?));
            rig.stop().await;
        }
    }
    Ok(found(args, &runs))
}

/// Conversations side by side after one system prefix: each turn brings all before it, the answers among them.
async fn conversations(rig: &Rig, words: &Words) -> Result<Vec<Outcome>, Failure> {
    let began = rig.now();
    let one = |nth: usize| async move {
        let mut prompt = words.cut(0, SYSTEM_TOKENS);
        let mut outcomes = Vec::new();
        for turn in 0..TURNS {
            prompt.extend(words.cut(10_000 + (nth * TURNS + turn) * TURN_TOKENS, TURN_TOKENS));
            let came = rig.now().since(began);
            let outcome = rig.follow(exactly(prompt.clone(), ANSWER_TOKENS), began, came).await?;
            // As a client does: the answer comes back as text.
            prompt.extend(rig.engine.encode(&outcome.text));
            outcomes.push(outcome);
        }
        Ok::<_, Failure>(outcomes)
    };
    Ok(futures::future::try_join_all((0..CONVERSATIONS).map(one)).await?.concat())
}

/// The trace's requests four at a time: each block identity stands for a piece of text of its own.
async fn trace(
    rig: &Rig,
    words: &Words,
    args: &SchedulingArgs,
    limits: &Limits,
) -> Result<Vec<Outcome>, Failure> {
    let recorded = EXCERPT.lines().take(args.requests).map(serde_json::from_str::<Recorded>);
    let recorded: Vec<Recorded> = recorded.collect::<Result<_, _>>().map_err(Failure::new)?;
    let block = (BLOCK_TOKENS / (4 * args.scale)).max(1);
    let requests = recorded.iter().map(|row| {
        let piece = |id: &u64| words.cut(*id as usize * block * 7 % words.len(), block);
        let mut prompt: Vec<TokenId> = row.hash_ids.iter().flat_map(piece).collect();
        prompt.truncate((row.input_length * block / BLOCK_TOKENS).clamp(1, limits.prompt_tokens_max));
        exactly(prompt, (row.output_length / (4 * args.scale)).clamp(4, limits.output_tokens_max))
    });
    let requests: Vec<GenerateRequest> = requests.collect();
    let began = rig.now();
    let queue = std::sync::Mutex::new(requests.into_iter());
    let caller = || async {
        let mut outcomes = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
            let Some(request) = next else { return Ok::<_, Failure>(outcomes) };
            let came = rig.now().since(began);
            outcomes.push(rig.follow(request, began, came).await?);
        }
    };
    Ok(futures::future::try_join_all((0..4).map(|_| caller())).await?.concat())
}

fn found(args: &SchedulingArgs, runs: &[[Vec<Run>; 2]; 2]) -> Found {
    let figures: [Figure<Run>; 4] = [
        ("TTFT p50, s", |run| percentile(&run.ttft, 0.5).as_secs_f64(), 3),
        ("TTFT p99, s", |run| percentile(&run.ttft, 0.99).as_secs_f64(), 3),
        ("seconds in all", |run| run.seconds, 1),
        ("share of prompt tokens cached", |run| run.hit_share, 3),
    ];
    let names = [
        format!("{CONVERSATIONS} conversations of {TURNS} turns"),
        format!("{} requests of the trace", args.requests),
    ];
    let mut table = vec![["", "", "cache off", "cache on", "off / on"].map(str::to_string).to_vec()];
    let mut all = Vec::new();
    for (name, [off, on]) in names.iter().zip(runs) {
        for (figure_name, figure, digits) in figures {
            let rounds = |runs: &[Run]| Rounds::of(runs.iter().map(figure));
            let ratio = Rounds::of(off.iter().zip(on).map(|(off, on)| figure(off) / figure(on)));
            let shares = figure_name.starts_with("share");
            table.push(vec![
                name.clone(),
                figure_name.to_string(),
                rounds(off).show(digits),
                rounds(on).show(digits),
                if shares { String::new() } else { ratio.show(2) },
            ]);
            all.push(json!({"workload": name, "figure": figure_name, "off": rounds(off), "on": rounds(on), "ratio": ratio}));
        }
    }
    Found {
        title: format!("Prefix cache: median [least to most] of {} rounds in turn", args.rounds),
        table,
        notes: vec![format!(
            "conversations: {SYSTEM_TOKENS} tokens of system prefix, {TURN_TOKENS} a turn, {ANSWER_TOKENS} an answer; trace: its blocks of {BLOCK_TOKENS} tokens become {} tokens, four callers",
            (BLOCK_TOKENS / (4 * args.scale)).max(1)
        )],
        json: all.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excerpt_reads_and_its_prompts_begin_alike() {
        let rows: Vec<Recorded> = EXCERPT.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(rows.len() >= 100);
        assert!(rows.iter().all(|row| row.input_length <= row.hash_ids.len() * BLOCK_TOKENS));
        assert!(rows[1..].iter().filter(|row| row.hash_ids[0] == rows[0].hash_ids[0]).count() > 10);
    }
}
