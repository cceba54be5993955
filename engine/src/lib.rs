//! How does a prompt become a stream of text? The loop thread and the handle to it.

mod api;
mod calibrate;
mod codec;
mod fake;
mod handle;
mod histogram;
mod records;
mod settings;
mod shared;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod worker;

pub use api::{
    Constraint, Delta, Event, FinishReason, Finished, GenerateRequest, SubmitError, Timing, TokenLogprob,
    Usage,
};
pub use codec::{ChatMessage, Codec, CodecError, Grammar, Role};
pub use fake::ByteCodec;
pub use handle::{Engine, EngineInfo, EngineModel, Generation, StartError};
pub use histogram::{Histogram, Histograms};
pub use records::StepRecord;
pub use settings::{LOGIT_BIASES_MAX, TOP_LOGPROBS_MAX};
pub use stats::{EngineStats, FinishCounts};

// What a request is made of, so that callers need not name the floor below.
pub use sched::{
    AdapterId, Batching, KvDtype, KvSpace, Policy, Reservation, Sampling, Tenant, TokenId, TokenMask,
};
