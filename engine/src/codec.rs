//! How does text become tokens and back? What the engine needs of a tokenizer, so that tests can bring a tiny one.

use crate::Constraint;
use sched::{TokenId, TokenMask};
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

    /// The tokens that end an answer.
    fn end_tokens(&self) -> &[TokenId];

    /// Does this token end the answer?
    fn is_end(&self, token: TokenId) -> bool {
        self.end_tokens().contains(&token)
    }

    /// Prepares a constraint on one answer.
    ///
    /// # Errors
    /// When the constraint is not understood, or too large.
    fn constrain(&self, constraint: &Constraint) -> Result<Box<dyn Grammar>, CodecError>;
}

/// A constraint on one answer, as far as the answer has come.
pub trait Grammar: Send {
    /// The tokens that may come next; end tokens are among them where the answer may end, and only they when it must.
    ///
    /// # Errors
    /// When the constraint became too costly to follow.
    fn allowed(&mut self) -> Result<TokenMask, CodecError>;

    /// Takes a token that was allowed.
    ///
    /// # Errors
    /// When it was not.
    fn accept(&mut self, token: TokenId) -> Result<(), CodecError>;
}
