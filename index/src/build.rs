//! How do folders become a generation on disk? Scan, parse, embed what is new, write, swap.

use crate::change::Content;
use crate::digest::{Label, digest, rename_taken};
use crate::ingest::{self, Found, Scan};
use crate::rows::Rows;
use crate::split::{Counter, Named};
use crate::stored::{self, Stored};
use crate::vector::Threads;
use crate::vectorize::{Known, vectorize};
use crate::{Embed, IndexError, Meta, Origin, Phase, Progress, Skipped, Summary, generation, journal, write};
use budgets::{Clock, Limits, SystemClock};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

type Report<'a> = &'a mut dyn FnMut(&Progress);

/// Indexes all documents under `paths` into `dir` as a new generation, and removes the old one when that stands.
///
/// A folder is walked, a file is taken by itself. Documents of the old generation that came from folders go; those that
/// were put by themselves stay, unless a file has taken the name. Passages whose embedded text the old generation holds
/// too, made by the same embedder, take over its vector. Files that cannot be read are named in the summary and left
/// out. A build that fails or is killed leaves the old generation as it was.
///
/// # Errors
/// A path that does not exist, nothing to index, another writer in `dir`, a failing embedder, a full disk.
pub fn build(
    paths: &[PathBuf],
    dir: &Path,
    embed: &dyn Embed,
    limits: &Limits,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, IndexError> {
    let clock = SystemClock::default();
    let scan = ingest::scan(paths, progress)?;
    let _lock = generation::lock(dir)?;
    let mut summary = Summary { other_files: scan.other_files, ..Summary::default() };
    let mut contents = parse(scan, embed, limits, progress, &mut summary)?;
    let old = old(dir, embed)?;
    let known = known(&old, embed);
    let kept = old.contents.into_iter().filter(|content| content.info.origin == Origin::Put);
    summary.kept = keep(kept, &mut contents);
    let rows = rows(contents, &known, embed, progress, &mut summary)?;
    let mut step =
        |done| progress(&Progress { phase: Phase::Write, done, total: write::STEPS, reused: 0, path: None });
    summary.generation = write::write(dir, &rows, embed, journal::next(dir)?, Threads::All, &mut step)?;
    summary.took = clock.now().since(budgets::Moment::default());
    Ok(summary)
}

/// Reads every file and cuts it into passages; what cannot be read goes to the summary.
fn parse(
    scan: Scan,
    embed: &dyn Embed,
    limits: &Limits,
    progress: Report<'_>,
    summary: &mut Summary,
) -> Result<Vec<Content>, IndexError> {
    let counter = Counter::new(embed);
    let total = scan.found.len();
    let mut contents: Vec<Content> = Vec::new();
    summary.skipped = scan.skipped;
    for (done, found) in scan.found.iter().enumerate() {
        progress(&Progress { phase: Phase::Parse, done, total, reused: 0, path: Some(found.path.clone()) });
        match read(found, &counter, limits) {
            Ok(content) => {
                summary.lossy.extend(content.info.lossy.then(|| found.path.clone()));
                contents.push(content);
            }
            Err(reason) => {
                // The caller shows the summary; a warning here would say it twice.
                tracing::debug!(path = %found.path.display(), reason, "file skipped");
                summary.skipped.push(Skipped { path: found.path.clone(), reason });
            }
        }
    }
    progress(&Progress { phase: Phase::Parse, done: total, total, reused: 0, path: None });
    if contents.is_empty() {
        return Err(IndexError::Nothing { files: total, skipped: summary.skipped.len() });
    }
    Ok(contents)
}

fn read(found: &Found, counter: &Counter<'_>, limits: &Limits) -> Result<Content, String> {
    let bytes = ingest::load(&found.path, limits)?;
    let source = found.path.to_string_lossy();
    let label = Label {
        named: Named { document_id: &found.document_id, source: &source },
        format: found.format,
        meta: &Meta::default(),
        origin: Origin::Folder,
        sha256: &generation::sha256(&bytes),
    };
    digest(&label, bytes, counter, limits)
}

/// The documents of the old generation; none when it is damaged, which a build is there to mend.
///
/// # Errors
/// A disk that fails: what was put by itself would be lost though it may be whole.
fn old(dir: &Path, embed: &dyn Embed) -> Result<Stored, IndexError> {
    let nothing = Stored { contents: Vec::new(), has_vectors: true };
    match stored::read(dir, embed) {
        Err(IndexError::Missing { .. }) => Ok(nothing),
        Err(error @ (IndexError::Damaged { .. } | IndexError::OtherFormat { .. })) => {
            tracing::warn!(%error, "the old generation cannot be read; nothing of it is kept");
            Ok(nothing)
        }
        outcome => outcome,
    }
}

fn known(old: &Stored, embed: &dyn Embed) -> Known {
    let mut known = Known::default();
    if old.has_vectors {
        old.contents.iter().for_each(|content| known.add(content, embed.dimensions()));
    }
    known
}

/// Adds what was put by itself, but for documents whose name a file has taken; gives their number.
fn keep(put: impl Iterator<Item = Content>, contents: &mut Vec<Content>) -> usize {
    let files: HashSet<String> = contents.iter().map(|content| content.info.id.clone()).collect();
    let before = contents.len();
    contents.extend(put.filter(|content| !files.contains(&content.info.id)));
    contents.len() - before
}

/// All contents as rows, each with its vector.
fn rows(
    contents: Vec<Content>,
    known: &Known,
    embed: &dyn Embed,
    progress: Report<'_>,
    summary: &mut Summary,
) -> Result<Rows, IndexError> {
    let mut ids = HashSet::new();
    let mut rows = Rows::default();
    for mut content in contents {
        rename_taken(&mut content, |id| ids.insert(id));
        // Old vectors come from what is known, if they are of this embedder.
        rows.push(Content { vectors: Vec::new(), ..content });
    }
    let total = rows.passages.len();
    let mut report =
        |done, reused| progress(&Progress { phase: Phase::Embed, done, total, reused, path: None });
    let made = vectorize(&rows.passages, known, embed, &mut report)?;
    rows.vectors = made.vectors;
    (summary.documents, summary.passages, summary.reused) = (rows.documents.len(), total, made.reused);
    Ok(rows)
}
