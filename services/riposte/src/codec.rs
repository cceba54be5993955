//! How does the engine read the model's tokenizer? A newtype, since neither floor may know the other.

use engine::{ChatMessage, Codec, CodecError, TokenId};
use exec::{ChatTurn, Tokenizer};

/// The model's tokenizer as the engine wants it.
pub struct ModelCodec(pub Tokenizer);

impl Codec for ModelCodec {
    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.0.encode(text)
    }

    fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, CodecError> {
        let turns: Vec<_> = messages
            .iter()
            .map(|message| ChatTurn { role: message.role.name(), content: &message.content })
            .collect();
        self.0.encode_chat(&turns).map_err(|error| CodecError(error.to_string()))
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.0.token_bytes(token)
    }

    fn is_end(&self, token: TokenId) -> bool {
        self.0.is_end(token)
    }
}
