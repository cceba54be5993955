//! How can the engine be tested without a tokenizer? A codec whose tokens are bytes; goes with [`sched::FakeRunner`].

use crate::{ChatMessage, Codec, CodecError, Role};
use sched::TokenId;

/// A codec without files: tokens 0 to 255 are bytes, and a few above them are control tokens.
#[derive(Clone, Debug)]
pub struct ByteCodec {
    bytes: Vec<u8>,
}

impl ByteCodec {
    /// Ends an answer, and each message of a conversation.
    pub const END: TokenId = 256;
    /// Size of the vocabulary.
    pub const VOCAB_TOKENS: usize = 260;

    /// The one codec of this kind.
    pub fn new() -> Self {
        Self { bytes: (0..=u8::MAX).collect() }
    }

    /// The control token that opens a message.
    pub const fn opens(role: Role) -> TokenId {
        match role {
            Role::System => 257,
            Role::User => 258,
            Role::Assistant => 259,
        }
    }
}

impl Default for ByteCodec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for ByteCodec {
    fn encode(&self, text: &str) -> Vec<TokenId> {
        text.bytes().map(TokenId::from).collect()
    }

    fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, CodecError> {
        if messages.is_empty() {
            return Err(CodecError("a conversation has at least one message".to_string()));
        }
        let mut tokens = Vec::new();
        for message in messages {
            tokens.push(Self::opens(message.role));
            tokens.extend(self.encode(&message.content));
            tokens.push(Self::END);
        }
        tokens.push(Self::opens(Role::Assistant));
        Ok(tokens)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], std::slice::from_ref)
    }

    fn is_end(&self, token: TokenId) -> bool {
        token == Self::END
    }
}
