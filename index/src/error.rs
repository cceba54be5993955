//! What can go wrong with an index, and what should the reader do about it?

use budgets::Stage;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Building or opening failed.
#[derive(Clone, Debug, Error)]
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
    /// Another release wrote it.
    #[error(
        "the index has format {found}, this release reads {known}; build it again with: riposte index PATH..."
    )]
    OtherFormat {
        /// Format on disk.
        found: u32,
        /// The format that this release reads and writes.
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
    /// Another build, or a service that takes documents, holds the folder.
    #[error("another process is writing to {}; stop it, or wait until it is done", dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// A document that was put has a bad name, an unknown format or no text.
    #[error("the document {id:?} cannot be indexed: {problem}")]
    Document {
        /// Its name as it was given.
        id: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The index was opened for reading alone.
    #[error("the index takes no documents; open it for writing")]
    ReadOnly,
    /// Documents come faster than they can be written into a generation.
    #[error("{waiting} new passages wait to be merged, at most {waiting_max} may; try again shortly")]
    Behind {
        /// Passages that wait.
        waiting: usize,
        /// `Limits::live_passages_max`.
        waiting_max: usize,
    },
    /// More passages than an open index ever takes at once.
    #[error(
        "{passages} passages at once, at most {passages_max} can be put; put fewer documents at a time, split the \
         document, or raise limits.live_passages_max"
    )]
    TooManyPassages {
        /// Passages of the document, or of all that were put together.
        passages: usize,
        /// `Limits::live_passages_max`.
        passages_max: usize,
    },
    /// Reading or writing the index's own files failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: Arc<std::io::Error>,
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
