//! How are documents, passages and vectors written and read? Row by row, so that a number stands for all of them.

use crate::change::Content;
use crate::generation::{DOCUMENTS, Opened, PASSAGES, VECTORS, damaged, io, write_synced};
use crate::{DocumentInfo, IndexError, Passage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

/// Documents one after another: a document's passages stand together, and each passage's vector in its row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) documents: Vec<DocumentInfo>,
    pub(crate) passages: Vec<Arc<Passage>>,
    /// `[row, dimensions]`
    pub(crate) vectors: Vec<f32>,
}

impl Rows {
    /// Adds a document at the end.
    pub(crate) fn push(&mut self, content: Content) {
        self.documents.push(content.info);
        self.passages.extend(content.passages);
        self.vectors.extend(content.vectors);
    }

    /// Cut into documents; without vectors where there are none.
    pub(crate) fn into_contents(self, dimensions: usize) -> Vec<Content> {
        let (mut passages, mut vectors) = (self.passages.into_iter(), self.vectors.into_iter());
        let cut = |info: DocumentInfo| Content {
            passages: passages.by_ref().take(info.passages).collect(),
            vectors: vectors.by_ref().take(info.passages * dimensions).collect(),
            info,
        };
        self.documents.into_iter().map(cut).collect()
    }
}

/// Writes the documents, in the order of their passages.
pub(crate) fn write_documents(generation: &Path, documents: &[DocumentInfo]) -> Result<(), IndexError> {
    write_lines(&generation.join(DOCUMENTS), documents.iter())
}

/// Writes the passages, one JSON object a line.
pub(crate) fn write_passages(generation: &Path, passages: &[Arc<Passage>]) -> Result<(), IndexError> {
    write_lines(&generation.join(PASSAGES), passages.iter().map(Arc::as_ref))
}

fn write_lines<T: Serialize>(path: &Path, rows: impl Iterator<Item = T>) -> Result<(), IndexError> {
    let mut bytes = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut bytes, &row).map_err(|error| io(path)(std::io::Error::other(error)))?;
        bytes.push(b'\n');
    }
    write_synced(path, &bytes)
}

/// Reads the documents of a generation; their passages make up its rows.
pub(crate) fn read_documents(opened: &Opened) -> Result<Vec<DocumentInfo>, IndexError> {
    let documents: Vec<DocumentInfo> = read_lines(opened, DOCUMENTS, opened.manifest.documents)?;
    let count = |sum: usize, info: &DocumentInfo| sum.checked_add(info.passages);
    if documents.iter().try_fold(0, count) != Some(opened.manifest.passages) {
        let problem = format!("its documents do not have {} passages together", opened.manifest.passages);
        return Err(damaged(&opened.path.join(DOCUMENTS), problem));
    }
    Ok(documents)
}

/// Reads the passages of a generation.
pub(crate) fn read_passages(opened: &Opened) -> Result<Vec<Arc<Passage>>, IndexError> {
    read_lines(opened, PASSAGES, opened.manifest.passages)
}

fn read_lines<T: DeserializeOwned>(opened: &Opened, name: &str, count: usize) -> Result<Vec<T>, IndexError> {
    let path = opened.path.join(name);
    let text = std::fs::read_to_string(&path).map_err(|error| damaged(&path, error.to_string()))?;
    let parse = |line| serde_json::from_str(line).map_err(|error| damaged(&path, error.to_string()));
    let rows: Vec<T> = text.lines().map(parse).collect::<Result<_, _>>()?;
    if rows.len() != count {
        return Err(damaged(&path, format!("has {} lines", rows.len())));
    }
    Ok(rows)
}

/// Writes the vectors, little-endian.
pub(crate) fn write_vectors(generation: &Path, values: &[f32]) -> Result<(), IndexError> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    write_synced(&generation.join(VECTORS), &bytes)
}

/// Reads the vectors of a generation, all behind one another.
pub(crate) fn read_vectors(opened: &Opened) -> Result<Vec<f32>, IndexError> {
    let path = opened.path.join(VECTORS);
    let bytes = std::fs::read(&path).map_err(|error| damaged(&path, error.to_string()))?;
    let expected = opened.manifest.passages.saturating_mul(opened.manifest.dimensions).saturating_mul(4);
    if bytes.len() != expected || opened.manifest.dimensions == 0 {
        return Err(damaged(&path, format!("has {} bytes instead of {expected}", bytes.len())));
    }
    Ok(bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
}
