//! Until when may this run? A timeout becomes an absolute deadline once, at entry, and travels from there.

use crate::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the caller asks for, in milliseconds; absent means no limit of the caller's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Until the first token of the answer.
    pub ttft_ms: Option<u64>,
    /// Mean time per output token after the first.
    pub tpot_ms: Option<u64>,
    /// Until the last event of the answer.
    pub total_ms: Option<u64>,
}

/// An absolute instant after which nothing more is computed for a request; `Deadline::NEVER` has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Moment>);

impl Deadline {
    /// No deadline.
    pub const NEVER: Deadline = Deadline(None);

    /// The deadline `timeout` after `now`.
    pub fn after(now: Moment, timeout: Duration) -> Self {
        Self(Some(now.plus(timeout)))
    }

    /// The deadline at `moment`.
    pub fn at(moment: Moment) -> Self {
        Self(Some(moment))
    }

    /// The moment, if there is one.
    pub fn moment(self) -> Option<Moment> {
        self.0
    }

    /// Has it passed? Reaching it counts as passed.
    pub fn expired(self, now: Moment) -> bool {
        self.0.is_some_and(|at| now >= at)
    }

    /// Time left at `now`: zero when passed, `None` without a deadline.
    pub fn remaining(self, now: Moment) -> Option<Duration> {
        self.0.map(|at| at.since(now))
    }

    /// The earlier of the two.
    pub fn min(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Deadline(Some(a.min(b))),
            (a, b) => Deadline(a.or(b)),
        }
    }

    /// A deadline for the next stage: `share` (0 to 1) of the time left at `now`, never later than `self`.
    pub fn share(self, now: Moment, share: f64) -> Deadline {
        match self.remaining(now) {
            Some(left) => Deadline::after(now, left.mul_f64(share.clamp(0.0, 1.0))),
            None => Deadline::NEVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reaching_a_deadline_is_passing_it() {
        let at = Moment::from_nanos(1_000);
        assert!(!Deadline::at(at).expired(Moment::from_nanos(999)));
        assert!(Deadline::at(at).expired(at));
        assert!(!Deadline::NEVER.expired(Moment::from_nanos(u64::MAX)));
    }

    #[test]
    fn an_absurd_timeout_is_capped_not_wrapped() {
        let deadline = Deadline::after(Moment::from_nanos(5), Duration::MAX);
        assert!(!deadline.expired(Moment::from_nanos(u64::MAX - 1)));
    }

    proptest! {
        #[test]
        fn a_share_never_outlives_the_whole(now in 0u64..1 << 40, left in 0u64..1 << 40, share in -1.0f64..2.0) {
            let now = Moment::from_nanos(now);
            let whole = Deadline::after(now, Duration::from_nanos(left));
            let part = whole.share(now, share);
            prop_assert_eq!(part.min(whole), part);
        }
    }
}
