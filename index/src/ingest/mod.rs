//! What does this file say? Bytes of a known format become a title and a flat list of headings and blocks.
//!
//! Each format has its own reader; all give the same [`Document`], so that splitting knows nothing of formats.

mod code;
mod code_line;
mod csv;
mod decode;
mod document;
mod docx;
mod docx_styles;
mod files;
mod guard;
#[cfg(test)]
mod hostile;
mod html;
mod inline;
mod jsonl;
mod markdown;
mod pdf;
mod rst;
mod rst_directive;
mod rst_line;
mod rst_markup;
mod rst_table;
mod text;

use code_line::Language;
pub(crate) use document::{Block, BlockKind, Document, Element, LineIndex};
pub(crate) use files::{Found, Scan, scan};
pub(crate) use guard::{load, read};

/// The endings of the formats, for messages.
pub(crate) const KINDS: &str = ".md .rst .html .txt .pdf .docx .csv .tsv .jsonl and source code";

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// CommonMark with tables, footnotes, math and front matter.
    Markdown,
    /// reStructuredText as Sphinx projects write it.
    Rst,
    /// HTML of any age.
    Html,
    /// PDF with a text layer.
    Pdf,
    /// Word's document format.
    Docx,
    /// Rows of fields between commas, semicolons, tabs or bars.
    Csv,
    /// One JSON object a line.
    Jsonl,
    /// Source code and configuration.
    Code(Language),
    /// Plain text; blank lines part paragraphs.
    Text,
}

/// Whether a file of that name is of a known format.
pub fn reads(file_name: &str) -> bool {
    Format::of(std::path::Path::new(file_name)).is_some()
}

impl Format {
    /// The format that a file's extension promises.
    pub(crate) fn of(path: &std::path::Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        // Documentation tools publish their sources with `.txt` behind the real ending.
        let (stem, extension) =
            name.strip_suffix(".txt").unwrap_or(&name).rsplit_once('.').unwrap_or((&name, ""));
        match extension {
            _ if stem.is_empty() => None,
            "md" | "markdown" => Some(Format::Markdown),
            "rst" => Some(Format::Rst),
            "html" | "htm" => Some(Format::Html),
            _ if name.ends_with(".txt") || extension == "text" => Some(Format::Text),
            "pdf" => Some(Format::Pdf),
            "docx" => Some(Format::Docx),
            "csv" | "tsv" => Some(Format::Csv),
            "jsonl" | "ndjson" => Some(Format::Jsonl),
            _ => Language::of(extension).map(Format::Code),
        }
    }
    /// Its name, as documents tell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Markdown => "markdown",
            Format::Rst => "rst",
            Format::Html => "html",
            Format::Pdf => "pdf",
            Format::Docx => "docx",
            Format::Csv => "csv",
            Format::Jsonl => "jsonl",
            Format::Code(_) => "code",
            Format::Text => "text",
        }
    }
}
