//! How far is the build, and what came of it?

use std::path::PathBuf;
use std::time::Duration;

/// Part of a build, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Looking for files.
    Scan,
    /// Reading files and cutting them into passages.
    Parse,
    /// Turning passages into vectors.
    Embed,
    /// Writing the generation to disk.
    Write,
}

impl Phase {
    /// A word for progress bars.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Scan => "scan",
            Phase::Parse => "parse",
            Phase::Embed => "embed",
            Phase::Write => "write",
        }
    }
}

/// One report of a running build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Where the build is.
    pub phase: Phase,
    /// Done so far: files for scan and parse, passages for embed, files of the index for write.
    pub done: usize,
    /// Of how many; 0 while the number is not known (scan).
    pub total: usize,
    /// Passages among `done` whose vector was taken over from the old generation; embed only.
    pub reused: usize,
    /// File in hand, where there is one.
    pub path: Option<PathBuf>,
}

/// A file that is not in the index, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file as it was given or found.
    pub path: PathBuf,
    /// Why, in words for people.
    pub reason: String,
}

/// What a finished build made.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Documents with at least one passage.
    pub documents: usize,
    /// Documents among them that had been put by themselves and were kept.
    pub kept: usize,
    /// Passages written.
    pub passages: usize,
    /// Passages whose vector came from the old generation.
    pub reused: usize,
    /// Files of a known kind that could not be read, and anything unknown that was named outright.
    pub skipped: Vec<Skipped>,
    /// Files in the index with bytes that are no character of their encoding; each was read as a question mark.
    pub lossy: Vec<PathBuf>,
    /// Files of other kinds that lay in the folders; counted, not named.
    pub other_files: usize,
    /// Generation that was written.
    pub generation: u64,
    /// Time from call to return.
    pub took: Duration,
}
