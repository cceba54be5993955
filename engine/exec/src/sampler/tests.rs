//! Is the right token drawn, and the same one for the same seed and index?

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn settings() -> Sampling {
    Sampling { temperature: 1.0, ..Sampling::default() }
}

fn plan(sampling: &Sampling, index: u64) -> Draw {
    Draw { sampling: Arc::new(sampling.clone()), index, seen: vec![], banned: Arc::new([]), allowed: None }
}

fn draw_at(logits: &[f32], sampling: &Sampling, index: u64, seen: &[TokenId]) -> (TokenId, f32) {
    let plan = Draw { seen: seen.to_vec(), ..plan(sampling, index) };
    let choice = draw(&mut logits.to_vec(), &plan).unwrap();
    (choice.token, choice.logprob)
}

/// The logarithm of each token's probability, in float64 throughout.
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
    logits.iter().map(|logit| f64::from(*logit) - sum.ln()).collect()
}

fn mask(allowed: impl IntoIterator<Item = TokenId>) -> Arc<TokenMask> {
    let mut words = Vec::new();
    for token in allowed {
        words.resize(words.len().max(token as usize / 32 + 1), 0);
        words[token as usize / 32] |= 1 << (token % 32);
    }
    Arc::new(TokenMask { words })
}

fn drawn_set(logits: &[f32], sampling: &Sampling) -> BTreeSet<TokenId> {
    (0..4_000).map(|index| draw_at(logits, sampling, index, &[]).0).collect()
}

/// Pearson's statistic of 20,000 draws against `shares`.
fn chi_square(logits: &[f32], sampling: &Sampling, shares: &[f64]) -> f64 {
    const DRAWS: u64 = 20_000;
    let mut counts = vec![0_u64; shares.len()];
    for index in 0..DRAWS {
        counts[draw_at(logits, sampling, index, &[]).0 as usize] += 1;
    }
    let term = |(count, share): (&u64, &f64)| {
        let expected = share * DRAWS as f64;
        if expected == 0.0 {
            assert_eq!(*count, 0);
            return 0.0;
        }
        (*count as f64 - expected).powi(2) / expected
    };
    counts.iter().zip(shares).map(term).sum()
}

#[test]
fn draws_follow_the_softmax() {
    // Probabilities 0.4, 0.3, 0.15, 0.1, 0.05. With four degrees of freedom 18.47 is exceeded once in a thousand.
    let shares = [0.4_f64, 0.3, 0.15, 0.1, 0.05];
    let logits: Vec<f32> = shares.iter().map(|p| p.ln() as f32 + 3.0).collect();
    for seed in 0..4 {
        let statistic = chi_square(&logits, &Sampling { seed, ..settings() }, &shares);
        assert!(statistic < 18.47, "seed {seed}: {statistic}");
    }
    // Temperature 2 takes square roots: 0.632, 0.548, 0.387, 0.316, 0.224, which sum to 2.107.
    let roots: Vec<f64> = shares.iter().map(|p| p.sqrt()).collect();
    let total: f64 = roots.iter().sum();
    let softened: Vec<f64> = roots.iter().map(|r| r / total).collect();
    assert!(chi_square(&logits, &Sampling { temperature: 2.0, ..settings() }, &softened) < 18.47);
    // Top-k 2 leaves 4/7 and 3/7: one degree of freedom, 10.83.
    let kept = [4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0, 0.0];
    assert!(chi_square(&logits, &Sampling { top_k: 2, ..settings() }, &kept) < 10.83);
}

