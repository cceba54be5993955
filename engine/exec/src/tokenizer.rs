//! Which tokens does a text have, and which bytes does a token stand for? Byte-level BPE as the model file describes it.
//!
//! Text is never normalised: the bytes of a text's tokens are the text, but for bytes that a vocabulary lacks. Control
//! tokens come from the chat template alone; a text that looks like one is text.

use crate::chat::{ChatError, ChatSource, ChatTemplate, ChatTurn, Piece};
use crate::grammar::{GrammarError, GrammarFactory};
use crate::vocabulary::Vocabulary;
use aho_corasick::{AhoCorasick, MatchKind};
use candle_core::quantized::gguf_file::{Content, Value};
use sched::TokenId;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;
use thiserror::Error;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

/// A model file whose tokenizer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenizerError {
    /// The file cannot be read as GGUF.
    #[error("{0}")]
    Unreadable(String),
    /// An entry that every tokenizer needs is not there.
    #[error("the model file has no {0}")]
    Missing(&'static str),
    /// An entry does not hold what it should.
    #[error("the model file's {key}: {reason}")]
    Malformed {
        /// The metadata key.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Another kind of tokenizer.
    #[error("tokenizer model {0:?} is not supported; byte-level BPE (\"gpt2\") is")]
    UnsupportedModel(String),
    /// Another way to cut text before the merges.
    #[error("pre-tokenizer {0:?} is not supported; qwen2, smollm, gpt-2 and llama-bpe are")]
    UnsupportedPreTokenizer(String),
    /// The chat template does not compile.
    #[error(transparent)]
    Chat(#[from] ChatError),
}

/// A byte-level BPE tokenizer with the model's chat template.
#[derive(Debug)]
pub struct Tokenizer {
    bpe: tokenizers::Tokenizer,
    vocabulary: Vocabulary,
    /// Finds special tokens in template text; pattern i is `special_ids[i]`.
    specials: AhoCorasick,
    special_ids: Vec<TokenId>,
    chat: Option<ChatTemplate>,
    chat_source: ChatSource,
    grammars: OnceLock<Result<GrammarFactory, GrammarError>>,
}

impl Tokenizer {
    /// Reads the tokenizer alone out of a model file.
    ///
    /// # Errors
    /// See [`TokenizerError`].
    pub fn open(path: &Path) -> Result<Self, TokenizerError> {
        let unreadable = |reason: String| TokenizerError::Unreadable(format!("{}: {reason}", path.display()));
        let file = File::open(path).map_err(|e| unreadable(e.to_string()))?;
        let content = Content::read(&mut BufReader::new(file)).map_err(|e| unreadable(e.to_string()))?;
        Self::from_gguf(&content)
    }

    /// Builds the tokenizer that `content` describes.
    ///
    /// # Errors
    /// See [`TokenizerError`].
    pub fn from_gguf(content: &Content) -> Result<Self, TokenizerError> {
        Self::from_metadata(&content.metadata)
    }

    /// The same from the metadata entries alone.
    ///
    /// # Errors
    /// See [`TokenizerError`].
    pub fn from_metadata(metadata: &HashMap<String, Value>) -> Result<Self, TokenizerError> {
        let model = text(metadata, "tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::UnsupportedModel(model.to_string()));
        }
        let pre = text(metadata, "tokenizer.ggml.pre")?;
        let (pre_tokenizer, ignore_merges) = pre_tokenizer(pre)?;
        let vocabulary = Vocabulary::read(metadata)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocabulary.plain_tokens(), merges(metadata)?)
            .ignore_merges(ignore_merges)
            .build()
            .map_err(|e| malformed("tokenizer.ggml.merges", e.to_string()))?;
        let mut bpe = tokenizers::Tokenizer::new(bpe);
        bpe.with_pre_tokenizer(Some(pre_tokenizer));
        let (special_ids, texts): (Vec<_>, Vec<_>) = vocabulary.specials().unzip();
        let specials = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&texts)
            .map_err(|e| malformed("tokenizer.ggml.tokens", e.to_string()))?;
        let (chat, chat_source) = chat_template(metadata, &vocabulary)?;
        Ok(Self { bpe, vocabulary, specials, special_ids, chat, chat_source, grammars: OnceLock::new() })
    }

    /// Tokens of plain text; text that looks like a control token stays text.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
        self.encode_onto(text, &mut tokens);
        tokens
    }

    /// Tokens of a conversation under the chat template, ready for the assistant's turn. Control tokens come from the
    /// template alone, never from a content.
    ///
    /// # Errors
    /// When there is no template or it refuses the conversation.
    pub fn encode_chat(&self, turns: &[ChatTurn]) -> Result<Vec<TokenId>, ChatError> {
        let pieces = self.chat.as_ref().ok_or(ChatError::NoTemplate)?.render(turns)?;
        let mut tokens = Vec::new();
        // Text between two control tokens is encoded as one run, whoever wrote it, because that is what the model
        // was trained on: a line break before a content belongs to the same token as one that starts it.
        let mut run = String::new();
        for piece in &pieces {
            match piece {
                Piece::Content(content) => run.push_str(content),
                Piece::Template(template) => {
                    let mut end = 0;
                    for special in self.specials.find_iter(template) {
                        run.push_str(&template[end..special.start()]);
                        self.encode_onto(&run, &mut tokens);
                        run.clear();
                        tokens.push(self.special_ids[special.pattern().as_usize()]);
                        end = special.end();
                    }
                    run.push_str(&template[end..]);
                }
            }
        }
        self.encode_onto(&run, &mut tokens);
        Ok(tokens)
    }

    /// The bytes of a token; empty for control tokens and for ids outside the vocabulary.
    pub fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.vocabulary.bytes(token)
    }

    /// The tokens that end an answer, in the order of their ids.
    pub fn end_tokens(&self) -> &[TokenId] {
        self.vocabulary.ends()
    }

    /// Does this token end the answer?
    pub fn is_end(&self, token: TokenId) -> bool {
        self.end_tokens().contains(&token)
    }

    /// What compiles constraints for this vocabulary. Made at the first call, which takes some tenths of a second for
    /// a large vocabulary; calls at that time wait for it.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`].
    pub fn grammars(&self) -> Result<&GrammarFactory, GrammarError> {
        let make = || {
            let began = Instant::now();
            let factory = GrammarFactory::new(self.vocabulary.text_words(), self.end_tokens());
            tracing::info!(took_ms = began.elapsed().as_millis() as u64, "vocabulary prepared for grammars");
            factory
        };
        self.grammars.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Size of the vocabulary.
    pub fn vocab_tokens(&self) -> usize {
        self.vocabulary.len()
    }

    /// Where the chat template comes from.
    pub fn chat_source(&self) -> ChatSource {
        self.chat_source
    }

    fn encode_onto(&self, text: &str, tokens: &mut Vec<TokenId>) {
        if text.is_empty() {
            return;
        }
        match self.bpe.encode_fast(text, false) {
            Ok(encoding) => tokens.extend_from_slice(encoding.get_ids()),
            // Nothing is known to end here; if something does, bytes one by one still say the same text.
            Err(error) => {
                tracing::warn!(%error, "text encoded byte by byte");
                tokens.extend(text.bytes().filter_map(|byte| self.vocabulary.byte_token(byte)));
            }
        }
    }
}

