//! What does one step compute? The contract between the scheduler, which decides, and a runner, which computes.

use budgets::StepShape;
use std::sync::Arc;
use thiserror::Error;

/// Names a sequence for its whole life; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

/// A fixed run of KV positions in the runner's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A model token.
pub type TokenId = u32;

/// KV that a row may read: `len` positions held in `blocks`, each query position moved by `shift` before it reads
/// them. Plain attention is one span with shift 0; passage KV will bring more of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The blocks in order; the last may be partly filled.
    pub blocks: Vec<BlockId>,
    /// Positions held, counting those that this step writes.
    pub len: usize,
    /// Added to a query's position before it is rotated for this span.
    pub shift: i64,
}

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 means greedy.
    pub temperature: f32,
    /// Keep the k most likely; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens below this share of the most likely one's probability; 0 keeps all.
    pub min_p: f32,
    /// Divides (positive) or multiplies (negative) the logits of tokens already seen; 1 is off.
    pub repetition_penalty: f32,
    /// Same seed, prompt and settings: same answer.
    pub seed: u64,
    /// Added to the logits of these tokens, before everything else; each token once.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Report the drawn token's and this many likeliest tokens' logarithmic probabilities; `None` reports only the drawn
    /// token's.
    pub top_logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
            logit_bias: Vec::new(),
            top_logprobs: None,
        }
    }
}

/// A draw to make after a row's last token.
#[derive(Clone, Debug)]
pub struct Draw {
    /// How.
    pub sampling: Arc<Sampling>,
    /// Which draw of the sequence this is, from 0; with the seed it fixes the random number, whatever else runs.
    pub index: u64,
    /// Tokens that the repetition penalty counts; empty when the penalty is off.
    pub seen: Vec<TokenId>,
    /// Tokens that must not be drawn now: those that end the answer, until its least length is reached.
    pub banned: Arc<[TokenId]>,
    /// Tokens that a grammar allows now; `None` allows all.
    pub allowed: Option<Arc<TokenMask>>,
}

/// A set of tokens, one bit each; tokens past its end are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    /// Bit `token % 32` of word `token / 32`.
    pub words: Vec<u32>,
}

impl TokenMask {
    /// Is `token` in the set?
    pub fn allows(&self, token: TokenId) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Is a token in the set that is none of `others`?
    pub fn allows_besides(&self, others: &[TokenId]) -> bool {
        let mut words = self.words.iter().enumerate();
        words.any(|(at, word)| {
            let here = others.iter().filter(|token| **token as usize / 32 == at);
            word & !here.fold(0, |bits, token| bits | 1 << (token % 32)) != 0
        })
    }
}

/// One sequence's part in a step.
#[derive(Clone, Debug)]
pub struct RowPlan {
    /// Whose.
    pub seq: SeqId,
    /// Tokens to compute, at positions `start..start + tokens.len()`; one for a decode, a chunk for a prefill.
    pub tokens: Vec<TokenId>,
    /// Position of the first of them.
    pub start: usize,
    /// KV to read and write: new keys and values go to the end of the last span.
    pub spans: Vec<Span>,
    /// Present when the row's last token completes what is known, so that a next token is due.
    pub draw: Option<Draw>,
}

/// A cached block of which a sequence uses the first positions: it is copied into a block of the sequence's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Read; a row of the same step may overwrite it afterwards.
    pub from: BlockId,
    /// Written.
    pub to: BlockId,
}

/// What one step computes.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// Copies of whole blocks, all layers, made in this order before any row is computed.
    pub copies: Vec<BlockCopy>,
    /// Decodes first, then prefill chunks.
    pub rows: Vec<RowPlan>,
}

impl StepPlan {
    /// What the step's time depends on.
    pub fn shape(&self) -> StepShape {
        let mut shape = StepShape::default();
        for row in &self.rows {
            row.add_to(&mut shape);
        }
        shape
    }
}

impl RowPlan {
    /// Adds the row's part to `shape`: one token that draws costs what a decode costs, whatever the sequence's phase.
    pub fn add_to(&self, shape: &mut StepShape) {
        match (self.tokens.len(), &self.draw) {
            (1, Some(_)) => shape.add_decode(self.start),
            (tokens, draw) => shape.add_prefill(self.start, tokens, draw.is_some()),
        }
    }
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// Whose.
    pub seq: SeqId,
    /// The token.
    pub token: TokenId,
    /// Natural logarithm of its probability before temperature and filters.
    pub logprob: f32,
    /// The likeliest tokens and their logarithmic probabilities, likeliest first; see [`Sampling::top_logprobs`].
    pub top: Vec<(TokenId, f32)>,
}

/// What came out of a step: one entry for each row with a draw, in row order.
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    /// The drawn tokens.
    pub drawn: Vec<Drawn>,
}

/// What a runner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerLimits {
    /// Positions in a block.
    pub block_tokens: usize,
    /// Blocks in the pool.
    pub blocks_total: usize,
    /// Longest sequence that the model takes.
    pub context_tokens_max: usize,
    /// Size of the vocabulary.
    pub vocab_tokens: usize,
}

/// A step that could not be computed. The sequences in it are failed; the engine goes on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    /// The plan breaks the runner's contract: a defect in the scheduler.
    #[error("invalid step plan: {0}")]
    InvalidPlan(String),
    /// The device failed.
    #[error("device: {0}")]
    Device(String),
    /// The logits held no finite number.
    #[error("the model produced no finite logits for sequence {0:?}")]
    NotFinite(SeqId),
    /// Bans, grammar and logit bias together exclude every token.
    #[error("no token is allowed for sequence {0:?}: its bans, grammar and logit bias together exclude all")]
    NoTokenAllowed(SeqId),
}

/// Computes steps. The device runner, the simulated one and the scripted one in tests all stand behind this.
pub trait Runner: Send {
    /// What it has; constant for its life.
    fn limits(&self) -> RunnerLimits;

    /// Computes `plan`.
    ///
    /// # Errors
    /// See [`RunError`]; KV written by a failed step is never read.
    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError>;
}
