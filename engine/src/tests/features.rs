//! Do probabilities, constraints, least lengths and step records come out as they were asked for?

use super::{Bench, RUNNER, STEP, limits, read, read_reason, request};
use crate::{ByteCodec, Constraint, Event, FinishReason, GenerateRequest, Histogram, Sampling, SubmitError};
use sched::{Drawn, FakeFailure, FakeRunner, RunError, Runner, RunnerLimits, SeqId, StepOutput, StepPlan};
use std::time::Duration;

/// Draws the first allowed token of `a`, `b`, end; and tells the probabilities of two.
struct Obedient;

impl Runner for Obedient {
    fn limits(&self) -> RunnerLimits {
        RUNNER
    }

    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError> {
        let draws = plan.rows.iter().filter_map(|row| row.draw.as_ref().map(|draw| (row.seq, draw)));
        let drawn = draws.map(|(seq, draw)| {
            let allowed = |token: &u32| {
                !draw.banned.contains(token) && draw.allowed.as_ref().is_none_or(|mask| mask.allows(*token))
            };
            let mut order = (0..RUNNER.vocab_tokens as u32).rev().filter(allowed);
            let token = order.next().ok_or(RunError::NoTokenAllowed(seq))?;
            let top = draw
                .sampling
                .top_logprobs
                .map_or(Vec::new(), |count| [(97, -0.5), (98, -1.5)].into_iter().take(count).collect());
            Ok(Drawn { seq, token, logprob: -0.25, top })
        });
        Ok(StepOutput { drawn: drawn.collect::<Result<_, RunError>>()? })
    }
}

fn regex(text: &str) -> Option<Constraint> {
    Some(Constraint::Regex(text.to_string()))
}

#[test]
fn a_constraint_decides_what_is_drawn_and_when_it_ends() {
    let mut bench = Bench::with(Box::new(Obedient), &limits());
    let constrained = GenerateRequest { constraint: regex("yes42"), ..request("say yes") };
    let mut one = bench.engine.submit(constrained.clone()).unwrap();
    let mut two =
        bench.engine.submit(GenerateRequest { constraint: regex("no"), ..request("say no") }).unwrap();
    let mut cut = bench.engine.submit(GenerateRequest { output_tokens_max: 3, ..constrained }).unwrap();
    bench.run_dry();
    assert_eq!(read_reason(&mut one), ("yes42".to_string(), FinishReason::EndOfText));
    assert_eq!(read_reason(&mut two), ("no".to_string(), FinishReason::EndOfText));
    assert_eq!(read_reason(&mut cut), ("yes".to_string(), FinishReason::Length));
    let bad = GenerateRequest { constraint: regex("a|b"), ..request("x") };
    assert!(matches!(bench.engine.submit(bad).err(), Some(SubmitError::InvalidConstraint(_))));
    bench.assert_baseline();
}

#[test]
fn a_runner_that_ignores_the_constraint_fails_the_request_and_no_other() {
    let mut bench = Bench::new(FakeRunner::new(RUNNER, |_| u32::from(b'z')), &limits());
    let mut broken =
        bench.engine.submit(GenerateRequest { constraint: regex("yes"), ..request("x") }).unwrap();
    let mut other = bench.engine.submit(GenerateRequest { output_tokens_max: 3, ..request("y") }).unwrap();
    bench.run_dry();
    assert!(matches!(read_reason(&mut broken).1, FinishReason::Failed(said) if said.contains("constraint")));
    assert_eq!(read_reason(&mut other), ("zzz".to_string(), FinishReason::Length));
}

#[test]
fn one_request_s_trouble_in_a_step_ends_no_other() {
    let mut steps = 0;
    let mut runner = FakeRunner::new(RUNNER, |row| row.start as u32 + 65);
    for (step, error) in [(2, RunError::NotFinite(SeqId(0))), (4, RunError::NoTokenAllowed(SeqId(2)))] {
        runner = runner.failing_at(step, FakeFailure::Error(error));
        steps += 1;
    }
    let mut bench = Bench::new(runner, &limits());
    let of = |prompt| GenerateRequest { output_tokens_max: 6, ..request(prompt) };
    let mut requests = ["one", "two", "six"].map(|prompt| bench.engine.submit(of(prompt)).unwrap());
    bench.run_dry();
    let ends = requests.each_mut().map(read_reason);
    assert!(
        matches!(&ends[0], (text, FinishReason::Failed(said)) if text == "AD" && said.contains("finite"))
    );
    assert_eq!(ends[1], ("ADEFGH".to_string(), FinishReason::Length));
    assert!(matches!(&ends[2], (text, FinishReason::Failed(_)) if text == "ADE"));
    assert_eq!(bench.engine.stats().steps_failed, steps);
    bench.assert_baseline();
}

#[test]
fn trouble_of_a_sequence_that_is_not_in_the_step_fails_the_step_and_is_not_repeated_for_ever() {
    let runner = FakeRunner::new(RUNNER, |_| u32::from(b'z'))
        .failing_at(1, FakeFailure::Error(RunError::NotFinite(SeqId(77))));
    let mut bench = Bench::new(runner, &limits());
    let mut generation = bench.submit("x");
    bench.run_dry();
    assert!(matches!(read_reason(&mut generation).1, FinishReason::Failed(_)));
    assert_eq!((bench.log.steps(), bench.engine.stats().steps_failed), (2, 1));
    bench.assert_baseline();
}

