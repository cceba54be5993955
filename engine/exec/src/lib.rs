//! How does a step become numbers? Models, weights and KV memory on this machine, behind the scheduler's `Runner`.
//!
//! Knows nothing of scheduling, text streams or HTTP.

mod chat;
mod config;
mod encoder;
mod error;
mod forward;
mod gguf;
mod grammar;
mod load;
mod runner;
pub mod sampler;
mod tokenizer;
mod vocabulary;
mod weights;

pub use chat::{ChatError, ChatSource, ChatTurn};
pub use config::{Architecture, ModelConfig};
pub use encoder::{EncodeError, Encoder};
pub use error::LoadError;
pub use grammar::{CONSTRAINT_BYTES_MAX, ConstraintKind, GrammarError, GrammarFactory, GrammarState};
pub use load::{LoadOptions, Loaded, ModelSummary, load};
pub use runner::DeviceRunner;
pub use sampler::SampleError;
pub use tokenizer::{Tokenizer, TokenizerError};
