//! What came of the traffic? Ends, times, rates and use of the pool.

use super::traffic::End;
use crate::{Phase, Refused, SchedCounts};
use std::fmt;
use std::time::Duration;

/// Requests by end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// All their tokens were drawn, or an end token.
    pub completed: u64,
    /// Expired in the queue, in prefill, in decode.
    pub expired: [u64; 3],
    /// Cancelled in the queue, in prefill, in decode.
    pub cancelled: [u64; 3],
    /// A step with them failed.
    pub failed: u64,
    /// Refused because they never fit.
    pub never_fits: u64,
    /// Refused because the queue was full.
    pub queue_full: u64,
}

impl Ends {
    pub(super) fn count(&mut self, end: End) {
        let place = |phase| match phase {
            Phase::Queue => 0,
            Phase::Prefill => 1,
            Phase::Decode => 2,
        };
        *match end {
            End::Completed => &mut self.completed,
            End::Expired(phase) => &mut self.expired[place(phase)],
            End::Cancelled(phase) => &mut self.cancelled[place(phase)],
            End::Failed => &mut self.failed,
            End::Refused(Refused::QueueFull { .. }) => &mut self.queue_full,
            End::Refused(_) => &mut self.never_fits,
        } += 1;
    }

    /// All ends.
    pub fn total(&self) -> u64 {
        let [expired, cancelled] = [self.expired, self.cancelled].map(|counts| counts.iter().sum::<u64>());
        self.completed + expired + cancelled + self.failed + self.never_fits + self.queue_full
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Ends) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.never_fits += other.never_fits;
        self.queue_full += other.queue_full;
        for place in 0..3 {
            self.expired[place] += other.expired[place];
            self.cancelled[place] += other.cancelled[place];
        }
    }
}

/// Neighbouring buckets of a [`Spread`] differ by this factor, which bounds the error of its quantiles.
const BUCKET: f64 = 1.01;

/// How durations are spread: counts in buckets one percent wide, so that millions of them take bounded memory.
#[derive(Clone, Default)]
pub struct Spread {
    counts: Vec<u64>,
    total: u64,
    sum: Duration,
    max: Duration,
}

impl Spread {
    /// Adds one.
    pub fn add(&mut self, value: Duration) {
        let bucket = (value.as_nanos().max(1) as f64).ln() / BUCKET.ln();
        let bucket = bucket.ceil() as usize;
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    /// The duration that a share `share` of all do not exceed, at most a percent too large; zero when there are none.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                let nanos = BUCKET.powi(i32::try_from(bucket).unwrap_or(i32::MAX));
                return Duration::from_nanos(nanos as u64).min(self.max);
            }
        }
        Duration::ZERO
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// None was added.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The mean; zero when there are none.
    pub fn mean(&self) -> Duration {
        self.sum.div_f64(self.total.max(1) as f64)
    }
}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most] = [0.5, 0.99].map(|share| self.quantile(share));
        write!(f, "{} (p50 {half:?}, p99 {most:?}, max {:?})", self.total, self.max)
    }
}

/// What an answer must keep to count as good.
#[derive(Clone, Copy, Debug)]
pub struct SimSlo {
    /// From arrival to the first token.
    pub ttft: Duration,
    /// Mean time between tokens.
    pub tpot: Duration,
}

impl Default for SimSlo {
    fn default() -> Self {
        Self { ttft: Duration::from_secs(5), tpot: Duration::from_millis(200) }
    }
}

/// What a simulation saw.
#[derive(Clone, Debug, Default)]
pub struct SimReport {
    /// Requests by end.
    pub ends: Ends,
    /// Steps that were computed.
    pub steps: u64,
    /// Virtual time from the first event to the last.
    pub elapsed: Duration,
    /// Virtual time in steps.
    pub busy: Duration,
    /// Arrival to first token, with the time in the queue, of all that had one.
    pub ttft: Spread,
    /// Between two tokens of a stream.
    pub itl: Spread,
    /// Arrival to end of those that completed.
    pub e2e: Spread,
    /// Longest wait of an undated request from arrival to its first row.
    pub undated_wait_max: Duration,
    /// Tokens drawn for callers.
    pub output_tokens: u64,
    /// Prompt tokens computed, those computed again after giving way too.
    pub prefill_tokens: u64,
    /// Rows computed.
    pub rows: u64,
    /// Most rows of one step.
    pub rows_max: usize,
    /// Requests that completed within the [`SimSlo`].
    pub good: u64,
    /// The scheduler's own sums.
    pub counts: SchedCounts,
    /// Most blocks in use at a time.
    pub held_max: usize,
    /// Blocks in use, summed over steps.
    pub held_sum: u64,
    /// Blocks in the pool.
    pub blocks_total: usize,
}

impl SimReport {
    /// Completed requests within the [`SimSlo`] per second of virtual time.
    pub fn goodput(&self) -> f64 {
        self.good as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Share of looked-up prompt tokens that were found in the prefix cache.
    pub fn hit_rate(&self) -> f64 {
        self.counts.prefix_hit_tokens as f64 / self.counts.prefix_query_tokens.max(1) as f64
    }

    /// Mean share of the pool in use during steps.
    pub fn pool_use(&self) -> f64 {
        self.held_sum as f64 / (self.steps.max(1) as f64 * self.blocks_total.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_percent() {
        let mut spread = Spread::default();
        (1..=1_000).for_each(|ms| spread.add(Duration::from_millis(ms)));
        for (share, want) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let got = spread.quantile(share).as_secs_f64() * 1e3;
            assert!(got >= want * 0.999 && got <= want * 1.011, "{share}: {got}");
        }
        assert_eq!((spread.max(), spread.len()), (Duration::from_secs(1), 1_000));
        assert_eq!(Spread::default().quantile(0.5), Duration::ZERO);
    }
}
