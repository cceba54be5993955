//! Where does a passage come from? The part of a document that an answer or a search points at.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where in its document a passage stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Span {
    /// First byte in the document's file.
    pub start_byte: u64,
    /// One past the last byte.
    pub end_byte: u64,
    /// First line, from 1; 0 where the format has no lines.
    pub start_line: u32,
    /// Last line, from 1; 0 where the format has no lines.
    pub end_line: u32,
    /// Page, from 1, where the document has pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
}

/// A numbered passage that an answer may cite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// The `n` of `[n]`, from 1.
    pub number: usize,
    /// Title of the document.
    pub title: String,
    /// Headings above the passage, outermost first.
    pub headings: Vec<String>,
    /// The document's path as it was given at ingest.
    pub source: String,
    /// Where in the document.
    pub span: Span,
    /// The whole passage.
    pub text: String,
    /// Fused retrieval score; comparable within one answer only.
    pub score: f32,
    /// Names the document.
    pub document_id: String,
    /// Names the passage; below 2^53, so that every JSON reader holds it exactly.
    pub passage_id: u64,
}
