//! What comes out of a stream that runs to its own end, alone and beside others?

use super::{Bench, RUNNER, STEP, delta, limits, read, read_reason, request};
use crate::worker::Turn;
use crate::{ByteCodec, Event, FinishReason, GenerateRequest, SubmitError, Timing, Usage};
use sched::FakeRunner;
use std::time::Duration;

#[test]
fn an_answer_streams_and_ends_with_counts_and_times() {
    let mut bench = Bench::echo();
    bench.clock.advance(STEP);
    let mut generation = bench.submit("hello");
    bench.clock.advance(STEP * 3);
    bench.steps(2);
    assert_eq!(generation.ready(), ["h", "e"].map(delta));
    bench.run_dry();
    let (text, finished) = read(&mut generation);
    assert_eq!((text.as_str(), finished.reason), ("llo", FinishReason::EndOfText));
    assert_eq!(finished.usage, Usage { prompt_tokens: 5, cached_tokens: 0, completion_tokens: 6 });
    // The manual clock moves between steps only, so the first token comes when its step begins.
    let timing =
        Timing { queue: STEP * 3, prefill: Duration::ZERO, decode: STEP * 5, first_token: Some(STEP * 3) };
    assert_eq!(finished.timing, timing);
    bench.assert_baseline();
    let stats = bench.engine.stats();
    assert_eq!((stats.prompt_tokens, stats.completion_tokens), (5, 6));
    assert_eq!((stats.steps, stats.prefill_tokens, stats.decode_tokens), (6, 5, 5));
    assert_eq!((stats.finished.end_of_text, stats.finished.total()), (1, 1));
}

#[test]
fn a_long_prompt_takes_chunks_and_its_time_counts_as_prefill() {
    let mut bench = Bench::echo();
    let mut generation = bench.submit(&"x".repeat(40));
    bench.steps(2);
    assert!(generation.ready().is_empty());
    bench.run_dry();
    let (_, finished) = read(&mut generation);
    assert_eq!(finished.timing.prefill, STEP * 2);
    assert_eq!(finished.timing.first_token, Some(STEP * 2));
    let chunks: Vec<usize> = bench.log.plans().iter().take(3).map(|plan| plan.rows[0].tokens.len()).collect();
    assert_eq!(chunks, [16, 16, 8]);
}

#[test]
fn requests_decode_together() {
    let mut bench = Bench::echo();
    let prompts = ["one", "two!", "three"];
    let mut generations = prompts.map(|prompt| bench.submit(prompt));
    bench.run_dry();
    for (generation, prompt) in generations.iter_mut().zip(prompts) {
        assert_eq!(read_reason(generation), (prompt.to_string(), FinishReason::EndOfText));
    }
    let decodes = |plan: &sched::StepPlan| {
        plan.rows.iter().filter(|row| row.draw.as_ref().is_some_and(|draw| draw.index > 0)).count()
    };
    let widths: Vec<usize> = bench.log.plans().iter().map(decodes).collect();
    assert_eq!(widths, [0, 3, 3, 3, 2, 1]);
}

#[test]
fn a_newcomer_joins_the_running_batch() {
    let mut bench = Bench::echo();
    let mut first = bench.submit("a long answer");
    bench.steps(3);
    let mut second = bench.submit("hi");
    bench.steps(3);
    assert_eq!(read_reason(&mut second), ("hi".to_string(), FinishReason::EndOfText));
    bench.run_dry();
    assert_eq!(read_reason(&mut first).0, "a long answer");
}

#[test]
fn stop_strings_work_across_tokens() {
    let mut bench = Bench::echo();
    let stop = vec!["STOP".to_string(), "never".to_string()];
    let mut generation =
        bench.engine.submit(GenerateRequest { stop, ..request("one STO two STOP three") }).unwrap();
    bench.run_dry();
    let (text, finished) = read(&mut generation);
    assert_eq!(text, "one STO two ");
    assert_eq!(finished.reason, FinishReason::StopString("STOP".to_string()));
    assert_eq!(finished.usage.completion_tokens, 16);
    assert_eq!(bench.log.steps(), 17, "two prefill chunks, then no step after the stop string");
    bench.assert_baseline();
}

#[test]
fn what_looked_like_a_stop_string_comes_out_at_the_end() {
    let mut bench = Bench::echo();
    let stop = vec!["STOP".to_string()];
    let mut generation = bench.engine.submit(GenerateRequest { stop, ..request("go STO") }).unwrap();
    bench.run_dry();
    assert_eq!(read_reason(&mut generation), ("go STO".to_string(), FinishReason::EndOfText));
}

