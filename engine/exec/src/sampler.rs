//! Which token comes next? A pure function of the logits, the settings, and one random number fixed by seed and index.

use kernels::Isa;
use sched::{Draw, Sampling, TokenId, TokenMask};
use std::cmp::Ordering;
use thiserror::Error;

/// The largest bias on a logit, either way: with it a token is as good as chosen, or as good as banned.
pub const LOGIT_BIAS_MAX: f32 = 100.0;

/// Logits or settings that no token can be drawn from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SampleError {
    /// No finite number among the logits, or something that is no number.
    #[error("the logits hold no finite number, or something that is not a number")]
    NotFinite,
    /// Bans, mask and bias together exclude every token.
    #[error("no token is allowed: the bans, the grammar and the logit bias together exclude all of them")]
    NoneAllowed,
    /// A setting out of range.
    #[error("sampling: {0}")]
    Setting(&'static str),
}

/// A drawn token with what the model thought of it and of the likeliest ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: TokenId,
    /// Natural logarithm of its probability under the unchanged logits.
    pub logprob: f32,
    /// The likeliest tokens under the unchanged logits, likeliest first, equal ones by token.
    pub top: Vec<(TokenId, f32)>,
}

/// A token that may still be drawn, with its probability up to a common factor.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: TokenId,
    weight: f32,
}

/// Draws the next token.
///
/// Order: logit bias; banned tokens and those outside the mask; repetition penalty; greedy at temperature 0; else
/// temperature, top-k, top-p (over what top-k left), min-p, draw. Probabilities are told of the logits before all of
/// it. `logits` is scratch: it is changed in place. `-inf` excludes a token; ids outside the vocabulary mean nothing.
///
/// # Errors
/// See [`SampleError`].
pub fn draw(logits: &mut [f32], draw: &Draw) -> Result<Choice, SampleError> {
    let sampling = &*draw.sampling;
    check(sampling)?;
    let normalizer = normalizer(logits)?;
    let logprob = |logit: f32| (f64::from(logit) - normalizer) as f32;
    let mut top = likeliest(logits, sampling.top_logprobs.unwrap_or(0));
    top.iter_mut().for_each(|(_, value)| *value = logprob(*value));
    // What changed logits were before; the first entry of a token is the unchanged one.
    let mut before = Vec::new();
    add_bias(logits, &sampling.logit_bias, &mut before);
    exclude(logits, &draw.banned, draw.allowed.as_deref());
    penalize(logits, &draw.seen, sampling.repetition_penalty, &mut before);
    let (largest, max) = largest(logits);
    if max == f32::NEG_INFINITY {
        return Err(SampleError::NoneAllowed);
    }
    let token = if sampling.temperature == 0.0 {
        largest
    } else {
        // Nothing is left of min-p to do when no other filter comes before it.
        let alone = sampling.top_k == 0 && sampling.top_p == 1.0;
        let least = if alone { sampling.min_p } else { 0.0 };
        let candidates = filter(weigh(logits, (largest, max), sampling.temperature, least), sampling);
        pick(&candidates, uniform(sampling.seed, draw.index))
    };
    let unchanged =
        before.iter().find(|(id, _)| *id == token).map_or(logits[token as usize], |(_, logit)| *logit);
    Ok(Choice { token, logprob: logprob(unchanged), top })
}

fn check(sampling: &Sampling) -> Result<(), SampleError> {
    let finite_at_least_0 = |x: f32| x.is_finite() && x >= 0.0;
    if !finite_at_least_0(sampling.temperature) {
        return Err(SampleError::Setting("temperature must be a number of at least 0"));
    }
    if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
        return Err(SampleError::Setting("top_p must be above 0 and at most 1"));
    }
    if !(finite_at_least_0(sampling.min_p) && sampling.min_p <= 1.0) {
        return Err(SampleError::Setting("min_p must be from 0 to 1"));
    }
    if !(sampling.repetition_penalty.is_finite() && sampling.repetition_penalty > 0.0) {
        return Err(SampleError::Setting("repetition_penalty must be above 0"));
    }
    // A NaN fails the comparison.
    if !sampling.logit_bias.iter().all(|(_, bias)| bias.abs() <= LOGIT_BIAS_MAX) {
        return Err(SampleError::Setting("logit_bias must be from -100 to 100"));
    }
    Ok(())
}

/// The `count` largest logits, largest first, equal ones by token; excluded tokens are left out.
fn likeliest(logits: &[f32], count: usize) -> Vec<(TokenId, f32)> {
    let mut top: Vec<(TokenId, f32)> = Vec::new();
    if count == 0 {
        return top;
    }
    // Few logits beat the least of the list so far, so nearly all cost one comparison.
    let mut least = f32::NEG_INFINITY;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > least {
            let at = top.partition_point(|(_, other)| other >= logit);
            top.insert(at, (token as TokenId, *logit));
            top.truncate(count);
            if top.len() == count {
                least = top[count - 1].1;
            }
        }
    }
    top
}

/// Adds the biases and keeps what the logits were.
fn add_bias(logits: &mut [f32], biases: &[(TokenId, f32)], before: &mut Vec<(TokenId, f32)>) {
    for (token, bias) in biases {
        if let Some(logit) = logits.get_mut(*token as usize) {
            before.push((*token, *logit));
            *logit += bias;
        }
    }
}

