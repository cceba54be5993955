//! How does a prompt become a stream of text? The loop thread and the handle to it.

mod api;
mod codec;

pub use api::{Event, FinishReason, Finished, GenerateRequest, SubmitError, Timing, Usage};
pub use codec::{ChatMessage, Codec, CodecError, Role};
