//! How does a query become hits within its deadline? Both arms side by side, then fusion.

use crate::alike::Runs;
use crate::arm::{ArmError, Found};
use crate::build::unit;
use crate::fuse::{Fused, fuse, spread, support, weight};
use crate::lexical::Lexical;
use crate::vector::{EXACT_PASSAGES_MAX, Vectors};
use crate::{
    Arms, Coverage, Embed, Hit, IndexError, IndexInfo, Passage, PassageId, Query, SearchError, SearchResult,
    generation, rows,
};
use budgets::{Clock, Deadline, Limits, Moment, Stage, Timeline};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Fewest candidates that each arm gives to fusion, however few hits are wanted: the best fused passage is often first
/// in neither list.
const DEPTH_MIN: usize = 50;

/// Hits that are compared word by word with each other; further down only equal texts are dropped.
const COMPARED_MAX: usize = 32;

/// An open generation; searches run side by side on a shared reference.
pub struct Index {
    info: IndexInfo,
    passages: Vec<Arc<Passage>>,
    row_of: HashMap<PassageId, usize>,
    rows_of: HashMap<String, Range<usize>>,
    lexical: Lexical,
    vectors: Vectors,
    embed: Arc<dyn Embed>,
    clock: Arc<dyn Clock>,
    query_chars_max: usize,
    hits_max: usize,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("info", &self.info).finish_non_exhaustive()
    }
}

/// What an arm gave, and how long each of its stages took.
struct Outcome {
    found: Result<Found, (Stage, ArmError)>,
    /// The query's vector, if this arm made it.
    query: Vec<f32>,
    spent: Vec<(Stage, Moment, Moment)>,
}

impl Index {
    /// Opens the current generation in `dir` and checks its files; embeds nothing.
    ///
    /// # Errors
    /// `Missing`, `OtherEmbedder`, `NewerFormat`, or `Damaged` with the file's name.
    pub fn open(
        dir: &Path,
        embed: Arc<dyn Embed>,
        clock: Arc<dyn Clock>,
        limits: &Limits,
    ) -> Result<Index, IndexError> {
        let opened = generation::open(dir)?;
        let manifest = &opened.manifest;
        if manifest.embedder != embed.id() || manifest.dimensions != embed.dimensions() {
            let name = |id: &str, dimensions: usize| format!("{id} ({dimensions} dimensions)");
            return Err(IndexError::OtherEmbedder {
                built_with: name(&manifest.embedder, manifest.dimensions),
                given: name(embed.id(), embed.dimensions()),
            });
        }
        let vectors = if manifest.passages > EXACT_PASSAGES_MAX {
            Vectors::open_graph(&opened.path)?
        } else {
            Vectors::Exact { dimensions: manifest.dimensions, values: rows::read_vectors(&opened)? }
        };
        let lexical = Lexical::open(&opened.path.join(generation::LEXICAL))?;
        let passages: Vec<Arc<Passage>> = rows::read_passages(&opened)?.into_iter().map(Arc::new).collect();
        let mut rows_of: HashMap<String, Range<usize>> = HashMap::new();
        for (row, passage) in passages.iter().enumerate() {
            // A document's passages stand together, so a range holds them.
            rows_of.entry(passage.document_id.clone()).or_insert(row..row).end = row + 1;
        }
        Ok(Index {
            info: IndexInfo {
                generation: manifest.generation,
                documents: manifest.documents,
                passages: passages.len(),
                embedder: manifest.embedder.clone(),
            },
            row_of: passages.iter().enumerate().map(|(row, passage)| (passage.id, row)).collect(),
            rows_of,
            passages,
            lexical,
            vectors,
            embed,
            clock,
            query_chars_max: limits.query_chars_max,
            hits_max: limits.search_hits_max,
        })
    }

