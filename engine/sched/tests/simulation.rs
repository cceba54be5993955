//! Does the scheduler survive everything at once? Seeded random traffic with faults over random pools and policies; every
//! token of every answer is compared with what a plain computation gives.
//!
//! `RIPOSTE_SIM_SEEDS` sets how many seeds run (300), `RIPOSTE_SIM_FIRST` the first of them (0).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use budgets::{Coefficients, CostModel, Deadline, Limits, ManualClock, Moment};
use sched::sim::{
    Cancel, Draws, End, Ended, Faults, Random, SimOptions, SimReport, SimRequest, SimRunner, Simulation,
    Traffic,
};
use sched::{
    AdapterId, Batching, KvSpace, Policy, Refused, Reservation, RunnerLimits, SeqRequest, Tenant, TokenId,
    fold,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const TURNS_MAX: usize = 4;

/// About one step of a few rows.
const STEP: Duration = Duration::from_millis(20);

fn cost() -> CostModel {
    CostModel::from_coefficients(Coefficients {
        step: 0.01,
        prefill_token: 0.001,
        prefill_row: 0.001,
        prefill_draw: 0.001,
        prefill_context: 0.000_002,
        decode_row: 0.002,
        decode_context: 0.000_02,
    })
}

/// What was asked, to know what must be answered.
struct Asked {
    request: SeqRequest,
    turn: usize,
    output_tokens_max: usize,
}

/// Callers of few families: they share system prompts, texts and whole conversations.
struct Callers {
    random: Random,
    limits: RunnerLimits,
    left: usize,
    at: Moment,
    gap: Duration,
    systems: Vec<Vec<TokenId>>,
    texts: Vec<Vec<TokenId>>,
    asked: BTreeMap<u64, Asked>,
    tags: u64,
    completed: u64,
}

impl Callers {
    fn new(seed: u64, limits: RunnerLimits) -> Self {
        let mut random = Random::new(seed);
        let left = random.between(5, 50);
        let gap = STEP.mul_f64(*random.pick(&[0.2, 1.0, 5.0, 30.0]));
        let mut callers = Self {
            random,
            limits,
            left,
            at: Moment::default(),
            gap,
            systems: Vec::new(),
            texts: Vec::new(),
            asked: BTreeMap::new(),
            tags: 0,
            completed: 0,
        };
        let longest = (limits.context_tokens_max / 3).max(1);
        callers.systems = (0..3).map(|_| callers.text(0, longest)).collect();
        callers.texts = (0..4).map(|_| callers.text(1, longest)).collect();
        callers
    }

    fn text(&mut self, least: usize, most: usize) -> Vec<TokenId> {
        let tokens = self.random.between(least, most);
        // Small numbers and such as differ by 256, so that texts collide in their first tokens and in single bytes.
        let vocab = self.limits.vocab_tokens as u64;
        (0..tokens).map(|_| (*self.random.pick(&[1, 2, 3, 257, 258]) % vocab) as TokenId).collect()
    }

    fn fresh(&mut self) -> SeqRequest {
        let system = self.random.pick(&self.systems).clone();
        // One caller in twenty calls more or less of it private than the others do.
        let shared =
            if self.random.chance(0.05) { self.random.between(0, system.len()) } else { system.len() };
        let mut prompt = system;
        if self.random.chance(0.7) {
            prompt.extend(self.random.pick(&self.texts).clone());
        }
        let longest = if self.random.chance(0.04) { self.limits.context_tokens_max * 2 } else { 6 };
        prompt.extend(self.text(0, longest));
        let mut request = SeqRequest::new(prompt, self.random.between(0, 24), self.at);
        request.shared_tokens = shared;
        request.tenant = Tenant(self.random.between(0, 2) as u128);
        let adapter = self.random.chance(0.15).then_some(AdapterId(1));
        request.space = KvSpace { adapter, ..KvSpace::default() };
        if self.random.chance(0.3) {
            let end = (self.random.bits() % self.limits.vocab_tokens as u64) as TokenId;
            request.end_tokens = Arc::new([end, 1]);
        }
        request
    }

    fn some_time(&mut self, steps: usize) -> Duration {
        STEP.mul_f64(self.random.unit() * steps as f64)
    }

    /// Deadlines, a caller's going, and a place among what was asked.
    fn ask(&mut self, mut request: SeqRequest, turn: usize) -> SimRequest {
        if self.random.chance(0.25) {
            request.first_token_deadline = Deadline::after(request.arrived, self.some_time(60));
        }
        if self.random.chance(0.25) {
            request.deadline = Deadline::after(request.arrived, self.some_time(120));
        }
        request.tpot = self.random.chance(0.3).then(|| self.some_time(4));
        let time = self.some_time(80);
        let (step, token) = (self.random.between(1, 6), self.random.between(1, 8));
        let ways = [Cancel::After(time), Cancel::InStep(step), Cancel::AtToken(token), Cancel::GaveWay];
        let cancel = self.random.chance(0.25).then(|| *self.random.pick(&ways));
        self.tags += 1;
        let room = self.limits.context_tokens_max.saturating_sub(request.prompt.len());
        let output_tokens_max = request.output_tokens_max.min(room);
        self.asked.insert(self.tags, Asked { request: request.clone(), turn, output_tokens_max });
        SimRequest { tag: self.tags, request, cancel }
    }

    /// What a plain computation of the prompt would say, compared with what was said.
    fn compare(&self, asked: &Asked, ended: &Ended<'_>) -> Result<(), String> {
        let Asked { request, output_tokens_max, .. } = asked;
        let mut tokens = request.prompt.clone();
        let mut ends = false;
        for (nth, token) in ended.tokens.iter().enumerate() {
            let want = (fold(&tokens) % self.limits.vocab_tokens as u64) as TokenId;
            if *token != want || ends {
                return Err(format!("{}: token {nth} is {token}, not {want}; ended: {ends}", ended.tag));
            }
            tokens.push(want);
            ends = request.end_tokens.contains(token);
        }
        let whole = ends || ended.tokens.len() == *output_tokens_max;
        match ended.end {
            End::Completed if !whole => Err(format!("{} is not complete", ended.tag)),
            End::Failed | End::Expired(_) if whole && *output_tokens_max > 0 => {
                Err(format!("{} is complete and ended as {:?}", ended.tag, ended.end))
            }
            End::Refused(Refused::QueueFull { .. }) => Ok(()),
            End::Refused(_)
                if self.limits.worst_case(request.prompt.len(), request.output_tokens_max).is_ok() =>
            {
                Err(format!("{} fits and was refused: {:?}", ended.tag, ended.end))
            }
            _ => Ok(()),
        }
    }
}

impl Traffic for Callers {
    fn next(&mut self) -> Option<SimRequest> {
        self.left = self.left.checked_sub(1)?;
        // A third comes in bursts.
        if !self.random.chance(0.35) {
            self.at = self.at.plus(self.random.gap(self.gap));
        }
        let request = self.fresh();
        Some(self.ask(request, 1))
    }

    fn ended(&mut self, ended: Ended<'_>) -> Result<Option<SimRequest>, String> {
        let asked = self.asked.remove(&ended.tag).ok_or_else(|| format!("{} ends twice", ended.tag))?;
        self.compare(&asked, &ended)?;
        if ended.end != End::Completed {
            return Ok(None);
        }
        self.completed += 1;
        if asked.turn >= TURNS_MAX || self.random.chance(0.4) {
            return Ok(None);
        }
        let mut request = asked.request;
        request.prompt.extend(ended.tokens);
        request.prompt.extend(self.text(1, 5));
        request.arrived = ended.at.plus(self.some_time(20));
        (request.deadline, request.first_token_deadline) = (Deadline::NEVER, Deadline::NEVER);
        Ok(Some(self.ask(request, asked.turn + 1)))
    }
}

fn setting(random: &mut Random) -> (RunnerLimits, Limits, Policy, Faults) {
    let block_tokens = *random.pick(&[1, 2, 3, 4, 8, 16]);
    let pool_tokens = random.between(24, 400);
    let runner = RunnerLimits {
        block_tokens,
        blocks_total: pool_tokens.div_ceil(block_tokens),
        context_tokens_max: random.between(16, 160),
        vocab_tokens: *random.pick(&[50, 300, 1_000]),
    };
    let most = *random.pick(&[1, 8, 32, 128]);
    let limits = Limits {
        step_prefill_tokens_max: most,
        step_prefill_tokens_min: random.between(1, most),
        running_sequences_max: random.between(1, 10),
        queue_requests_max: random.between(2, 40),
        ..Limits::default()
    };
    let policy = Policy {
        prefix_cache: random.chance(0.85),
        chunked_prefill: random.chance(0.8),
        batching: if random.chance(0.15) { Batching::Static } else { Batching::Continuous },
        reservation: if random.chance(0.15) { Reservation::Contiguous } else { Reservation::Paged },
        step_stretch_max: 1.0 + 3.0 * random.unit(),
        patience: STEP.mul_f64(*random.pick(&[0.0, 10.0, 200.0, 3_000.0])),
    };
    let faults = match random.between(0, 3) {
        0 | 1 => Faults::default(),
        2 => Faults {
            noise: 0.2,
            slow_share: 0.03,
            slow_factor: 20.0,
            fail_share: 0.02,
            draw_fail_share: 0.02,
        },
        _ => Faults { noise: 0.5, slow_share: 0.2, slow_factor: 5.0, fail_share: 0.15, draw_fail_share: 0.1 },
    };
    (runner, limits, policy, faults)
}

fn simulate(seed: u64) -> Result<SimReport, String> {
    let mut random = Random::new(seed ^ 0x5eed);
    let (runner_limits, limits, policy, faults) = setting(&mut random);
    let told = |error: &dyn std::fmt::Display| {
        format!("seed {seed}: {error}\n{runner_limits:?}\n{limits:?}\n{policy:?}\n{faults:?}")
    };
    let runner = SimRunner::new(runner_limits, cost(), Arc::new(ManualClock::default()), Draws::Folded);
    let options = SimOptions { calibrated: random.chance(0.7), ..SimOptions::default() };
    let mut simulation = Simulation::new(runner.with_faults(faults, seed), &limits, &policy, options);
    let mut callers = Callers::new(seed, runner_limits);
    let report = simulation.run(&mut callers).map_err(|error| told(&error))?;
    match callers.asked.is_empty() && callers.completed == report.ends.completed {
        true => Ok(report),
        false => Err(told(&"callers and report count different ends")),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

#[test]
fn whatever_happens_every_answer_is_right_and_everything_comes_back() {
    let (first, count) = (number("RIPOSTE_SIM_FIRST", 0), number("RIPOSTE_SIM_SEEDS", 300));
    let mut sum = SimReport::default();
    for seed in first..first + count {
        let report = simulate(seed).unwrap_or_else(|broken| panic!("{broken}"));
        sum.ends.add(&report.ends);
        sum.steps += report.steps;
        sum.elapsed += report.elapsed;
        sum.output_tokens += report.output_tokens;
        sum.prefill_tokens += report.prefill_tokens;
        sum.counts.preemptions += report.counts.preemptions;
        sum.counts.evicted_blocks += report.counts.evicted_blocks;
        sum.counts.prefix_hit_tokens += report.counts.prefix_hit_tokens;
        sum.counts.prefix_query_tokens += report.counts.prefix_query_tokens;
    }
    eprintln!("seeds {first}..{}: {:?}", first + count, sum.ends);
    eprintln!("{} steps, {:?} of virtual time, {:?}", sum.steps, sum.elapsed, sum.counts);
    eprintln!("{} tokens drawn, {} prefilled", sum.output_tokens, sum.prefill_tokens);
    if count >= 100 {
        // Nothing was proved about what never happened.
        let ends = sum.ends;
        let happened =
            [ends.completed, ends.failed, ends.never_fits, ends.queue_full, sum.counts.preemptions];
        let phases = ends.expired.iter().chain(&ends.cancelled);
        assert!(happened.iter().chain(phases).all(|count| *count > 0), "{sum:?}");
        assert!(sum.counts.evicted_blocks > 0 && sum.counts.prefix_hit_tokens > 0, "{sum:?}");
    }
}
