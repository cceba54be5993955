//! What does a search take and give back?

use crate::{Filter, Passage};
use budgets::{Deadline, Timeline};
use std::sync::Arc;

/// What to look for, how much of it and until when.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The question or keywords in plain words; there is no query syntax, so no text is an error but an empty one.
    pub text: &'a str,
    /// Largest number of hits; held between 1 and `Limits::search_hits_max`.
    pub limit: usize,
    /// All arms stop here.
    pub deadline: Deadline,
    /// Which arms are asked.
    pub arms: Arms,
    /// Which documents are wanted; holds inside both arms, so that unwanted ones take no place of others.
    pub filter: Filter<'a>,
}

/// Which searches a query goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arms {
    /// BM25 and vectors, fused.
    #[default]
    Both,
    /// BM25 alone.
    Lexical,
    /// Vectors alone.
    Vector,
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
    /// Fused score: the BM25 score as a share of the list's best, the cosine, and the same of the document's best other
    /// passage, in fixed proportion; comparable within one result only.
    pub score: f32,
    /// How the lexical arm judged it, if that arm found it.
    pub lexical: Option<ArmScore>,
    /// How the vector arm judged it, if that arm found it.
    pub vector: Option<ArmScore>,
}

/// How much of its work each arm did before the deadline, 0 to 1; an arm that was not asked, failed or was late did
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// BM25: share of the query's terms, weighed by their rarity, that were counted.
    pub lexical: f32,
    /// Nearest neighbours: share of the passages that were compared; a search of a graph is whole or nothing.
    pub vector: f32,
}

impl Coverage {
    /// Both arms finished.
    pub const WHOLE: Coverage = Coverage { lexical: 1.0, vector: 1.0 };
}

/// What a search gives back; at least one arm did part of its work.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<Hit>,
    /// What each stage took; the two arms overlap.
    pub timeline: Timeline,
    /// How far each arm came.
    pub coverage: Coverage,
    /// Generation that was searched.
    pub generation: u64,
}

/// What an open index is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// Number of the immutable snapshot on disk.
    pub generation: u64,
    /// Changes since it was written.
    pub revision: u64,
    /// Documents with at least one passage.
    pub documents: usize,
    /// Passages that can be found.
    pub passages: usize,
    /// Passages that came since the snapshot and are held in memory, deleted ones too.
    pub passages_fresh: usize,
    /// Deleted passages that take room until the next snapshot.
    pub passages_dead: usize,
    /// Id of the embedder that made the vectors.
    pub embedder: String,
    /// Documents can be put and deleted.
    pub is_writable: bool,
}

/// A collection of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// Its name.
    pub name: String,
    /// Documents in it.
    pub documents: usize,
    /// Their passages.
    pub passages: usize,
}
