//! How does a query become hits within its deadline? Both arms side by side, then fusion.

use crate::alike::Runs;
use crate::arm::{ArmError, Found};
use crate::fuse::{Fused, fuse, spread, support, weight};
use crate::vectorize::unit;
use crate::view::{View, WantedPart};
use crate::{Arms, Coverage, Hit, Index, Query, SearchError, SearchResult, lexical, vector};
use budgets::{Deadline, Moment, Stage, Timeline};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Fewest candidates that each arm gives to fusion, however few hits are wanted: the best fused passage is often first
/// in neither list.
const DEPTH_MIN: usize = 50;

/// Hits that are compared word by word with each other; further down only equal texts are dropped.
const COMPARED_MAX: usize = 32;

/// What an arm gave, and how long each of its stages took.
struct Outcome {
    found: Result<Found, (Stage, ArmError)>,
    /// The query's vector, if this arm made it.
    query: Vec<f32>,
    spent: Vec<(Stage, Moment, Moment)>,
}

impl Index {
    /// Searches; blocks the calling thread, so async callers hand it to a blocking pool.
    ///
    /// An arm that has not finished at the deadline, or that failed, is missing from `coverage` and the other arm's
    /// hits are returned. The embedder cannot be interrupted: a call that began in time is waited for.
    ///
    /// # Errors
    /// An empty or overlong query; both arms late or broken.
    pub fn search(&self, query: &Query<'_>) -> Result<SearchResult, SearchError> {
        self.check(query)?;
        let view = self.live.view();
        let wanted = view.wanted(&query.filter);
        let limit = query.limit.clamp(1, self.limits.search_hits_max.max(1));
        let depth = DEPTH_MIN.max(2 * limit);
        let (lexical, vector) = match query.arms {
            Arms::Both => self.both_arms(&wanted, query, depth),
            Arms::Lexical => (self.lexical_arm(&wanted, query, depth), not_asked(Stage::Vector)),
            Arms::Vector => (not_asked(Stage::Lexical), self.vector_arm(&wanted, query, depth)),
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
        let cosine = |row| view.cosine(&embedded, row);
        let weight = |row: usize| view.passage(row).map_or(0.0, |one| weight(&one.headings));
        let mut fused = fuse(&lexical.ranked, &vector.ranked, cosine, weight);
        let document = |row: usize| view.passage(row).map_or("", |one| one.document_id.as_str());
        support(&mut fused, document, |row| view.passages_beside(row));
        spread(&mut fused, document);
        let hits = hits(&view, &fused, limit);
        timeline.add(Stage::Fuse, self.clock.now().since(began));
        Ok(SearchResult { hits, timeline, coverage, generation: view.generation })
    }

    fn check(&self, query: &Query<'_>) -> Result<(), SearchError> {
        let chars = query.text.chars().count();
        if chars > self.limits.query_chars_max {
            return Err(SearchError::QueryTooLong { chars, chars_max: self.limits.query_chars_max });
        }
        // Punctuation alone has no terms and no meaning that an embedder knows.
        match query.text.chars().any(char::is_alphanumeric) {
            true => Ok(()),
            false => Err(SearchError::EmptyQuery),
        }
    }

    /// The lexical arm on a thread of its own, the vector arm on this one.
    fn both_arms(&self, wanted: &[WantedPart<'_>], query: &Query<'_>, depth: usize) -> (Outcome, Outcome) {
        let lexical = || self.lexical_arm(wanted, query, depth);
        std::thread::scope(|scope| {
            let beside = std::thread::Builder::new().name("lexical".into()).spawn_scoped(scope, lexical);
            let vector = self.vector_arm(wanted, query, depth);
            let lexical = match beside {
                Ok(thread) => thread.join().unwrap_or_else(|_| broken(Stage::Lexical)),
                // No thread to be had: one after the other then, still within the deadline.
                Err(_) => lexical(),
            };
            (lexical, vector)
        })
    }

    fn lexical_arm(&self, wanted: &[WantedPart<'_>], query: &Query<'_>, depth: usize) -> Outcome {
        let began = self.clock.now();
        let search = || lexical::search(wanted, query.text, depth, (query.deadline, self.clock.as_ref()));
        let found = catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| Err(panicked()));
        Outcome {
            found: found.map_err(|error| (Stage::Lexical, error)),
            query: Vec::new(),
            spent: vec![(Stage::Lexical, began, self.clock.now())],
        }
    }

    fn vector_arm(&self, wanted: &[WantedPart<'_>], asked: &Query<'_>, depth: usize) -> Outcome {
        let began = self.clock.now();
        let embedded = catch_unwind(AssertUnwindSafe(|| self.embed_query(asked.text, asked.deadline)));
        let embedded = embedded.unwrap_or_else(|_| Err(panicked()));
        let between = self.clock.now();
        let mut spent = vec![(Stage::Embed, began, between)];
        let query = match embedded {
            Ok(query) => query,
            Err(error) => return Outcome { found: Err((Stage::Embed, error)), query: Vec::new(), spent },
        };
        let search = || vector::search(wanted, &query, depth, (asked.deadline, self.clock.as_ref()));
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
}

/// The first `limit` passages; of those that say the same in nearly the same words only the best.
fn hits(view: &View, fused: &[Fused], limit: usize) -> Vec<Hit> {
    let (mut hits, mut texts, mut runs) = (Vec::new(), HashSet::new(), Vec::new());
    for one in fused {
        let Some(passage) = view.passage(one.row).filter(|_| hits.len() < limit) else { continue };
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
