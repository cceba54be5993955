//! Is the right thing planned? Batching, chunks, admission and deadlines of the scheduler, plan by plan.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use budgets::{Deadline, Limits, Moment};
use sched::{
    Drawn, Expired, FakeRunner, Phase, Policy, Refused, Runner, RunnerLimits, Sampling, Scheduler, SeqId,
    SeqRequest, StepOutput, StepPlan,
};
use std::sync::Arc;

const RUNNER: RunnerLimits =
    RunnerLimits { block_tokens: 4, blocks_total: 16, context_tokens_max: 64, vocab_tokens: 100 };

fn limits() -> Limits {
    Limits {
        step_prefill_tokens_max: 8,
        step_prefill_tokens_min: 2,
        running_sequences_max: 4,
        queue_requests_max: 6,
        ..Limits::default()
    }
}

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

fn request(prompt_tokens: usize, output_tokens_max: usize) -> SeqRequest {
    SeqRequest::new(vec![7; prompt_tokens], output_tokens_max, at(0))
}

/// The plan as (sequence, start, tokens, draws?) rows.
fn rows(plan: &StepPlan) -> Vec<(u64, usize, usize, bool)> {
    plan.rows.iter().map(|row| (row.seq.0, row.start, row.tokens.len(), row.draw.is_some())).collect()
}

/// Equal prompts would find each other's blocks; `prefixes.rs` is about that.
fn policy() -> Policy {
    Policy { prefix_cache: false, ..Policy::default() }
}

struct Bench {
    scheduler: Scheduler,
    runner: FakeRunner,
}

impl Bench {
    fn new(requests: impl IntoIterator<Item = SeqRequest>) -> Self {
        let mut scheduler = Scheduler::new(RUNNER, &limits(), &policy());
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        Self { scheduler, runner: FakeRunner::new(RUNNER, |_| 1) }
    }

    fn step(&mut self, now: Moment) -> Vec<(u64, usize, usize, bool)> {
        let plan = self.scheduler.schedule(now);
        let output = self.runner.run(&plan).unwrap();
        self.scheduler.commit(output, now).unwrap();
        assert_eq!(self.scheduler.invariant(), Ok(()));
        rows(&plan)
    }
}

#[test]
fn decodes_come_first_and_prompts_share_what_a_step_may_prefill() {
    let mut bench = Bench::new([request(5, 9), request(10, 9)]);
    assert_eq!(bench.step(at(0)), [(0, 0, 5, true), (1, 0, 3, false)]);
    assert_eq!(bench.step(at(0)), [(0, 5, 1, true), (1, 3, 7, true)]);
    assert_eq!(bench.step(at(0)), [(0, 6, 1, true), (1, 10, 1, true)]);
}

#[test]
fn the_least_remaining_time_is_prefilled_first_then_the_earlier_arrival() {
    let patient = SeqRequest { arrived: at(1), ..request(8, 1) };
    let tied = SeqRequest { arrived: at(0), ..request(8, 1) };
    let urgent = SeqRequest { first_token_deadline: Deadline::at(at(50)), arrived: at(3), ..request(8, 1) };
    let total = SeqRequest { deadline: Deadline::at(at(40)), arrived: at(4), ..request(8, 1) };
    let mut bench = Bench::new([patient, tied, urgent, total]);
    let order: Vec<u64> = (0..4).map(|_| bench.step(at(10))[0].0).collect();
    assert_eq!(order, [3, 2, 1, 0]);
}

#[test]
fn an_urgent_newcomer_overtakes_a_half_done_prompt() {
    let mut bench = Bench::new([request(20, 1)]);
    assert_eq!(bench.step(at(0)), [(0, 0, 8, false)]);
    bench.scheduler.submit(SeqRequest { deadline: Deadline::at(at(9)), ..request(6, 1) }).unwrap();
    assert_eq!(bench.step(at(1)), [(1, 0, 6, true), (0, 8, 2, false)]);
}

#[test]
fn what_does_not_fit_yet_blocks_nobody_and_runs_when_blocks_return() {
    // 3 of 16 blocks are promised, so 15 do not fit and 1 does.
    let mut bench = Bench::new([request(8, 40), request(56, 4), request(1, 1)]);
    assert_eq!(bench.step(at(0)), [(0, 0, 8, true)]);
    assert_eq!(bench.step(at(0)), [(0, 8, 1, true), (2, 0, 1, true)]);
    assert_eq!((bench.scheduler.waiting(), bench.scheduler.running()), (1, 1));
    assert_eq!(bench.scheduler.end(SeqId(0)), Some(Phase::Decode));
    assert_eq!(bench.step(at(0)), [(1, 0, 8, false)]);
}

#[test]
fn a_step_takes_no_more_sequences_than_may_run() {
    let mut bench = Bench::new((0..6).map(|_| request(1, 4)));
    assert_eq!(bench.step(at(0)).len(), 4);
    assert_eq!((bench.scheduler.waiting(), bench.scheduler.running()), (2, 4));
}

#[test]
fn the_block_table_grows_on_demand() {
    let mut bench = Bench::new([request(3, 10)]);
    let held: Vec<usize> = (0..6)
        .map(|_| {
            bench.step(at(0));
            bench.scheduler.blocks().held()
        })
        .collect();
    assert_eq!(held, [1, 1, 2, 2, 2, 2]);
}

#[test]
fn the_door_refuses_what_never_fits_and_what_is_too_many() {
    let mut scheduler = Scheduler::new(RUNNER, &limits(), &policy());
    assert_eq!(scheduler.submit(request(0, 1)), Err(Refused::EmptyPrompt));
    assert_eq!(scheduler.submit(request(64, 1)), Err(Refused::NeverFits { tokens: 64, max: 63 }));
    for _ in 0..6 {
        scheduler.submit(request(1, 1)).unwrap();
    }
    assert_eq!(scheduler.submit(request(1, 1)), Err(Refused::QueueFull { waiting: 6 }));
}

