//! How is a change kept before it is acknowledged? As one checked record at the end of a file that only grows.
//!
//! ```text
//! DIR/journal-00000003    "riposte journal 1\n", then records
//! record                  bytes of the JSON (u32), bytes of the vectors (u32), SHA-256 of both parts, JSON, vectors
//! ```
//!
//! Numbers are little-endian. A generation's manifest names the first journal that it does not hold yet. A record that the
//! end of the last journal cuts short was never acknowledged and is cut off; anything else that is wrong is damage.

use crate::IndexError;
use crate::change::Change;
use crate::generation::{damaged, io, sync};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"riposte journal 1\n";
const PREFIX: &str = "journal-";
const HEAD_BYTES: usize = 4 + 4 + 32;

/// A journal that takes records.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) number: u64,
    path: PathBuf,
    file: File,
    /// Bytes up to the end of the last whole record.
    len: u64,
    /// A failed write could not be undone; what follows it would be lost.
    broken: bool,
}

/// What the journals of a folder hold.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) changes: Vec<Change>,
    /// Number of the last journal and its whole bytes; none when there is no journal.
    last: Option<(u64, u64)>,
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number:08}"))
}

/// Number of a journal, from its file's name.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Numbers of all journals in a folder, in order.
fn numbers(dir: &Path) -> Result<Vec<u64>, IndexError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        found.extend(number_of(&entry.map_err(io(dir))?.file_name().to_string_lossy()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The number after the last journal of a folder.
pub(crate) fn next(dir: &Path) -> Result<u64, IndexError> {
    Ok(numbers(dir)?.last().map_or(1, |last| last + 1))
}

/// Removes journals before `keep`; a leftover does no harm, as no generation names it.
pub(crate) fn remove_before(dir: &Path, keep: u64) {
    for number in numbers(dir).unwrap_or_default().into_iter().filter(|number| *number < keep) {
        if let Err(error) = fs::remove_file(path_of(dir, number)) {
            tracing::warn!(number, %error, "an old journal could not be removed");
        }
    }
}

/// Reads the journals from number `first` on.
///
/// # Errors
/// `Damaged` with the file and place of a record that is not as it was written.
pub(crate) fn read(dir: &Path, first: u64, dimensions: usize) -> Result<Kept, IndexError> {
    let mut kept = Kept::default();
    let found: Vec<u64> = numbers(dir)?.into_iter().filter(|number| *number >= first).collect();
    for (at, number) in found.iter().enumerate() {
        let path = path_of(dir, *number);
        let bytes = fs::read(&path).map_err(|error| damaged(&path, error.to_string()))?;
        let (changes, len) = records(&bytes, dimensions).map_err(|problem| damaged(&path, problem))?;
        let whole = len == bytes.len();
        // Only the last journal was being written when the process ended.
        if !whole && at + 1 < found.len() {
            return Err(damaged(&path, format!("the record at byte {len} is cut short")));
        }
        kept.changes.extend(changes);
        kept.last = Some((*number, len as u64));
    }
    Ok(kept)
}

/// The changes of a journal, and the bytes of its whole records.
fn records(bytes: &[u8], dimensions: usize) -> Result<(Vec<Change>, usize), String> {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        // A journal that was just made may lack the end of its first line.
        return if MAGIC.starts_with(bytes) { Ok((Vec::new(), 0)) } else { Err("is no journal".into()) };
    };
    let mut changes = Vec::new();
    loop {
        let at = bytes.len() - rest.len();
        let Some((head, body)) = rest.split_at_checked(HEAD_BYTES) else { return Ok((changes, at)) };
        let size = |from: usize| {
            let mut number = [0; 4];
            number.copy_from_slice(&head[from..from + 4]);
            u32::from_le_bytes(number) as usize
        };
        let (json_bytes, vector_bytes) = (size(0), size(4));
        let Some((parts, after)) = body.split_at_checked(json_bytes.saturating_add(vector_bytes)) else {
            return Ok((changes, at));
        };
        if checksum(&head[..8], parts)[..] != head[8..] {
            // The disk may have written the end of the last record before its middle.
            let torn = after.is_empty();
            return if torn {
                Ok((changes, at))
            } else {
                Err(format!("the record at byte {at} was changed"))
            };
        }
        let change = decode(parts, json_bytes, dimensions);
        changes.push(change.map_err(|problem| format!("the record at byte {at}: {problem}"))?);
        rest = after;
    }
}

fn checksum(sizes: &[u8], parts: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(sizes).chain_update(parts).finalize().into()
}

/// A change as a record.
///
/// # Errors
/// `Io` for a change of 4 GiB or more.
pub(crate) fn encode(change: &Change) -> Result<Vec<u8>, IndexError> {
    let wrong = |problem: String| io(Path::new(PREFIX))(std::io::Error::other(problem));
    let json = serde_json::to_vec(change).map_err(|error| wrong(error.to_string()))?;
    let vectors = change.put.iter().flat_map(|content| &content.vectors);
    let vectors: Vec<u8> = vectors.flat_map(|value| value.to_le_bytes()).collect();
    let size = |bytes: &[u8]| {
        u32::try_from(bytes.len())
            .map(u32::to_le_bytes)
            .map_err(|_| wrong("a change of 4 GiB or more".into()))
    };
    let sizes = [size(&json)?, size(&vectors)?].concat();
    let parts = [json, vectors].concat();
    let sum = checksum(&sizes, &parts);
    Ok([&sizes[..], &sum, &parts].concat())
}

fn decode(parts: &[u8], json_bytes: usize, dimensions: usize) -> Result<Change, String> {
    let (json, vectors) = parts.split_at(json_bytes);
    let mut change: Change = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let mut values = vectors.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk));
    if change.passages().saturating_mul(dimensions).saturating_mul(4) != vectors.len() {
        return Err(format!("{} bytes of vectors for {} passages", vectors.len(), change.passages()));
    }
    for content in &mut change.put {
        content.vectors = values.by_ref().take(content.passages.len() * dimensions).collect();
    }
    Ok(change)
}

impl Journal {
    /// Makes an empty journal.
    pub(crate) fn create(dir: &Path, number: u64) -> Result<Journal, IndexError> {
        let path = path_of(dir, number);
        let make = || {
            let mut file = File::create(&path)?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(io(&path))?;
        sync(dir)?;
        Ok(Journal { number, path, file, len: MAGIC.len() as u64, broken: false })
    }

    /// Goes on with the last journal that was read, or makes number `first`.
    pub(crate) fn resume(dir: &Path, first: u64, kept: &Kept) -> Result<Journal, IndexError> {
        let Some((number, len)) = kept.last.filter(|(_, len)| *len > 0) else {
            return Journal::create(dir, kept.last.map_or(first, |(number, _)| number));
        };
        let path = path_of(dir, number);
        let open = || {
            let mut file = File::options().write(true).open(&path)?;
            file.set_len(len)?;
            file.seek(SeekFrom::End(0))?;
            file.sync_all()?;
            Ok(file)
        };
        let file = open().map_err(io(&path))?;
        Ok(Journal { number, path, file, len, broken: false })
    }

    /// Adds a record and waits until it is on disk.
    ///
    /// # Errors
    /// A full or failing disk; then the journal is as it was before.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<(), IndexError> {
        if self.broken {
            return Err(io(&self.path)(std::io::Error::other(
                "an earlier write failed; open the index again",
            )));
        }
        let written = self.file.write_all(record).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            let undone = self.file.set_len(self.len).and_then(|()| self.file.seek(SeekFrom::End(0)));
            self.broken = undone.is_err();
            return Err(io(&self.path)(error));
        }
        self.len += record.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
