//! How does a request end that does not run to its own end? Cancelled, expired, failed or drained, in every phase.

use super::{Bench, RUNNER, STEP, echo, limits, read, read_reason, request};
use crate::worker::Turn;
use crate::{FinishReason, GenerateRequest, SubmitError};
use budgets::{Deadline, Limits, ManualClock};
use sched::{FakeFailure, RunError};
use std::sync::Arc;

/// One request runs at a time, so that a second one waits.
fn one_at_a_time() -> Limits {
    Limits { running_sequences_max: 1, ..limits() }
}

/// After the drop nothing may be planned for the request, and one turn must bring the blocks back.
fn check_cancel(prompt: &str, steps: usize) {
    let mut bench = Bench::echo();
    let generation = bench.submit(prompt);
    bench.steps(steps);
    let planned = bench.log.steps();
    assert_eq!(planned, steps);
    drop(generation);
    assert_eq!(bench.step(), Turn::Idle);
    assert_eq!(bench.log.steps(), planned);
    assert_eq!(bench.engine.stats().finished.cancelled, 1);
    bench.assert_baseline();
}

#[test]
fn a_dropped_stream_is_cancelled_in_every_phase() {
    check_cancel("before anything", 0);
    check_cancel(&"mid-prefill ".repeat(4), 1);
    check_cancel(&"mid-prefill ".repeat(4), 2);
    check_cancel("mid-decode", 1);
    check_cancel("mid-decode", 5);
}

#[test]
fn a_dropped_stream_leaves_the_queue() {
    let mut bench = Bench::new(echo(), &one_at_a_time());
    let mut running = bench.submit("running");
    let waiting = bench.submit("waiting");
    bench.steps(2);
    assert_eq!(bench.engine.stats().waiting, 1);
    drop(waiting);
    bench.step();
    let stats = bench.engine.stats();
    assert_eq!((stats.waiting, stats.running, stats.finished.cancelled), (0, 1, 1));
    bench.run_dry();
    assert_eq!(read_reason(&mut running).0, "running");
    assert!(bench.log.plans().iter().all(|plan| plan.rows.iter().all(|row| row.seq.0 == 0)));
}

#[test]
fn a_stream_dropped_after_its_end_cancels_nothing() {
    let mut bench = Bench::echo();
    let generation = bench.submit("x");
    bench.run_dry();
    drop(generation);
    bench.step();
    let finished = bench.engine.stats().finished;
    assert_eq!((finished.end_of_text, finished.cancelled), (1, 0));
}

/// Runs until the deadline after `steps` turns has passed and checks that nothing was planned from then on.
fn check_expiry(change: impl FnOnce(&mut GenerateRequest, Deadline), steps: u32, want: (&str, FinishReason)) {
    let mut bench = Bench::new(echo(), &one_at_a_time());
    let mut expiring = request("some text to say");
    change(&mut expiring, bench.deadline(steps));
    let mut generation = bench.engine.submit(expiring).unwrap();
    bench.run_dry();
    assert_eq!(bench.log.steps(), steps as usize);
    assert_eq!(read_reason(&mut generation), (want.0.to_string(), want.1));
    bench.assert_baseline();
}

#[test]
fn a_deadline_ends_a_request_in_the_phase_it_is_in() {
    let total = |request: &mut GenerateRequest, deadline| request.deadline = deadline;
    let first = |request: &mut GenerateRequest, deadline| request.first_token_deadline = deadline;
    let long_total = |request: &mut GenerateRequest, deadline| {
        request.prompt = vec![65; 40];
        request.deadline = deadline;
    };
    let long_first = |request: &mut GenerateRequest, deadline| {
        request.prompt = vec![65; 40];
        request.first_token_deadline = deadline;
    };
    check_expiry(total, 0, ("", FinishReason::ExpiredInQueue));
    check_expiry(first, 0, ("", FinishReason::ExpiredInQueue));
    check_expiry(long_total, 1, ("", FinishReason::ExpiredInPrefill));
    check_expiry(long_first, 2, ("", FinishReason::ExpiredInPrefill));
    check_expiry(total, 1, ("s", FinishReason::ExpiredInDecode));
    check_expiry(total, 4, ("some", FinishReason::ExpiredInDecode));
    // Sixteen letters and the end: the deadline of the first token is kept after one step and does not count again.
    let kept = |request: &mut GenerateRequest, _| request.first_token_deadline = Deadline::at(at_one_step());
    check_expiry(kept, 17, ("some text to say", FinishReason::EndOfText));
}

fn at_one_step() -> budgets::Moment {
    budgets::Moment::default().plus(STEP)
}

