//! Which vector belongs to each passage? One that is known already, or a new one; equal texts are embedded once.

use crate::change::Content;
use crate::split::embedded_text;
use crate::{Embed, IndexError, Passage};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

/// Texts that are embedded together.
const BATCH_TEXTS: usize = 32;

type TextHash = [u8; 32];

/// Vectors by the text they were made from.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<TextHash, Vec<f32>>);

impl Known {
    /// Takes over the vectors of a document.
    pub(crate) fn add(&mut self, content: &Content, dimensions: usize) {
        let vectors = content.vectors.chunks_exact(dimensions).map(<[f32]>::to_vec);
        self.0.extend(content.passages.iter().map(|passage| text_hash(passage)).zip(vectors));
    }
}

/// Vectors behind one another, and how many were known.
pub(crate) struct Vectorized {
    pub(crate) vectors: Vec<f32>,
    pub(crate) reused: usize,
}

/// One unit vector per passage. `report` hears how many are done, and how many of them were known.
///
/// # Errors
/// The embedder fails or breaks its contract.
pub(crate) fn vectorize(
    passages: &[Arc<Passage>],
    known: &Known,
    embed: &dyn Embed,
    report: &mut dyn FnMut(usize, usize),
) -> Result<Vectorized, IndexError> {
    let dimensions = embed.dimensions();
    let mut vectors = vec![0.0f32; passages.len() * dimensions];
    // Rows that share one text share one vector, so each text is embedded once.
    let mut rows_of: HashMap<TextHash, Vec<usize>> = HashMap::new();
    let mut reused = 0;
    for (row, passage) in passages.iter().enumerate() {
        let hash = text_hash(passage);
        if let Some(vector) = known.0.get(&hash) {
            vectors[row * dimensions..][..dimensions].copy_from_slice(vector);
            reused += 1;
        } else {
            rows_of.entry(hash).or_default().push(row);
        }
    }
    let mut todo: Vec<Vec<usize>> = rows_of.into_values().collect();
    // Texts of like length share a batch, because a batch takes as long as its longest text.
    todo.sort_by_key(|rows| (passages[rows[0]].text.len(), rows[0]));
    let mut done = reused;
    report(done, reused);
    for batch in todo.chunks(BATCH_TEXTS) {
        let texts: Vec<String> = batch.iter().map(|rows| embedded_text_of(&passages[rows[0]])).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let made = embed.embed(&texts).map_err(|error| IndexError::Embed(error.0))?;
        if made.len() != batch.len() {
            return Err(IndexError::Embed(format!("{} vectors for {} texts", made.len(), batch.len())));
        }
        for (rows, vector) in batch.iter().zip(made) {
            let vector = unit(vector, dimensions).map_err(IndexError::Embed)?;
            rows.iter().for_each(|row| vectors[row * dimensions..][..dimensions].copy_from_slice(&vector));
            done += rows.len();
        }
        report(done, reused);
    }
    Ok(Vectorized { vectors, reused })
}

/// Checks an embedder's vector; one that is not quite of unit length is made so, because cosine is a dot product here.
pub(crate) fn unit(mut vector: Vec<f32>, dimensions: usize) -> Result<Vec<f32>, String> {
    if vector.len() != dimensions {
        return Err(format!("a vector of {} numbers instead of {dimensions}", vector.len()));
    }
    let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if !norm.is_finite() {
        return Err("a vector with numbers that are not finite".into());
    }
    if norm > 0.0 {
        vector.iter_mut().for_each(|value| *value /= norm);
    }
    Ok(vector)
}

fn embedded_text_of(passage: &Passage) -> String {
    embedded_text(&passage.title, &passage.headings, &passage.text)
}

fn text_hash(passage: &Passage) -> TextHash {
    Sha256::digest(embedded_text_of(passage).as_bytes()).into()
}
