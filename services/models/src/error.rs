//! What can go wrong on the way to a model, and what should the person do then?

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A registry, or a name looked up in it, that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// Not TOML of the right shape.
    #[error("model registry: {0}")]
    Parse(String),
    /// An entry breaks a rule.
    #[error("model registry: {model}: {reason}")]
    Entry {
        /// The model's name.
        model: String,
        /// The rule.
        reason: String,
    },
    /// Neither a known name nor a file.
    #[error("no model {wanted:?}: neither a file on this machine nor one of {known}")]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The names that are known.
        known: String,
    },
}

/// A source that did not give its file; the next source is tried.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Nobody answers there.
    #[error("not reachable ({0})")]
    Unreachable(String),
    /// It answers, but not with the file.
    #[error("{0}")]
    Refused(String),
    /// Bytes stopped coming.
    #[error("no bytes came for {0} seconds")]
    Stalled(u64),
    /// There is no Python to run pip with.
    #[error("python3 is not installed; install Python 3 with pip")]
    PythonMissing,
    /// Python has no pip.
    #[error(
        "python3 has no pip; install it, for example with `python3 -m ensurepip` or the package python3-pip"
    )]
    PipMissing,
    /// pip gave up; its last words.
    #[error("pip: {0}")]
    Pip(String),
    /// The download is no sound archive.
    #[error("{file} is damaged: {reason}")]
    Damaged {
        /// Its name.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The archive lacks the file that should be in it.
    #[error("{archive} holds no {member}")]
    NoMember {
        /// The archive.
        archive: String,
        /// The wanted member.
        member: String,
    },
    /// Another number of bytes than it should be.
    #[error("{what} has {found} bytes instead of {expected}")]
    WrongSize {
        /// Which file.
        what: String,
        /// What was found.
        found: u64,
        /// What was expected.
        expected: u64,
    },
    /// Complete, but another file.
    #[error("checksum mismatch: sha256 {found} instead of {expected}; the download was deleted")]
    WrongHash {
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// This machine's own disk failed, so that other sources would fail too.
    #[error("{path}: {error}", path = .path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// How.
        error: io::Error,
    },
}

impl FetchError {
    pub(crate) fn disk(path: &Path) -> impl FnOnce(io::Error) -> FetchError {
        let path = path.to_path_buf();
        move |error| FetchError::Disk { path, error }
    }
}

/// A model that cannot be had.
#[derive(Debug, Error)]
pub enum PullError {
    /// Not here, and looking elsewhere was not allowed or not asked for.
    #[error("{file} of {model} is not in {dir}; get it with `riposte models pull {model}`", dir = .dir.display())]
    NotPulled {
        /// The model.
        model: String,
        /// The first file that is missing.
        file: String,
        /// Where it should be.
        dir: PathBuf,
    },
    /// No source gave it.
    #[error("{model}: no source gave {file}{reasons}\n  what arrived is kept: run `riposte models pull {model}` again to go on", reasons = list(.reasons))]
    NoSource {
        /// The model.
        model: String,
        /// The file.
        file: String,
        /// Each source and why it failed, in order.
        reasons: Vec<(String, FetchError)>,
    },
    /// The disk is full.
    #[error("the disk is full: {file} needs {bytes} bytes in {dir}; free some space, or set RIPOSTE_MODELS_DIR to a folder on another disk", dir = .dir.display())]
    DiskFull {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
        /// Where.
        dir: PathBuf,
    },
    /// The cache folder cannot be used.
    #[error("{path}: {error}; RIPOSTE_MODELS_DIR chooses another folder", path = .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// How.
        error: io::Error,
    },
    /// No folder to keep models in.
    #[error("no cache folder: set RIPOSTE_MODELS_DIR, or HOME")]
    NoCacheDir,
}

impl PullError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> PullError {
        let path = path.to_path_buf();
        move |error| PullError::Io { path, error }
    }
}

fn list(reasons: &[(String, FetchError)]) -> String {
    reasons.iter().map(|(source, reason)| format!("\n  {source}: {reason}")).collect()
}
