//! How does a folder become an index that answers, and what does it hold?

use crate::live::Live;
use crate::part::Part;
use crate::view::View;
use crate::{
    CollectionInfo, DocumentInfo, Embed, Filter, IndexError, IndexInfo, Passage, PassageId, generation,
    journal, live, stored,
};
use budgets::{Clock, Limits};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// An open index; searches run side by side on a shared reference, each on the picture that stood when it began.
pub struct Index {
    pub(crate) live: Arc<Live>,
    pub(crate) embed: Arc<dyn Embed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("info", &self.info()).finish_non_exhaustive()
    }
}

/// The generation of `dir` with all that its journals changed, the journals' end, and the generation's manifest.
pub(crate) fn read(
    dir: &Path,
    embed: &dyn Embed,
) -> Result<(View, journal::Kept, generation::Manifest), IndexError> {
    generation::open(dir, |opened| {
        let manifest = &opened.manifest;
        if manifest.embedder != embed.id() || manifest.dimensions != embed.dimensions() {
            let name = |id: &str, dimensions: usize| format!("{id} ({dimensions} dimensions)");
            return Err(IndexError::OtherEmbedder {
                built_with: name(&manifest.embedder, manifest.dimensions),
                given: name(embed.id(), embed.dimensions()),
            });
        }
        let opened = opened.whole()?;
        let manifest = &opened.manifest;
        let mut kept = journal::read(dir, manifest.journal, manifest.dimensions)?;
        let view = View::new(manifest.generation, manifest.dimensions, Part::open(&opened)?);
        let view = view.with_all(std::mem::take(&mut kept.changes))?;
        Ok((view, kept, opened.manifest))
    })
}

impl Index {
    /// Opens the index in `dir` for reading and checks its files; embeds nothing. What another process puts later is not
    /// seen.
    ///
    /// # Errors
    /// `Missing`, `OtherEmbedder`, `OtherFormat`, or `Damaged` with the file's name.
    pub fn open(
        dir: &Path,
        embed: Arc<dyn Embed>,
        clock: Arc<dyn Clock>,
        limits: &Limits,
    ) -> Result<Index, IndexError> {
        let (view, ..) = read(dir, embed.as_ref())?;
        let live = Arc::new(Live::read_only(view));
        Ok(Index { live, embed, clock, limits: limits.clone() })
    }

    /// Opens the index in `dir` so that documents can be put and deleted, and makes an empty one where there is none.
    /// Files that are damaged are made anew from the stored documents, with a warning that names them.
    ///
    /// Keeps other writers out until it is dropped and the rebuild that may run has ended ([`Index::settle`]).
    ///
    /// # Errors
    /// `Busy`, `OtherEmbedder`, `OtherFormat`, a full disk, or `Damaged` when the stored documents themselves are.
    pub fn open_live(
        dir: &Path,
        embed: Arc<dyn Embed>,
        clock: Arc<dyn Clock>,
        limits: &Limits,
    ) -> Result<Index, IndexError> {
        let lock = generation::lock(dir)?;
        let (view, kept, manifest) = match read(dir, embed.as_ref()) {
            Err(IndexError::Missing { .. } | IndexError::Damaged { .. }) => {
                stored::write_anew(dir, embed.as_ref())?;
                read(dir, embed.as_ref())?
            }
            outcome => outcome?,
        };
        // A writer that was killed may have left what it was making or had replaced.
        generation::tidy(dir, &manifest);
        let journal = journal::Journal::resume(dir, &kept)?;
        let disk = live::Disk { dir: dir.to_path_buf(), embed: Arc::clone(&embed), _lock: lock };
        let live = Live::new(view, disk, journal, limits);
        Ok(Index { live, embed, clock, limits: limits.clone() })
    }

    /// The passage with that name.
    pub fn get(&self, id: PassageId) -> Option<Arc<Passage>> {
        self.live.view().get(id).cloned()
    }

    /// The passages of a document, in reading order; empty when the index has no such document.
    pub fn passages_of(&self, document_id: &str) -> Vec<Arc<Passage>> {
        self.live.view().passages_of(document_id)
    }

    /// What is known of a document.
    pub fn document(&self, id: &str) -> Option<DocumentInfo> {
        self.live.view().find(id).map(|(info, _)| info.clone())
    }

    /// The first `limit` documents that the filter wants, by name, from the first after the name `after`.
    pub fn documents(&self, filter: &Filter<'_>, after: Option<&str>, limit: usize) -> Vec<DocumentInfo> {
        let view = self.live.view();
        let later = |id: &str| after.is_none_or(|after| id > after);
        let mut found: Vec<&DocumentInfo> = view
            .documents()
            .map(|(_, info, _)| info)
            .filter(|info| later(&info.id) && filter.wants(info))
            .collect();
        found.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        found.into_iter().take(limit).cloned().collect()
    }

    /// Every document, whosever it is.
    pub(crate) fn all_documents(&self) -> Vec<DocumentInfo> {
        self.live.view().documents().map(|(_, info, _)| info.clone()).collect()
    }

    /// All collections with documents that the filter wants, by name, and how many of those each has.
    pub fn collections(&self, filter: &Filter<'_>) -> Vec<CollectionInfo> {
        let mut collections: BTreeMap<String, CollectionInfo> = BTreeMap::new();
        for (_, info, _) in self.live.view().documents().filter(|(_, info, _)| filter.wants(info)) {
            let name = &info.meta.collection;
            let one = collections.entry(name.clone()).or_insert_with(|| CollectionInfo {
                name: name.clone(),
                documents: 0,
                passages: 0,
            });
            one.documents += 1;
            one.passages += info.passages;
        }
        collections.into_values().collect()
    }

    /// What the index is at this moment.
    pub fn info(&self) -> IndexInfo {
        let view = self.live.view();
        IndexInfo {
            generation: view.generation,
            revision: view.revision,
            documents: view.documents().count(),
            passages: view.rows() - view.dead_rows(),
            passages_fresh: view.fresh_rows(),
            passages_dead: view.dead_rows(),
            embedder: self.embed.id().to_string(),
            is_writable: self.live.is_writable(),
        }
    }

    /// Writes a new generation of what is alive, and waits for it; searches and puts go on meanwhile. Text that was deleted
    /// or replaced before the call is on no file of the index any more when it has returned.
    ///
    /// # Errors
    /// `ReadOnly`, a full disk; the index is as it was then.
    pub fn compact(&self) -> Result<(), IndexError> {
        self.live.compact()
    }

    /// Waits until no rebuild is running.
    pub fn settle(&self) {
        self.live.settle();
    }
}
