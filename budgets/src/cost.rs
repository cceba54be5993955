//! How long will a step take? The one cost model that chunk sizes, admission and later features ask.

use std::time::Duration;

/// What a step's time depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepShape {
    /// Tokens of prefill chunks.
    pub prefill_tokens: usize,
    /// Chunks.
    pub prefill_rows: usize,
    /// Chunks that end their prompt, so that a token is drawn.
    pub prefill_draws: usize,
    /// Sum over the chunks' tokens of the positions that each reads.
    pub prefill_context: usize,
    /// Rows of one token that draws.
    pub decode_rows: usize,
    /// Sum over these rows of the positions that each reads.
    pub decode_context: usize,
}

impl StepShape {
    /// Adds a row of one token at position `start` that draws.
    pub fn add_decode(&mut self, start: usize) {
        self.decode_rows += 1;
        self.decode_context += start + 1;
    }

    /// Adds a chunk of `tokens` that begins at position `start`.
    pub fn add_prefill(&mut self, start: usize, tokens: usize, draws: bool) {
        self.prefill_rows += 1;
        self.prefill_tokens += tokens;
        self.prefill_draws += usize::from(draws);
        self.prefill_context += tokens * start + tokens * (tokens + 1) / 2;
    }

    /// Nothing is computed.
    pub fn is_empty(&self) -> bool {
        self.prefill_rows + self.decode_rows == 0
    }
}

/// How far predictions were off: shares of the measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostError {
    /// Median of |predicted - measured| / measured.
    pub median: f64,
    /// 95th percentile of the same.
    pub p95: f64,
    /// Steps counted.
    pub samples: usize,
}

/// Predicts a step's time from its shape. Without observations it predicts zero.
#[derive(Clone, Debug, Default)]
pub struct CostModel {}

impl CostModel {
    /// The predicted time of a step.
    pub fn predict(&self, _shape: &StepShape) -> Duration {
        Duration::ZERO
    }

    /// Learns from a step.
    pub fn observe(&mut self, _shape: &StepShape, _measured: Duration) {}

    /// The error over the last steps; `None` before the first.
    pub fn error(&self) -> Option<CostError> {
        None
    }

    /// The most tokens, up to `max`, that a chunk at position `start` may have so that a step of `shape` and that chunk
    /// stays within `limit`; 0 when none may.
    pub fn prefill_tokens_within(&self, _shape: &StepShape, _start: usize, max: usize, _limit: Duration) -> usize {
        max
    }
}