    /// Searches; blocks the calling thread, so async callers hand it to a blocking pool.
    ///
    /// An arm that has not finished at the deadline, or that failed, is missing from `coverage` and the other arm's
    /// hits are returned. The embedder cannot be interrupted: a call that began in time is waited for.
    ///
    /// # Errors
    /// An empty or overlong query; both arms late or broken.
    pub fn search(&self, query: &Query<'_>) -> Result<SearchResult, SearchError> {
        self.check(query)?;
        let limit = query.limit.clamp(1, self.hits_max.max(1));
        let depth = DEPTH_MIN.max(2 * limit);
        let (lexical, vector) = match query.arms {
            Arms::Both => self.both_arms(query, depth),
            Arms::Lexical => (self.lexical_arm(query.text, depth, query.deadline), not_asked(Stage::Vector)),
            Arms::Vector => (not_asked(Stage::Lexical), self.vector_arm(query.text, depth, query.deadline)),
        };
        let mut timeline = Timeline::default();
        for (stage, from, to) in lexical.spent.iter().chain(&vector.spent) {
            timeline.add(*stage, to.since(*from));
        }
        let embedded = vector.query;
        let (lexical, vector) = match (lexical.found, vector.found) {
            (Err(lexical), Err(vector)) => return Err(both_failed(lexical, vector)),
            (lexical, vector) => (found(lexical), found(vector)),
        };
        let coverage = Coverage { lexical: lexical.share, vector: vector.share };
        let began = self.clock.now();
        let cosine = |row| self.vectors.cosine(&embedded, row);
        let weight = |row: usize| self.passages.get(row).map_or(0.0, |one| weight(&one.headings));
        let mut fused = fuse(&lexical.ranked, &vector.ranked, cosine, weight);
        let document = |row: usize| self.passages.get(row).map_or("", |one| one.document_id.as_str());
        support(&mut fused, document, |row| self.rows_of.get(document(row)).map_or(0, |rows| rows.len()));
        spread(&mut fused, document);
        let hits = self.hits(&fused, limit);
        timeline.add(Stage::Fuse, self.clock.now().since(began));
        Ok(SearchResult { hits, timeline, coverage, generation: self.info.generation })
    }

    /// The passage with that name.
    pub fn get(&self, id: PassageId) -> Option<Arc<Passage>> {
        self.row_of.get(&id).and_then(|row| self.passages.get(*row)).cloned()
    }

    /// The passages of a document, in reading order; empty when the index has no such document.
    pub fn passages_of(&self, document_id: &str) -> Vec<Arc<Passage>> {
        let rows = self.rows_of.get(document_id).cloned().unwrap_or(0..0);
        self.passages.get(rows).unwrap_or_default().to_vec()
    }

    /// What was opened.
    pub fn info(&self) -> IndexInfo {
        self.info.clone()
    }

    fn check(&self, query: &Query<'_>) -> Result<(), SearchError> {
        let chars = query.text.chars().count();
        if chars > self.query_chars_max {
            return Err(SearchError::QueryTooLong { chars, chars_max: self.query_chars_max });
        }
        // Punctuation alone has no terms and no meaning that an embedder knows.
        match query.text.chars().any(char::is_alphanumeric) {
            true => Ok(()),
            false => Err(SearchError::EmptyQuery),
        }
    }

    /// The lexical arm on a thread of its own, the vector arm on this one.
    fn both_arms(&self, query: &Query<'_>, depth: usize) -> (Outcome, Outcome) {
        let lexical = || self.lexical_arm(query.text, depth, query.deadline);
        std::thread::scope(|scope| {
            let beside = std::thread::Builder::new().name("lexical".into()).spawn_scoped(scope, lexical);
            let vector = self.vector_arm(query.text, depth, query.deadline);
            let lexical = match beside {
                Ok(thread) => thread.join().unwrap_or_else(|_| broken(Stage::Lexical)),
                // No thread to be had: one after the other then, still within the deadline.
                Err(_) => lexical(),
            };
            (lexical, vector)
        })
    }

