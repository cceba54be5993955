//! Who asks what, and when? Requests as a simulation takes them, and how they end.

use crate::{Phase, Refused, SeqRequest, TokenId};
use budgets::Moment;
use std::time::Duration;

/// When a caller goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// This long after the request came, wherever it stands then.
    After(Duration),
    /// After the n-th step with a row of it (from 1) was planned and before that step is computed.
    InStep(usize),
    /// With its n-th token (from 1).
    AtToken(usize),
    /// When it gave way to another.
    GaveWay,
}

/// A request of a simulation; it comes at `request.arrived`.
#[derive(Clone, Debug)]
pub struct SimRequest {
    /// The traffic's own name for it.
    pub tag: u64,
    /// What is submitted.
    pub request: SeqRequest,
    /// When its caller goes away, if ever.
    pub cancel: Option<Cancel>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All its tokens were drawn, or an end token.
    Completed,
    /// Its deadline passed.
    Expired(Phase),
    /// Its caller went away.
    Cancelled(Phase),
    /// A step with it failed.
    Failed,
    /// It was not taken.
    Refused(Refused),
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// See [`SimRequest::tag`].
    pub tag: u64,
    /// How.
    pub end: End,
    /// Its tokens up to then.
    pub tokens: &'a [TokenId],
    /// Of its prompt, how many were found in the prefix cache.
    pub cached_tokens: usize,
    /// When.
    pub at: Moment,
}

/// The callers of a simulation.
pub trait Traffic {
    /// The next request; none comes before the one before it.
    fn next(&mut self) -> Option<SimRequest>;

    /// Hears of each end, once; may answer with another request of the same caller, which comes later.
    ///
    /// # Errors
    /// When the end is wrong, which ends the simulation.
    fn ended(&mut self, _ended: Ended<'_>) -> Result<Option<SimRequest>, String> {
        Ok(None)
    }
}

/// Requests that are known beforehand, in order of arrival; callers who ask once.
#[derive(Debug)]
pub struct Listed<I>(pub I);

impl<I: Iterator<Item = SimRequest>> Traffic for Listed<I> {
    fn next(&mut self) -> Option<SimRequest> {
        self.0.next()
    }
}
