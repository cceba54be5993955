//! What does a request gain from those before it, and does it keep its times when it gives way?

use super::{Bench, STEP, limits, read, request};
use crate::{ByteCodec, FinishReason, GenerateRequest, Tenant};
use budgets::Limits;
use sched::{FakeRunner, RunnerLimits};
use std::time::Duration;

/// The cached prompt tokens of each request, one after another.
fn cached(requests: impl IntoIterator<Item = GenerateRequest>) -> Vec<usize> {
    let mut bench = Bench::echo();
    let used = requests.into_iter().map(|request| {
        let mut generation = bench.engine.submit(request).unwrap();
        bench.run_dry();
        read(&mut generation).1.usage.cached_tokens
    });
    used.collect()
}

#[test]
fn all_but_the_last_token_of_a_known_prompt_is_cached() {
    let prompt = "the very same prompt";
    assert_eq!(cached([request(prompt), request(prompt)]), [0, prompt.len() - 1]);
    // A shorter prompt uses a part of a block, a longer one all there is.
    assert_eq!(cached([request(prompt), request(&prompt[..9])]), [0, 8]);
    assert_eq!(cached([request("abc"), request("abx and more")]), [0, 2]);
    assert_eq!(cached([request("abc"), request("xbc")]), [0, 0]);
}

#[test]
fn the_next_turn_finds_what_was_generated() {
    // The model echoes the prompt; its last token, the end, is drawn and never computed.
    let first = "question ";
    let second = "question question and the next one";
    assert_eq!(cached([request(first), request(second)]), [0, 2 * first.len()]);
}

#[test]
fn tenants_share_the_service_s_own_prefix_and_nothing_else() {
    let of = |tenant, prompt: &str| GenerateRequest {
        tenant: Tenant(tenant),
        shared_tokens: 10,
        ..request(prompt)
    };
    let prompt = "systemtext and a private question";
    // Blocks of four: two lie in the ten shared tokens, the third holds two private ones.
    assert_eq!(cached([of(1, prompt), of(2, prompt), of(1, prompt)]), [0, 8, prompt.len() - 1]);
}

#[test]
fn adapters_are_refused_until_there_are_some() {
    let bench = Bench::echo();
    let mut foreign = request("x");
    foreign.space.adapter = Some(sched::AdapterId(1));
    assert!(bench.engine.submit(foreign).is_err());
}

/// Fits into eight blocks, and two of them do not.
fn short(prompt: &str) -> GenerateRequest {
    GenerateRequest { output_tokens_max: 16, ..request(prompt) }
}

#[test]
fn a_preempted_request_keeps_its_first_token_s_time_and_its_text() {
    // Eight blocks of four tokens; each request grows to six of them.
    let small = RunnerLimits { blocks_total: 8, ..super::RUNNER };
    let runner = FakeRunner::replying(small, ByteCodec::END, <[u32]>::to_vec);
    let mut bench = Bench::new(runner, &Limits { step_prefill_tokens_max: 32, ..limits() });
    let mut patient = bench.engine.submit(short("patientone!!")).unwrap();
    bench.step();
    let urgent = GenerateRequest { deadline: bench.deadline(100), ..short("urgent two!!") };
    let mut urgent = bench.engine.submit(urgent).unwrap();
    bench.run_dry();
    let (text, finished) = read(&mut urgent);
    assert_eq!((text.as_str(), finished.reason), ("urgent two!!", FinishReason::EndOfText));
    let (text, finished) = read(&mut patient);
    assert_eq!((text.as_str(), finished.reason), ("patientone!!", FinishReason::EndOfText));
    assert!(bench.engine.stats().preemptions > 0, "the test tests nothing");
    // The manual clock moves between steps, so the step itself takes no time.
    assert_eq!(finished.timing.first_token, Some(Duration::ZERO));
    assert!(finished.timing.decode > STEP * 12, "it waited while the other ran: {:?}", finished.timing);
    assert_eq!(finished.usage.completion_tokens, 13);
    assert_eq!(finished.usage.cached_tokens, 0);
}

#[test]
fn an_expired_request_is_not_computed_again_after_it_gave_way() {
    let small = RunnerLimits { blocks_total: 8, ..super::RUNNER };
    let runner = FakeRunner::new(small, |_| u32::from(b'z'));
    let mut bench = Bench::new(runner, &Limits { step_prefill_tokens_max: 32, ..limits() });
    let patient = GenerateRequest { deadline: bench.deadline(9), ..short("patientone!!") };
    let mut patient = bench.engine.submit(patient).unwrap();
    bench.step();
    let urgent = GenerateRequest { deadline: bench.deadline(7), ..short("urgent two!!") };
    let mut urgent = bench.engine.submit(urgent).unwrap();
    bench.run_dry();
    assert_eq!(read(&mut patient).1.reason, FinishReason::ExpiredInDecode);
    assert_eq!(read(&mut urgent).1.reason, FinishReason::ExpiredInDecode);
    // One plan a turn while there is work: the last that may hold the patient one is that of turn 8.
    let plans = bench.log.plans();
    let last = plans.iter().rposition(|plan| plan.rows.iter().any(|row| row.seq.0 == 0));
    assert!(bench.engine.stats().preemptions > 0 && last <= Some(8), "{last:?}");
    bench.assert_baseline();
}
