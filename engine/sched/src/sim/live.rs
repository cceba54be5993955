//! What does the simulation know of a request that the scheduler has? Enough to check each plan and to tell its times.

use super::traffic::Cancel;
use crate::TokenId;
use budgets::{Deadline, Moment};
use std::sync::Arc;

/// A request that is with the scheduler.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) tag: u64,
    pub(super) arrived: Moment,
    pub(super) prompt_tokens: usize,
    pub(super) output_tokens_max: usize,
    pub(super) first_token_deadline: Deadline,
    pub(super) deadline: Deadline,
    pub(super) end_tokens: Arc<[TokenId]>,
    pub(super) tokens: Vec<TokenId>,
    pub(super) first_token: Option<Moment>,
    pub(super) last_token: Moment,
    pub(super) cached_tokens: usize,
    /// Steps with a row of it.
    pub(super) planned: usize,
    pub(super) cancel: Option<Cancel>,
}

impl Live {
    /// What holds now: the first token's deadline ends with it.
    pub(super) fn due(&self) -> Deadline {
        match self.first_token {
            None => self.deadline.min(self.first_token_deadline),
            Some(_) => self.deadline,
        }
    }

    pub(super) fn full(&self) -> bool {
        self.tokens.len() >= self.output_tokens_max
    }
}