#[test]
fn characters_of_many_tokens_are_never_split() {
    let mut bench = Bench::echo();
    let mut generation = bench.submit("né😀");
    bench.run_dry();
    let deltas: Vec<Event> = ["n", "é", "😀"].map(delta).into();
    assert_eq!(generation.ready()[..3], deltas);
}

#[test]
fn the_length_ends_an_answer_and_the_context_does_too() {
    let endless = FakeRunner::new(RUNNER, |_| u32::from(b'z'));
    let mut bench = Bench::new(endless, &limits());
    let mut short = bench.engine.submit(GenerateRequest { output_tokens_max: 3, ..request("a") }).unwrap();
    let mut long = bench
        .engine
        .submit(GenerateRequest { output_tokens_max: 1_000, ..request(&"a".repeat(100)) })
        .unwrap();
    bench.run_dry();
    assert_eq!(read_reason(&mut short), ("zzz".to_string(), FinishReason::Length));
    let (text, finished) = read(&mut long);
    assert_eq!((text.len(), finished.reason), (28, FinishReason::Length));
    bench.assert_baseline();
}

#[test]
fn a_reader_that_reads_nothing_until_the_end_misses_nothing() {
    let mut bench = Bench::new(FakeRunner::new(RUNNER, |_| u32::from(b'z')), &limits());
    let mut generation =
        bench.engine.submit(GenerateRequest { output_tokens_max: 90, ..request("a") }).unwrap();
    bench.run_dry();
    assert_eq!(read_reason(&mut generation), ("z".repeat(90), FinishReason::Length));
}

#[test]
fn what_does_not_fit_yet_does_not_block_what_does() {
    let mut bench = Bench::echo();
    let mut first = bench.submit("first");
    bench.step();
    // 31 blocks, and the first request leaves 30.
    let wide = GenerateRequest { output_tokens_max: 4, ..request(&"h".repeat(122)) };
    let mut head = bench.engine.submit(wide).unwrap();
    let mut small = bench.engine.submit(GenerateRequest { output_tokens_max: 2, ..request("ok") }).unwrap();
    bench.steps(2);
    assert_eq!(read_reason(&mut small), ("ok".to_string(), FinishReason::Length));
    assert!(head.ready().is_empty());
    assert_eq!(bench.engine.stats().waiting, 1);
    bench.run_dry();
    assert_eq!(read_reason(&mut first).1, FinishReason::EndOfText);
    assert_eq!(read_reason(&mut head), ("hhhh".to_string(), FinishReason::Length));
}

#[test]
fn the_door_refuses_with_a_reason() {
    let bench = Bench::echo();
    let refuse = |request: GenerateRequest| bench.engine.submit(request).err().unwrap();
    assert_eq!(refuse(request("")), SubmitError::EmptyPrompt);
    assert_eq!(refuse(request(&"x".repeat(128))), SubmitError::PromptTooLong { tokens: 128, max: 127 });
    let hot = sched::Sampling { temperature: 3.0, ..sched::Sampling::default() };
    assert!(matches!(
        refuse(GenerateRequest { sampling: hot, ..request("x") }),
        SubmitError::InvalidSetting(_)
    ));
    let waiting: Vec<_> = (0..8).map(|_| bench.submit("x")).collect();
    assert_eq!(refuse(request("x")), SubmitError::QueueFull { waiting: 8 });
    assert_eq!((bench.engine.stats().waiting, bench.engine.stats().queue_full), (8, 1));
    drop(waiting);
}

#[test]
fn a_place_in_the_queue_is_free_again_when_its_request_runs() {
    let mut bench = Bench::echo();
    let _eight: Vec<_> = (0..8).map(|_| bench.submit("x")).collect();
    assert!(bench.engine.submit(request("x")).is_err());
    assert_eq!(bench.step(), Turn::Worked);
    assert_eq!(bench.engine.stats().waiting, 4);
    let _four: Vec<_> = (0..4).map(|_| bench.submit("x")).collect();
    assert_eq!(bench.engine.submit(request("x")).err(), Some(SubmitError::QueueFull { waiting: 8 }));
}

#[test]
fn text_goes_through_the_codec() {
    let bench = Bench::echo();
    assert_eq!(bench.engine.encode("ab"), [97, 98]);
    let hello = crate::ChatMessage { role: crate::Role::User, content: "hi".to_string() };
    let opens = ByteCodec::opens;
    assert_eq!(
        bench.engine.encode_chat(&[hello]).unwrap(),
        [opens(crate::Role::User), 104, 105, ByteCodec::END, opens(crate::Role::Assistant)]
    );
    assert_eq!(bench.engine.info().blocks_total, RUNNER.blocks_total);
}