/// How the named pre-tokenizer cuts text, and whether a piece that is a token as a whole skips the merges.
///
/// The expressions are those that the model families publish with their tokenizers. `default` is refused on purpose:
/// converters write it when they do not know the model, and a wrong cut makes a model worse without any sign.
fn pre_tokenizer(name: &str) -> Result<(PreTokenizerWrapper, bool), TokenizerError> {
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let by_expression = |expression: &str| -> Result<PreTokenizerWrapper, TokenizerError> {
        let split =
            Split::new(SplitPattern::Regex(expression.to_string()), SplitDelimiterBehavior::Isolated, false)
                .map_err(|e| malformed("tokenizer.ggml.pre", e.to_string()))?;
        let bytes = ByteLevel::new(false, false, false);
        Ok(Sequence::new(vec![split.into(), bytes.into()]).into())
    };
    // This one cuts by GPT-2's expression itself.
    let gpt2 = ByteLevel::new(false, false, true);
    match name {
        "qwen2" => Ok((by_expression(QWEN2)?, false)),
        "llama-bpe" => Ok((by_expression(LLAMA3)?, true)),
        "gpt-2" => Ok((gpt2.into(), false)),
        "smollm" => Ok((Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into(), false)),
        other => Err(TokenizerError::UnsupportedPreTokenizer(other.to_string())),
    }
}

