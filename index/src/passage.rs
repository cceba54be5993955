//! What is a passage, and where in its source does it stand?

use serde::{Deserialize, Serialize};

/// Names a passage; stays the same over rebuilds while document and text stay the same.
///
/// Always below 2^53, so that it survives JSON readers that keep numbers as doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PassageId(pub u64);

/// The part of the source file that a passage was made from.
///
/// Bytes are those of the file, whatever its encoding. Text files and source code: they are exact. Markdown and
/// reStructuredText: they hold the passage's words in order, with their markup. CSV and JSON lines: whole rows and lines.
/// HTML: where the words were found, to the nearest block. PDF and DOCX: the whole file, lines 0, and for PDF the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpan {
    /// First byte.
    pub start_byte: u64,
    /// One past the last byte.
    pub end_byte: u64,
    /// First line, counted from 1; 0 where the format has no lines.
    pub start_line: u32,
    /// Last line, counted from 1; 0 where the format has no lines.
    pub end_line: u32,
    /// Page on which the passage begins, counted from 1, where the format has pages.
    pub page: Option<u32>,
}

/// A piece of a document: what search returns and what an answer cites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Its name.
    pub id: PassageId,
    /// The document's name: its path under the folder that was indexed, with forward slashes; unique in the index.
    pub document_id: String,
    /// Path of the file as it was given to the build.
    pub source: String,
    /// Title of the document.
    pub title: String,
    /// Headings above the passage, outermost first, without the title.
    pub headings: Vec<String>,
    /// The text itself, without title and headings.
    pub text: String,
    /// Where it stands in the source.
    pub span: SourceSpan,
}
