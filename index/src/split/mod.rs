//! Where does one passage end and the next begin? Along the document's structure, near a target length.
//!
//! A passage never crosses a heading. Blocks under one heading are gathered until the target is reached; a block that
//! is too long is cut between sentences (prose) or lines (code, tables), and only then between words. No text is
//! dropped and none stands in two passages.

mod cut;
mod gather;
mod outline;

use crate::ingest::Document;
use crate::{Embed, Passage, PassageId, SourceSpan};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Length at which a passage is full, in the embedder's tokens.
pub(crate) const PASSAGE_TOKENS_TARGET: usize = 200;
/// Longest text that is embedded for a passage, title and headings included. MiniLM reads 256 tokens with its two
/// marks, so nothing of a passage lies beyond what the vector knows.
pub(crate) const PASSAGE_TOKENS_MAX: usize = 254;
/// A passage shorter than this joins its neighbour where the bound allows.
const PASSAGE_TOKENS_MIN: usize = 40;
/// Most tokens that title and headings may take from the text's share; longer paths are shown in part.
const HEADER_TOKENS_MAX: usize = 80;
/// Longest header of a passage's embedded text, in characters.
const HEADER_CHARS_MAX: usize = 240;
/// A token stands for at most this many bytes here: what embedders call one unknown token can be a whole file.
const TOKEN_BYTES_MAX: usize = 12;
/// Passage ids stay below this, see [`PassageId`].
const ID_BITS: u32 = 53;

/// What is embedded and what the id of a stored vector is derived from: header, line break, text.
pub(crate) fn embedded_text(title: &str, headings: &[String], text: &str) -> String {
    format!("{}\n{text}", header(title, headings))
}

/// Title and headings, outermost first; when they are too long the innermost are kept, for they say the most.
fn header(title: &str, headings: &[String]) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut chars = 0;
    for part in std::iter::once(title).chain(headings.iter().map(String::as_str)).rev() {
        chars += part.chars().count() + 3;
        if chars > HEADER_CHARS_MAX && !parts.is_empty() {
            break;
        }
        parts.push(part);
    }
    parts.reverse();
    parts.join(" > ").chars().take(HEADER_CHARS_MAX).collect()
}

/// Counts tokens, with a bound on how much text one token can stand for.
pub(crate) struct Counter<'a> {
    embed: &'a dyn Embed,
    /// Tokens that the embedder adds to every text.
    base: usize,
}

impl<'a> Counter<'a> {
    /// A counter with the embedder's tokens.
    pub(crate) fn new(embed: &'a dyn Embed) -> Self {
        Self { embed, base: embed.count_tokens("") }
    }

    /// Tokens of `text`, never fewer than its length allows.
    pub(crate) fn count(&self, text: &str) -> usize {
        let least = text.len().div_ceil(TOKEN_BYTES_MAX);
        if least > 4 * PASSAGE_TOKENS_MAX {
            // Far too long whatever the count is, so counting would be waste.
            return least;
        }
        self.embed.count_tokens(text).saturating_sub(self.base).max(least)
    }
}

/// What a document is called.
pub(crate) struct Named<'a> {
    /// Its name in the index.
    pub(crate) document_id: &'a str,
    /// Its path as given.
    pub(crate) source: &'a str,
}

/// Cuts a document into passages, in reading order.
pub(crate) fn split(mut document: Document, named: &Named<'_>, counter: &Counter<'_>) -> Vec<Passage> {
    let lines = document.lines.take();
    let places = std::mem::take(&mut document.places);
    let outline = outline::outline(document, named.document_id);
    let mut passages = Vec::new();
    let mut seen = HashMap::new();
    for section in outline.sections {
        let header = header(&outline.title, &section.headings);
        let text_max = PASSAGE_TOKENS_MAX - counter.count(&header).min(HEADER_TOKENS_MAX);
        for draft in gather::gather(section.blocks, counter, text_max) {
            let mut headings = section.headings.clone();
            headings.extend(draft.context);
            let line = |byte: usize| lines.as_ref().map_or(0, |lines| lines.line(byte));
            let span = SourceSpan {
                start_byte: places.in_file(draft.span.start) as u64,
                end_byte: places.in_file(draft.span.end) as u64,
                start_line: line(draft.span.start),
                end_line: line(draft.span.end.saturating_sub(1).max(draft.span.start)),
                page: draft.page,
            };
            let repeat = seen.entry(draft.text.clone()).and_modify(|count| *count += 1).or_insert(0u32);
            passages.push(Passage {
                id: id(named.document_id, &draft.text, *repeat),
                document_id: named.document_id.to_string(),
                source: named.source.to_string(),
                title: outline.title.clone(),
                headings,
                text: draft.text,
                span,
            });
        }
    }
    passages
}

/// The same document and text give the same id in every build; `repeat` tells equal texts of a document apart.
fn id(document_id: &str, text: &str, repeat: u32) -> PassageId {
    let mut hash = Sha256::new();
    hash.update(document_id.as_bytes());
    hash.update([0]);
    hash.update(text.as_bytes());
    hash.update(repeat.to_le_bytes());
    let mut first = [0u8; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    PassageId(u64::from_le_bytes(first) >> (u64::BITS - ID_BITS))
}

#[cfg(test)]
mod tests;