/// Excludes banned tokens and those outside the mask.
fn exclude(logits: &mut [f32], banned: &[TokenId], allowed: Option<&TokenMask>) {
    if let Some(mask) = allowed {
        for (at, logits) in logits.chunks_mut(32).enumerate() {
            let word = mask.words.get(at).copied().unwrap_or(0);
            if word != u32::MAX {
                let outside = |bit: usize| word >> bit & 1 == 0;
                let logits = logits.iter_mut().enumerate().filter(|(bit, _)| outside(*bit));
                logits.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
            }
        }
    }
    for token in banned {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// The logarithm of the sum of exponentials, which turns logits into logarithmic probabilities.
fn normalizer(logits: &[f32]) -> Result<f64, SampleError> {
    let (sum, top) = kernels::log_sum_exp(Isa::detect(), logits);
    if sum.is_nan() || top == f32::NEG_INFINITY { Err(SampleError::NotFinite) } else { Ok(sum) }
}

/// Lowers the logits of seen tokens, each once, and keeps what they were.
fn penalize(logits: &mut [f32], seen: &[TokenId], penalty: f32, before: &mut Vec<(TokenId, f32)>) {
    if penalty == 1.0 || seen.is_empty() {
        return;
    }
    let mut distinct = seen.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    for token in distinct {
        if let Some(logit) = logits.get_mut(token as usize) {
            before.push((token, *logit));
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
}

/// The largest logit and the lowest token that has it.
fn largest(logits: &[f32]) -> (TokenId, f32) {
    // Sixteen running maxima, which the compiler keeps in registers; then one look for where the largest stands.
    let (chunks, rest) = logits.as_chunks::<16>();
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut tops = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (top, logit) in tops.iter_mut().zip(chunk) {
            *top = larger(*top, *logit);
        }
    }
    let top = tops.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger);
    let at = logits.iter().position(|logit| *logit == top).unwrap_or(0);
    (at as TokenId, top)
}

/// Weights relative to the likeliest token, whose weight is 1. Those below `least` are left out, and those that vanish:
/// e^-87 and less.
fn weigh(logits: &[f32], (likeliest, max): (TokenId, f32), temperature: f32, least: f32) -> Vec<Candidate> {
    let mut weights = vec![0.0; logits.len()];
    kernels::exponentials(Isa::detect(), logits, max, temperature, &mut weights);
    // At a tiny temperature 0 / 0 comes out for the likeliest itself.
    if let Some(weight) = weights.get_mut(likeliest as usize) {
        *weight = 1.0;
    }
    let candidate = |(token, weight): (usize, &f32)| {
        (*weight > 0.0 && *weight >= least).then_some(Candidate { token: token as TokenId, weight: *weight })
    };
    weights.iter().enumerate().filter_map(candidate).collect()
}

/// Likelier first; equal ones by token, so that the order does not depend on how it was reached.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.weight.total_cmp(&a.weight).then(a.token.cmp(&b.token))
}

/// Applies top-k, top-p and min-p.
fn filter(mut candidates: Vec<Candidate>, sampling: &Sampling) -> Vec<Candidate> {
    if sampling.top_k > 0 && sampling.top_k < candidates.len() {
        candidates.select_nth_unstable_by(sampling.top_k - 1, likelier);
        candidates.truncate(sampling.top_k);
        candidates.sort_unstable_by(likelier);
    }
    if sampling.top_p < 1.0 {
        keep_nucleus(&mut candidates, f64::from(sampling.top_p));
    }
    if sampling.min_p > 0.0 {
        // The likeliest weighs 1, so its share is the weight itself.
        candidates.retain(|candidate| candidate.weight >= sampling.min_p);
    }
    candidates
}

/// Keeps the smallest set of the likeliest whose share reaches `top_p`. The set is nearly always small beside the
/// vocabulary, so ever larger heads are selected and sorted instead of everything.
fn keep_nucleus(candidates: &mut Vec<Candidate>, top_p: f64) {
    let target = top_p * candidates.iter().map(|candidate| f64::from(candidate.weight)).sum::<f64>();
    let mut head = 64;
    loop {
        if head < candidates.len() {
            candidates.select_nth_unstable_by(head - 1, likelier);
        } else {
            head = candidates.len();
        }
        candidates[..head].sort_unstable_by(likelier);
        let mut sum = 0.0;
        let reached = candidates[..head].iter().position(|candidate| {
            sum += f64::from(candidate.weight);
            sum >= target
        });
        match reached {
            Some(last) => return candidates.truncate(last + 1),
            None if head == candidates.len() => return,
            None => head *= 8,
        }
    }
}

/// The candidate under the point `share` of the total weight.
fn pick(candidates: &[Candidate], share: f64) -> TokenId {
    let mut left = share * candidates.iter().map(|candidate| f64::from(candidate.weight)).sum::<f64>();
    for candidate in candidates {
        left -= f64::from(candidate.weight);
        if left < 0.0 {
            return candidate.token;
        }
    }
    // Rounding can leave a hair at the end.
    candidates.last().map_or(0, |candidate| candidate.token)
}

/// A number from 0 up to 1 (excluded) that depends on seed and index alone, on every platform: the SplitMix64
/// generator (Steele, Lea, Flood 2014) jumped to its `index`-th output, with a mixed seed as its start so that
/// neighbouring seeds do not give shifted copies of one sequence.
fn uniform(seed: u64, index: u64) -> f64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = mix(seed.wrapping_add(STEP));
    let bits = mix(start.wrapping_add(STEP.wrapping_mul(index.wrapping_add(1))));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
