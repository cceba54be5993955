//! How is a Word document read? Paragraphs, headings, lists and tables of its main part; formatting is dropped.
//!
//! The file is a ZIP archive of XML parts. Neither can be trusted: parts are read up to a bound whatever sizes the
//! archive states, a document type (the way to entities that expand or point elsewhere) is refused, and nesting is
//! counted. The text has no place in the bytes of the archive, so every span is the whole file.

use super::decode::decode;
use super::docx_styles::{Styles, value};
use super::inline::collapse;
use super::{Block, BlockKind, Document, Element};
use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};
use std::io::{Cursor, Read};
use std::ops::Range;

/// Most entries of the archive; a document has some dozens, and one for each picture.
const ENTRIES_MAX: usize = 16_384;
/// Largest part of the archive when it is expanded.
const PART_BYTES_MAX: u64 = 64 << 20;
/// Deepest nesting of elements.
const DEPTH_MAX: usize = 512;
/// Deepest level of a list that is shown.
const LIST_LEVEL_MAX: usize = 8;

type Archive<'a> = zip::ZipArchive<Cursor<&'a [u8]>>;

/// Reads a Word document.
///
/// # Errors
/// Not a Word document, encrypted, damaged or larger than allowed when expanded.
pub(super) fn read(bytes: &[u8]) -> Result<Document, String> {
    // What Word encrypts is no archive any more but an OLE container.
    if bytes.starts_with(&[0xd0, 0xcf, 0x11, 0xe0]) {
        return Err("encrypted or an old Word document".into());
    }
    if !bytes.starts_with(b"PK") {
        return Err("not a DOCX".into());
    }
    let mut archive = Archive::new(Cursor::new(bytes)).map_err(damaged)?;
    if archive.len() > ENTRIES_MAX {
        return Err(format!("{} entries in it, at most {ENTRIES_MAX} are read", archive.len()));
    }
    let Some(main) = part(&mut archive, "word/document.xml")? else { return Err("not a DOCX".into()) };
    let styles = match part(&mut archive, "word/styles.xml")? {
        Some(xml) => Styles::read(&xml)?,
        None => Styles::default(),
    };
    let mut body = Body { styles, whole: 0..bytes.len(), ..Body::default() };
    events(&main, &mut |event| body.take(event))?;
    body.document.title = match part(&mut archive, "docProps/core.xml")? {
        // Properties are an extra: what is wrong with them costs the stated title alone.
        Some(xml) => title(&xml).unwrap_or_default(),
        None => None,
    };
    Ok(body.document)
}

fn damaged(error: impl std::fmt::Display) -> String {
    format!("damaged DOCX: {error}")
}

