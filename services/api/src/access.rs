//! Whose request is this, and what may it change? Keys that the operator named, or anyone when there are none.

use crate::error::ApiError;
use crate::error_table as table;
use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

/// Which documents a caller may put and delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// None.
    #[default]
    None,
    /// Its own, which no other caller sees.
    Own,
    /// Those that every caller sees.
    Shared,
}

/// Who may use the service.
#[derive(Clone, Debug)]
pub enum Access {
    /// Anyone; what a caller may change is the same for all.
    Open(Writes),
    /// Those who bring a key that the operator named.
    Keys(HashMap<[u8; 32], Caller>),
}

/// Who a key belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Owner of the documents that are the caller's own; none for callers without a named key.
    pub tenant: Option<Arc<str>>,
    /// What it may change.
    pub writes: Writes,
}

impl Access {
    /// Access by keys: of each caller the SHA-256 of its key.
    pub fn keys(callers: impl IntoIterator<Item = ([u8; 32], Caller)>) -> Access {
        Access::Keys(callers.into_iter().collect())
    }

    /// The same for an index that takes no documents.
    pub fn read_only(self) -> Access {
        match self {
            Access::Open(_) => Access::Open(Writes::None),
            Access::Keys(callers) => Access::keys(
                callers
                    .into_iter()
                    .map(|(digest, caller)| (digest, Caller { writes: Writes::None, ..caller })),
            ),
        }
    }

    /// Whether anyone may change documents, so that the index must be open for it.
    pub fn may_write(&self) -> bool {
        match self {
            Access::Open(writes) => *writes != Writes::None,
            Access::Keys(callers) => callers.values().any(|caller| caller.writes != Writes::None),
        }
    }

    /// Who sends these headers; none when a key is wanted and this is not one.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        match self {
            Access::Open(writes) => Some(Caller { tenant: None, writes: *writes }),
            // Looking up a digest tells nothing of how much of a guessed key was right.
            Access::Keys(callers) => callers.get(&<[u8; 32]>::from(Sha256::digest(key(headers)?))).cloned(),
        }
    }
}

impl Caller {
    /// The owner of what the caller puts: itself, or none when it is for everyone.
    ///
    /// # Errors
    /// 403 when it may change nothing.
    pub(crate) fn owner(&self) -> Result<Option<&str>, ApiError> {
        match self.writes {
            Writes::Own => Ok(self.tenant.as_deref()),
            Writes::Shared => Ok(None),
            Writes::None => Err(ApiError::of(
                table::READ_ONLY,
                "this caller may not change documents; `riposte serve --writable` lets everyone, or `documents` of its \
                 key in the configuration",
            )),
        }
    }
}

/// The key of a request, if it brings one.
pub(crate) fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let (scheme, key) = value.split_at_checked(7)?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

/// Refuses what a page of another origin sends: browsers let it post forms without asking the server first.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else { return Ok(()) };
    let own = origin.split_once("://").map(|(_, host)| host);
    if own.is_some() && own == text(header::HOST) {
        return Ok(());
    }
    Err(ApiError::of(table::CROSS_ORIGIN, format!("a page of {origin:?} may not change documents here")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        HeaderMap::from_iter(pairs.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), value.parse().expect("a header value"))
        }))
    }

    #[test]
    fn a_key_says_who_calls() {
        let acme = Caller { tenant: Some("acme".into()), writes: Writes::Own };
        let access = Access::keys([(Sha256::digest("secret").into(), acme.clone())]);
        let caller = |value| access.caller(&headers(&[("authorization", value)]));
        assert_eq!(caller("Bearer secret"), Some(acme.clone()));
        assert_eq!(caller("bearer  secret "), Some(acme.clone()));
        for wrong in ["Bearer secret2", "Bearer ", "Basic secret", "secret", ""] {
            assert_eq!(caller(wrong), None, "{wrong:?}");
        }
        assert_eq!(access.caller(&HeaderMap::new()), None);
        assert!(access.may_write() && !Access::Open(Writes::None).may_write());
        assert_eq!(acme.owner(), Ok(Some("acme")));
        let open = Access::Open(Writes::Shared).caller(&headers(&[("authorization", "Bearer x")]));
        assert_eq!(open.map(|caller| caller.owner().map(|owner| owner.map(str::to_string))), Some(Ok(None)));
        assert!(Caller::default().owner().is_err());
    }

    #[test]
    fn only_the_own_page_may_post_forms() {
        let check = |pairs: &[(&'static str, &str)]| check_origin(&headers(pairs)).is_ok();
        assert!(check(&[]) && check(&[("host", "a:8080")]));
        assert!(check(&[("host", "a:8080"), ("origin", "http://a:8080")]));
        for foreign in ["http://a:8081", "http://b", "null", ""] {
            assert!(!check(&[("host", "a:8080"), ("origin", foreign)]), "{foreign}");
        }
        assert!(!check(&[("origin", "http://a")]));
    }
}
