//! Skeleton.

mod chat;
pub mod sampler;
mod tokenizer;
mod vocabulary;

pub use chat::{ChatError, ChatSource, ChatTurn};
pub use sampler::SampleError;
pub use tokenizer::{Tokenizer, TokenizerError};
