//! How is a change kept before it is acknowledged? As one checked record at the end of a file that only grows.
//!
//! ```text
//! DIR/journal-00000003    "riposte journal 1\n", then records
//! record                  mark, place of the record in the file (u64), bytes of the JSON (u32), bytes of the vectors (u32),
//!                         SHA-256 of these numbers and of both parts, JSON, vectors
//! ```
//!
//! Numbers are little-endian. A generation's manifest names the first journal that it does not hold yet. What follows the
//! last whole record of the last journal was never acknowledged and is cut off; it is damage if a whole record comes after
//! it, or in any other journal, and so is a journal that is missing.

use crate::IndexError;
use crate::change::Change;
use crate::generation::{damaged, io};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"riposte journal 1\n";
const PREFIX: &str = "journal-";
/// Begins each record; no byte of it can stand in JSON, which is UTF-8.
const MARK: [u8; 4] = [0xff, 0xc0, 0xf5, 0xfe];
const NUMBER_BYTES: usize = 8 + 4 + 4;
const HEAD_BYTES: usize = MARK.len() + NUMBER_BYTES + 32;

/// A journal that takes records.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) number: u64,
    path: PathBuf,
    file: File,
    /// Bytes up to the end of the last whole record.
    len: u64,
    /// A failed write may have left something after that; what were written behind it would be lost.
    torn: bool,
}

/// What the journals of a folder hold.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) changes: Vec<Change>,
    /// Number of the last journal and its whole bytes.
    last: (u64, u64),
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
    Ok(numbers(dir)?.last().map_or(1, |last| last.saturating_add(1)))
}

/// Makes journal `number` unless it is there: a generation is published with its journal beside it, so that one which
/// is lost is told from one which was never begun.
pub(crate) fn ensure(dir: &Path, number: u64) -> Result<(), IndexError> {
    if path_of(dir, number).exists() { Ok(()) } else { Journal::create(dir, number).map(drop) }
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
    if found.is_empty() {
        return Err(damaged(&path_of(dir, first), "is missing"));
    }
    for (at, number) in found.iter().enumerate() {
        let path = path_of(dir, *number);
        let expected = first.saturating_add(at as u64);
        if *number != expected {
            return Err(damaged(&path_of(dir, expected), "is missing"));
        }
        let bytes = fs::read(&path).map_err(|error| damaged(&path, error.to_string()))?;
        let (changes, len) = records(&bytes, dimensions).map_err(|problem| damaged(&path, problem))?;
        let whole = len == bytes.len();
        // Only the last journal was being written when the process ended.
        if !whole && at + 1 < found.len() {
            return Err(damaged(&path, format!("the record at byte {len} is cut short")));
        }
        kept.changes.extend(changes);
        kept.last = (*number, len as u64);
    }
    Ok(kept)
}

/// A record as it lies in a journal.
struct Record<'a> {
    /// Where it was written to. One that stands elsewhere tells that others were lost, or came twice.
    place: u64,
    json: &'a [u8],
    vectors: &'a [u8],
    /// What follows it.
    after: &'a [u8],
    /// Whether it has its checksum.
    is_whole: bool,
}

impl<'a> Record<'a> {
    /// The record at the beginning of `bytes`; none when they do not hold all of it.
    fn first(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (head, body) = bytes.split_at_checked(HEAD_BYTES)?;
        let (numbers, sum) = head.strip_prefix(&MARK)?.split_at_checked(NUMBER_BYTES)?;
        let (place, sizes) = numbers.split_first_chunk::<8>()?;
        let [json_bytes, vector_bytes] = sizes.as_chunks::<4>().0 else { return None };
        let size = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes)).ok();
        let (json, rest) = body.split_at_checked(size(json_bytes)?)?;
        let (vectors, after) = rest.split_at_checked(size(vector_bytes)?)?;
        let is_whole = checksum(numbers, json, vectors)[..] == *sum;
        Some(Record { place: u64::from_le_bytes(*place), json, vectors, after, is_whole })
    }
}

/// Whether a whole record begins anywhere in `bytes`.
fn holds_record(bytes: &[u8]) -> bool {
    let places = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| **window == MARK);
    places.into_iter().any(|(at, _)| Record::first(&bytes[at..]).is_some_and(|record| record.is_whole))
}

