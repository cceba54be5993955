//! What does each token id stand for? The vocabulary of a model file, with the bytes, kinds and ends of its tokens.

use crate::tokenizer::{TokenizerError, array, malformed, token_id, whole_number};
use candle_core::quantized::gguf_file::Value;
use sched::TokenId;
use std::collections::HashMap;
use tokenizers::models::bpe::Vocab;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

/// Control tokens that end an answer in some model family; files do not name all of theirs.
const END_TEXTS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Text.
    Plain,
    /// Steers the model and stands for no text.
    Control,
    /// Text that only the chat template may write as one token.
    UserDefined,
    /// A hole in the vocabulary.
    Unused,
}

/// All tokens of a model.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    texts: Vec<String>,
    kinds: Vec<Kind>,
    /// The bytes of all tokens behind each other; token i has `bytes[starts[i]..starts[i + 1]]`.
    bytes: Vec<u8>,
    starts: Vec<usize>,
    byte_tokens: [Option<TokenId>; 256],
    ends: Vec<TokenId>,
}

impl Vocabulary {
    pub(crate) fn read(metadata: &HashMap<String, Value>) -> Result<Self, TokenizerError> {
        let entries = array(metadata, TOKENS)?;
        if entries.is_empty() || TokenId::try_from(entries.len()).is_err() {
            return Err(malformed(TOKENS, format!("{} tokens", entries.len())));
        }
        let texts = entries
            .iter()
            .map(|entry| match entry {
                Value::String(text) => Ok(text.clone()),
                _ => Err(malformed(TOKENS, "an entry is not a string")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let kinds = kinds(metadata, texts.len())?;
        let (bytes, starts) = byte_store(&texts, &kinds);
        let mut vocabulary = Self { texts, kinds, bytes, starts, byte_tokens: [None; 256], ends: Vec::new() };
        vocabulary.byte_tokens = vocabulary.find_byte_tokens()?;
        vocabulary.ends = vocabulary.find_ends(metadata)?;
        Ok(vocabulary)
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Tokens that merges may make out of text, by their text. The others are left out, so that no file can lead
    /// merges to a control token.
    pub(crate) fn plain_tokens(&self) -> Vocab {
        let plain = |(id, kind): (usize, &Kind)| {
            (*kind == Kind::Plain).then(|| (self.texts[id].clone(), id as TokenId))
        };
        self.kinds.iter().enumerate().filter_map(plain).collect()
    }

    /// Tokens that the chat template may write, with their texts.
    pub(crate) fn specials(&self) -> impl Iterator<Item = (TokenId, &str)> {
        let special = |id: &usize| {
            matches!(self.kinds[*id], Kind::Control | Kind::UserDefined) && !self.texts[*id].is_empty()
        };
        (0..self.len()).filter(special).map(|id| (id as TokenId, self.texts[id].as_str()))
    }

    pub(crate) fn bytes(&self, token: TokenId) -> &[u8] {
        let id = token as usize;
        match (self.starts.get(id), self.starts.get(id + 1)) {
            (Some(start), Some(end)) => &self.bytes[*start..*end],
            _ => &[],
        }
    }

    /// The text of a token as the file writes it; empty when there is none.
    pub(crate) fn text_of(&self, token: Option<TokenId>) -> &str {
        token.and_then(|id| self.texts.get(id as usize)).map_or("", String::as_str)
    }

    pub(crate) fn byte_token(&self, byte: u8) -> Option<TokenId> {
        self.byte_tokens[usize::from(byte)]
    }

    /// The tokens that end an answer, in the order of their ids.
    pub(crate) fn ends(&self) -> &[TokenId] {
        &self.ends
    }

    /// The bytes of each token that text may be made of; none for the others.
    pub(crate) fn text_words(&self) -> Vec<Vec<u8>> {
        let word = |(id, kind): (usize, &Kind)| match kind {
            Kind::Plain => self.bytes(id as TokenId).to_vec(),
            Kind::Control | Kind::UserDefined | Kind::Unused => Vec::new(),
        };
        self.kinds.iter().enumerate().map(word).collect()
    }

    /// The token of each single byte. Those of printable text must be there; a control character or a plane of
    /// Unicode without assigned characters may be missing (SmolLM2 lacks a few) and is then left out of the prompt.
    fn find_byte_tokens(&self) -> Result<[Option<TokenId>; 256], TokenizerError> {
        let map = chars_to_bytes();
        let mut tokens = [None; 256];
        for (id, text) in self.texts.iter().enumerate() {
            let mut chars = text.chars();
            if let (Some(char), None, Kind::Plain) = (chars.next(), chars.next(), self.kinds[id])
                && let Some(byte) = map.get(&char)
            {
                tokens[usize::from(*byte)] = Some(id as TokenId);
            }
        }
        let needed = |byte: &usize| matches!(byte, 0x09 | 0x0a | 0x20..=0x7e | 0x80..=0xbf | 0xc2..=0xf0);
        match (0..256).filter(needed).find(|byte| tokens[*byte].is_none()) {
            Some(byte) => Err(malformed(TOKENS, format!("no token for byte {byte:#04x}"))),
            None => Ok(tokens),
        }
    }

    fn find_ends(&self, metadata: &HashMap<String, Value>) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ends: Vec<TokenId> =
            self.specials().filter(|(_, text)| END_TEXTS.contains(text)).map(|(id, _)| id).collect();
        for key in
            ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"]
        {
            ends.extend(token_id(metadata, key, self.len())?);
        }
        ends.sort_unstable();
        ends.dedup();
        Ok(ends)
    }
}

/// Kinds by token; without the entry all are plain, which is what files without control tokens mean.
fn kinds(metadata: &HashMap<String, Value>, vocab_tokens: usize) -> Result<Vec<Kind>, TokenizerError> {
    if !metadata.contains_key(TYPES) {
        return Ok(vec![Kind::Plain; vocab_tokens]);
    }
    let entries = array(metadata, TYPES)?;
    if entries.len() != vocab_tokens {
        return Err(malformed(TYPES, format!("{} types for {vocab_tokens} tokens", entries.len())));
    }
    let kind = |entry: &Value| match whole_number(entry) {
        Some(1 | 6) => Ok(Kind::Plain),
        Some(2 | 3) => Ok(Kind::Control),
        Some(4) => Ok(Kind::UserDefined),
        Some(0 | 5) => Ok(Kind::Unused),
        _ => Err(malformed(TYPES, format!("{entry:?} is not a token type"))),
    };
    entries.iter().map(kind).collect()
}

fn byte_store(texts: &[String], kinds: &[Kind]) -> (Vec<u8>, Vec<usize>) {
    let map = chars_to_bytes();
    let mut bytes = Vec::with_capacity(texts.len() * 7);
    let mut starts = Vec::with_capacity(texts.len() + 1);
    for (text, kind) in texts.iter().zip(kinds) {
        starts.push(bytes.len());
        match kind {
            Kind::Control | Kind::Unused => {}
            Kind::UserDefined => bytes.extend_from_slice(text.as_bytes()),
            // Some files write tokens added late as plain text among byte-mapped ones.
            Kind::Plain if text.chars().any(|c| !map.contains_key(&c)) => {
                bytes.extend_from_slice(text.as_bytes());
            }
            Kind::Plain => bytes.extend(text.chars().filter_map(|c| map.get(&c))),
        }
    }
    starts.push(bytes.len());
    (bytes, starts)
}

fn chars_to_bytes() -> HashMap<char, u8> {
    bytes_to_chars().into_iter().zip(0..=u8::MAX).collect()
}

/// The character by which GPT-2's vocabulary writes each byte: printable Latin-1 characters stand for themselves, the
/// other bytes, in order, for the characters from U+0100 on.
pub(crate) fn bytes_to_chars() -> [char; 256] {
    let mut next = 0x100_u16;
    let mut chars = ['\0'; 256];
    for byte in 0..=u8::MAX {
        chars[usize::from(byte)] = if matches!(byte, 33..=126 | 161..=172 | 174..) {
            char::from(byte)
        } else {
            next += 1;
            // Below U+0144, where every number is a character.
            char::from_u32(u32::from(next - 1)).unwrap_or('\u{fffd}')
        };
    }
    chars
}
