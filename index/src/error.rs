//! What can go wrong with an index, and what should the reader do about it?

use budgets::Stage;
use std::path::PathBuf;
use thiserror::Error;

/// Building or opening failed.
#[derive(Debug, Error)]
pub enum IndexError {
    /// There is no index in that folder.
    #[error("no index in {}; make one with: riposte index PATH... --data {}", dir.display(), dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The vectors were made by another embedder, so they cannot be compared with this one's.
    #[error(
        "the index was built with embedder {built_with}, not {given}; build it again with: riposte index PATH..."
    )]
    OtherEmbedder {
        /// Id and dimensions in the index.
        built_with: String,
        /// Id and dimensions that were given.
        given: String,
    },
    /// A later release wrote it.
    #[error("the index has format {found}, this release reads up to {known}")]
    NewerFormat {
        /// Format on disk.
        found: u32,
        /// Newest format that this release reads.
        known: u32,
    },
    /// A file of the index is missing, cut short or changed.
    #[error("the index is damaged: {}: {problem}; build it again with: riposte index PATH...", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A path that was given does not exist or cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// No document with text was found, so the old generation, if any, was left as it is.
    #[error("nothing to index: {files} file(s) of a known kind, {skipped} of them skipped, none with text")]
    Nothing {
        /// Files of a known kind.
        files: usize,
        /// Those that were skipped.
        skipped: usize,
    },
    /// Another build holds the folder.
    #[error("another build is writing to {}", dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// Reading or writing the index's own files failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The embedder failed or broke its contract.
    #[error("embedding failed: {0}")]
    Embed(String),
    /// The lexical index failed.
    #[error("lexical index: {0}")]
    Lexical(String),
    /// The vector index failed.
    #[error("vector index: {0}")]
    Vector(String),
}

/// A search gave nothing back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// The query has no letter or digit.
    #[error("the query is empty")]
    EmptyQuery,
    /// The query is longer than `Limits::query_chars_max`.
    #[error("the query has {chars} characters, at most {chars_max} are taken")]
    QueryTooLong {
        /// Its length.
        chars: usize,
        /// The bound.
        chars_max: usize,
    },
    /// The deadline passed before either arm finished.
    #[error("the deadline passed in stage {}", stage.name())]
    Expired {
        /// The stage in which it passed.
        stage: Stage,
    },
    /// Both arms failed, at least one of them for another reason than time.
    #[error("stage {} failed: {message}", stage.name())]
    Arm {
        /// The stage that failed.
        stage: Stage,
        /// What it said.
        message: String,
    },
}
