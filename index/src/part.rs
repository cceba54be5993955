//! What is searched as one piece? Documents with their passages, a BM25 index and vectors: a generation from disk, or what a
//! few commits brought, in memory. Never changes once it is made.

use crate::change::Content;
use crate::generation::{LEXICAL, Opened};
use crate::lexical::Lexical;
use crate::rows::Rows;
use crate::vector::{EXACT_PASSAGES_MAX, Vectors};
use crate::{DocumentInfo, IndexError, Passage, PassageId, parse_id, rows};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A piece of an index; rows count from 0 in each.
pub(crate) struct Part {
    documents: Vec<DocumentInfo>,
    /// `[document]`: its first row; one more at the end.
    starts: Vec<usize>,
    by_id: HashMap<String, usize>,
    passages: Vec<Arc<Passage>>,
    row_of: HashMap<PassageId, usize>,
    /// `[row]`: its document.
    document_of: Vec<u32>,
    /// Some documents are a tenant's own.
    has_owners: bool,
    pub(crate) lexical: Lexical,
    pub(crate) vectors: Vectors,
}

impl Part {
    /// A generation, as it lies on disk.
    pub(crate) fn open(opened: &Opened) -> Result<Part, IndexError> {
        let manifest = &opened.manifest;
        let vectors = if manifest.passages > EXACT_PASSAGES_MAX {
            Vectors::open_graph(&opened.path)?
        } else {
            Vectors::Exact { dimensions: manifest.dimensions, values: rows::read_vectors(opened)? }
        };
        let lexical = Lexical::open(&opened.path.join(LEXICAL))?;
        let (documents, passages) = (rows::read_documents(opened)?, rows::read_passages(opened)?);
        Ok(Part::new(documents, passages, lexical, vectors))
    }

    /// Contents in memory.
    pub(crate) fn fresh(contents: Vec<Content>, dimensions: usize) -> Result<Part, IndexError> {
        let mut rows = Rows::default();
        contents.into_iter().for_each(|content| rows.push(content));
        let lexical = Lexical::in_memory(&rows.passages)?;
        let vectors = Vectors::Exact { dimensions, values: rows.vectors };
        Ok(Part::new(rows.documents, rows.passages, lexical, vectors))
    }

    fn new(
        documents: Vec<DocumentInfo>,
        passages: Vec<Arc<Passage>>,
        lexical: Lexical,
        vectors: Vectors,
    ) -> Part {
        let (mut starts, mut document_of) = (vec![0], Vec::with_capacity(passages.len()));
        for (at, info) in documents.iter().enumerate() {
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            document_of.extend(std::iter::repeat_n(number, info.passages));
            starts.push(document_of.len());
        }
        Part {
            by_id: documents.iter().enumerate().map(|(at, info)| (info.id.clone(), at)).collect(),
            row_of: passages.iter().enumerate().map(|(row, passage)| (passage.id, row)).collect(),
            has_owners: documents.iter().any(|info| parse_id(&info.id).0.is_some()),
            documents,
            starts,
            passages,
            document_of,
            lexical,
            vectors,
        }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.passages.len()
    }

    /// Whether some of its documents are a tenant's own, so that a search must look whose.
    pub(crate) fn has_owners(&self) -> bool {
        self.has_owners
    }

    /// All documents, dead ones too, each with its rows.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&DocumentInfo, Range<usize>)> {
        self.documents.iter().zip(self.starts.windows(2)).map(|(info, ends)| (info, ends[0]..ends[1]))
    }

    /// The document of that name, and its rows.
    pub(crate) fn document(&self, id: &str) -> Option<(&DocumentInfo, Range<usize>)> {
        let at = *self.by_id.get(id)?;
        Some((self.documents.get(at)?, *self.starts.get(at)?..*self.starts.get(at + 1)?))
    }

    /// The document that a row belongs to, and its number in this part.
    pub(crate) fn document_of(&self, row: usize) -> Option<(usize, &DocumentInfo)> {
        let number = *self.document_of.get(row)? as usize;
        Some((number, self.documents.get(number)?))
    }

    /// The passage of a row.
    pub(crate) fn passage(&self, row: usize) -> Option<&Arc<Passage>> {
        self.passages.get(row)
    }

    /// The row of a passage.
    pub(crate) fn row_of(&self, id: PassageId) -> Option<usize> {
        self.row_of.get(&id).copied()
    }

    /// A document with its passages and vectors, as it was put.
    pub(crate) fn content(&self, info: &DocumentInfo, rows: Range<usize>) -> Content {
        let vectors = rows.clone().filter_map(|row| self.vectors.get(row)).flatten().copied().collect();
        let passages = self.passages.get(rows).unwrap_or_default().to_vec();
        Content { info: info.clone(), passages, vectors }
    }
}