fn merges(metadata: &HashMap<String, Value>) -> Result<Vec<(String, String)>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.merges";
    let pair = |entry: &Value| match entry {
        Value::String(merge) => match merge.split_once(' ') {
            Some((left, right)) => Ok((left.to_string(), right.to_string())),
            None => Err(malformed(KEY, format!("{merge:?} is not two tokens"))),
        },
        _ => Err(malformed(KEY, "an entry is not a string")),
    };
    array(metadata, KEY)?.iter().map(pair).collect()
}

fn chat_template(
    metadata: &HashMap<String, Value>,
    vocabulary: &Vocabulary,
) -> Result<(Option<ChatTemplate>, ChatSource), TokenizerError> {
    const KEY: &str = "tokenizer.chat_template";
    let bos = vocabulary.text_of(token_id(metadata, "tokenizer.ggml.bos_token_id", vocabulary.len())?);
    let eos = vocabulary.text_of(token_id(metadata, "tokenizer.ggml.eos_token_id", vocabulary.len())?);
    let own = metadata.contains_key(KEY).then(|| text(metadata, KEY)).transpose()?;
    let speaks_chatml = ["<|im_start|>", "<|im_end|>"]
        .iter()
        .all(|wanted| vocabulary.specials().any(|(_, special)| special == *wanted));
    let source = match own {
        Some(_) => ChatSource::ModelFile,
        None if speaks_chatml => ChatSource::AssumedChatMl,
        None => return Ok((None, ChatSource::None)),
    };
    Ok((Some(ChatTemplate::new(own, bos, eos)?), source))
}

pub(crate) fn malformed(key: &'static str, reason: impl Into<String>) -> TokenizerError {
    TokenizerError::Malformed { key, reason: reason.into() }
}

pub(crate) fn text<'a>(
    metadata: &'a HashMap<String, Value>,
    key: &'static str,
) -> Result<&'a str, TokenizerError> {
    match metadata.get(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(malformed(key, "is not a string")),
        None => Err(TokenizerError::Missing(key)),
    }
}

pub(crate) fn array<'a>(
    metadata: &'a HashMap<String, Value>,
    key: &'static str,
) -> Result<&'a [Value], TokenizerError> {
    match metadata.get(key) {
        Some(Value::Array(entries)) => Ok(entries),
        Some(_) => Err(malformed(key, "is not an array")),
        None => Err(TokenizerError::Missing(key)),
    }
}

/// A token id that the metadata may name; must lie inside the vocabulary.
pub(crate) fn token_id(
    metadata: &HashMap<String, Value>,
    key: &'static str,
    vocab_tokens: usize,
) -> Result<Option<TokenId>, TokenizerError> {
    let Some(value) = metadata.get(key) else { return Ok(None) };
    match whole_number(value).and_then(|id| TokenId::try_from(id).ok()) {
        Some(id) if (id as usize) < vocab_tokens => Ok(Some(id)),
        _ => Err(malformed(key, format!("{value:?} is not a token of the vocabulary"))),
    }
}

pub(crate) fn whole_number(value: &Value) -> Option<i64> {
    match *value {
        Value::U8(n) => Some(n.into()),
        Value::I8(n) => Some(n.into()),
        Value::U16(n) => Some(n.into()),
        Value::I16(n) => Some(n.into()),
        Value::U32(n) => Some(n.into()),
        Value::I32(n) => Some(n.into()),
        Value::U64(n) => n.try_into().ok(),
        Value::I64(n) => Some(n),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
