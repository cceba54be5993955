//! How does an index lie on disk, so that a crash at any moment leaves a whole one?
//!
//! ```text
//! DIR/CURRENT            one line: the name of the generation to open, and the hash of its manifest
//! DIR/build.lock         held by the one process that writes: a build, or a service that takes documents
//! DIR/journal-00000003   what was put and deleted since the generation was made (`journal`)
//! DIR/gen-00000007/      one immutable generation
//!     manifest.json      format, embedder, counts, first journal to replay, and size and hash of every other file
//!     documents.jsonl    one document a line, in the order of their passages
//!     passages.jsonl     one passage a line; a passage's row is its line
//!     vectors.f32        the passages' vectors behind one another, little-endian
//!     graph.hnsw.*       the graph over the vectors, for large indexes only
//!     lexical/           tantivy's files
//! ```
//!
//! A generation is written and synced completely before CURRENT is replaced; what CURRENT does not name is rubbish
//! that the next writer removes. All but the manifest, documents and passages can be made anew from these.

use crate::{IndexError, journal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Format that this release writes, and the only one that it reads. 2: documents of their own, and journals.
pub(crate) const FORMAT: u32 = 2;
/// Counts up when the text that is embedded for a passage is put together in another way, so that no vector of the old
/// way is reused for the new.
pub(crate) const EMBEDDED_TEXT_VERSION: u32 = 1;

pub(crate) const DOCUMENTS: &str = "documents.jsonl";
pub(crate) const PASSAGES: &str = "passages.jsonl";
pub(crate) const VECTORS: &str = "vectors.f32";
pub(crate) const LEXICAL: &str = "lexical";
const CURRENT: &str = "CURRENT";
const LOCK: &str = "build.lock";
const MANIFEST: &str = "manifest.json";
const PREFIX: &str = "gen-";
/// Largest manifest that is read, in bytes.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// What a generation is, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) generation: u64,
    pub(crate) embedder: String,
    pub(crate) dimensions: usize,
    pub(crate) embedded_text_version: u32,
    pub(crate) documents: usize,
    pub(crate) passages: usize,
    /// Number of the first journal whose changes the generation does not hold.
    pub(crate) journal: u64,
    /// Every file but this one, by its path in the generation.
    pub(crate) files: Vec<FileEntry>,
}

/// A file as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// The part of a manifest that every format keeps.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// A generation with a manifest as it was written.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Manifest,
    /// Files that are missing or changed, by their paths in the generation, and what is wrong with each.
    pub(crate) wrong: Vec<(String, String)>,
}

impl Opened {
    /// The generation if all its files are as they were written.
    ///
    /// # Errors
    /// `Damaged` with the first file that is not.
    pub(crate) fn whole(self) -> Result<Opened, IndexError> {
        match self.wrong.first() {
            None => Ok(self),
            Some((name, problem)) => Err(damaged(&self.path.join(name), problem.clone())),
        }
    }

    /// The generation if no file is damaged but such as can be made anew from the others.
    pub(crate) fn stored(mut self) -> Result<Opened, IndexError> {
        self.wrong.sort_by_key(|(name, _)| ![DOCUMENTS, PASSAGES].contains(&name.as_str()));
        match self.wrong.first() {
            Some((name, _)) if [DOCUMENTS, PASSAGES].contains(&name.as_str()) => self.whole(),
            _ => Ok(self),
        }
    }
}

pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> IndexError + '_ {
    move |source| IndexError::Io { path: path.to_path_buf(), source: Arc::new(source) }
}

pub(crate) fn damaged(file: &Path, problem: impl Into<String>) -> IndexError {
    IndexError::Damaged { file: file.to_path_buf(), problem: problem.into() }
}

/// Keeps other writers out of `dir` until it is dropped.
///
/// # Errors
/// `Busy` while another one holds it.
pub(crate) fn lock(dir: &Path) -> Result<File, IndexError> {
    let new: Vec<&Path> = dir.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(dir).map_err(io(dir))?;
    // A new folder is on disk when the one that holds it is; the empty path stands for the folder at hand.
    for holder in new.into_iter().filter_map(Path::parent).filter(|holder| *holder != Path::new("")) {
        sync(holder)?;
    }
    let path = dir.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(IndexError::Busy { dir: dir.to_path_buf() }),
        Err(fs::TryLockError::Error(source)) => Err(io(&path)(source)),
    }
}

/// Name and manifest hash of the generation that CURRENT names.
fn current(dir: &Path) -> Result<(String, String), IndexError> {
    let path = dir.join(CURRENT);
    let line = match fs::read_to_string(&path) {
        Ok(line) => line,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(IndexError::Missing { dir: dir.to_path_buf() });
        }
        Err(error) => return Err(damaged(&path, error.to_string())),
    };
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, hash] if number(name).is_some() => Ok((name.to_string(), hash.to_string())),
        _ => Err(damaged(&path, "does not name a generation")),
    }
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:08}")
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Finds the current generation, checks its files and hands it to `read`.
///
/// A writer may replace and remove this generation and its journals meanwhile; then the new one is read.
///
/// # Errors
/// `Missing`, `OtherFormat`, a damaged manifest, and what `read` says.
pub(crate) fn open<T>(dir: &Path, read: impl Fn(Opened) -> Result<T, IndexError>) -> Result<T, IndexError> {
    let (mut name, mut hash) = current(dir)?;
    loop {
        let outcome = open_named(dir, &name, &hash).and_then(&read);
        let now = current(dir)?;
        if now.0 == name {
            return outcome;
        }
        (name, hash) = now;
    }
}

