//! How is a file read when neither its size, its encoding nor its parser can be trusted?

use super::decode::{Decoded, decode};
use super::{Document, Format, LineIndex, code, csv, docx, html, jsonl, markdown, pdf, rst, text};
use budgets::Limits;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Longest time for parsing one file; a parser that needs more is taken to loop.
const PARSE_SECONDS_MAX: u64 = 60;
/// Parsers recurse on hostile nesting; an overflow would end the process, so they get room.
const PARSE_STACK_BYTES: usize = 64 << 20;

/// Parses a file's bytes; the error says in words for people why it is left out.
pub(crate) fn read(format: Format, bytes: Vec<u8>, limits: &Limits) -> Result<Document, String> {
    if bytes.len() as u64 > limits.document_bytes_max {
        return Err(too_large(limits.document_bytes_max));
    }
    let pages_max = limits.document_pages_max;
    guarded(Duration::from_secs(PARSE_SECONDS_MAX), move || parse(format, bytes, pages_max))
}

fn too_large(bytes_max: u64) -> String {
    format!("larger than {bytes_max} bytes")
}

/// Runs `parse` on a thread of its own and survives its panic and its failure to end.
fn guarded<T: Send + 'static>(
    patience: Duration,
    parse: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        let outcome =
            catch_unwind(AssertUnwindSafe(parse)).unwrap_or_else(|_| Err("its parser failed".into()));
        // The receiver is gone when patience ran out; nobody wants the outcome then.
        let _ = sender.send(outcome);
    };
    let started = std::thread::Builder::new().name("ingest".into()).stack_size(PARSE_STACK_BYTES).spawn(run);
    started.map_err(|error| format!("no thread to parse it: {error}"))?;
    match receiver.recv_timeout(patience) {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("parsing took longer than {} s", patience.as_secs_f32())),
    }
}

/// The bytes of a file.
pub(crate) fn load(path: &Path, limits: &Limits) -> Result<Vec<u8>, String> {
    let bytes_max = limits.document_bytes_max;
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("not a file".into());
    }
    if meta.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    // The file may grow while it is read, so the bound holds here too.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max { Err(too_large(bytes_max)) } else { Ok(bytes) }
}

pub(super) fn parse(format: Format, bytes: Vec<u8>, pages_max: usize) -> Result<Document, String> {
    match format {
        Format::Pdf => return pdf::read(&bytes, pages_max),
        Format::Docx => return docx::read(&bytes),
        _ => {}
    }
    let Decoded { text: source, places, lossy } = decode(bytes)?;
    let mut document = match format {
        Format::Markdown => markdown::read(&source),
        Format::Rst => rst::read(&source),
        Format::Html => html::read(&source),
        Format::Csv => csv::read(&source)?,
        Format::Jsonl => jsonl::read(&source)?,
        Format::Code(language) => code::read(&source, language),
        Format::Text | Format::Pdf | Format::Docx => text::read(&source),
    };
    document.mark_exact(&source);
    document.lines = Some(LineIndex::new(&source));
    document.places = places;
    document.lossy = lossy;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_loop_are_reasons_not_ends() {
        let panicked = guarded(Duration::from_secs(5), || -> Result<(), String> { panic!("on purpose") });
        assert_eq!(panicked, Err("its parser failed".to_string()));
        let looped = guarded(Duration::from_millis(20), || -> Result<(), String> {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        });
        assert!(looped.unwrap_err().contains("longer than"));
    }
}
