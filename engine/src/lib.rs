//! How does a prompt become a stream of text? The loop thread and the handle to it.

mod api;
mod codec;
mod fake;
mod handle;
mod settings;
mod shared;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod worker;

pub use api::{Event, FinishReason, Finished, GenerateRequest, SubmitError, Timing, Usage};
pub use codec::{ChatMessage, Codec, CodecError, Role};
pub use fake::ByteCodec;
pub use handle::{Engine, EngineInfo, EngineModel, Generation, StartError};
pub use stats::{EngineStats, FinishCounts};

// What a request is made of, so that callers need not name the floor below.
pub use sched::{Sampling, TokenId};