#[test]
fn what_a_sequence_without_finite_logits_computed_is_not_given_to_others() {
    // Its third step, the second draw, fails; by then its first sixteen tokens are in the tree.
    let runner = FakeRunner::new(RUNNER, |_| u32::from(b'z'))
        .failing_at(2, FakeFailure::Error(RunError::NotFinite(SeqId(0))));
    let mut bench = Bench::new(runner, &limits());
    let of = || GenerateRequest { output_tokens_max: 3, ..request("one prompt of twenty") };
    let mut broken = bench.engine.submit(of()).unwrap();
    bench.run_dry();
    assert!(matches!(read(&mut broken).1.reason, FinishReason::Failed(_)));
    let mut next = bench.engine.submit(of()).unwrap();
    bench.run_dry();
    assert_eq!(read(&mut next).1.usage.cached_tokens, 0);
    bench.assert_baseline();
}

#[test]
fn a_grammar_that_must_end_ends_before_the_least_length() {
    let mut bench = Bench::with(Box::new(Obedient), &limits());
    let both = GenerateRequest { constraint: regex("ok"), output_tokens_min: 5, ..request("x") };
    let mut generation = bench.engine.submit(both).unwrap();
    bench.run_dry();
    assert_eq!(read_reason(&mut generation), ("ok".to_string(), FinishReason::EndOfText));
}

#[test]
fn a_least_length_bans_the_end() {
    // Left to itself, the runner draws the highest token that is not a control token above the end.
    let draw_end = |minimum| {
        let mut bench = Bench::new(
            FakeRunner::new(RUNNER, |row| {
                let banned = &row.draw.as_ref().unwrap().banned;
                if banned.contains(&ByteCodec::END) { u32::from(b'a') } else { ByteCodec::END }
            }),
            &limits(),
        );
        let least = GenerateRequest { output_tokens_min: minimum, ..request("x") };
        let mut generation = bench.engine.submit(least).unwrap();
        bench.run_dry();
        read_reason(&mut generation)
    };
    assert_eq!(draw_end(0), (String::new(), FinishReason::EndOfText));
    assert_eq!(draw_end(3), ("aaa".to_string(), FinishReason::EndOfText));
}

#[test]
fn probabilities_come_with_the_text_of_their_tokens() {
    let mut bench = Bench::with(Box::new(Obedient), &limits());
    let sampling = Sampling { top_logprobs: Some(2), ..Sampling::default() };
    let asked = GenerateRequest {
        sampling,
        stop: vec!["s4".to_string()],
        constraint: regex("yes42"),
        ..request("x")
    };
    let mut generation = bench.engine.submit(asked).unwrap();
    bench.run_dry();
    let mut text = String::new();
    let mut tokens = Vec::new();
    for event in generation.ready() {
        if let Event::Delta(delta) = event {
            text.push_str(&delta.text);
            tokens.extend(delta.tokens);
        }
    }
    assert_eq!(text, "ye");
    // The tokens of the stop string were made, so their probabilities are told.
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    assert_eq!(bytes, b"yes4");
    assert!(tokens.iter().all(|token| token.logprob == -0.25));
    assert_eq!(tokens[0].top, [(97, b"a".to_vec(), -0.5), (98, b"b".to_vec(), -1.5)]);
}

#[test]
fn every_step_leaves_a_record() {
    let runner = super::echo().failing_at(3, FakeFailure::Error(RunError::Device("lost".to_string())));
    let mut bench = Bench::new(runner, &limits());
    let mut generation = bench.submit("a prompt of twenty-four.");
    bench.run_dry();
    assert!(matches!(read(&mut generation).1.reason, FinishReason::Failed(_)));
    let records = bench.engine.step_records(0);
    let prefill: Vec<_> = records.iter().map(|record| record.shape.prefill_tokens).collect();
    // Sixteen of the prompt, eight with the first draw, then decodes, of which the second fails.
    assert_eq!(prefill, [16, 8, 0, 0]);
    assert_eq!(records.iter().map(|record| record.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(records.iter().map(|record| record.failed).collect::<Vec<_>>(), [false, false, false, true]);
    assert_eq!(records[1].began.since(records[0].began), STEP);
    assert_eq!(bench.engine.step_records(3), records[3..]);
    let stats = bench.engine.stats();
    assert_eq!((stats.prefill_tokens, stats.decode_tokens, stats.steps_failed), (24, 2, 1));
    assert_eq!((stats.prefix_query_tokens, stats.prefix_hit_tokens), (24, 0));
}

#[test]
fn times_count_from_submission_and_include_those_who_left() {
    // Each answer is its prompt and an end: four tokens, one a step, the first with the whole prompt.
    let mut bench = Bench::echo();
    let mut whole = bench.submit("abc");
    let left = bench.submit("xyz");
    bench.steps(2);
    drop(left);
    bench.run_dry();
    assert_eq!(read(&mut whole).1.usage.completion_tokens, 4);
    let times = bench.engine.stats().histograms;
    let counts = [&times.first_token, &times.token_gap, &times.queue, &times.prefill, &times.total];
    assert_eq!(counts.map(Histogram::count), [2, 3 + 1, 2, 2, 2]);
    // The clock stands still within a step, so a first token that comes with the first step took no time.
    assert_eq!(times.first_token.sum(), Duration::ZERO);
    assert_eq!(times.token_gap.sum(), STEP * 4);
    assert_eq!(times.decode.sum(), STEP * 3 + STEP);
    assert_eq!(times.token_mean.sum(), STEP * 2);
}
