//! How is a PDF read? The text layer, page by page; lines become paragraphs again.

use super::inline::collapse;
use super::{Block, BlockKind, Document, Element};
use pdf_extract::{PlainTextOutput, output_doc_page};

/// Reads the text layer of at most `pages_max` pages.
///
/// # Errors
/// Not a PDF, encrypted, damaged, longer than allowed, or without any text (scans).
pub(super) fn read(bytes: &[u8], pages_max: usize) -> Result<Document, String> {
    // The header may stand behind a few bytes of something else, as readers have always allowed.
    if !bytes.iter().take(1024).collect::<Vec<_>>().windows(5).any(|w| w.iter().copied().eq(b"%PDF-")) {
        return Err("not a PDF".into());
    }
    let mut pdf = pdf_extract::Document::load_mem(bytes).map_err(|error| format!("damaged PDF: {error}"))?;
    if pdf.is_encrypted() && pdf.decrypt("").is_err() {
        return Err("encrypted PDF".into());
    }
    let pages: Vec<u32> = pdf.get_pages().into_keys().collect();
    if pages.len() > pages_max {
        return Err(format!("{} pages, at most {pages_max} are read", pages.len()));
    }
    let mut document = Document::default();
    let mut failed = None;
    for page in pages {
        let mut text = String::new();
        // A page that fails does not take the others with it.
        if let Err(error) = output_doc_page(&pdf, &mut PlainTextOutput::new(&mut text), page) {
            failed = Some(format!("page {page}: {error}"));
        }
        document.elements.extend(paragraphs(&text).into_iter().map(|text| {
            Element::Block(Block { page: Some(page), ..Block::new(BlockKind::Prose, text, 0..bytes.len()) })
        }));
    }
    match (document.elements.is_empty(), failed) {
        (true, Some(failed)) => Err(failed),
        (true, None) => Err("no text layer (scanned pages?)".into()),
        (false, _) => Ok(document),
    }
}

/// Joins the lines of each paragraph; a word that was parted at a line's end becomes whole again.
fn paragraphs(page: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    for line in page.lines().map(collapse) {
        let Some(last) = out.last_mut() else { break };
        if line.is_empty() {
            if !last.is_empty() {
                out.push(String::new());
            }
            continue;
        }
        let parted = last.ends_with('-') && line.starts_with(char::is_lowercase);
        let letter_before = last.chars().rev().nth(1).is_some_and(char::is_lowercase);
        if parted && letter_before {
            last.pop();
        } else if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(&line);
    }
    out.retain(|paragraph| !paragraph.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_paragraphs() {
        let page = "\n\nThe exam-\nple of a\nline.\n\n\nNext 10-\n20 and CUDA-\nbased.\n";
        assert_eq!(paragraphs(page), ["The example of a line.", "Next 10- 20 and CUDA- based."]);
    }

    #[test]
    fn what_is_no_pdf_is_refused() {
        assert_eq!(read(b"hello", 10).unwrap_err(), "not a PDF");
        assert!(read(b"%PDF-1.7\ngarbage", 10).unwrap_err().starts_with("damaged PDF"));
    }
}
