//! Where does a passage come from? The part of a document that an answer or a search points at.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where in its document a passage stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Span {
    /// First byte in the document's text.
    pub start_byte: usize,
    /// One past the last byte.
    pub end_byte: usize,
    /// First line, from 1.
    pub start_line: usize,
    /// Last line, from 1.
    pub end_line: usize,
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
    /// Names the passage. A string, because it may exceed what a JSON number holds exactly.
    pub passage_id: String,
}
