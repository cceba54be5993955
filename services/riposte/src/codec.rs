//! How does the engine read the model's tokenizer? Newtypes, since neither floor may know the other.

use engine::{ChatMessage, Codec, CodecError, Constraint, Grammar, TokenId, TokenMask};
use exec::{ChatTurn, GrammarError, GrammarState, Tokenizer};

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

    fn end_tokens(&self) -> &[TokenId] {
        self.0.end_tokens()
    }

    fn constrain(&self, constraint: &Constraint) -> Result<Box<dyn Grammar>, CodecError> {
        let compile = || {
            let grammars = self.0.grammars()?;
            match constraint {
                Constraint::JsonSchema(schema) => grammars.json_schema(schema),
                Constraint::Regex(expression) => grammars.regex(expression),
            }
        };
        let state = compile().map_err(|error| told(&error))?;
        Ok(Box::new(ModelGrammar(state)))
    }
}

/// A compiled constraint as the engine wants it.
struct ModelGrammar(GrammarState);

impl Grammar for ModelGrammar {
    fn allowed(&mut self) -> Result<TokenMask, CodecError> {
        self.0.allowed().map_err(|error| told(&error))
    }

    fn accept(&mut self, token: TokenId) -> Result<(), CodecError> {
        self.0.accept(token).map_err(|error| told(&error))
    }
}

fn told(error: &GrammarError) -> CodecError {
    CodecError(error.to_string())
}
