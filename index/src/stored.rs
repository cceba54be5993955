//! What documents does an index hold on disk? Its generation's rows and what its journals changed since, read without
//! what only search needs.

use crate::change::{Change, Content};
use crate::generation::{self, EMBEDDED_TEXT_VERSION, Manifest, Opened, VECTORS};
use crate::rows::{self, Rows};
use crate::vector::Threads;
use crate::vectorize::{Known, vectorize};
use crate::{Embed, IndexError, journal, write};
use std::path::Path;

/// Documents as they lie on disk.
pub(crate) struct Stored {
    pub(crate) contents: Vec<Content>,
    /// Whether each content has its vectors, made by the embedder at hand from text put together as today.
    pub(crate) has_vectors: bool,
}

/// Reads all living documents; files that can be made anew from the others need not be there.
///
/// # Errors
/// `Missing`, `OtherFormat`, or `Damaged` with the name of a file that cannot be made anew.
pub(crate) fn read(dir: &Path, embed: &dyn Embed) -> Result<Stored, IndexError> {
    generation::open(dir, |opened| {
        let opened = opened.stored()?;
        for (name, problem) in &opened.wrong {
            tracing::warn!(file = %opened.path.join(name).display(), problem, "a damaged file is made anew");
        }
        contents(dir, &opened, embed)
    })
}

fn contents(dir: &Path, opened: &Opened, embed: &dyn Embed) -> Result<Stored, IndexError> {
    let manifest = &opened.manifest;
    let kept = journal::read(dir, manifest.journal, manifest.dimensions)?;
    let has_vectors = made_by(manifest, embed) && !opened.wrong.iter().any(|(name, _)| name == VECTORS);
    let rows = Rows {
        documents: rows::read_documents(opened)?,
        passages: rows::read_passages(opened)?,
        vectors: if has_vectors { rows::read_vectors(opened)? } else { Vec::new() },
    };
    let put = rows.into_contents(manifest.dimensions);
    let base = Change { put, delete: Vec::new() };
    let changes = std::iter::once(base).chain(kept.changes).collect();
    Ok(Stored { contents: Change::joined(changes).put, has_vectors })
}

/// Whether the vectors of a generation are what `embed` would make today.
pub(crate) fn made_by(manifest: &Manifest, embed: &dyn Embed) -> bool {
    manifest.embedder == embed.id()
        && manifest.dimensions == embed.dimensions()
        && manifest.embedded_text_version == EMBEDDED_TEXT_VERSION
}

/// Makes a generation of what is stored, or an empty one where there is no index; the caller holds the lock.
///
/// # Errors
/// Those of [`read`], a failing embedder, a full disk.
pub(crate) fn write_anew(dir: &Path, embed: &dyn Embed) -> Result<(), IndexError> {
    let stored = match read(dir, embed) {
        Err(IndexError::Missing { .. }) => Stored { contents: Vec::new(), has_vectors: true },
        outcome => outcome?,
    };
    let mut rows = Rows::default();
    stored.contents.into_iter().for_each(|content| rows.push(content));
    if !stored.has_vectors {
        rows.vectors = vectorize(&rows.passages, &Known::default(), embed, &mut |_, _| {})?.vectors;
    }
    write::write(dir, &rows, embed, journal::next(dir)?, Threads::All, &mut |_| {})?;
    Ok(())
}