/// The text of a part, if there is one of that name.
fn part(archive: &mut Archive<'_>, name: &str) -> Result<Option<String>, String> {
    let entry = match archive.by_name(name) {
        Ok(entry) => entry,
        Err(zip::result::ZipError::FileNotFound) => return Ok(None),
        Err(error) => return Err(damaged(error)),
    };
    let mut bytes = Vec::new();
    // The stated size may be a lie, so what comes out is counted.
    entry.take(PART_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(damaged)?;
    if bytes.len() as u64 > PART_BYTES_MAX {
        return Err(format!("{name} in it is larger than {PART_BYTES_MAX} bytes"));
    }
    decode(bytes).map(|decoded| Some(decoded.text)).map_err(damaged)
}

/// Passes the events of an XML part to `take`, an empty element as its start and its end.
pub(super) fn events(xml: &str, take: &mut dyn FnMut(&Event<'_>)) -> Result<(), String> {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().expand_empty_elements = true;
    let mut depth = 0usize;
    loop {
        let event = reader.read_event().map_err(damaged)?;
        match &event {
            Event::Eof if depth > 0 => return Err(damaged("it ends too early")),
            Event::Eof => return Ok(()),
            Event::DocType(_) => return Err(damaged("it declares a document type")),
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(format!("elements nested more than {DEPTH_MAX} deep"));
        }
        take(&event);
    }
}

/// The characters of `&name;`: those that XML itself names and those by number; no other is defined without a
/// document type.
fn reference(found: &BytesRef<'_>) -> Option<char> {
    match &*found.clone().into_inner() {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => found.resolve_char_ref().ok().flatten(),
    }
}

fn title(xml: &str) -> Result<Option<String>, String> {
    let mut found = String::new();
    let mut inside = false;
    events(xml, &mut |event| match event {
        Event::Start(tag) => inside = tag.local_name().as_ref() == "title",
        Event::End(_) => inside = false,
        Event::Text(text) if inside => found.push_str(&text.clone().into_inner()),
        Event::GeneralRef(name) if inside => found.extend(reference(name)),
        _ => {}
    })?;
    let found = collapse(&found);
    Ok(Some(found).filter(|found| !found.is_empty()))
}

/// A paragraph whose end has not come.
#[derive(Default)]
struct Paragraph {
    text: String,
    level: Option<u8>,
    /// Level of the list that it is an item of.
    list: Option<usize>,
}

#[derive(Default)]
struct Body {
    document: Document,
    styles: Styles,
    whole: Range<usize>,
    /// Paragraphs around one another: text boxes stand inside of one.
    paragraphs: Vec<Paragraph>,
    /// Open tables, outermost first; the text of an inner one goes into the cell around it.
    tables: usize,
    rows: Vec<Vec<String>>,
    /// Elements that are open below one that is left out.
    hidden: usize,
    in_text: bool,
}

impl Body {
    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(_) if self.hidden > 0 => self.hidden += 1,
            Event::End(_) if self.hidden > 0 => self.hidden -= 1,
            _ if self.hidden > 0 => {}
            Event::Start(tag) => self.open(tag),
            Event::End(tag) => self.close(tag.local_name().as_ref()),
            Event::Text(text) if self.in_text => self.push(&text.clone().into_inner()),
            Event::CData(text) if self.in_text => self.push(&text.clone().into_inner()),
            Event::GeneralRef(name) if self.in_text => {
                if let Some(c) = reference(name) {
                    self.push(c.encode_utf8(&mut [0; 4]));
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>) {
        match tag.local_name().as_ref() {
            // Text that was deleted or moved away, the same content for old readers, and how a paragraph once looked.
            "del" | "moveFrom" | "Fallback" | "pPrChange" | "rPrChange" => self.hidden = 1,
            "p" => self.paragraphs.push(Paragraph::default()),
            "pStyle" => {
                let level = value(tag).and_then(|style| self.styles.level(&style));
                self.edit(|paragraph| paragraph.level = paragraph.level.or(level));
            }
            "outlineLvl" => {
                let level = value(tag).and_then(|level| super::docx_styles::outline_level(&level));
                self.edit(|paragraph| paragraph.level = level.or(paragraph.level));
            }
            "numPr" => self.edit(|paragraph| paragraph.list = Some(0)),
            "ilvl" => {
                let level = value(tag).and_then(|level| level.parse().ok()).unwrap_or(0);
                self.edit(|paragraph| paragraph.list = Some(level));
            }
            // A list that a style would begin is ended by the number 0.
            "numId" if value(tag).as_deref() == Some("0") => self.edit(|paragraph| paragraph.list = None),
            "t" => self.in_text = true,
            "tab" | "ptab" => self.push(" "),
            "br" | "cr" => self.push("\n"),
            "noBreakHyphen" => self.push("-"),
            "tbl" => self.tables += 1,
            "tr" if self.tables == 1 => self.rows.push(Vec::new()),
            "tc" if self.tables == 1 => {
                if let Some(row) = self.rows.last_mut() {
                    row.push(String::new());
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.in_text = false,
            "p" => {
                if let Some(paragraph) = self.paragraphs.pop() {
                    self.end_paragraph(&paragraph);
                }
            }
            "tbl" => {
                self.tables = self.tables.saturating_sub(1);
                if self.tables == 0 {
                    self.end_table();
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, text: &str) {
        self.edit(|paragraph| paragraph.text.push_str(text));
    }

    fn edit(&mut self, change: impl FnOnce(&mut Paragraph)) {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            change(paragraph);
        }
    }

    fn end_paragraph(&mut self, paragraph: &Paragraph) {
        let lines: Vec<String> =
            paragraph.text.lines().map(collapse).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return;
        }
        if self.tables > 0 {
            if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
                if !cell.is_empty() {
                    cell.push(' ');
                }
                cell.push_str(&lines.join(" "));
            }
            return;
        }
        let span = self.whole.clone();
        self.document.elements.push(match (paragraph.level, paragraph.list) {
            (Some(level), _) => Element::Heading { level, text: lines.join(" "), span },
            (None, Some(level)) => {
                let text = format!("{}- {}", "  ".repeat(level.min(LIST_LEVEL_MAX)), lines.join(" "));
                Element::Block(Block::new(BlockKind::Item, text, span))
            }
            (None, None) => Element::Block(Block::new(BlockKind::Prose, lines.join("\n"), span)),
        });
    }

    fn end_table(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let lines: Vec<String> = rows
            .into_iter()
            .filter(|row| row.iter().any(|cell| !cell.is_empty()))
            .map(|row| row.join(" | "))
            .collect();
        if !lines.is_empty() {
            let block = Block::new(BlockKind::Lines, lines.join("\n"), self.whole.clone());
            self.document.elements.push(Element::Block(block));
        }
    }
}

#[cfg(test)]
mod tests;