    fn lexical_arm(&self, text: &str, depth: usize, deadline: Deadline) -> Outcome {
        let began = self.clock.now();
        let passage = |row: usize| self.passages.get(row).map(Arc::as_ref);
        let search = || self.lexical.search(text, depth, passage, (deadline, self.clock.as_ref()));
        let found = catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| Err(panicked()));
        Outcome {
            found: found.map_err(|error| (Stage::Lexical, error)),
            query: Vec::new(),
            spent: vec![(Stage::Lexical, began, self.clock.now())],
        }
    }

    fn vector_arm(&self, text: &str, depth: usize, deadline: Deadline) -> Outcome {
        let began = self.clock.now();
        let embedded = catch_unwind(AssertUnwindSafe(|| self.embed_query(text, deadline)));
        let embedded = embedded.unwrap_or_else(|_| Err(panicked()));
        let between = self.clock.now();
        let mut spent = vec![(Stage::Embed, began, between)];
        let query = match embedded {
            Ok(query) => query,
            Err(error) => return Outcome { found: Err((Stage::Embed, error)), query: Vec::new(), spent },
        };
        let search = || self.vectors.search(&query, depth, deadline, self.clock.as_ref());
        let found = catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| Err(panicked()));
        spent.push((Stage::Vector, between, self.clock.now()));
        Outcome { found: found.map_err(|error| (Stage::Vector, error)), query, spent }
    }

    fn embed_query(&self, text: &str, deadline: Deadline) -> Result<Vec<f32>, ArmError> {
        if deadline.expired(self.clock.now()) {
            return Err(ArmError::Expired);
        }
        let vectors = self.embed.embed(&[text]).map_err(|error| ArmError::Failed(error.0))?;
        let vector = vectors.into_iter().next().ok_or_else(|| ArmError::Failed("no vector".into()))?;
        if deadline.expired(self.clock.now()) {
            return Err(ArmError::Expired);
        }
        unit(vector, self.embed.dimensions()).map_err(ArmError::Failed)
    }

    /// The first `limit` passages; of those that say the same in nearly the same words only the best.
    fn hits(&self, fused: &[Fused], limit: usize) -> Vec<Hit> {
        let (mut hits, mut texts, mut runs) = (Vec::new(), HashSet::new(), Vec::new());
        for one in fused {
            let Some(passage) = self.passages.get(one.row).filter(|_| hits.len() < limit) else { continue };
            if !texts.insert(passage.text.as_str()) {
                continue;
            }
            if hits.len() < COMPARED_MAX {
                let new = Runs::of(&passage.text);
                if runs.iter().any(|old| new.alike(old)) {
                    continue;
                }
                runs.push(new);
            }
            hits.push(Hit {
                passage: Arc::clone(passage),
                score: one.score,
                lexical: one.lexical,
                vector: one.vector,
            });
        }
        hits
    }
}

fn panicked() -> ArmError {
    ArmError::Failed("it panicked".into())
}

fn not_asked(stage: Stage) -> Outcome {
    Outcome { found: Err((stage, ArmError::NotAsked)), query: Vec::new(), spent: Vec::new() }
}

fn broken(stage: Stage) -> Outcome {
    Outcome { found: Err((stage, panicked())), query: Vec::new(), spent: Vec::new() }
}

/// An arm's list; an arm that is missing gives none, and a broken one is worth a line in the log.
fn found(arm: Result<Found, (Stage, ArmError)>) -> Found {
    arm.unwrap_or_else(|(stage, error)| {
        if let ArmError::Failed(message) = error {
            tracing::warn!(stage = stage.name(), message, "one arm of a search failed");
        }
        Found::NOTHING
    })
}

/// A fault is told rather than a delay, because it will not pass by asking again with more time.
fn both_failed(lexical: (Stage, ArmError), vector: (Stage, ArmError)) -> SearchError {
    let stage = if vector.1 == ArmError::NotAsked { lexical.0 } else { vector.0 };
    let expired = SearchError::Expired { stage };
    [lexical, vector]
        .into_iter()
        .find_map(|(stage, error)| match error {
            ArmError::Failed(message) => Some(SearchError::Arm { stage, message }),
            ArmError::Expired | ArmError::NotAsked => None,
        })
        .unwrap_or(expired)
}
