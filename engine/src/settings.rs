//! Are the settings of a request in range? Checked once, at submission, so that no floor below has to.

use crate::{GenerateRequest, SubmitError};
use budgets::Limits;
use sched::{Refused, RunnerLimits, Sampling, TokenId};
use std::collections::HashSet;

/// As many likeliest tokens as the OpenAI API reports at most.
pub const TOP_LOGPROBS_MAX: usize = 20;
/// As many biased tokens as the OpenAI API takes at most.
pub const LOGIT_BIASES_MAX: usize = 1_024;

/// Checks `request` against the service's limits and the runner's.
///
/// # Errors
/// Names the first setting that is out of range, and the range.
pub(crate) fn check(
    request: &GenerateRequest,
    limits: &Limits,
    runner: &RunnerLimits,
) -> Result<(), SubmitError> {
    check_sampling(&request.sampling)?;
    check_stops(&request.stop, limits)?;
    check_bias(&request.sampling.logit_bias, runner)?;
    let tokens = request.prompt.len();
    rule((1..=limits.output_tokens_max).contains(&request.output_tokens_max), || {
        format!(
            "output_tokens_max is {}; it must be 1 to {}",
            request.output_tokens_max, limits.output_tokens_max
        )
    })?;
    rule(request.output_tokens_min <= request.output_tokens_max, || {
        format!(
            "output_tokens_min is {}; it must not exceed output_tokens_max, which is {}",
            request.output_tokens_min, request.output_tokens_max
        )
    })?;
    rule(request.space.adapter.is_none(), || "no adapter is loaded".to_string())?;
    if tokens > limits.prompt_tokens_max {
        return Err(SubmitError::PromptTooLong { tokens, max: limits.prompt_tokens_max });
    }
    let outside = request.prompt.iter().find(|token| **token as usize >= runner.vocab_tokens);
    rule(outside.is_none(), || {
        let token = outside.copied().unwrap_or_default();
        format!("prompt token {token} is outside the vocabulary of {} tokens", runner.vocab_tokens)
    })?;
    runner.worst_case(tokens, request.output_tokens_max).map(|_| ()).map_err(refused)
}

/// The scheduler's refusals as the caller sees them.
pub(crate) fn refused(refused: Refused) -> SubmitError {
    match refused {
        Refused::EmptyPrompt => SubmitError::EmptyPrompt,
        Refused::NoOutput => SubmitError::InvalidSetting(refused.to_string()),
        Refused::NeverFits { tokens, max } => SubmitError::PromptTooLong { tokens, max },
        Refused::QueueFull { waiting } => SubmitError::QueueFull { waiting },
    }
}

fn check_sampling(sampling: &Sampling) -> Result<(), SubmitError> {
    // NaN is in no range, so these refuse it too.
    let Sampling { temperature, top_p, min_p, repetition_penalty, top_logprobs, .. } = *sampling;
    rule((0.0..=2.0).contains(&temperature), || format!("temperature is {temperature}; it must be 0 to 2"))?;
    rule(top_p > 0.0 && top_p <= 1.0, || format!("top_p is {top_p}; it must be above 0 and at most 1"))?;
    rule((0.0..=1.0).contains(&min_p), || format!("min_p is {min_p}; it must be 0 to 1"))?;
    rule(repetition_penalty > 0.0 && repetition_penalty.is_finite(), || {
        format!("repetition_penalty is {repetition_penalty}; it must be above 0 and finite")
    })?;
    rule(top_logprobs.is_none_or(|count| count <= TOP_LOGPROBS_MAX), || {
        format!("top_logprobs must be 0 to {TOP_LOGPROBS_MAX}")
    })
}

fn check_bias(biases: &[(TokenId, f32)], runner: &RunnerLimits) -> Result<(), SubmitError> {
    rule(biases.len() <= LOGIT_BIASES_MAX, || format!("logit_bias has more than {LOGIT_BIASES_MAX} tokens"))?;
    let unknown = biases.iter().find(|(token, _)| *token as usize >= runner.vocab_tokens);
    rule(unknown.is_none(), || {
        let token = unknown.map_or(0, |(token, _)| *token);
        format!("logit_bias names token {token}, and the vocabulary has {}", runner.vocab_tokens)
    })?;
    let distinct: HashSet<TokenId> = biases.iter().map(|(token, _)| *token).collect();
    rule(distinct.len() == biases.len(), || "logit_bias names a token twice".to_string())?;
    // NaN is in no range.
    rule(biases.iter().all(|(_, bias)| (-100.0..=100.0).contains(bias)), || {
        "a logit_bias is outside -100 to 100".to_string()
    })
}

