//! What do the samples say? Percentiles of one run, and the spread of a figure over rounds.

use std::time::Duration;

/// The sample at `share` (0 to 1) of the sorted samples, nearest rank; zero without samples.
pub fn percentile(samples: &[Duration], share: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// A figure of a run: its name, how it is read, digits after the point.
pub type Figure<R> = (&'static str, fn(&R) -> f64, usize);

/// Median, least and most of a figure over rounds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Rounds {
    /// The middle one; of an even number the lower.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Rounds {
    /// Of at least one round; zeros for none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
        let last = sorted.len().saturating_sub(1);
        Self { median: at(last / 2), min: at(0), max: at(last) }
    }

    /// `median [min to max]` with `digits` after the point.
    pub fn show(&self, digits: usize) -> String {
        let Self { median, min, max } = self;
        format!("{median:.digits$} [{min:.digits$} to {max:.digits$}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<Duration> = (1..=10).rev().map(Duration::from_millis).collect();
        let at = |share| percentile(&samples, share).as_millis();
        assert_eq!([at(0.0), at(0.5), at(0.9), at(0.99), at(1.0)], [1, 5, 9, 10, 10]);
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn rounds_show_their_spread() {
        assert_eq!(Rounds::of([3.0, 1.0, 2.0]).show(1), "2.0 [1.0 to 3.0]");
        assert_eq!(Rounds::of([]), Rounds { median: 0.0, min: 0.0, max: 0.0 });
    }
}
