//! What does a search take and give back?

use crate::Passage;
use budgets::{Deadline, Timeline};
use std::sync::Arc;

/// What to look for, how much of it and until when.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The question or keywords in plain words; there is no query syntax, so no text is an error but an empty one.
    pub text: &'a str,
    /// Largest number of hits; held between 1 and `Limits::search_hits_max`.
    pub limit: usize,
    /// Both arms stop here.
    pub deadline: Deadline,
}

/// How one arm judged a passage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArmScore {
    /// Place in that arm's list, from 1.
    pub rank: usize,
    /// BM25 for the lexical arm, cosine for the vector arm.
    pub score: f32,
}

/// A passage that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The passage.
    pub passage: Arc<Passage>,
    /// Fused score: reciprocal ranks of both arms added up; comparable within one result only.
    pub score: f32,
    /// How the lexical arm judged it, if that arm found it.
    pub lexical: Option<ArmScore>,
    /// How the vector arm judged it, if that arm found it.
    pub vector: Option<ArmScore>,
}

/// Which arms finished in time; the hits of an arm that did not are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// BM25 finished.
    pub lexical: bool,
    /// Embedding and nearest-neighbour search finished.
    pub vector: bool,
}

/// What a search gives back; at least one arm finished.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<Hit>,
    /// What each stage took; the two arms overlap.
    pub timeline: Timeline,
    /// Which arms finished.
    pub coverage: Coverage,
    /// Generation that was searched.
    pub generation: u64,
}

/// What an open index is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// Number of the immutable snapshot.
    pub generation: u64,
    /// Documents with at least one passage.
    pub documents: usize,
    /// Passages.
    pub passages: usize,
    /// Id of the embedder that made the vectors.
    pub embedder: String,
}