/// The changes of a journal, and the bytes of its whole records.
fn records(bytes: &[u8], dimensions: usize) -> Result<(Vec<Change>, usize), String> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or("is no journal")?;
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let record = match Record::first(rest) {
            Some(record) if record.is_whole && record.place == at as u64 => record,
            Some(record) if record.is_whole => {
                return Err(format!("the record at byte {at} was written to byte {}", record.place));
            }
            // One record is on disk before the next is begun, so only the last can be cut short; the disk may have
            // written its end before its middle.
            Some(record) if record.after.is_empty() => return Ok((changes, at)),
            None if !holds_record(rest) => return Ok((changes, at)),
            _ => return Err(format!("the record at byte {at} was changed")),
        };
        let change = decode(&record, dimensions);
        changes.push(change.map_err(|problem| format!("the record at byte {at}: {problem}"))?);
        rest = record.after;
    }
    Ok((changes, bytes.len()))
}

fn checksum(numbers: &[u8], json: &[u8], vectors: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(numbers).chain_update(json).chain_update(vectors).finalize().into()
}

/// A change as the record that stands at byte `place` of its journal.
///
/// # Errors
/// `Io` for a change of 4 GiB or more.
pub(crate) fn encode(change: &Change, place: u64) -> Result<Vec<u8>, IndexError> {
    let wrong = |problem: String| io(Path::new(PREFIX))(std::io::Error::other(problem));
    let json = serde_json::to_vec(change).map_err(|error| wrong(error.to_string()))?;
    let vectors = change.put.iter().flat_map(|content| &content.vectors);
    let vectors: Vec<u8> = vectors.flat_map(|value| value.to_le_bytes()).collect();
    let size = |bytes: &[u8]| {
        u32::try_from(bytes.len())
            .map(u32::to_le_bytes)
            .map_err(|_| wrong("a change of 4 GiB or more".into()))
    };
    let numbers = [&place.to_le_bytes()[..], &size(&json)?, &size(&vectors)?].concat();
    let sum = checksum(&numbers, &json, &vectors);
    Ok([&MARK[..], &numbers, &sum, &json, &vectors].concat())
}

fn decode(Record { json, vectors, .. }: &Record<'_>, dimensions: usize) -> Result<Change, String> {
    let mut change: Change = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if let Some(content) = change.put.iter().find(|content| content.info.passages != content.passages.len()) {
        return Err(format!("{:?} has {} passages", content.info.id, content.passages.len()));
    }
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
    ///
    /// # Errors
    /// A full or failing disk; then there is none, so that the one before it is still the last.
    pub(crate) fn create(dir: &Path, number: u64) -> Result<Journal, IndexError> {
        let path = path_of(dir, number);
        // Under another name until its first line is on disk, so that a journal without one is known to be damaged.
        let draft = path.with_extension("new");
        let make = || {
            let mut file = File::create(&draft)?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(dir)?.sync_all()?;
            Ok(file)
        };
        let made: Result<File, std::io::Error> = make();
        if made.is_err()
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::debug!(number, %error, "a journal that could not be made could not be removed");
        }
        let file = made.map_err(io(&path))?;
        Ok(Journal { number, path, file, len: MAGIC.len() as u64, torn: false })
    }

    /// Goes on with the last journal that was read.
    pub(crate) fn resume(dir: &Path, kept: &Kept) -> Result<Journal, IndexError> {
        let (number, len) = kept.last;
        let path = path_of(dir, number);
        let file = File::options().write(true).open(&path).map_err(io(&path))?;
        let bytes = file.metadata().map_err(io(&path))?.len();
        if bytes > len {
            let (journal, cut) = (path.display(), bytes - len);
            tracing::warn!(%journal, cut, "bytes behind the last whole record were never acknowledged; they are cut off");
        }
        let mut journal = Journal { number, path, file, len, torn: true };
        journal.mend()?;
        Ok(journal)
    }

    /// Bytes of its whole records, and of its first line.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.len <= MAGIC.len() as u64
    }

    /// Adds a record and waits until it is on disk.
    ///
    /// # Errors
    /// A full or failing disk; then the record is not there, and none is added before what was written of it is gone.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<(), IndexError> {
        self.mend()?;
        if let Err(error) = self.file.write_all(record).and_then(|()| self.file.sync_data()) {
            self.torn = true;
            if let Err(error) = self.mend() {
                tracing::warn!(%error, "a failed write to the journal is not undone yet; nothing can be put till then");
            }
            return Err(io(&self.path)(error));
        }
        self.len += record.len() as u64;
        Ok(())
    }

    /// Cuts off what a failed write left, so that the journal ends with a whole record.
    pub(crate) fn mend(&mut self) -> Result<(), IndexError> {
        if self.torn {
            let file = &mut self.file;
            let cut = file.set_len(self.len).and_then(|()| file.seek(SeekFrom::Start(self.len)));
            cut.and_then(|_| file.sync_all()).map_err(io(&self.path))?;
            self.torn = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