fn check_stops(stops: &[String], limits: &Limits) -> Result<(), SubmitError> {
    let (count, bytes) = (limits.stop_strings_max, limits.stop_string_bytes_max);
    rule(stops.len() <= count, || format!("{} stop strings; at most {count} are taken", stops.len()))?;
    rule(stops.iter().all(|stop| !stop.is_empty()), || "a stop string is empty".to_string())?;
    rule(stops.iter().all(|stop| stop.len() <= bytes), || {
        format!("a stop string is too long; at most {bytes} bytes are taken")
    })
}

fn rule(holds: bool, broken: impl FnOnce() -> String) -> Result<(), SubmitError> {
    if holds { Ok(()) } else { Err(SubmitError::InvalidSetting(broken())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNER: RunnerLimits =
        RunnerLimits { block_tokens: 16, blocks_total: 1_000, context_tokens_max: 2_048, vocab_tokens: 300 };

    fn request() -> GenerateRequest {
        GenerateRequest::new(vec![1, 2, 3], 10)
    }

    /// Changes a good request and checks that the refusal names `setting`; an empty name means that it is taken.
    fn invalid(setting: &str, change: impl FnOnce(&mut GenerateRequest)) {
        let mut request = request();
        change(&mut request);
        match check(&request, &Limits::default(), &RUNNER) {
            Ok(()) => assert!(setting.is_empty(), "{setting} was taken"),
            Err(SubmitError::InvalidSetting(message)) => {
                assert!(!setting.is_empty() && message.contains(setting), "{setting}: {message}");
            }
            Err(other) => panic!("{setting}: {other}"),
        }
    }

    #[test]
    fn every_setting_has_a_range() {
        invalid("", |_| {});
        invalid("", |request| request.sampling.temperature = 2.0);
        invalid("temperature", |request| request.sampling.temperature = 2.01);
        invalid("temperature", |request| request.sampling.temperature = -0.1);
        invalid("temperature", |request| request.sampling.temperature = f32::NAN);
        invalid("top_p", |request| request.sampling.top_p = 0.0);
        invalid("top_p", |request| request.sampling.top_p = 1.1);
        invalid("top_p", |request| request.sampling.top_p = f32::NAN);
        invalid("min_p", |request| request.sampling.min_p = -0.1);
        invalid("min_p", |request| request.sampling.min_p = f32::INFINITY);
        invalid("repetition_penalty", |request| request.sampling.repetition_penalty = 0.0);
        invalid("repetition_penalty", |request| request.sampling.repetition_penalty = f32::INFINITY);
        invalid("output_tokens_max", |request| request.output_tokens_max = 0);
        invalid("output_tokens_max", |request| request.output_tokens_max = 1_025);
        invalid("stop strings", |request| request.stop = vec!["x".to_string(); 9]);
        invalid("empty", |request| request.stop = vec![String::new()]);
        invalid("", |request| request.stop = vec!["x".repeat(256); 8]);
        invalid("too long", |request| request.stop = vec!["x".repeat(257)]);
        invalid("vocabulary", |request| request.prompt = vec![300]);
        invalid("", |request| request.output_tokens_min = 10);
        invalid("output_tokens_min", |request| request.output_tokens_min = 11);
        invalid("", |request| request.sampling.top_logprobs = Some(20));
        invalid("top_logprobs", |request| request.sampling.top_logprobs = Some(21));
        invalid("", |request| request.sampling.logit_bias = vec![(299, -100.0), (0, 100.0)]);
        invalid("vocabulary", |request| request.sampling.logit_bias = vec![(300, 1.0)]);
        invalid("outside", |request| request.sampling.logit_bias = vec![(1, 100.5)]);
        invalid("outside", |request| request.sampling.logit_bias = vec![(1, f32::NAN)]);
        invalid("twice", |request| request.sampling.logit_bias = vec![(1, 1.0), (1, 2.0)]);
        invalid("more than", |request| {
            request.sampling.logit_bias = (0..1_025).map(|_| (1, 0.0)).collect();
        });
        invalid("adapter", |request| request.space.adapter = Some(sched::AdapterId(1)));
    }

    #[test]
    fn a_prompt_must_be_there_and_fit() {
        let check = |prompt: usize| {
            let request = GenerateRequest { prompt: vec![1; prompt], ..request() };
            check(&request, &Limits { prompt_tokens_max: 4_000, ..Limits::default() }, &RUNNER)
        };
        assert_eq!(check(0), Err(SubmitError::EmptyPrompt));
        assert_eq!(check(2_047), Ok(()));
        assert_eq!(check(2_048), Err(SubmitError::PromptTooLong { tokens: 2_048, max: 2_047 }));
        assert_eq!(check(4_001), Err(SubmitError::PromptTooLong { tokens: 4_001, max: 4_000 }));
    }
}
