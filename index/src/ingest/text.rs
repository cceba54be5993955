//! How is plain text read? Blank lines part paragraphs; nothing else is guessed, and the text stays as it is.

use super::{Block, BlockKind, Document, Element};

/// Reads plain text.
pub(super) fn read(source: &str) -> Document {
    let mut document = Document::default();
    let mut paragraph: Option<(usize, usize)> = None;
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let content = line.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if content.is_empty() {
            flush(source, paragraph.take(), &mut document);
        } else {
            // The first line keeps its indentation only from its first letter on; a verse keeps the rest.
            let start = at + line.find(content).unwrap_or(0);
            let end = start + content.len();
            paragraph = Some((paragraph.map_or(start, |(first, _)| first), end));
        }
        at += line.len();
    }
    flush(source, paragraph, &mut document);
    document
}

fn flush(source: &str, paragraph: Option<(usize, usize)>, document: &mut Document) {
    if let Some((start, end)) = paragraph {
        let text = source[start..end].to_string();
        document.elements.push(Element::Block(Block::new(BlockKind::Prose, text, start..end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_part_paragraphs_and_spans_are_exact() {
        let source = "\u{feff}One\r\ntwo.\r\n \t\r\n\n  Three\n   four. \n";
        let blocks: Vec<(String, &str)> = read(source)
            .elements
            .into_iter()
            .map(|element| match element {
                Element::Block(block) => (block.text, &source[block.span]),
                Element::Heading { .. } => unreachable!("plain text has no headings"),
            })
            .collect();
        assert_eq!(
            blocks,
            [("One\r\ntwo.".to_string(), "One\r\ntwo."), ("Three\n   four.".to_string(), "Three\n   four.")]
        );
    }
}
