//! What changed in the folders since the last look? An index that follows them: files that came or changed are put, files
//! that went are deleted.
//!
//! It looks again and again instead of asking the system for events: those are lost on network drives and in containers,
//! and have to be completed by looking anyway.

use crate::ingest::{self, Found, Scan};
use crate::{DocumentInfo, Index, IndexError, Meta, NewDocument, Origin, Outcome, Phase, Progress, Skipped};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Files are put together up to so many, or so many bytes: few commits, and a look at the clock now and then.
const BATCH_FILES: usize = 32;
const BATCH_BYTES: usize = 4 << 20;
/// A look takes at most this share of the time, however large the folders are.
const LOOK_SHARE: u32 = 10;

/// What one look did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Documents that came.
    pub created: usize,
    /// Documents that changed.
    pub replaced: usize,
    /// Documents that went.
    pub deleted: usize,
    /// Files that were read and are in the index as they are.
    pub unchanged: usize,
    /// Files that cannot be read, or not yet.
    pub skipped: Vec<Skipped>,
}

/// Follows folders on a thread of its own until it is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Size and time of change: a file whose stamp is the same has the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    changed: Option<SystemTime>,
}

/// What is remembered from look to look.
#[derive(Debug, Default)]
struct Memory {
    /// Stamps of files that were read, whether or not they could be indexed.
    read: HashMap<String, Stamp>,
    /// Stamps at the last look.
    last: HashMap<String, Stamp>,
    /// Documents whose file was not there at the last look.
    missing: HashSet<String>,
    /// There was a look before.
    looked: bool,
}

/// What is to be done after a look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Places in the scan.
    put: Vec<usize>,
    delete: Vec<String>,
}

impl Memory {
    /// Decides by what is there now. A file that is being written is put once it stands still from one look to the next,
    /// and a document is deleted when two looks missed its file, as editors replace files by moving others over them.
    fn plan(&mut self, now: &[(String, Stamp)], indexed: impl Iterator<Item = String>) -> Plan {
        let there: HashMap<&str, Stamp> = now.iter().map(|(id, stamp)| (id.as_str(), *stamp)).collect();
        let put = now.iter().enumerate().filter(|(_, (id, stamp))| {
            let is_still = !self.looked || self.last.get(id) == Some(stamp);
            is_still && self.read.get(id) != Some(stamp)
        });
        let put = put.map(|(at, _)| at).collect();
        let gone: HashSet<String> = indexed.filter(|id| !there.contains_key(id.as_str())).collect();
        let mut delete: Vec<String> = gone.intersection(&self.missing).cloned().collect();
        delete.sort_unstable();
        self.missing = gone.difference(&delete.iter().cloned().collect()).cloned().collect();
        self.read.retain(|id, _| there.contains_key(id.as_str()));
        self.last = now.iter().cloned().collect();
        self.looked = true;
        Plan { put, delete }
    }
}

/// Looks at folders and brings an index up to date with them.
pub struct Follower {
    index: Arc<Index>,
    /// Absolute.
    roots: Vec<PathBuf>,
    memory: Memory,
}

impl Follower {
    /// Follows `roots`: files and folders, read as [`crate::build()`] reads them.
    ///
    /// # Errors
    /// `ReadOnly`, or `Path` for one that does not exist.
    pub fn new(index: Arc<Index>, roots: &[PathBuf]) -> Result<Follower, IndexError> {
        if !index.info().is_writable {
            return Err(IndexError::ReadOnly);
        }
        let absolute = |root: &PathBuf| {
            let found = std::fs::metadata(root).and_then(|_| std::path::absolute(root));
            found.map_err(|error| IndexError::Path { path: root.clone(), problem: error.to_string() })
        };
        let roots = roots.iter().map(absolute).collect::<Result<_, _>>()?;
        Ok(Follower { index, roots, memory: Memory::default() })
    }

