//! How are passages and vectors written and read? Row by row, so that a number stands for both.

use crate::generation::{Opened, PASSAGES, VECTORS, damaged, io, write_synced};
use crate::{IndexError, Passage};
use std::path::Path;

/// Writes the passages, one JSON object a line.
pub(crate) fn write_passages(generation: &Path, passages: &[Passage]) -> Result<(), IndexError> {
    let path = generation.join(PASSAGES);
    let mut bytes = Vec::new();
    for passage in passages {
        serde_json::to_writer(&mut bytes, passage)
            .map_err(|error| io(&path)(std::io::Error::other(error)))?;
        bytes.push(b'\n');
    }
    write_synced(&path, &bytes)
}

/// Reads the passages of a generation.
pub(crate) fn read_passages(opened: &Opened) -> Result<Vec<Passage>, IndexError> {
    let path = opened.path.join(PASSAGES);
    let text = std::fs::read_to_string(&path).map_err(|error| damaged(&path, error.to_string()))?;
    let parse = |line| serde_json::from_str(line).map_err(|error| damaged(&path, error.to_string()));
    let passages: Vec<Passage> = text.lines().map(parse).collect::<Result<_, _>>()?;
    if passages.len() != opened.manifest.passages {
        return Err(damaged(&path, format!("has {} passages", passages.len())));
    }
    Ok(passages)
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
