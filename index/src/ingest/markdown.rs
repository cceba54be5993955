//! How is Markdown read? Markup of words goes, structure stays: lists, code and tables look as a reader expects.

use super::inline::{collapse, strip_tags};
use super::{Block, BlockKind, Document, Element};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;

/// Reads Markdown.
pub(super) fn read(source: &str) -> Document {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let mut reader = Reader { source, ..Reader::default() };
    for (event, range) in Parser::new_ext(source, options).into_offset_iter() {
        reader.take(event, range);
    }
    reader.flush(BlockKind::Prose);
    reader.document
}

#[derive(Default)]
struct Reader<'a> {
    source: &'a str,
    document: Document,
    /// Text of the block in hand, and the source that it came from.
    text: String,
    span: Option<Range<usize>>,
    /// Open lists: the next number, or none for bullets.
    lists: Vec<Option<u64>>,
    /// Put before the next block: a bullet, a number, a footnote's label.
    marker: Option<String>,
    /// What the events in hand belong to.
    place: Place,
}

#[derive(Default, PartialEq, Eq)]
enum Place {
    #[default]
    Words,
    Code,
    Html,
    Table,
    FrontMatter,
}

impl Reader<'_> {
    fn take(&mut self, event: Event<'_>, range: Range<usize>) {
        if self.place == Place::Table {
            if event == Event::End(TagEnd::Table) {
                self.place = Place::Words;
                let table = self.source[range.clone()].trim_end();
                self.push(table, range.start..range.start + table.len());
                self.flush(BlockKind::Lines);
            }
            return;
        }
        match event {
            Event::Start(tag) => self.open(tag),
            Event::End(tag) => self.close(tag, range),
            Event::Text(text) | Event::Html(text) => self.push(&text, range),
            Event::Code(code) => self.push(&format!("`{code}`"), range),
            Event::InlineMath(math) => self.push(&format!("${math}$"), range),
            Event::DisplayMath(math) => self.push(&format!("$${math}$$"), range),
            Event::InlineHtml(tag) if tag.starts_with("<br") => self.push("\n", range),
            Event::InlineHtml(_) => {}
            Event::FootnoteReference(label) => self.push(&format!("[^{label}]"), range),
            Event::SoftBreak => self.push(" ", range),
            Event::HardBreak => self.push("\n", range),
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }, range),
            Event::Rule => self.flush(BlockKind::Prose),
        }
    }

    fn open(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. } => return,
            _ => self.flush(self.kind()),
        }
        match tag {
            Tag::CodeBlock(_) => self.place = Place::Code,
            Tag::HtmlBlock => self.place = Place::Html,
            Tag::Table(_) => self.place = Place::Table,
            Tag::MetadataBlock(_) => self.place = Place::FrontMatter,
            Tag::List(first) => self.lists.push(first),
            Tag::Item => self.marker = Some(self.next_marker()),
            Tag::FootnoteDefinition(label) => self.marker = Some(format!("[^{label}]: ")),
            _ => {}
        }
    }

    fn close(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Heading(level) => {
                let text = collapse(&std::mem::take(&mut self.text));
                self.span = None;
                if !text.is_empty() {
                    self.document.elements.push(Element::Heading { level: level as u8, text, span: range });
                }
            }
            TagEnd::CodeBlock => {
                self.flush(BlockKind::Lines);
                self.place = Place::Words;
            }
            TagEnd::HtmlBlock => {
                self.text = collapse(&strip_tags(&self.text));
                self.flush(self.kind());
                self.place = Place::Words;
            }
            TagEnd::MetadataBlock(_) => {
                self.front_matter();
                self.place = Place::Words;
            }
            TagEnd::List(_) => {
                self.flush(BlockKind::Item);
                self.lists.pop();
            }
            TagEnd::Paragraph | TagEnd::Item | TagEnd::BlockQuote(_) | TagEnd::FootnoteDefinition => {
                self.flush(self.kind());
            }
            _ => {}
        }
    }

    fn kind(&self) -> BlockKind {
        if self.lists.is_empty() { BlockKind::Prose } else { BlockKind::Item }
    }

    fn next_marker(&mut self) -> String {
        let indent = "  ".repeat(self.lists.len().saturating_sub(1).min(8));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                let marker = format!("{indent}{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => format!("{indent}- "),
        }
    }

    fn push(&mut self, text: &str, range: Range<usize>) {
        self.text.push_str(text);
        let span = self.span.get_or_insert_with(|| range.clone());
        span.start = span.start.min(range.start);
        span.end = span.end.max(range.end);
    }

    fn flush(&mut self, kind: BlockKind) {
        let text = std::mem::take(&mut self.text);
        let span = self.span.take();
        let text = match kind {
            BlockKind::Lines => text.trim_matches('\n').trim_end(),
            BlockKind::Prose | BlockKind::Item => text.trim(),
        };
        let Some(span) = span.filter(|_| !text.is_empty()) else { return };
        let text = match self.marker.take() {
            Some(marker) => format!("{marker}{text}"),
            None => text.to_string(),
        };
        self.document.elements.push(Element::Block(Block::new(kind, text, span)));
    }

    /// Only the title is taken from front matter: the rest is written for tools, not for readers.
    fn front_matter(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.span = None;
        let title = text.lines().find_map(|line| line.strip_prefix("title:"));
        let title = title.map(|title| title.trim().trim_matches(['"', '\'']).trim().to_string());
        self.document.title = title.filter(|title| !title.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[&str]) {
        assert_eq!(read(source).shown(), expected, "{source}");
    }

    #[test]
    fn structure_is_kept_and_markup_goes() {
        check(
            "# A *title*\n\nSome **bold** [link](http://x.y) `code`\nand more.\n",
            &["h1 A title", "Prose Some bold link `code` and more."],
        );
        check(
            "1. one\n2. two\n   - deep\n\nafter",
            &["Item 1. one", "Item 2. two", "Item   - deep", "Prose after"],
        );
        check("- first\n\n  second par\n", &["Item - first", "Item second par"]);
        check("```rust\nfn a() {\n    b();\n}\n```\n", &["Lines fn a() {\n    b();\n}"]);
        check("| a | b |\n|---|---|\n| 1 | `2` |\n", &["Lines | a | b |\n|---|---|\n| 1 | `2` |"]);
        check("Cost is $a_1 * b_2$ each.\n", &["Prose Cost is $a_1 * b_2$ each."]);
        check("<div>\n<b>Hi</b> there\n</div>\n", &["Prose Hi there"]);
        check("A note[^1].\n\n[^1]: The foot.\n", &["Prose A note[^1].", "Prose [^1]: The foot."]);
        check("", &[]);
    }

    #[test]
    fn front_matter_names_the_document_and_is_not_text() {
        let document = read("---\ntitle: \"On blocks\"\ntags: [a]\n---\n\nBody.\n");
        assert_eq!(document.title.as_deref(), Some("On blocks"));
        assert_eq!(document.elements.len(), 1);
    }

    #[test]
    fn a_code_block_is_verbatim_in_its_span() {
        let source = "x\n\n```\nlet a = 1;\n\nlet b = 2;\n```\n";
        let document = read(source);
        let Some(Element::Block(block)) = document.elements.last() else { unreachable!("a block") };
        assert_eq!(source[block.span.clone()].trim_end(), block.text);
    }
}