    /// Looks once and does what is to be done; blocks the calling thread.
    ///
    /// The first look takes every file as it stands. Documents that came from a folder, whose file lies below the roots
    /// and is there no more, are deleted from the second look on.
    ///
    /// # Errors
    /// A root that is gone, which deletes nothing: it is rather unmounted than emptied. A full disk, a failing embedder.
    pub fn look(&mut self, progress: &mut dyn FnMut(&Progress)) -> Result<Round, IndexError> {
        let scan = ingest::scan(&self.roots, progress)?;
        let now: Vec<(String, Stamp)> =
            scan.found.iter().map(|found| (found.document_id.clone(), stamp(&found.path))).collect();
        let indexed = self.followed(&scan);
        let plan = self.memory.plan(&now, indexed);
        let mut round = Round { skipped: scan.skipped, ..Round::default() };
        let total = plan.put.len();
        let mut done = 0;
        let mut waiting = plan.put.into_iter().peekable();
        while waiting.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < BATCH_FILES
                && bytes < BATCH_BYTES
                && let Some(at) = waiting.next()
            {
                let (Some(found), Some((id, stamp))) = (scan.found.get(at), now.get(at)) else { continue };
                match self.read(found) {
                    Ok(document) => {
                        bytes += document.bytes.len();
                        batch.push((document, *stamp));
                    }
                    Err(reason) => {
                        self.memory.read.insert(id.clone(), *stamp);
                        round.skipped.push(Skipped { path: found.path.clone(), reason });
                    }
                }
                done += 1;
                let path = Some(found.path.clone());
                progress(&Progress { phase: Phase::Parse, done, total, reused: 0, path });
            }
            self.put(batch, &mut round)?;
        }
        let ids: Vec<&str> = plan.delete.iter().map(String::as_str).collect();
        if !ids.is_empty() {
            round.deleted = self.index.delete(&ids)?.into_iter().filter(|there| *there).count();
        }
        Ok(round)
    }

    /// Documents of the index that come from files below the roots, but for those in places that could not be read.
    fn followed(&self, scan: &Scan) -> impl Iterator<Item = String> + use<> {
        let unread: Vec<PathBuf> = scan.skipped.iter().map(|skipped| skipped.path.clone()).collect();
        let roots = self.roots.clone();
        let is_followed = move |info: &DocumentInfo| {
            let path = std::path::absolute(&info.source).unwrap_or_default();
            info.origin == Origin::Folder
                && roots.iter().any(|root| path.starts_with(root))
                && !unread.iter().any(|unread| path.starts_with(unread))
        };
        self.index.all_documents().into_iter().filter(is_followed).map(|info| info.id)
    }

    fn read(&self, found: &Found) -> Result<NewDocument, String> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(NewDocument {
            id: found.document_id.clone(),
            file_name: name(&found.path).unwrap_or_default(),
            source: found.path.to_string_lossy().into_owned(),
            bytes: ingest::load(&found.path, &self.index.limits)?,
            meta: Meta::default(),
            origin: Origin::Folder,
        })
    }

    /// Puts a batch. What came of a file is remembered; after an error that may pass the file is tried at the next look.
    fn put(&mut self, batch: Vec<(NewDocument, Stamp)>, round: &mut Round) -> Result<(), IndexError> {
        let mut left = batch;
        while !left.is_empty() {
            let outcomes = self.index.put_all(left.iter().map(|(document, _)| document.clone()).collect());
            let mut again = Vec::new();
            for ((document, stamp), outcome) in left.into_iter().zip(outcomes) {
                match outcome {
                    Ok((Outcome::Created, _)) => round.created += 1,
                    Ok((Outcome::Replaced, _)) => round.replaced += 1,
                    Ok((Outcome::Unchanged, _)) => round.unchanged += 1,
                    Err(IndexError::Behind { .. }) => {
                        again.push((document, stamp));
                        continue;
                    }
                    Err(error @ (IndexError::Document { .. } | IndexError::TooManyPassages { .. })) => {
                        let path = PathBuf::from(&document.source);
                        round.skipped.push(Skipped { path, reason: error.to_string() });
                    }
                    Err(error) => return Err(error),
                }
                self.memory.read.insert(document.id, stamp);
            }
            left = again;
            if !left.is_empty() {
                // A large folder fills the index faster than it is rebuilt.
                self.index.settle();
            }
        }
        Ok(())
    }

    /// Goes on looking every so often on a thread of its own; `told` hears of rounds that did something.
    ///
    /// # Errors
    /// `Io` when no thread is to be had.
    pub fn follow(
        mut self,
        every: Duration,
        told: impl Fn(Result<&Round, &IndexError>) + Send + 'static,
    ) -> Result<Watch, IndexError> {
        let (stop, stopped) = channel();
        let run = move || self.run(every, &stopped, &told);
        let thread = std::thread::Builder::new().name("watch".into()).spawn(run);
        let thread = thread
            .map_err(|source| IndexError::Io { path: "the watching thread".into(), source: source.into() })?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }

    fn run(&mut self, every: Duration, stopped: &Receiver<()>, told: &dyn Fn(Result<&Round, &IndexError>)) {
        let mut wait = every;
        // Each file that cannot be read is named once, and an error that stays is told once.
        let (mut said, mut failed) = (HashSet::new(), None);
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let began = Instant::now();
            match self.look(&mut |_| {}) {
                Ok(mut round) => {
                    failed = None;
                    round.skipped.retain(|skipped| said.insert(skipped.path.clone()));
                    if round != (Round { unchanged: round.unchanged, ..Round::default() }) {
                        told(Ok(&round));
                    }
                }
                Err(error) => {
                    let message = Some(error.to_string());
                    if failed != message {
                        told(Err(&error));
                        failed = message;
                    }
                }
            }
            wait = every.max(began.elapsed() * LOOK_SHARE);
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    std::fs::metadata(path).map_or(Stamp { bytes: 0, changed: None }, |meta| Stamp {
        bytes: meta.len(),
        changed: meta.modified().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, u64)]) -> Vec<(String, Stamp)> {
        files.iter().map(|(id, bytes)| ((*id).to_string(), Stamp { bytes: *bytes, changed: None })).collect()
    }

    /// What is put, by name, and deleted after a look that finds `now`; what is put counts as read.
    fn look(memory: &mut Memory, now: &[(&str, u64)], indexed: &[&str]) -> (Vec<String>, Vec<String>) {
        let now = files(now);
        let plan = memory.plan(&now, indexed.iter().map(|id| (*id).to_string()));
        let put: Vec<String> = plan.put.iter().map(|at| now[*at].0.clone()).collect();
        for at in &plan.put {
            memory.read.insert(now[*at].0.clone(), now[*at].1);
        }
        (put, plan.delete)
    }

    #[allow(clippy::needless_pass_by_value)] // It reads better where it is called.
    fn check(got: (Vec<String>, Vec<String>), put: &[&str], delete: &[&str]) {
        assert_eq!((got.0.as_slice(), got.1.as_slice()), (&*owned(put), &*owned(delete)));
    }

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_string()).collect()
    }

    #[test]
    fn a_file_is_put_when_it_stands_still() {
        let memory = &mut Memory::default();
        check(look(memory, &[("a", 1), ("b", 1)], &[]), &["a", "b"], &[]);
        check(look(memory, &[("a", 1), ("b", 1)], &["a", "b"]), &[], &[]);
        check(look(memory, &[("a", 2), ("b", 1), ("c", 1)], &["a", "b"]), &[], &[]);
        check(look(memory, &[("a", 3), ("b", 1), ("c", 1)], &["a", "b"]), &["c"], &[]);
        check(look(memory, &[("a", 3), ("b", 1), ("c", 1)], &["a", "b", "c"]), &["a"], &[]);
        check(look(memory, &[("a", 3), ("b", 1), ("c", 1)], &["a", "b", "c"]), &[], &[]);
    }

    #[test]
    fn a_document_goes_when_its_file_stays_away() {
        let memory = &mut Memory::default();
        check(look(memory, &[("a", 1)], &["a", "old"]), &["a"], &[]);
        check(look(memory, &[("a", 1)], &["a", "old"]), &[], &["old"]);
        check(look(memory, &[], &["a"]), &[], &[]);
        check(look(memory, &[("a", 1)], &["a"]), &[], &[]);
        check(look(memory, &[], &["a"]), &[], &[]);
        check(look(memory, &[], &["a"]), &[], &["a"]);
        // It comes back as it was, and is not in the index any more.
        check(look(memory, &[("a", 1)], &[]), &[], &[]);
        check(look(memory, &[("a", 1)], &[]), &["a"], &[]);
    }
}
