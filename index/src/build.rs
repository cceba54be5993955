//! How do folders become a generation on disk? Scan, parse, embed what is new, write, swap.

use crate::generation::{self, EMBEDDED_TEXT_VERSION, FORMAT, LEXICAL, Manifest};
use crate::ingest::{self, Found, Scan};
use crate::split::{Counter, Origin, embedded_text, split};
use crate::{Embed, IndexError, Passage, Phase, Progress, Skipped, Summary, lexical, rows, vector};
use budgets::{Clock, Limits, SystemClock};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Texts that are embedded together.
const BATCH_TEXTS: usize = 32;
/// Files of a generation that progress counts: passages, vectors, lexical index, graph, manifest.
const WRITE_STEPS: usize = 5;

type Report<'a> = &'a mut dyn FnMut(&Progress);
type TextHash = [u8; 32];

/// Indexes all documents under `paths` into `dir` as a new generation, and removes the old one when that stands.
///
/// A folder is walked, a file is taken by itself. Passages whose embedded text the old generation holds too, made by
/// the same embedder, take over its vector. Files that cannot be read are named in the summary and left out. A build
/// that fails or is killed leaves the old generation as it was.
///
/// # Errors
/// A path that does not exist, nothing to index, another build in `dir`, a failing embedder, a full disk.
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
    let passages = parse(scan, embed, limits, progress, &mut summary)?;
    let (vectors, reused) = vectors(&passages, dir, embed, progress)?;
    summary.reused = reused;
    summary.passages = passages.len();
    summary.generation = write(dir, &passages, &vectors, embed, summary.documents, progress)?;
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
) -> Result<Vec<Passage>, IndexError> {
    let counter = Counter::new(embed);
    let total = scan.found.len();
    let mut passages: Vec<Passage> = Vec::new();
    let mut ids = HashSet::new();
    summary.skipped = scan.skipped;
    for (done, found) in scan.found.iter().enumerate() {
        progress(&Progress { phase: Phase::Parse, done, total, reused: 0, path: Some(found.path.clone()) });
        match read(found, &counter, limits) {
            Ok((document_passages, lossy)) => {
                summary.documents += 1;
                summary.lossy.extend(lossy.then(|| found.path.clone()));
                for mut passage in document_passages {
                    // Two of 2^53 ids may meet by chance; the later one moves on.
                    while !ids.insert(passage.id) {
                        passage.id.0 = (passage.id.0 + 1) % (1 << 53);
                    }
                    passages.push(passage);
                }
            }
            Err(reason) => {
                // The caller shows the summary; a warning here would say it twice.
                tracing::debug!(path = %found.path.display(), reason, "file skipped");
                summary.skipped.push(Skipped { path: found.path.clone(), reason });
            }
        }
    }
    progress(&Progress { phase: Phase::Parse, done: total, total, reused: 0, path: None });
    if passages.is_empty() {
        return Err(IndexError::Nothing { files: total, skipped: summary.skipped.len() });
    }
    Ok(passages)
}

fn read(found: &Found, counter: &Counter<'_>, limits: &Limits) -> Result<(Vec<Passage>, bool), String> {
    let document = ingest::read(found, limits)?;
    let lossy = document.lossy;
    let source = found.path.to_string_lossy();
    let passages = split(document, &Origin { document_id: &found.document_id, source: &source }, counter);
    if passages.is_empty() { Err("no text in it".into()) } else { Ok((passages, lossy)) }
}

