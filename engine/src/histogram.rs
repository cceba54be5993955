//! How long did requests take? Times by length, counted where they arise: those of callers who left are among them, and
//! the pace at which a caller reads is not.

use crate::Timing;
use std::time::Duration;

/// Upper bounds of the buckets, seconds: from a step of a tiny model to the longest answer.
const BOUNDS_S: [f64; 19] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0,
    320.0, 640.0,
];

/// Times, counted by length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// By bucket; those above the last bound are counted in `count` alone.
    counts: [u64; BOUNDS_S.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    fn add(&mut self, took: Duration) {
        let bucket = BOUNDS_S.partition_point(|bound| *bound < took.as_secs_f64());
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// Times counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Each upper bound (inclusive), seconds, and how many times do not exceed it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        BOUNDS_S.iter().zip(&self.counts).scan(0, |total, (bound, count)| {
            *total += count;
            Some((*bound, *total))
        })
    }
}

/// What requests took since the engine started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histograms {
    /// Submission to first token, counted when the token is made.
    pub first_token: Histogram,
    /// A token to the next one of the same request.
    pub token_gap: Histogram,
    /// Submission to the first step that computed something, of ended requests.
    pub queue: Histogram,
    /// From there to the first token, of ended requests that had one.
    pub prefill: Histogram,
    /// First token to last, of ended requests that had one.
    pub decode: Histogram,
    /// Mean time per token after the first, of ended requests with two or more.
    pub token_mean: Histogram,
    /// Submission to last token, of ended requests.
    pub total: Histogram,
}

impl Histograms {
    /// A token came `since` the submission (`first`) or since the token before it.
    pub(crate) fn add_token(&mut self, first: bool, since: Duration) {
        if first { &mut self.first_token } else { &mut self.token_gap }.add(since);
    }

    /// A request ended after `tokens` tokens.
    pub(crate) fn add_end(&mut self, timing: &Timing, tokens: usize) {
        self.queue.add(timing.queue);
        self.total.add(timing.queue + timing.prefill + timing.decode);
        if tokens > 0 {
            self.prefill.add(timing.prefill);
            self.decode.add(timing.decode);
        }
        let gaps = u32::try_from(tokens).unwrap_or(u32::MAX).saturating_sub(1);
        if gaps > 0 {
            self.token_mean.add(timing.decode / gaps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_within_it() {
        let mut histogram = Histogram::default();
        for micros in [0, 1_000, 1_001, 2_500, 2_501, 640_000_000, 640_000_001] {
            histogram.add(Duration::from_micros(micros));
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative[..3], [(0.001, 2), (0.0025, 4), (0.005, 5)]);
        assert_eq!(cumulative.last(), Some(&(640.0, 6)));
        assert_eq!((histogram.count(), histogram.sum()), (7, Duration::from_micros(1_280_007_003)));
    }

    #[test]
    fn what_did_not_happen_is_not_counted() {
        let mut histograms = Histograms::default();
        let timing = Timing { queue: Duration::from_secs(1), ..Timing::default() };
        histograms.add_end(&timing, 0);
        histograms.add_end(&timing, 1);
        histograms.add_end(&Timing { decode: Duration::from_secs(4), ..timing }, 3);
        let counts = [&histograms.queue, &histograms.prefill, &histograms.decode, &histograms.token_mean]
            .map(Histogram::count);
        assert_eq!(counts, [3, 2, 2, 1]);
        assert_eq!(histograms.token_mean.sum(), Duration::from_secs(2));
        assert_eq!(histograms.total.sum(), Duration::from_secs(7));
    }
}
