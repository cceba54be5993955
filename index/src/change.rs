//! What does one commit change? Documents that come, with all that search needs of them, and documents that go.

use crate::{DocumentInfo, Passage};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// A document, its passages in reading order and their vectors behind one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) info: DocumentInfo,
    pub(crate) passages: Vec<Arc<Passage>>,
    /// Stored apart from the rest, as bytes.
    #[serde(skip)]
    pub(crate) vectors: Vec<f32>,
}

/// What a commit does, whole or not at all. A document that is put replaces the one of its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) put: Vec<Content>,
    pub(crate) delete: Vec<String>,
}

impl Change {
    /// Passages that come.
    pub(crate) fn passages(&self) -> usize {
        self.put.iter().map(|content| content.passages.len()).sum()
    }

    /// All changes as one: of each document only the last word counts. Documents stand in the order in which
    /// they were first named.
    pub(crate) fn joined(changes: Vec<Change>) -> Change {
        let mut last: HashMap<String, (usize, Option<Content>)> = HashMap::new();
        for change in changes {
            for id in change.delete {
                let at = last.len();
                last.entry(id).or_insert((at, None)).1 = None;
            }
            for content in change.put {
                let at = last.len();
                let id = content.info.id.clone();
                last.entry(id).or_insert((at, None)).1 = Some(content);
            }
        }
        let mut words: Vec<_> = last.into_iter().collect();
        words.sort_by_key(|(_, (at, _))| *at);
        let mut joined = Change::default();
        for (id, (_, content)) in words {
            match content {
                Some(content) => joined.put.push(content),
                None => joined.delete.push(id),
            }
        }
        joined
    }
}