#[test]
fn filters_keep_what_they_should() {
    let logits: Vec<f32> = [0.4_f32, 0.3, 0.15, 0.1, 0.05].iter().map(|p| p.ln()).collect();
    let check = |sampling: Sampling, expected: &[TokenId]| {
        assert_eq!(drawn_set(&logits, &sampling), expected.iter().copied().collect(), "{sampling:?}");
    };
    check(settings(), &[0, 1, 2, 3, 4]);
    check(Sampling { top_k: 1, ..settings() }, &[0]);
    check(Sampling { top_k: 3, ..settings() }, &[0, 1, 2]);
    check(Sampling { top_k: 50, ..settings() }, &[0, 1, 2, 3, 4]);
    check(Sampling { top_p: 0.39, ..settings() }, &[0]);
    check(Sampling { top_p: 0.41, ..settings() }, &[0, 1]);
    check(Sampling { top_p: 0.84, ..settings() }, &[0, 1, 2]);
    check(Sampling { top_p: 0.86, ..settings() }, &[0, 1, 2, 3]);
    check(Sampling { min_p: 0.3, ..settings() }, &[0, 1, 2]);
    check(Sampling { min_p: 1.0, ..settings() }, &[0]);
    // Top-p counts shares of what top-k left: 0.4 / 0.7 is over 0.57.
    check(Sampling { top_k: 2, top_p: 0.57, ..settings() }, &[0]);
    check(Sampling { temperature: 1e-30, ..settings() }, &[0]);
}

#[test]
fn a_nucleus_wider_than_the_first_head_is_found() {
    // 1,000 equal tokens: half of them reach 0.5, and equal ones go by token.
    let sampling = Sampling { top_p: 0.4999, ..settings() };
    let tokens: BTreeSet<_> = (0..20_000).map(|i| draw_at(&[1.0; 1_000], &sampling, i, &[]).0).collect();
    assert_eq!(tokens, (0..500).collect());
}

#[test]
fn greedy_takes_the_largest_and_the_lowest_of_equals() {
    let greedy = Sampling::default();
    assert_eq!(draw_at(&[1.0, 5.0, 5.0, 2.0], &greedy, 7, &[]).0, 1);
    assert_eq!(draw_at(&[f32::NEG_INFINITY, -3.0, f32::NEG_INFINITY], &greedy, 0, &[]), (1, 0.0));
}

#[test]
fn the_penalty_counts_each_token_once_and_leaves_the_logprob_alone() {
    let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
    // 4 / 2 = 2 is below 3; were it applied twice for a repeated token, 1 would still be below, so check both ways.
    assert_eq!(draw_at(&[4.0, 3.0], &sampling, 0, &[0, 0]).0, 1);
    assert_eq!(draw_at(&[4.0, 1.5], &sampling, 0, &[0, 0, 0]).0, 0);
    // Negative logits go down too: -1 becomes -2.
    assert_eq!(draw_at(&[-1.0, -1.5], &sampling, 0, &[0]).0, 1);
    let (token, logprob) = draw_at(&[4.0, 1.5], &sampling, 0, &[0, 99]);
    let expected = 4.0 - (4.0_f32.exp() + 1.5_f32.exp()).ln();
    assert_eq!(token, 0);
    assert!((logprob - expected).abs() < 1e-6, "{logprob} {expected}");
}

