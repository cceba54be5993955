//! Which request is this, and when did it arrive?

use crate::access::{Access, Caller, key};
use crate::error::ApiError;
use crate::{convert, error_table};
use axum::http::HeaderMap;
use budgets::Moment;
use engine::Tenant;
use index::OwnedFilter;
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
    /// Who calls and what it may change; none when a key is wanted and the caller brought none that is known.
    pub(crate) caller: Option<Caller>,
}

impl Context {
    /// What the caller may see of the documents: the shared ones and its own, of those what it asks for.
    pub(crate) fn filter(&self, asked: Option<wire::Filter>) -> Result<OwnedFilter, ApiError> {
        let tenant = self.caller.as_ref().and_then(|caller| caller.tenant.as_deref());
        convert::filter(asked.unwrap_or_default(), tenant)
    }

    /// The owner of what the caller puts.
    pub(crate) fn owner(&self) -> Result<Option<&str>, ApiError> {
        self.caller.as_ref().map_or(Err(unknown_key()), Caller::owner)
    }
}

/// The caller brings no key that the operator named.
pub(crate) fn unknown_key() -> ApiError {
    ApiError::of(error_table::UNKNOWN_KEY, "send a key of this service as authorization: Bearer KEY")
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
    pub(crate) fn context(&self, arrived: Moment, headers: &HeaderMap, access: &Access) -> Context {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // `RandomState` steps a per-thread key by one for each new instance, so the half is mixed in as well.
        let (high, low) = (self.high.hash_one((0u8, count)), self.low.hash_one((1u8, count)));
        Context {
            arrived,
            id: format!("{high:016x}{low:016x}"),
            lot: self.lots.hash_one((2u8, count)),
            tenant: self.tenant(headers),
            caller: access.caller(headers),
        }
    }

    /// The tenant of a request: its key, hashed with this process's random secret, so that equal keys are one tenant and
    /// no caller can work out or choose another's. Callers without a key are one tenant.
    fn tenant(&self, headers: &HeaderMap) -> Tenant {
        key(headers).map_or(Tenant::default(), |key| {
            let [high, low] = self.tenants.each_ref().map(|secret| u128::from(secret.hash_one(key)));
            // Never the tenant of those without a key.
            Tenant((high << 64 | low).max(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Writes;
    use std::collections::HashSet;

    const OPEN: Access = Access::Open(Writes::None);

    #[test]
    fn ids_are_long_and_never_meet() {
        let ids = RequestIds::default();
        let made: HashSet<String> =
            (0..10_000).map(|_| ids.context(Moment::default(), &HeaderMap::new(), &OPEN).id).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| id.len() == 32));
        let other = RequestIds::default().context(Moment::default(), &HeaderMap::new(), &OPEN).id;
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
            ids.context(Moment::default(), &headers, &OPEN).tenant
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