/// One vector per passage behind one another, and how many were taken over from the old generation.
fn vectors(
    passages: &[Passage],
    dir: &Path,
    embed: &dyn Embed,
    progress: Report<'_>,
) -> Result<(Vec<f32>, usize), IndexError> {
    let dimensions = embed.dimensions();
    let known = known_vectors(dir, embed);
    let total = passages.len();
    let mut values = vec![0.0f32; total * dimensions];
    // Rows that share one text share one vector, so each text is embedded once.
    let mut rows_of: HashMap<TextHash, Vec<usize>> = HashMap::new();
    let mut reused = 0;
    for (row, passage) in passages.iter().enumerate() {
        let hash = text_hash(passage);
        if let Some(vector) = known.get(&hash) {
            values[row * dimensions..][..dimensions].copy_from_slice(vector);
            reused += 1;
        } else {
            rows_of.entry(hash).or_default().push(row);
        }
    }
    let mut todo: Vec<Vec<usize>> = rows_of.into_values().collect();
    // Texts of like length share a batch, because a batch takes as long as its longest text.
    todo.sort_by_key(|rows| (passages[rows[0]].text.len(), rows[0]));
    let mut done = reused;
    progress(&Progress { phase: Phase::Embed, done, total, reused, path: None });
    for batch in todo.chunks(BATCH_TEXTS) {
        let texts: Vec<String> = batch.iter().map(|rows| embedded_text_of(&passages[rows[0]])).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let vectors = embed.embed(&texts).map_err(|error| IndexError::Embed(error.0))?;
        if vectors.len() != batch.len() {
            return Err(IndexError::Embed(format!("{} vectors for {} texts", vectors.len(), batch.len())));
        }
        for (rows, vector) in batch.iter().zip(vectors) {
            let vector = unit(vector, dimensions).map_err(IndexError::Embed)?;
            rows.iter().for_each(|row| values[row * dimensions..][..dimensions].copy_from_slice(&vector));
            done += rows.len();
        }
        progress(&Progress { phase: Phase::Embed, done, total, reused, path: None });
    }
    Ok((values, reused))
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

/// Vectors of the old generation by the text they were made from; none when there is no old generation of this embedder
/// that can be read: then everything is embedded anew.
fn known_vectors(dir: &Path, embed: &dyn Embed) -> HashMap<TextHash, Vec<f32>> {
    let read = || {
        let opened = generation::open(dir)?;
        let manifest = &opened.manifest;
        let same = manifest.embedder == embed.id()
            && manifest.dimensions == embed.dimensions()
            && manifest.embedded_text_version == EMBEDDED_TEXT_VERSION;
        if !same {
            return Ok(HashMap::new());
        }
        let (passages, vectors) = (rows::read_passages(&opened)?, rows::read_vectors(&opened)?);
        let vectors = vectors.chunks_exact(manifest.dimensions).map(<[f32]>::to_vec);
        Ok(passages.iter().map(text_hash).zip(vectors).collect())
    };
    match read() {
        Ok(known) => known,
        Err(IndexError::Missing { .. }) => HashMap::new(),
        Err(error) => {
            tracing::warn!(%error, "the old generation cannot be reused");
            HashMap::new()
        }
    }
}

/// Writes a generation and makes it current; gives its number.
fn write(
    dir: &Path,
    passages: &[Passage],
    vectors: &[f32],
    embed: &dyn Embed,
    documents: usize,
    progress: Report<'_>,
) -> Result<u64, IndexError> {
    let (number, path) = generation::begin(dir)?;
    let mut step =
        |done| progress(&Progress { phase: Phase::Write, done, total: WRITE_STEPS, reused: 0, path: None });
    step(0);
    rows::write_passages(&path, passages)?;
    step(1);
    rows::write_vectors(&path, vectors)?;
    step(2);
    let lexical_path = path.join(LEXICAL);
    std::fs::create_dir(&lexical_path).map_err(generation::io(&lexical_path))?;
    lexical::write(&lexical_path, passages)?;
    step(3);
    if passages.len() > vector::EXACT_PASSAGES_MAX {
        vector::write_graph(&path, embed.dimensions(), vectors)?;
    }
    step(4);
    let manifest = Manifest {
        format: FORMAT,
        generation: number,
        embedder: embed.id().to_string(),
        dimensions: embed.dimensions(),
        embedded_text_version: EMBEDDED_TEXT_VERSION,
        documents,
        passages: passages.len(),
        files: Vec::new(),
    };
    generation::publish(dir, &path, manifest)?;
    step(WRITE_STEPS);
    Ok(number)
}
