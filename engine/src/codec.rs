//! How does text become tokens and back? What the engine needs of a tokenizer, so that tests can bring a tiny one.

use sched::TokenId;
use thiserror::Error;

/// Who speaks in a chat message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator's instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name that chat templates use.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said; never read as control tokens.
    pub content: String,
}

/// A conversation that the model's template refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CodecError(pub String);

/// A byte-level tokenizer with a chat template.
pub trait Codec: Send + Sync {
    /// Tokens of plain text; text that looks like a control token stays text.
    fn encode(&self, text: &str) -> Vec<TokenId>;

    /// Tokens of a conversation under the model's chat template, ready for the assistant's turn. Control tokens come
    /// from the template alone, never from a message's content.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, CodecError>;

    /// The bytes of a token; empty for control tokens. A stream's text is the concatenation of its tokens' bytes.
    fn token_bytes(&self, token: TokenId) -> &[u8];

    /// Does this token end the answer?
    fn is_end(&self, token: TokenId) -> bool;
}
