//! What did the callers see? Percentiles, rates and counts over all samples.

use crate::run::{Outcome, Sample};
use serde::Serialize;
use std::collections::BTreeMap;

/// Percentiles by nearest rank, in milliseconds; every figure is one that some caller saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of the samples are no slower.
    pub p50_ms: f64,
    /// 90 of 100 are no slower.
    pub p90_ms: f64,
    /// 99 of 100 are no slower; with fewer than 100 samples this is the slowest.
    pub p99_ms: f64,
}

impl Percentiles {
    /// Of `values`; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| values.get((values.len() * percent).div_ceil(100).saturating_sub(1));
        Some(Self { p50_ms: *rank(50)?, p90_ms: *rank(90)?, p99_ms: *rank(99)? })
    }
}

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Callers at a time.
    pub concurrency: usize,
    /// First request to last answer, seconds.
    pub wall_s: f64,
    /// Answered in full.
    pub answered: usize,
    /// Count by reason of those that were not.
    pub others: BTreeMap<String, usize>,
    /// Request to the sources event; answered requests only, like all that follow.
    pub sources: Option<Percentiles>,
    /// Request to the first delta.
    pub first_token: Option<Percentiles>,
    /// Request to the final event.
    pub total: Option<Percentiles>,
    /// Tokens made by all callers together, divided by `wall_s`.
    pub tokens_per_s: f64,
    /// Answers per second.
    pub answers_per_s: f64,
    /// Every request.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Sums up `samples`, which took `wall_s` seconds together.
    #[allow(clippy::cast_precision_loss)] // Counts here are far below 2^52.
    pub fn of(concurrency: usize, wall_s: f64, samples: Vec<Sample>) -> Self {
        let answered: Vec<&Sample> =
            samples.iter().filter(|sample| sample.outcome == Outcome::Answered).collect();
        let mut others = BTreeMap::new();
        for sample in &samples {
            if let Outcome::Other(reason) = &sample.outcome {
                *others.entry(reason.clone()).or_insert(0) += 1;
            }
        }
        let tokens: usize = answered.iter().map(|sample| sample.completion_tokens).sum();
        let per_s = |count: usize| if wall_s > 0.0 { count as f64 / wall_s } else { 0.0 };
        Self {
            concurrency,
            wall_s,
            answered: answered.len(),
            others,
            sources: Percentiles::of(answered.iter().filter_map(|sample| sample.sources_ms)),
            first_token: Percentiles::of(answered.iter().filter_map(|sample| sample.first_token_ms)),
            total: Percentiles::of(answered.iter().map(|sample| sample.total_ms)),
            tokens_per_s: per_s(tokens),
            answers_per_s: per_s(answered.len()),
            samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: impl IntoIterator<Item = u32>, p50: f64, p90: f64, p99: f64) {
        let expected = Percentiles { p50_ms: p50, p90_ms: p90, p99_ms: p99 };
        assert_eq!(Percentiles::of(values.into_iter().map(f64::from)), Some(expected));
    }

    #[test]
    fn percentiles_are_samples_at_the_nearest_rank() {
        check([7], 7.0, 7.0, 7.0);
        check([2, 1], 1.0, 2.0, 2.0);
        check((1..=100).rev(), 50.0, 90.0, 99.0);
        check(1..=200, 100.0, 180.0, 198.0);
        check(1..=10, 5.0, 9.0, 10.0);
        assert_eq!(Percentiles::of([]), None);
    }

    #[test]
    fn refused_requests_are_counted_and_stay_out_of_the_percentiles() {
        let sample = |outcome, total_ms| Sample {
            question: String::new(),
            outcome,
            sources_ms: None,
            first_token_ms: None,
            total_ms,
            completion_tokens: 10,
        };
        let refused = Outcome::Other("HTTP 503 queue_full".into());
        let samples =
            vec![sample(Outcome::Answered, 500.0), sample(refused.clone(), 1.0), sample(refused, 2.0)];
        let report = Report::of(2, 2.0, samples);
        assert_eq!((report.answered, report.others["HTTP 503 queue_full"]), (1, 2));
        assert_eq!(report.total.unwrap().p50_ms, 500.0);
        assert_eq!((report.tokens_per_s, report.answers_per_s), (5.0, 0.5));
    }
}
