//! How does the scheduler decide? The switches of its policy; the alternatives are there to be measured against.

use std::time::Duration;

/// When waiting sequences join the running ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// At every step.
    #[default]
    Continuous,
    /// When the whole batch has ended: everyone waits for the longest.
    Static,
}

/// How many blocks a sequence takes out of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reservation {
    /// A block when its first position is computed; when none is left, the most patient sequence gives way.
    #[default]
    Paged,
    /// Blocks for the model's longest context, from admission to end: what contiguous memory would need.
    Contiguous,
}

/// The scheduler's policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Keep computed blocks and use them for every prompt that begins with the same tokens.
    pub prefix_cache: bool,
    /// Cut prompts into chunks, so that running streams wait for a chunk and not for a prompt.
    pub chunked_prefill: bool,
    /// See [`Batching`].
    pub batching: Batching,
    /// See [`Reservation`].
    pub reservation: Reservation,
    /// A stream without a time per token of its own bears steps that take this many times a step without prefill.
    pub step_stretch_max: f64,
    /// After this wait a request goes before all that come later and have as much to compute, whatever their deadlines:
    /// no stream of urgent requests holds up a patient one for ever.
    pub patience: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            prefix_cache: true,
            chunked_prefill: true,
            batching: Batching::Continuous,
            reservation: Reservation::Paged,
            step_stretch_max: 2.25,
            patience: Duration::from_secs(30),
        }
    }
}
