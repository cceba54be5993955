//! How far is one request? A sequence's tokens, its block table and what it may still need.

use crate::blocks::Block;
use crate::{Draw, RowPlan, Sampling, SeqId, Span, TokenId};
use budgets::{Deadline, Moment};
use std::sync::Arc;

/// A request as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct SeqRequest {
    /// The prompt; not empty.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Arc<Sampling>,
    /// At most this many tokens are drawn; at least 1.
    pub output_tokens_max: usize,
    /// Holds until the first token is drawn.
    pub first_token_deadline: Deadline,
    /// Holds until the end.
    pub deadline: Deadline,
    /// When it came; breaks ties between equal deadlines.
    pub arrived: Moment,
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was planned for it.
    Queue,
    /// Part of its prompt was planned; no token is drawn.
    Prefill,
    /// At least one token is drawn.
    Decode,
}

/// A sequence from its submission to its end.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SeqId,
    /// The prompt, then what was drawn.
    pub(crate) tokens: Vec<TokenId>,
    prompt_tokens: usize,
    /// Tokens whose KV is in the blocks.
    pub(crate) computed: usize,
    pub(crate) table: Vec<Block>,
    /// Blocks that it can need at most; they are reserved from admission on.
    pub(crate) blocks_max: usize,
    output_tokens_max: usize,
    sampling: Arc<Sampling>,
    first_token_deadline: Deadline,
    deadline: Deadline,
    arrived: Moment,
}

impl Sequence {
    pub(crate) fn new(id: SeqId, request: SeqRequest, output_tokens_max: usize, blocks_max: usize) -> Self {
        Self {
            id,
            prompt_tokens: request.prompt.len(),
            tokens: request.prompt,
            computed: 0,
            table: Vec::new(),
            blocks_max,
            output_tokens_max,
            sampling: request.sampling,
            first_token_deadline: request.first_token_deadline,
            deadline: request.deadline,
            arrived: request.arrived,
        }
    }

    pub(crate) fn drawn(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    pub(crate) fn phase(&self) -> Phase {
        match (self.table.is_empty(), self.drawn()) {
            (true, _) => Phase::Queue,
            (false, 0) => Phase::Prefill,
            (false, _) => Phase::Decode,
        }
    }

    /// Nothing may be drawn after these many tokens.
    pub(crate) fn full(&self) -> bool {
        self.drawn() >= self.output_tokens_max
    }

    /// The deadline that counts now.
    pub(crate) fn due(&self) -> Deadline {
        match self.drawn() {
            0 => self.deadline.min(self.first_token_deadline),
            _ => self.deadline,
        }
    }

    /// Sorts by least remaining time, then by arrival. Comparing moments is comparing what remains; no deadline
    /// comes last.
    pub(crate) fn urgency(&self) -> (u64, Moment, SeqId) {
        let due = self.due().moment().map_or(u64::MAX, Moment::as_nanos);
        (due, self.arrived, self.id)
    }

    /// Tokens that are known and not computed: one in decode, what is left of the prompt in prefill.
    pub(crate) fn uncomputed(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// The row that computes the next `count` tokens; the block table must already reach that far.
    pub(crate) fn row(&self, count: usize) -> RowPlan {
        let end = self.computed + count;
        RowPlan {
            seq: self.id,
            tokens: self.tokens[self.computed..end].to_vec(),
            start: self.computed,
            spans: vec![Span { blocks: self.table.iter().map(Block::id).collect(), len: end, shift: 0 }],
            draw: (end == self.tokens.len()).then(|| self.draw()),
        }
    }

    fn draw(&self) -> Draw {
        // The penalty is the only reader of `seen`, and copying a long context for nothing costs every step.
        #[allow(clippy::float_cmp)] // 1 is a setting that means "off", not a result.
        let penalised = self.sampling.repetition_penalty != 1.0;
        Draw {
            sampling: Arc::clone(&self.sampling),
            index: self.drawn() as u64,
            seen: if penalised { self.tokens.clone() } else { Vec::new() },
        }
    }
}
