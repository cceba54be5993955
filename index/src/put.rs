//! How does a document come into an open index, and leave it? Parsed, embedded and committed; on disk and found by the
//! next search once the call has answered.

use crate::change::{Change, Content};
use crate::digest::{Label, digest, rename_taken};
use crate::document::check_id;
use crate::ingest::{Format, KINDS};
use crate::split::{Counter, Named};
use crate::vectorize::{Known, vectorize};
use crate::view::View;
use crate::{DocumentInfo, Index, IndexError, Meta, Origin};
use std::collections::HashSet;
use std::path::Path;

/// A document to be put.
#[derive(Clone, Debug)]
pub struct NewDocument {
    /// Its name; a document of that name is replaced.
    pub id: String,
    /// Name of a file, whose ending tells the format.
    pub file_name: String,
    /// Path or address that it comes from, shown with citations.
    pub source: String,
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// What is said about it.
    pub meta: Meta,
    /// How it comes in.
    pub origin: Origin,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was none of that name.
    Created,
    /// It took the place of another.
    Replaced,
    /// It stood there already, byte for byte; nothing was parsed or embedded.
    Unchanged,
}

impl Index {
    /// Puts one document; blocks the calling thread. When it returns, the document is on disk and is found.
    ///
    /// # Errors
    /// `Document` for a bad name, an unknown format or a file without text; `TooManyPassages`, `Embed`, `ReadOnly`, `Behind`,
    /// `Io`.
    pub fn put(&self, document: NewDocument) -> Result<(Outcome, DocumentInfo), IndexError> {
        self.put_all(vec![document]).pop().unwrap_or(Err(IndexError::ReadOnly))
    }

    /// Puts documents as one commit, their passages embedded together; one outcome for each, in order. A document that
    /// cannot be indexed costs itself only; of several with one name the last one stands.
    pub fn put_all(&self, documents: Vec<NewDocument>) -> Vec<Result<(Outcome, DocumentInfo), IndexError>> {
        if !self.live.is_writable() {
            return documents.iter().map(|_| Err(IndexError::ReadOnly)).collect();
        }
        let view = self.live.view();
        let counter = Counter::new(self.embed.as_ref());
        let mut new = HashSet::new();
        let mut prepare = |document: NewDocument| {
            // What stands there under a name that this batch has given anew already is not what will stand there.
            let id = document.id.clone();
            let prepared = self.prepare(document, (!new.contains(&id)).then_some(&view), &counter);
            if matches!(prepared, Ok(Prepared::New(_))) {
                new.insert(id);
            }
            prepared
        };
        let prepared: Vec<_> = documents.into_iter().map(&mut prepare).collect();
        let outcomes = self.commit(&view, &prepared);
        let told = |(at, one): (usize, Result<Prepared, IndexError>)| match (one?, &outcomes) {
            (Prepared::Known(info), _) => Ok((Outcome::Unchanged, info)),
            (Prepared::New(content), Ok(outcomes)) => Ok((outcomes[at], content.info)),
            (Prepared::New(_), Err(error)) => Err(error.clone()),
        };
        prepared.into_iter().enumerate().map(told).collect()
    }

    /// Deletes documents; gives for each whether there was one of that name. When it returns, none is found any more.
    ///
    /// # Errors
    /// `ReadOnly`, `Io`.
    pub fn delete(&self, ids: &[&str]) -> Result<Vec<bool>, IndexError> {
        self.live.commit(|view| {
            let found: Vec<bool> = ids.iter().map(|id| view.find(id).is_some()).collect();
            let there = ids.iter().zip(&found).filter(|(_, found)| **found);
            let delete = there.map(|(id, _)| (*id).to_string()).collect();
            (Change { put: Vec::new(), delete }, found)
        })
    }

    /// Parses a document, unless it stands in `view` as it is.
    fn prepare(
        &self,
        document: NewDocument,
        view: Option<&View>,
        counter: &Counter<'_>,
    ) -> Result<Prepared, IndexError> {
        let NewDocument { id, file_name, source, bytes, meta, origin } = document;
        let wrong = |problem: String| IndexError::Document { id: id.clone(), problem };
        check_id(&id).map_err(wrong)?;
        let meta = meta.checked().map_err(wrong)?;
        let format = Format::of(Path::new(&file_name))
            .ok_or_else(|| wrong(format!("{file_name:?} has no ending of a known format ({KINDS})")))?;
        let sha256 = crate::generation::sha256(&bytes);
        if let Some((info, _)) = view.and_then(|view| view.find(&id))
            && info.sha256 == sha256
            && info.meta == meta
            && info.source == source
            && info.format == format.name()
            && info.origin == origin
        {
            return Ok(Prepared::Known(info.clone()));
        }
        let named = Named { document_id: &id, source: &source };
        let label = Label { named, format, meta: &meta, origin, sha256: &sha256 };
        let content = digest(&label, bytes, counter, &self.limits).map_err(wrong)?;
        let (passages, passages_max) = (content.passages.len(), self.limits.live_passages_max);
        if passages > passages_max {
            return Err(IndexError::TooManyPassages { passages, passages_max });
        }
        Ok(Prepared::New(content))
    }

    /// Embeds what is new and commits it; gives what became of each.
    fn commit(
        &self,
        view: &View,
        prepared: &[Result<Prepared, IndexError>],
    ) -> Result<Vec<Outcome>, IndexError> {
        let dimensions = self.embed.dimensions();
        let new = || prepared.iter().flatten().filter_map(Prepared::as_new);
        let mut known = Known::default();
        new()
            .filter_map(|content| view.content(&content.info.id))
            .for_each(|old| known.add(&old, dimensions));
        let passages: Vec<_> = new().flat_map(|content| content.passages.iter().cloned()).collect();
        let made = vectorize(&passages, &known, self.embed.as_ref(), &mut |_, _| {})?;
        let mut vectors = made.vectors.into_iter();
        let contents = new().map(|content| {
            let vectors = vectors.by_ref().take(content.passages.len() * dimensions).collect();
            Change { put: vec![Content { vectors, ..content.clone() }], delete: Vec::new() }
        });
        let mut change = Change::joined(contents.collect());
        self.live.commit(|view| {
            let going: HashSet<&str> = new().map(|content| content.info.id.as_str()).collect();
            let mut taken = HashSet::new();
            for content in &mut change.put {
                rename_taken(content, |id| {
                    let holder = view.get(id).map(|passage| passage.document_id.as_str());
                    holder.is_none_or(|holder| going.contains(holder)) && taken.insert(id)
                });
            }
            let mut seen = HashSet::new();
            let outcomes = prepared.iter().map(|one| match one {
                Ok(Prepared::New(content)) => {
                    let id = content.info.id.as_str();
                    let was_there = !seen.insert(id) || view.find(id).is_some();
                    if was_there { Outcome::Replaced } else { Outcome::Created }
                }
                _ => Outcome::Unchanged,
            });
            let outcomes = outcomes.collect();
            (std::mem::take(&mut change), outcomes)
        })
    }
}

/// A document on its way in.
enum Prepared {
    /// As it stands in the index.
    Known(DocumentInfo),
    /// To be embedded.
    New(Content),
}

impl Prepared {
    fn as_new(&self) -> Option<&Content> {
        match self {
            Prepared::New(content) => Some(content),
            Prepared::Known(_) => None,
        }
    }
}
