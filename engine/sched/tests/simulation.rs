//! Do the accounts hold whatever happens? A seeded random run of everything that can be asked of the scheduler.

use budgets::{Deadline, Limits, Moment};
use sched::{
    FakeFailure, FakeRunner, RunError, Runner, RunnerLimits, Sampling, Scheduler, SeqId, SeqRequest,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// splitmix64 (Steele, Lea and Flood 2014): a few lines, and the same run for the same seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Counts the ends of each sequence that was taken.
#[derive(Default)]
struct Ends {
    live: HashSet<SeqId>,
    ended: HashMap<SeqId, usize>,
    deadlines: HashMap<SeqId, Deadline>,
}

impl Ends {
    fn end(&mut self, seq: SeqId) {
        assert!(self.live.remove(&seq), "{seq:?} ended twice or was never taken");
        *self.ended.entry(seq).or_default() += 1;
    }
}

fn request(random: &mut Random, now: Moment) -> SeqRequest {
    let deadline = |random: &mut Random| match random.below(3) {
        0 => Deadline::NEVER,
        _ => Deadline::at(Moment::from_nanos(now.as_nanos() + random.below(60) as u64)),
    };
    SeqRequest {
        prompt: (0..random.below(40)).map(|token| token as u32).collect(),
        sampling: Arc::new(Sampling::default()),
        output_tokens_max: random.below(20),
        first_token_deadline: deadline(random),
        deadline: deadline(random),
        arrived: now,
    }
}

fn simulate(seed: u64) {
    let mut random = Random(seed);
    let runner_limits = RunnerLimits {
        block_tokens: 1 + random.below(8),
        blocks_total: 1 + random.below(30),
        context_tokens_max: 16 + random.below(48),
        vocab_tokens: 64,
    };
    let limits = Limits {
        queue_requests_max: 1 + random.below(12),
        running_sequences_max: 1 + random.below(6),
        step_prefill_tokens_max: 1 + random.below(16),
        ..Limits::default()
    };
    let mut scheduler = Scheduler::new(runner_limits, &limits);
    let mut runner = FakeRunner::new(runner_limits, |row| (row.seq.0 % 64) as u32);
    for _ in 0..20 {
        runner = runner.failing_at(random.below(400), FakeFailure::Error(RunError::Device("lost".into())));
        runner = runner.failing_at(random.below(400), FakeFailure::NoDraws);
    }
    let mut ends = Ends::default();
    let mut now = 0;
    let mut refused = 0;
    for turn in 0..2_000 {
        now += random.below(3) as u64;
        let moment = Moment::from_nanos(now);
        // After turn 1500 nothing new comes and the rest must run dry.
        if turn < 1_500 && random.below(3) == 0 {
            let request = request(&mut random, moment);
            let due = request.deadline;
            match scheduler.submit(request) {
                Ok(seq) => {
                    ends.live.insert(seq);
                    ends.deadlines.insert(seq, due);
                }
                Err(_) => refused += 1,
            }
        }
        if random.below(10) == 0 {
            let mut live: Vec<SeqId> = ends.live.iter().copied().collect();
            live.sort_unstable();
            if !live.is_empty() {
                let seq = live[random.below(live.len())];
                assert!(scheduler.end(seq).is_some());
                assert!(scheduler.end(seq).is_none());
                ends.end(seq);
            }
        }
        scheduler.expire(moment).into_iter().for_each(|expired| ends.end(expired.seq));
        step(&mut scheduler, &mut runner, moment, &mut ends);
        assert_eq!(scheduler.invariant(), Ok(()), "seed {seed}, turn {turn}");
        assert_eq!(scheduler.waiting() + scheduler.running(), ends.live.len());
    }
    assert!(ends.live.is_empty(), "seed {seed}: {:?} never ended", ends.live);
    assert!(ends.ended.values().all(|count| *count == 1));
    assert_eq!(scheduler.blocks().free(), runner_limits.blocks_total);
    assert!(refused > 0, "seed {seed} refused nothing and tests too little");
}

fn step(scheduler: &mut Scheduler, runner: &mut FakeRunner, now: Moment, ends: &mut Ends) {
    let plan = scheduler.schedule(now);
    for row in &plan.rows {
        assert!(ends.live.contains(&row.seq), "{:?} was planned after its end", row.seq);
        assert!(!ends.deadlines[&row.seq].expired(now), "{:?} was planned after its deadline", row.seq);
    }
    if plan.rows.is_empty() {
        assert!(ends.live.is_empty(), "sequences live and nothing is planned");
        return;
    }
    let committed = match runner.run(&plan) {
        Ok(output) => scheduler.commit(&output, now).ok(),
        Err(RunError::Device(_)) => None,
        Err(other) => panic!("{other}"),
    };
    let Some(committed) = committed else {
        scheduler.fail_step().into_iter().for_each(|seq| ends.end(seq));
        return;
    };
    committed.tokens.iter().filter(|token| token.last).for_each(|token| ends.end(token.seq));
    committed.expired.iter().for_each(|expired| ends.end(expired.seq));
}

#[test]
fn every_sequence_ends_once_and_every_block_comes_back() {
    (0..40).for_each(simulate);
}
