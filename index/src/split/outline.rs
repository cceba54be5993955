//! Which heading does each block stand under, and what is the document called?

use crate::ingest::{Block, BlockKind, Document, Element};
use crate::parse_id;

/// Longest title or heading that is kept, in characters.
const HEADING_CHARS_MAX: usize = 200;

/// A document as sections in reading order.
#[derive(Debug)]
pub(super) struct Outline {
    /// Never empty.
    pub(super) title: String,
    /// Sections with at least one block.
    pub(super) sections: Vec<Section>,
}

/// Blocks under one heading, without those under headings below it.
#[derive(Debug)]
pub(super) struct Section {
    /// Outermost first, without the document's title.
    pub(super) headings: Vec<String>,
    /// Its blocks.
    pub(super) blocks: Vec<Block>,
}

/// Groups the blocks of a document by heading.
pub(super) fn outline(document: Document, document_id: &str) -> Outline {
    let title = title(&document, document_id);
    let mut sections = Vec::new();
    // Open headings: level, text, and whether anything stood under it.
    let mut open: Vec<(u8, String)> = Vec::new();
    let mut blocks: Vec<Block> = Vec::new();
    let mut bare: Option<Block> = None;
    let mut elements = document.elements.into_iter().peekable();
    while let Some(element) = elements.next() {
        match element {
            Element::Block(block) => {
                bare = None;
                blocks.push(block);
            }
            Element::Heading { level, text, span } => {
                close(&mut sections, &open, &mut blocks, &mut bare, &title);
                open.retain(|(above, _)| *above < level);
                let text = shorten(&text);
                let deeper_follows =
                    matches!(elements.peek(), Some(Element::Heading { level: next, .. }) if *next > level);
                // A heading with nothing under it is all that its section says, so it becomes the text.
                bare = (!deeper_follows).then(|| Block::new(BlockKind::Prose, text.clone(), span));
                open.push((level, text));
            }
        }
    }
    close(&mut sections, &open, &mut blocks, &mut bare, &title);
    Outline { title, sections }
}

fn close(
    sections: &mut Vec<Section>,
    open: &[(u8, String)],
    blocks: &mut Vec<Block>,
    bare: &mut Option<Block>,
    title: &str,
) {
    let mut headings: Vec<String> = open.iter().map(|(_, text)| text.clone()).collect();
    if let Some(block) = bare.take() {
        headings.pop();
        blocks.push(block);
    }
    if headings.first().is_some_and(|first| first == title) {
        headings.remove(0);
    }
    if !blocks.is_empty() {
        sections.push(Section { headings, blocks: std::mem::take(blocks) });
    }
}

/// What the format states; else the first heading, if none outranks it; else the file's name, which comes first where
/// headings name parts alone.
fn title(document: &Document, document_id: &str) -> String {
    if let Some(given) = &document.given_title {
        return shorten(given);
    }
    let (_, id) = parse_id(document_id);
    let name = id.rsplit('/').next().unwrap_or(id);
    if document.headings_name_parts {
        return shorten(name);
    }
    let stem = || {
        let stem = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(name);
        stem.replace(['_', '-'], " ")
    };
    let headings = document.elements.iter().filter_map(|element| match element {
        Element::Heading { level, text, .. } => Some((*level, text)),
        Element::Block(_) => None,
    });
    let top = headings.clone().map(|(level, _)| level).min();
    let first =
        headings.clone().next().filter(|(level, _)| Some(*level) == top).map(|(_, text)| text.clone());
    // A page's own `<title>` carries the site's name, so its only top heading says it better.
    let single = headings.filter(|(level, _)| Some(*level) == top).count() == 1;
    let stated = document.title.clone().filter(|title| !title.trim().is_empty());
    let title = match (single, first, stated) {
        (true, Some(first), _) | (false, Some(first), None) => first,
        (_, _, Some(stated)) => stated,
        (_, None, None) => stem(),
    };
    shorten(&title)
}

fn shorten(text: &str) -> String {
    text.chars().take(HEADING_CHARS_MAX).collect()
}
