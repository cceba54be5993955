//! Does every request end exactly once, whatever callers, clocks and runners do? A seeded random run of the engine.

use super::{RUNNER, STEP, limits, request};
use crate::worker::Turn;
use crate::{ByteCodec, Constraint, Event, FinishReason, GenerateRequest, Generation, Tenant};
use budgets::{Clock, Deadline};
use sched::sim::Random;
use sched::{FakeFailure, FakeRunner, RunError};

/// Short for a number below a bound.
trait Below {
    fn below(&mut self, bound: u64) -> u64;
}

impl Below for Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }
}

/// A stream whose reader looks now and then.
struct Reader {
    generation: Generation,
    ends: usize,
    after_end: usize,
}

impl Reader {
    fn read(&mut self) {
        for event in self.generation.ready() {
            match event {
                Event::Finished(finished) => {
                    self.ends += 1;
                    // The runner holds every plan to its contract; what it refuses is a defect of the scheduler.
                    let refused =
                        matches!(&finished.reason, FinishReason::Failed(said) if said.contains("invalid"));
                    assert!(!refused, "{:?}", finished.reason);
                }
                Event::Delta(_) => self.after_end += self.ends,
            }
        }
    }
}

fn random_request(random: &mut Random, bench: &super::Bench) -> GenerateRequest {
    let mut deadline = |bench: &super::Bench| match random.below(3) {
        0 => Deadline::NEVER,
        _ => Deadline::after(bench.clock.now(), STEP * random.below(60) as u32),
    };
    let (first_token_deadline, total) = (deadline(bench), deadline(bench));
    // Few beginnings and few tenants, so that they meet in the prefix cache.
    let beginning = ["p", "q", "pq"][random.below(3) as usize].repeat(random.below(10) as usize);
    GenerateRequest {
        tenant: Tenant(u128::from(random.below(2))),
        shared_tokens: random.below(8) as usize,
        tpot: (random.below(2) == 0).then_some(STEP),
        output_tokens_min: random.below(2) as usize,
        // The runner draws what it likes, so most of these fail: an end like any other.
        constraint: (random.below(8) == 0).then(|| Constraint::Regex("xyz".to_string())),
        stop: if random.below(4) == 0 { vec!["xy".to_string(), "z".to_string()] } else { vec![] },
        output_tokens_max: 1 + random.below(40) as usize,
        first_token_deadline,
        deadline: total,
        ..request(&(beginning + &"p".repeat(1 + random.below(60) as usize)))
    }
}

/// Runs one seed; counts what happened that is worth testing.
fn simulate(seed: u64) -> [u64; 5] {
    let mut random = Random::new(seed);
    let mut letters = Random::new(seed + 1_000);
    // Half of the runs have blocks for little more than one request, so that requests give way to each other.
    let blocks_total = if seed.is_multiple_of(2) { RUNNER.blocks_total } else { 28 };
    let mut runner =
        FakeRunner::new(sched::RunnerLimits { blocks_total, ..RUNNER }, move |_| match letters.below(30) {
            0 => ByteCodec::END,
            1 => 0xe2,
            nth => u32::from(b"wxyz"[(nth % 4) as usize]),
        });
    for _ in 0..10 {
        runner = runner
            .failing_at(random.below(500) as usize, FakeFailure::Error(RunError::Device("lost".to_string())));
        runner = runner.failing_at(random.below(500) as usize, FakeFailure::NoDraws);
    }
    let mut bench = super::Bench::new(runner, &limits());
    let mut readers: Vec<Reader> = Vec::new();
    let (mut taken, mut dropped, mut refused) = (0, 0, 0);
    for _ in 0..1_500 {
        if random.below(2) == 0 {
            match bench.engine.submit(random_request(&mut random, &bench)) {
                Ok(generation) => {
                    taken += 1;
                    readers.push(Reader { generation, ends: 0, after_end: 0 });
                }
                Err(_) => refused += 1,
            }
        }
        if random.below(12) == 0 && !readers.is_empty() {
            let mut reader = readers.swap_remove(random.below(readers.len() as u64) as usize);
            reader.read();
            dropped += usize::from(reader.ends == 0);
            taken -= usize::from(reader.ends == 1);
        }
        bench.step();
        assert_eq!(bench.worker.invariant(), Ok(()), "seed {seed}");
    }
    while bench.step() == Turn::Worked {}
    for reader in &mut readers {
        reader.read();
        assert_eq!((reader.ends, reader.after_end), (1, 0), "seed {seed}");
    }
    assert_eq!(taken, readers.len() + dropped, "seed {seed}");
    let stats = bench.engine.stats();
    assert_eq!(stats.finished.cancelled as usize, dropped, "seed {seed}");
    bench.assert_baseline();
    [dropped as u64, refused, stats.preemptions, stats.prefix_hit_tokens, stats.steps_failed]
}

#[test]
fn every_request_ends_exactly_once_and_blocks_return() {
    let seeds = std::env::var("RIPOSTE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(40);
    let mut happened = [0; 5];
    for seed in 0..seeds {
        happened.iter_mut().zip(simulate(seed)).for_each(|(sum, count)| *sum += count);
    }
    eprintln!("{seeds} seeds: dropped, refused, preemptions, cached tokens, failed steps {happened:?}");
    assert!(happened.iter().all(|count| *count >= seeds), "the seeds test too little: {happened:?}");
}
