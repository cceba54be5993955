//! How can the engine be tested without a tokenizer? A codec whose tokens are bytes; goes with [`sched::FakeRunner`].

use crate::{ChatMessage, Codec, CodecError, Constraint, Grammar, Role};
use sched::{TokenId, TokenMask};

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

    fn end_tokens(&self) -> &[TokenId] {
        &[Self::END]
    }

    /// Takes a regular expression that is plain text, and nothing else.
    fn constrain(&self, constraint: &Constraint) -> Result<Box<dyn Grammar>, CodecError> {
        match constraint {
            Constraint::Regex(text) if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                Ok(Box::new(Literal { left: text.bytes().map(TokenId::from).rev().collect() }))
            }
            other => Err(CodecError(format!("the byte codec does not understand {other:?}"))),
        }
    }
}

/// Allows one text, token by token, and then the end.
struct Literal {
    /// Last first.
    left: Vec<TokenId>,
}

impl Literal {
    fn next(&self) -> TokenId {
        self.left.last().copied().unwrap_or(ByteCodec::END)
    }
}

impl Grammar for Literal {
    fn allowed(&mut self) -> Result<TokenMask, CodecError> {
        let mut words = vec![0; ByteCodec::VOCAB_TOKENS.div_ceil(32)];
        words[self.next() as usize / 32] = 1 << (self.next() % 32);
        Ok(TokenMask { words })
    }

    fn accept(&mut self, token: TokenId) -> Result<(), CodecError> {
        if token != self.next() {
            return Err(CodecError(format!("token {token} was not allowed")));
        }
        self.left.pop();
        Ok(())
    }
}