#[test]
fn a_deadline_passes_in_the_queue_behind_another_request() {
    let mut bench = Bench::new(echo(), &one_at_a_time());
    // Both are due at the same time, so the one that came first keeps its place.
    let deadline = bench.deadline(3);
    let mut running = bench.engine.submit(GenerateRequest { deadline, ..request("running") }).unwrap();
    bench.step();
    let mut waiting = bench.engine.submit(GenerateRequest { deadline, ..request("waiting") }).unwrap();
    bench.run_dry();
    assert_eq!(read_reason(&mut running), ("run".to_string(), FinishReason::ExpiredInDecode));
    let (_, finished) = read(&mut waiting);
    assert_eq!(finished.reason, FinishReason::ExpiredInQueue);
    assert_eq!((finished.timing.queue, finished.timing.first_token), (STEP * 2, None));
    assert!(bench.log.plans().iter().all(|plan| plan.rows.iter().all(|row| row.seq.0 == 0)));
}

#[test]
fn a_token_that_comes_after_the_deadline_is_not_shown() {
    let clock = Arc::new(ManualClock::default());
    let in_step = Arc::clone(&clock);
    let slow = sched::FakeRunner::new(RUNNER, move |_| {
        in_step.advance(STEP);
        u32::from(b'z')
    });
    let model = crate::EngineModel {
        id: "slow".to_string(),
        runner: Box::new(slow),
        codec: Arc::new(crate::ByteCodec::new()),
        calibration: std::time::Duration::ZERO,
    };
    let policy = crate::Policy::default();
    let (engine, mut worker) =
        crate::Engine::assemble(model, Arc::<ManualClock>::clone(&clock), &limits(), &policy).unwrap();
    let deadline = Deadline::at(budgets::Moment::default().plus(STEP.mul_f64(2.5)));
    let mut generation = engine.submit(GenerateRequest { deadline, ..request("x") }).unwrap();
    while worker.step() == Turn::Worked {}
    let (text, finished) = read(&mut generation);
    assert_eq!((text.as_str(), finished.reason), ("zz", FinishReason::ExpiredInDecode));
    assert_eq!((finished.timing.prefill, finished.timing.decode), (STEP, STEP));
    assert!((engine.stats().step_seconds - 0.03).abs() < 1e-9);
}

/// Step 2 goes wrong: who is in it fails, who waits does not, and the engine goes on.
fn check_failure(failure: FakeFailure, message: &str) {
    let mut bench =
        Bench::new(echo().failing_at(2, failure), &Limits { running_sequences_max: 2, ..limits() });
    let mut in_step = ["first", "second"].map(|prompt| bench.submit(prompt));
    let mut waiting = bench.submit("third");
    bench.run_dry();
    for generation in &mut in_step {
        let (text, reason) = read_reason(generation);
        assert_eq!(text.len(), 2);
        assert!(matches!(&reason, FinishReason::Failed(said) if said.contains(message)), "{reason:?}");
    }
    assert_eq!(read_reason(&mut waiting), ("third".to_string(), FinishReason::EndOfText));
    assert_eq!(bench.engine.stats().steps_failed, 1);
    bench.assert_baseline();
}

#[test]
fn a_failed_step_ends_its_sequences_and_no_others() {
    check_failure(FakeFailure::Error(RunError::Device("lost".to_string())), "device: lost");
    check_failure(FakeFailure::Panic, "panicked: the scripted panic");
    check_failure(FakeFailure::NoDraws, "does not match the plan");
}

#[test]
fn a_closed_engine_lets_taken_requests_end_and_takes_no_more() {
    let mut bench = Bench::new(echo(), &one_at_a_time());
    let mut running = bench.submit("running");
    let mut waiting = bench.submit("waiting");
    bench.steps(2);
    let deadline = bench.deadline(1_000);
    bench.engine.close(deadline);
    assert_eq!(bench.engine.submit(request("late")).err(), Some(SubmitError::ShuttingDown));
    bench.run_dry();
    assert_eq!(read_reason(&mut running).0, "running");
    assert_eq!(read_reason(&mut waiting).0, "waiting");
}

#[test]
fn a_drain_cancels_what_is_left_at_its_deadline() {
    let mut bench = Bench::new(echo(), &one_at_a_time());
    let mut running = bench.submit("running");
    let mut waiting = bench.submit("waiting");
    let deadline = bench.deadline(3);
    bench.engine.close(deadline);
    bench.run_dry();
    assert_eq!(read_reason(&mut running), ("run".to_string(), FinishReason::Cancelled));
    assert_eq!(read_reason(&mut waiting), (String::new(), FinishReason::Cancelled));
    assert_eq!(bench.log.steps(), 3);
    bench.assert_baseline();
}
