//! How do documents become a generation on disk? Rows, lexical index, graph, manifest, and last the swap.

use crate::generation::{self, EMBEDDED_TEXT_VERSION, FORMAT, LEXICAL, Manifest};
use crate::rows::{self, Rows};
use crate::vector::{self, Threads};
use crate::{Embed, IndexError, journal, lexical};
use std::path::Path;

/// Steps that `step` is told of: documents and passages, vectors, lexical index, graph, manifest.
pub(crate) const STEPS: usize = 5;

/// Writes `rows` as the next generation of `dir` and makes it current; gives its number. The caller holds the lock.
///
/// `journal` is the number of the first journal whose changes the rows do not hold.
pub(crate) fn write(
    dir: &Path,
    rows: &Rows,
    embed: &dyn Embed,
    journal: u64,
    threads: Threads,
    step: &mut dyn FnMut(usize),
) -> Result<u64, IndexError> {
    let (number, path) = generation::begin(dir)?;
    let mut manifest = Manifest {
        format: FORMAT,
        generation: number,
        embedder: embed.id().to_string(),
        dimensions: embed.dimensions(),
        embedded_text_version: EMBEDDED_TEXT_VERSION,
        documents: rows.documents.len(),
        passages: rows.passages.len(),
        journal,
        files: Vec::new(),
    };
    let filled = fill(&path, rows, embed.dimensions(), threads, step);
    let line = filled.and_then(|()| generation::seal(&path, &mut manifest));
    let line = line.inspect_err(|_| generation::abandon(&path))?;
    journal::ensure(dir, journal)?;
    generation::publish(dir, &line, &manifest)?;
    step(STEPS);
    Ok(number)
}

/// Writes everything but the manifest.
fn fill(
    path: &Path,
    rows: &Rows,
    dimensions: usize,
    threads: Threads,
    step: &mut dyn FnMut(usize),
) -> Result<(), IndexError> {
    step(0);
    rows::write_documents(path, &rows.documents)?;
    rows::write_passages(path, &rows.passages)?;
    step(1);
    rows::write_vectors(path, &rows.vectors)?;
    step(2);
    let lexical_path = path.join(LEXICAL);
    std::fs::create_dir(&lexical_path).map_err(generation::io(&lexical_path))?;
    lexical::write(&lexical_path, &rows.passages)?;
    step(3);
    if rows.passages.len() > vector::EXACT_PASSAGES_MAX {
        vector::write_graph(path, dimensions, &rows.vectors, threads)?;
    }
    step(4);
    Ok(())
}