#[test]
fn nothing_is_planned_after_a_deadline_and_the_phase_is_told() {
    let due = Deadline::at(at(100));
    let decode = SeqRequest { deadline: due, ..request(1, 20) };
    let prefill = SeqRequest { first_token_deadline: due, ..request(30, 2) };
    let queue = SeqRequest { first_token_deadline: due, arrived: at(1), ..request(60, 4) };
    let mut bench = Bench::new([decode, prefill, queue]);
    bench.step(at(0));
    assert_eq!(bench.scheduler.next_deadline(), due);
    assert!(bench.scheduler.expire(at(99)).is_empty());
    assert!(bench.scheduler.schedule(at(100)).rows.is_empty(), "even before expire is called");
    let expired = bench.scheduler.expire(at(100));
    let want = [(2, Phase::Queue), (0, Phase::Decode), (1, Phase::Prefill)]
        .map(|(seq, phase)| Expired { seq: SeqId(seq), phase });
    assert_eq!(expired, want);
    assert_eq!(bench.scheduler.blocks().free(), RUNNER.blocks_total);
}

#[test]
fn the_first_token_deadline_ends_with_the_first_token() {
    let mut bench = Bench::new([SeqRequest { first_token_deadline: Deadline::at(at(10)), ..request(4, 9) }]);
    bench.step(at(9));
    assert!(bench.scheduler.expire(at(1_000)).is_empty());
    assert_eq!(bench.step(at(1_000)), [(0, 4, 1, true)]);
}

#[test]
fn a_token_that_comes_late_is_not_taken() {
    let mut bench = Bench::new([SeqRequest { first_token_deadline: Deadline::at(at(10)), ..request(4, 9) }]);
    let plan = bench.scheduler.schedule(at(9));
    let output = bench.runner.run(&plan).unwrap();
    let committed = bench.scheduler.commit(output, at(10)).unwrap();
    assert_eq!(committed.expired, [Expired { seq: SeqId(0), phase: Phase::Prefill }]);
    assert!(committed.tokens.is_empty());
    assert_eq!(bench.scheduler.blocks().held(), 0);
}

#[test]
fn output_that_does_not_answer_the_plan_fails_the_step() {
    let drawn = |seq, token| Drawn { seq: SeqId(seq), token, logprob: 0.0, top: Vec::new() };
    let bad = [vec![], vec![drawn(1, 1)], vec![drawn(0, 100)], vec![drawn(0, 1), drawn(0, 1)]];
    for drawn in bad {
        let mut bench = Bench::new([request(4, 9)]);
        bench.scheduler.schedule(at(0));
        assert!(bench.scheduler.commit(StepOutput { drawn: drawn.clone() }, at(0)).is_err(), "{drawn:?}");
        assert_eq!(bench.scheduler.fail_step(), [SeqId(0)]);
        assert_eq!(bench.scheduler.blocks().held(), 0);
    }
}

#[test]
fn a_draw_carries_its_index_and_what_the_penalty_reads() {
    let penalty = Arc::new(Sampling { repetition_penalty: 1.1, ..Sampling::default() });
    let mut bench = Bench::new([SeqRequest { sampling: penalty, ..request(2, 3) }, request(2, 3)]);
    bench.step(at(0));
    let plan = bench.scheduler.schedule(at(0));
    let draws: Vec<_> = plan.rows.iter().filter_map(|row| row.draw.as_ref()).collect();
    assert_eq!(draws.iter().map(|draw| draw.index).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(draws[0].seen, [7, 7, 1]);
    assert!(draws[1].seen.is_empty());
}

#[test]
fn an_urgent_newcomer_waits_while_it_can_and_then_takes_the_most_patient_one_s_place() {
    let ms = |ms: u64| at(ms * 1_000_000);
    let mut bench = Bench::new((0..4).map(|nth| SeqRequest { arrived: at(nth), ..request(1, 30) }));
    bench.step(ms(0));
    let due = Deadline::at(ms(1_000));
    bench
        .scheduler
        .submit(SeqRequest { first_token_deadline: due, arrived: ms(1), ..request(3, 2) })
        .unwrap();
    assert_eq!(bench.step(ms(850)).len(), 4, "four streams, and time is left");
    let rows = bench.step(ms(950));
    assert_eq!(rows, [(0, 2, 1, true), (1, 2, 1, true), (2, 2, 1, true), (4, 0, 3, true)]);
    assert_eq!((bench.scheduler.counts().preemptions, bench.scheduler.waiting()), (1, 1));
    // It has its first token, and its total is not dated: the stream that came before it goes on before it.
    assert_eq!(bench.step(ms(960)).len(), 4);
    let rows = bench.step(ms(970));
    assert_eq!(rows.last(), Some(&(3, 0, 3, true)), "computed again with the two that it had drawn");
}

#[test]
fn a_deadline_that_cannot_be_kept_preempts_nobody_for_long() {
    let ms = |ms: u64| at(ms * 1_000_000);
    let mut bench = Bench::new((0..4).map(|_| request(1, 60)));
    bench.step(ms(0));
    for nth in 0..6 {
        let due = Deadline::at(ms(nth * 10 + 50));
        bench.scheduler.submit(SeqRequest { deadline: due, ..request(40, 1) }).unwrap();
    }
    for now in 0..12 {
        bench.scheduler.expire(ms(now * 10));
        bench.step(ms(now * 10));
    }
    assert!(bench.scheduler.counts().preemptions <= 6, "{:?}", bench.scheduler.counts());
}