#[test]
fn seeds_repeat_and_differ() {
    let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32 * 0.1).collect();
    let run = |seed| -> Vec<TokenId> {
        (0..50).map(|i| draw_at(&logits, &Sampling { seed, ..settings() }, i, &[]).0).collect()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    // SplitMix64's published first outputs for seed 1234567.
    let state = |n: u64| 1_234_567_u64.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n));
    assert_eq!([mix(state(1)), mix(state(2))], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn bad_input_is_refused() {
    let check = |logits: &[f32], sampling: Sampling, expected: SampleError| {
        assert_eq!(draw(&mut logits.to_vec(), &plan(&sampling, 0)), Err(expected));
    };
    check(&[], settings(), SampleError::NotFinite);
    check(&[1.0, f32::NAN], settings(), SampleError::NotFinite);
    check(&[1.0, f32::INFINITY], settings(), SampleError::NotFinite);
    check(&[f32::NEG_INFINITY; 3], Sampling::default(), SampleError::NotFinite);
    for sampling in [
        Sampling { temperature: -1.0, ..settings() },
        Sampling { temperature: f32::NAN, ..settings() },
        Sampling { top_p: 0.0, ..settings() },
        Sampling { min_p: 1.5, ..settings() },
        Sampling { repetition_penalty: 0.0, ..settings() },
        Sampling { logit_bias: vec![(0, 100.5)], ..settings() },
        Sampling { logit_bias: vec![(0, 1.0), (1, f32::NAN)], ..settings() },
    ] {
        assert!(matches!(draw(&mut [1.0, 2.0], &plan(&sampling, 0)), Err(SampleError::Setting(_))));
    }
}

#[test]
fn bias_mask_and_bans_come_before_everything_else() {
    let logits = [1.0_f32, 4.0, 3.0, 2.0];
    let check = |draw_: &Draw, expected: Result<TokenId, SampleError>| {
        assert_eq!(draw(&mut logits.to_vec(), draw_).map(|choice| choice.token), expected, "{draw_:?}");
    };
    let greedy = |logit_bias: &[(TokenId, f32)]| {
        plan(&Sampling { logit_bias: logit_bias.to_vec(), ..Sampling::default() }, 0)
    };
    check(&greedy(&[]), Ok(1));
    check(&greedy(&[(0, 3.5)]), Ok(0));
    check(&greedy(&[(1, -1.5), (99, 100.0)]), Ok(2));
    check(&Draw { banned: Arc::new([1, 99]), ..greedy(&[]) }, Ok(2));
    check(&Draw { allowed: Some(mask([0, 3])), ..greedy(&[]) }, Ok(3));
    check(&Draw { allowed: Some(mask([0, 3])), banned: Arc::new([3]), ..greedy(&[]) }, Ok(0));
    // No bias lifts a token over a ban or a mask.
    check(&Draw { banned: Arc::new([1]), ..greedy(&[(1, 100.0)]) }, Ok(2));
    check(&Draw { allowed: Some(mask([0])), ..greedy(&[(1, 100.0)]) }, Ok(0));
    // The penalty falls on the biased logit: (1 + 3.5) / 2 is below 3, and 4 is banned.
    check(&Draw { banned: Arc::new([1]), ..greedy(&[(0, 3.5)]) }, Ok(0));
    let penalized = Sampling { logit_bias: vec![(0, 3.5)], repetition_penalty: 2.0, ..Sampling::default() };
    check(&Draw { banned: Arc::new([1]), seen: vec![0], ..plan(&penalized, 0) }, Ok(2));
    // A mask past the vocabulary, and one that ends before it.
    check(&Draw { allowed: Some(mask([2, 500])), ..greedy(&[]) }, Ok(2));
    check(&Draw { allowed: Some(mask([])), ..greedy(&[]) }, Err(SampleError::NoneAllowed));
    check(&Draw { allowed: Some(mask([77])), ..greedy(&[]) }, Err(SampleError::NoneAllowed));
    check(&Draw { banned: Arc::new([0, 1, 2, 3]), ..greedy(&[]) }, Err(SampleError::NoneAllowed));
    check(
        &Draw { banned: Arc::new([0]), allowed: Some(mask([0])), ..plan(&settings(), 3) },
        Err(SampleError::NoneAllowed),
    );
}

#[test]
fn biased_and_masked_draws_follow_their_softmax() {
    // Five tokens of which one is masked out and one banned; ln 2 doubles the weight of token 2: 0.4, 0.3 left of
    // 0.4, 0.3 (from 0.15 by the bias) and nothing else.
    let logits: Vec<f32> = [0.4_f64, 0.3, 0.15, 0.1, 0.05].iter().map(|p| p.ln() as f32).collect();
    let sampling = Sampling { logit_bias: vec![(2, 2.0_f32.ln())], seed: 11, ..settings() };
    let shares = [0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0, 0.0];
    let mut counts = [0_u32; 5];
    for index in 0..20_000 {
        let draw_ = Draw {
            banned: Arc::new([1]),
            allowed: Some(mask([0, 1, 2, 4])),
            ..plan(&Sampling { top_k: 2, ..sampling.clone() }, index)
        };
        counts[draw(&mut logits.clone(), &draw_).unwrap().token as usize] += 1;
    }
    assert_eq!([counts[1], counts[3], counts[4]], [0; 3]);
    let term = |at: usize| (f64::from(counts[at]) - shares[at] * 2e4).powi(2) / (shares[at] * 2e4);
    // One degree of freedom: 10.83 is exceeded once in a thousand.
    assert!(term(0) + term(2) < 10.83, "{counts:?}");
}

proptest! {
    #[test]
    fn what_is_drawn_survives_a_plain_reading_of_the_filters(
        logits in prop::collection::vec(-8.0_f32..8.0, 1..300),
        top_k in 0_usize..40,
        top_p in 0.05_f32..1.0,
        min_p in 0.0_f32..0.5,
        temperature in 0.2_f32..3.0,
        seed: u64,
        index: u64,
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
        let (token, logprob) = draw_at(&logits, &sampling, index, &[]);
        // The reference sorts everything.
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        if top_k > 0 { order.truncate(top_k); }
        let weight = |i: usize| (f64::from(logits[i] - logits[order[0]]) / f64::from(temperature)).exp();
        let total: f64 = order.iter().map(|i| weight(*i)).sum();
        let mut before = 0.0;
        let rank = order.iter().position(|i| *i == token as usize);
        prop_assert!(rank.is_some());
        for i in &order[..rank.unwrap()] { before += weight(*i); }
        prop_assert!(before < (f64::from(top_p) + 1e-4) * total, "outside the nucleus");
        prop_assert!(weight(token as usize) >= f64::from(min_p) - 1e-4);
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let expected = f64::from(logits[token as usize]) - sum.ln();
        prop_assert!((f64::from(logprob) - expected).abs() < 1e-4);
    }

    #[test]
    fn probabilities_are_those_of_the_unchanged_logits(
        // Few distinct values, so that equal ones are common.
        steps in prop::collection::vec(-40_i32..40, 1..200),
        count in 0_usize..30,
        bias in -100.0_f32..100.0,
        biased in 0_u32..250,
        kept in prop::collection::btree_set(0_u32..250, 1..100),
        temperature in prop::sample::select(vec![0.0_f32, 0.7]),
    ) {
        let logits: Vec<f32> = steps.iter().map(|step| *step as f32 * 0.25).collect();
        let sampling = Sampling {
            temperature,
            logit_bias: vec![(biased, bias)],
            top_logprobs: Some(count),
            repetition_penalty: 1.5,
            ..Sampling::default()
        };
        let draw_ = Draw {
            seen: vec![0, biased],
            allowed: Some(mask(kept.iter().copied())),
            ..plan(&sampling, 1)
        };
        let outcome = draw(&mut logits.clone(), &draw_);
        if !kept.iter().any(|token| (*token as usize) < logits.len()) {
            prop_assert_eq!(outcome, Err(SampleError::NoneAllowed));
            return Ok(());
        }
        let choice = outcome.unwrap();
        let exact = log_softmax(&logits);
        let near = |got: f32, token: TokenId| (f64::from(got) - exact[token as usize]).abs() < 1e-5;
        prop_assert!(kept.contains(&choice.token));
        prop_assert!(near(choice.logprob, choice.token));
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        order.truncate(count);
        prop_assert_eq!(choice.top.iter().map(|(token, _)| *token as usize).collect::<Vec<_>>(), order);
        for (token, got) in &choice.top {
            prop_assert!(near(*got, *token));
        }
    }
}
