//! Which request is this, and when did it arrive?

use budgets::Moment;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is known of a request before its handler runs; an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// When its head had been read.
    pub(crate) arrived: Moment,
    /// Its name, in `x-request-id`, events and logs.
    pub(crate) id: String,
    /// A number that differs from request to request, for sampling without a seed.
    pub(crate) lot: u64,
}

/// Makes request ids that cannot be guessed: whoever knows an id may cancel the request.
///
/// The standard library keys its hasher from the system's random source, so hashing a counter with two such keys gives
/// 128 bits that do not tell the next ones.
#[derive(Default)]
pub(crate) struct RequestIds {
    count: AtomicU64,
    high: RandomState,
    low: RandomState,
    lots: RandomState,
}

impl RequestIds {
    pub(crate) fn context(&self, arrived: Moment) -> Context {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // `RandomState` steps a per-thread key by one for each new instance, so the half is mixed in as well.
        let (high, low) = (self.high.hash_one((0u8, count)), self.low.hash_one((1u8, count)));
        Context { arrived, id: format!("{high:016x}{low:016x}"), lot: self.lots.hash_one((2u8, count)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_long_and_never_meet() {
        let ids = RequestIds::default();
        let made: HashSet<String> = (0..10_000).map(|_| ids.context(Moment::default()).id).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| id.len() == 32));
        let other = RequestIds::default().context(Moment::default()).id;
        assert!(!made.contains(&other), "two servers must not share ids");
    }
}
