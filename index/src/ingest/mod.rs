//! What does this file say? Bytes of a known format become a title and a flat list of headings and blocks.
//!
//! Each format has its own reader; all give the same [`Document`], so that splitting knows nothing of formats.

mod document;
mod files;
mod guard;
mod html;
mod inline;
mod markdown;
mod pdf;
mod rst;
mod rst_directive;
mod rst_line;
mod rst_markup;
mod rst_table;
mod text;

pub(crate) use document::{Block, BlockKind, Document, Element, LineIndex};
pub(crate) use files::{Found, Scan, scan};
pub(crate) use guard::read;

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
    /// Plain text; blank lines part paragraphs.
    Text,
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
            "pdf" if !name.ends_with(".txt") => Some(Format::Pdf),
            _ if name.ends_with(".txt") || extension == "text" => Some(Format::Text),
            _ => None,
        }
    }
}
