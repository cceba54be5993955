//! How does a query become hits within its deadline?

use crate::{Embed, IndexError, IndexInfo, Passage, PassageId, Query, SearchError, SearchResult};
use budgets::{Clock, Limits};
use std::path::Path;
use std::sync::Arc;

/// An open generation; searches run side by side on a shared reference.
pub struct Index {
    info: IndexInfo,
}

impl Index {
    /// Opens the current generation in `dir`.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn open(
        dir: &Path,
        embed: Arc<dyn Embed>,
        clock: Arc<dyn Clock>,
        limits: &Limits,
    ) -> Result<Index, IndexError> {
        let _ = (embed, clock, limits);
        Err(IndexError::Missing { dir: dir.to_path_buf() })
    }

    /// Searches; blocks the calling thread, so async callers hand it to a blocking pool.
    ///
    /// # Errors
    /// See [`SearchError`].
    pub fn search(&self, query: &Query<'_>) -> Result<SearchResult, SearchError> {
        let _ = query;
        Err(SearchError::EmptyQuery)
    }

    /// The passage with that name.
    pub fn get(&self, id: PassageId) -> Option<Arc<Passage>> {
        let _ = id;
        None
    }

    /// The passages of a document, in reading order; empty when the index has no such document.
    pub fn passages_of(&self, document_id: &str) -> Vec<Arc<Passage>> {
        let _ = document_id;
        Vec::new()
    }

    /// What was opened.
    pub fn info(&self) -> IndexInfo {
        self.info.clone()
    }
}
