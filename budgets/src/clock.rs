//! What time is it? The one source of time, so that a test or a simulation can own it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A point on a clock's own time line: nanoseconds since that clock began.
///
/// Not `std::time::Instant`, because a simulated clock must be able to make one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` after the clock began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved ahead by `by`, capped at the end of the time line (584 years).
    pub fn plus(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// This moment moved back by `by`, not before the clock began.
    pub fn minus(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Tells the time. Every floor takes a `&dyn Clock` or an `Arc<dyn Clock>`; none reads the system's clock itself.
pub trait Clock: Send + Sync {
    /// The present moment; never goes back.
    fn now(&self) -> Moment;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    began: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { began: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until it is told to move; for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Moves the clock ahead.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.nanos.load(Ordering::SeqCst))
    }
}
