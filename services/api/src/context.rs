//! Which request is this, and when did it arrive?

use axum::http::{HeaderMap, header};
use budgets::Moment;
use engine::Tenant;
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
    /// Whose request it is: derived from the caller's key, and from nothing else.
    pub(crate) tenant: Tenant,
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
    tenants: [RandomState; 2],
}

impl RequestIds {
    pub(crate) fn context(&self, arrived: Moment, headers: &HeaderMap) -> Context {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // `RandomState` steps a per-thread key by one for each new instance, so the half is mixed in as well.
        let (high, low) = (self.high.hash_one((0u8, count)), self.low.hash_one((1u8, count)));
        Context {
            arrived,
            id: format!("{high:016x}{low:016x}"),
            lot: self.lots.hash_one((2u8, count)),
            tenant: self.tenant(headers),
        }
    }

    /// The tenant of a request: its key, hashed with this process's random secret, so that equal keys are one tenant and
    /// no caller can work out or choose another's. Callers without a key are one tenant.
    fn tenant(&self, headers: &HeaderMap) -> Tenant {
        let key = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes().trim_ascii());
        let key = key.and_then(|value| match value.split_at_checked(7) {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(key.trim_ascii()),
            _ => None,
        });
        key.filter(|key| !key.is_empty()).map_or(Tenant::default(), |key| {
            let [high, low] = self.tenants.each_ref().map(|secret| u128::from(secret.hash_one(key)));
            // Never the tenant of those without a key.
            Tenant((high << 64 | low).max(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_long_and_never_meet() {
        let ids = RequestIds::default();
        let made: HashSet<String> =
            (0..10_000).map(|_| ids.context(Moment::default(), &HeaderMap::new()).id).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| id.len() == 32));
        let other = RequestIds::default().context(Moment::default(), &HeaderMap::new()).id;
        assert!(!made.contains(&other), "two servers must not share ids");
    }

    #[test]
    fn a_key_makes_a_tenant_and_nothing_else_does() {
        let ids = RequestIds::default();
        let tenant = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            ids.context(Moment::default(), &headers).tenant
        };
        let one = tenant(&[("authorization", "Bearer one")]);
        assert_eq!(one, tenant(&[("authorization", "bearer  one "), ("x-tenant", "two")]));
        assert_ne!(one, tenant(&[("authorization", "Bearer two")]));
        assert_ne!(one, Tenant::default());
        for other in
            [&[("x-tenant", "one")][..], &[("authorization", "Basic one")], &[("authorization", "Bearer ")]]
        {
            assert_eq!(tenant(other), Tenant::default());
        }
    }
}
