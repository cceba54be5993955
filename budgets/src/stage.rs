//! Where did the time go? The stages of the answer path and what each took.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A part of the answer path, in the order in which a question meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From the socket to the decision to take the request.
    Admit,
    /// Embedding of the query.
    Embed,
    /// BM25 search.
    Lexical,
    /// Nearest-neighbour search.
    Vector,
    /// Fusion of the two lists.
    Fuse,
    /// Passages into the prompt.
    Pack,
    /// Waiting for a place in the engine's batch.
    Queue,
    /// Prompt tokens through the model.
    Prefill,
    /// First token to last token.
    Decode,
    /// Sentences matched with their sources.
    Cite,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Stage; 10] = [
        Stage::Admit,
        Stage::Embed,
        Stage::Lexical,
        Stage::Vector,
        Stage::Fuse,
        Stage::Pack,
        Stage::Queue,
        Stage::Prefill,
        Stage::Decode,
        Stage::Cite,
    ];

    /// The name used in events, metrics and errors.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Admit => "admit",
            Stage::Embed => "embed",
            Stage::Lexical => "lexical",
            Stage::Vector => "vector",
            Stage::Fuse => "fuse",
            Stage::Pack => "pack",
            Stage::Queue => "queue",
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
            Stage::Cite => "cite",
        }
    }
}

/// How long each stage of one request took. Lexical and vector search overlap, so the sum may exceed the total.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    spent: Vec<(Stage, Duration)>,
}

impl Timeline {
    /// Adds `took` to `stage`.
    pub fn add(&mut self, stage: Stage, took: Duration) {
        match self.spent.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, spent)) => *spent += took,
            None => self.spent.push((stage, took)),
        }
    }

    /// What `stage` took, if it ran.
    pub fn get(&self, stage: Stage) -> Option<Duration> {
        self.spent.iter().find(|(known, _)| *known == stage).map(|(_, spent)| *spent)
    }

    /// Stages that ran, in path order.
    pub fn stages(&self) -> Vec<(Stage, Duration)> {
        let mut stages = self.spent.clone();
        stages.sort_by_key(|(stage, _)| *stage);
        stages
    }
}
