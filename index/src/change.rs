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

    /// Names of all documents that come or go.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &String> {
        self.delete.iter().chain(self.put.iter().map(|content| &content.info.id))
    }

    /// All changes as one.
    pub(crate) fn joined(changes: Vec<Change>) -> Change {
        let mut joined = Joined::default();
        changes.into_iter().for_each(|change| joined.add(change));
        joined.into_change()
    }
}

/// Changes of which only the last word on each document is kept, so that no number of them takes more room than the
/// documents that they name.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// By name: its place in the order in which documents were first named, and its content unless it is to go.
    last: HashMap<String, (usize, Option<Content>)>,
}

impl Joined {
    /// Adds a later change.
    pub(crate) fn add(&mut self, change: Change) {
        let gone = change.delete.into_iter().map(|id| (id, None));
        let come = change.put.into_iter().map(|content| (content.info.id.clone(), Some(content)));
        for (id, content) in gone.chain(come) {
            let at = self.last.len();
            self.last.entry(id).or_insert((at, None)).1 = content;
        }
    }

    /// Documents that are named.
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }

    /// As one change; documents stand in the order in which they were first named.
    pub(crate) fn into_change(self) -> Change {
        let mut words: Vec<_> = self.last.into_iter().collect();
        words.sort_by_key(|(_, (at, _))| *at);
        let mut change = Change::default();
        for (id, (_, content)) in words {
            match content {
                Some(content) => change.put.push(content),
                None => change.delete.push(id),
            }
        }
        change
    }
}
