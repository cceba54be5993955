//! Which files lie under these paths, in which order, and what are their documents called?

use super::{Format, KINDS};
use crate::{IndexError, Phase, Progress, Skipped};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Deepest folder below a given path that is entered.
const FOLDER_DEPTH_MAX: usize = 64;
/// Most files of known kinds in one index.
const FILES_MAX: usize = 1_000_000;

/// A file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Path as given, or given folder and path below it.
    pub(crate) path: PathBuf,
    /// Unique name.
    pub(crate) document_id: String,
    /// Format that its extension promises.
    pub(crate) format: Format,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Files to read, in the order of the given paths and by name within each.
    pub(crate) found: Vec<Found>,
    /// What cannot be read.
    pub(crate) skipped: Vec<Skipped>,
    /// Files of other kinds.
    pub(crate) other_files: usize,
}

/// Walks `paths`; hidden entries below them and links to folders are left out.
///
/// # Errors
/// A given path that does not exist is an error rather than a skip: it is most likely a slip of the pen.
pub(crate) fn scan(paths: &[PathBuf], progress: &mut dyn FnMut(&Progress)) -> Result<Scan, IndexError> {
    let mut walk = Walk { scan: Scan::default(), seen: HashSet::new(), names: HashMap::new(), progress };
    for root in paths {
        let meta = std::fs::metadata(root)
            .map_err(|error| IndexError::Path { path: root.clone(), problem: error.to_string() })?;
        if meta.is_dir() {
            walk.folder(root, Path::new(""), 0);
        } else if meta.is_file() && Format::of(root).is_some() {
            let name = root.file_name().map(PathBuf::from).unwrap_or_default();
            walk.file(root, root, &name);
        } else {
            walk.skip(root, &format!("not a file of a known kind ({KINDS})"));
        }
    }
    Ok(walk.scan)
}

struct Walk<'a> {
    scan: Scan,
    /// Real paths that were taken, so that overlapping paths index a file once.
    seen: HashSet<PathBuf>,
    /// Names that were given, and how often a name was asked for.
    names: HashMap<String, usize>,
    progress: &'a mut dyn FnMut(&Progress),
}

impl Walk<'_> {
    fn folder(&mut self, root: &Path, below: &Path, depth: usize) {
        let folder = root.join(below);
        if depth > FOLDER_DEPTH_MAX {
            return self.skip(&folder, "folders nested too deeply");
        }
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => return self.skip(&folder, &error.to_string()),
        };
        // Sorted, because the order of a folder's entries differs from machine to machine.
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
        names.sort();
        for name in names {
            if name.to_string_lossy().starts_with('.') {
                continue;
            }
            let below = below.join(&name);
            let path = root.join(&below);
            let Ok(own) = std::fs::symlink_metadata(&path) else {
                self.skip(&path, "cannot be read");
                continue;
            };
            if own.is_dir() {
                self.folder(root, &below, depth + 1);
            } else {
                self.entry(root, &path, &below, own.is_symlink());
            }
        }
    }

    fn entry(&mut self, root: &Path, path: &Path, below: &Path, link: bool) {
        match std::fs::metadata(path) {
            // A link to a folder may lead back up, so none is followed.
            Ok(meta) if meta.is_dir() => self.skip(path, "link to a folder"),
            Ok(meta) if meta.is_file() && Format::of(path).is_some() => self.file(root, path, below),
            Err(error) if link && Format::of(path).is_some() => self.skip(path, &error.to_string()),
            _ => self.scan.other_files += 1,
        }
    }

    fn file(&mut self, root: &Path, path: &Path, below: &Path) {
        let Some(format) = Format::of(path) else { return };
        if self.scan.found.len() >= FILES_MAX {
            return self.skip(path, "more files than one index takes");
        }
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if !self.seen.insert(real) {
            return;
        }
        let document_id = self.name(root, below);
        self.scan.found.push(Found { path: path.to_path_buf(), document_id, format });
        (self.progress)(&Progress {
            phase: Phase::Scan,
            done: self.scan.found.len(),
            total: 0,
            reused: 0,
            path: Some(path.to_path_buf()),
        });
    }

    /// The path below its root; when an earlier root took that name, the root's own name goes before it, then a number.
    fn name(&mut self, root: &Path, below: &Path) -> String {
        // Control characters have a meaning in ids.
        let slashed = |path: &Path| {
            let slashed = path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/");
            slashed.replace(char::is_control, "\u{fffd}")
        };
        let plain = slashed(below);
        let with_root = root.file_name().filter(|_| root != below).map(|name| {
            let name = name.to_string_lossy();
            format!("{name}/{plain}")
        });
        for candidate in std::iter::once(plain.clone()).chain(with_root) {
            if !self.names.contains_key(&candidate) {
                self.names.insert(candidate.clone(), 1);
                return candidate;
            }
        }
        loop {
            let count = self.names.entry(plain.clone()).or_insert(1);
            *count += 1;
            let candidate = format!("{plain}~{count}");
            if !self.names.contains_key(&candidate) {
                self.names.insert(candidate.clone(), 1);
                return candidate;
            }
        }
    }

    fn skip(&mut self, path: &Path, reason: &str) {
        self.scan.skipped.push(Skipped { path: path.to_path_buf(), reason: reason.to_string() });
    }
}