fn open_named(dir: &Path, name: &str, hash: &str) -> Result<Opened, IndexError> {
    let path = dir.join(name);
    let file = path.join(MANIFEST);
    let mut bytes = Vec::new();
    File::open(&file)
        .and_then(|manifest| manifest.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| damaged(&file, error.to_string()))?;
    // All formats name the hash in CURRENT.
    if sha256(&bytes) != hash {
        return Err(damaged(&file, "its checksum differs"));
    }
    let format: FormatOnly =
        serde_json::from_slice(&bytes).map_err(|error| damaged(&file, error.to_string()))?;
    if format.format != FORMAT {
        return Err(IndexError::OtherFormat { found: format.format, known: FORMAT });
    }
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| damaged(&file, error.to_string()))?;
    let mut wrong = Vec::new();
    for entry in &manifest.files {
        let problem = match describe(&path, &entry.name) {
            Err(error) => error.to_string(),
            Ok(found) if found.bytes != entry.bytes => {
                format!("has {} bytes instead of {}", found.bytes, entry.bytes)
            }
            Ok(found) if found.sha256 != entry.sha256 => "its checksum differs".into(),
            Ok(_) => continue,
        };
        wrong.push((entry.name.clone(), problem));
    }
    Ok(Opened { path, manifest, wrong })
}

/// Makes the folder of the next generation; the caller holds the lock.
pub(crate) fn begin(dir: &Path) -> Result<(u64, PathBuf), IndexError> {
    let mut last = 0;
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        let entry = entry.map_err(io(dir))?;
        last = last.max(number(&entry.file_name().to_string_lossy()).unwrap_or(0));
    }
    let number = last.saturating_add(1);
    let path = dir.join(name_of(number));
    fs::create_dir(&path).map_err(io(&path))?;
    Ok((number, path))
}

/// Syncs a complete generation and writes its manifest, whose `files` are filled in here; gives the line that makes it
/// the current one.
pub(crate) fn seal(path: &Path, manifest: &mut Manifest) -> Result<String, IndexError> {
    manifest.files = files_below(path, Path::new(""))?;
    for entry in &manifest.files {
        sync(&path.join(&entry.name))?;
    }
    let file = path.join(MANIFEST);
    let bytes =
        serde_json::to_vec_pretty(&manifest).map_err(|error| io(&file)(std::io::Error::other(error)))?;
    write_synced(&file, &bytes)?;
    for folder in [path.join(LEXICAL).as_path(), path] {
        sync(folder)?;
    }
    Ok(format!("{} {}\n", name_of(manifest.generation), sha256(&bytes)))
}

/// Makes a sealed generation the current one, then removes all others and the journals that it holds.
///
/// # Errors
/// A failing disk; either generation may be the current one then, and both are whole.
pub(crate) fn publish(dir: &Path, line: &str, manifest: &Manifest) -> Result<(), IndexError> {
    sync(dir)?;
    let draft = dir.join("CURRENT.new");
    write_synced(&draft, line.as_bytes())?;
    let current = dir.join(CURRENT);
    fs::rename(&draft, &current).map_err(io(&current))?;
    sync(dir)?;
    tidy(dir, manifest);
    Ok(())
}

/// Removes a generation that could not be completed, because the disk may be full of it.
pub(crate) fn abandon(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::warn!(generation = %path.display(), %error, "a part of a generation could not be removed");
    }
}

/// Removes every generation but the current one, and the journals that it holds. The caller holds the lock.
///
/// What cannot be removed is tried again by the next writer; until then it takes room, and text that was deleted is
/// still on the disk.
pub(crate) fn tidy(dir: &Path, current: &Manifest) {
    journal::remove_before(dir, current.journal);
    let keep = name_of(current.generation);
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != keep
            && number(&name).is_some()
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            tracing::warn!(generation = %name, %error, "an old generation could not be removed");
        }
    }
}

/// Every file of a generation but lock files, which come and go.
fn files_below(root: &Path, below: &Path) -> Result<Vec<FileEntry>, IndexError> {
    let folder = root.join(below);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(io(&folder))? {
        names.push(entry.map_err(io(&folder))?.file_name());
    }
    names.sort();
    let mut files = Vec::new();
    for name in names.iter().filter(|name| !name.to_string_lossy().ends_with(".lock")) {
        let below = below.join(name);
        if root.join(&below).is_dir() {
            files.extend(files_below(root, &below)?);
        } else {
            let name = below.to_string_lossy().into_owned();
            files.push(describe(root, &name).map_err(io(&root.join(&below)))?);
        }
    }
    Ok(files)
}

fn describe(root: &Path, name: &str) -> Result<FileEntry, std::io::Error> {
    let mut file = File::open(root.join(name))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 18];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(FileEntry { name: name.to_string(), bytes, sha256: hex(&hash.finalize()) });
        }
        bytes += read as u64;
        hash.update(&buffer[..read]);
    }
}

/// Writes a file and waits until it is on disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), IndexError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(io(path))
}

/// Waits until a file, or a folder's list of files, is on disk.
pub(crate) fn sync(path: &Path) -> Result<(), IndexError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io(path))
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
