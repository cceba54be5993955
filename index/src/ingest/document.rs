//! What do all formats have in common? Headings, blocks, and where they stand in the source.

use super::decode::Places;
use std::ops::Range;

/// A parsed file.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// Title that whoever handed it over gives it.
    pub(crate) given_title: Option<String>,
    /// Title that the format states apart from its headings (front matter, `<title>`).
    pub(crate) title: Option<String>,
    /// Headings and blocks in reading order.
    pub(crate) elements: Vec<Element>,
    /// Line starts of the source; absent where the format has no lines.
    pub(crate) lines: Option<LineIndex>,
    /// Spans count bytes of the text that was read; this leads from them to the bytes of the file.
    pub(crate) places: Places,
    /// Headings name parts of the document (functions, records), so that none of them can stand for the whole.
    pub(crate) headings_name_parts: bool,
    /// Bytes that are no character of the file's encoding were replaced.
    pub(crate) lossy: bool,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// Opens a section that reaches to the next heading of the same or a smaller level.
    Heading {
        /// 1 is the outermost.
        level: u8,
        /// The heading without markup.
        text: String,
        /// Its bytes in the source.
        span: Range<usize>,
    },
    /// Text.
    Block(Block),
}

/// A paragraph, list item, code block or table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The text as a reader sees it.
    pub(crate) text: String,
    /// Its bytes in the source, markup included.
    pub(crate) span: Range<usize>,
    /// What it is.
    pub(crate) kind: BlockKind,
    /// What the text belongs to below the headings, outermost first: the class and method that it documents, the
    /// term that it defines. Becomes part of the heading path of a passage that does not hold the name itself.
    pub(crate) context: Vec<String>,
    /// Page on which it stands, from 1.
    pub(crate) page: Option<u32>,
    /// The source holds the text as it is, but for line breaks, so that parts of the text have exact places too.
    pub(crate) exact: bool,
}

/// Says how a block is cut when it is too long, and how it joins its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// Cut between sentences, a blank line between neighbours.
    Prose,
    /// Cut between sentences, a line break between neighbours.
    Item,
    /// Cut between lines: code, tables.
    Lines,
}

impl Block {
    /// A block below headings alone.
    pub(crate) fn new(kind: BlockKind, text: String, span: Range<usize>) -> Block {
        Block { text, span, kind, context: Vec::new(), page: None, exact: false }
    }
}

impl Document {
    /// Notes which blocks stand in `source` as they are.
    pub(crate) fn mark_exact(&mut self, source: &str) {
        let same = |(a, b): (u8, u8)| a == b || (a == b' ' && b == b'\n');
        for element in &mut self.elements {
            if let Element::Block(block) = element {
                let slice = source.get(block.span.clone()).unwrap_or_default();
                block.exact =
                    slice.len() == block.text.len() && block.text.bytes().zip(slice.bytes()).all(same);
            }
        }
    }
}

/// Finds the line of a byte.
#[derive(Clone, Debug)]
pub(crate) struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    /// Remembers where the lines of `source` begin.
    pub(crate) fn new(source: &str) -> LineIndex {
        let breaks = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        LineIndex { starts: std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect() }
    }

    /// Line that holds `byte`, from 1.
    pub(crate) fn line(&self, byte: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= byte)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
impl Document {
    /// Its elements as the tests of the formats write them: `h1 Title`, `Prose text`, `Item [context] text`.
    pub(crate) fn shown(&self) -> Vec<String> {
        let show = |element: &Element| match element {
            Element::Heading { level, text, .. } => format!("h{level} {text}"),
            Element::Block(block) if block.context.is_empty() => format!("{:?} {}", block.kind, block.text),
            Element::Block(block) => format!("{:?} [{}] {}", block.kind, block.context.join("/"), block.text),
        };
        self.elements.iter().map(show).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one_and_a_break_belongs_to_the_line_it_ends() {
        let lines = LineIndex::new("ab\n\ncd");
        let found: Vec<u32> = (0..6).map(|byte| lines.line(byte)).collect();
        assert_eq!(found, [1, 1, 1, 2, 3, 3]);
    }
}
