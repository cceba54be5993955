//! What does a search see? One unchanging picture of the index: a generation, the parts that came since, and which rows
//! of them are dead. A commit makes a new picture that shares all parts with the old one but the last few.

use crate::change::{Change, Content};
use crate::part::Part;
use crate::{DocumentInfo, Filter, IndexError, Passage, PassageId};
use std::ops::Range;
use std::sync::Arc;

/// A commit joins the last part when that has at most this many times the rows of what comes after it, so that there
/// are few parts, and each row is indexed anew only a few times.
const JOIN_TIMES: usize = 2;

/// A picture of the index. Rows count through all parts.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) generation: u64,
    /// Counts the commits since the generation was made.
    pub(crate) revision: u64,
    dimensions: usize,
    /// The generation first; each with the number of its first row.
    parts: Vec<(usize, Arc<Part>)>,
    dead: Dead,
}

/// Rows that no search may find any more.
#[derive(Clone, Debug, Default)]
struct Dead {
    bits: Arc<Vec<u64>>,
    count: usize,
}

impl Dead {
    fn has(&self, row: usize) -> bool {
        self.bits.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    fn add(&mut self, rows: Range<usize>) {
        for row in rows.filter(|row| !self.has(*row)).collect::<Vec<_>>() {
            let bits = Arc::make_mut(&mut self.bits);
            if bits.len() <= row / 64 {
                bits.resize(row / 64 + 1, 0);
            }
            bits[row / 64] |= 1 << (row % 64);
            self.count += 1;
        }
    }

    /// Forgets all rows from `first` on.
    fn cut(&mut self, first: usize) {
        let bits = Arc::make_mut(&mut self.bits);
        bits.truncate(first.div_ceil(64));
        if let Some(last) = bits.get_mut(first / 64) {
            *last &= (1 << (first % 64)) - 1;
        }
        self.count = bits.iter().map(|word| word.count_ones() as usize).sum();
    }
}

/// A part with what a query wants of it.
pub(crate) struct WantedPart<'v> {
    pub(crate) part: &'v Part,
    /// Number of its first row.
    pub(crate) first: usize,
    /// Rows that are wanted.
    pub(crate) count: usize,
    dead: Option<&'v Dead>,
    /// `[document]`: whether it is wanted; absent when all are.
    documents: Option<Vec<bool>>,
}

impl WantedPart<'_> {
    /// Whether a row of the part is alive and wanted.
    pub(crate) fn has(&self, row: usize) -> bool {
        self.dead.is_none_or(|dead| !dead.has(self.first + row))
            && self.documents.as_ref().is_none_or(|wanted| {
                self.part.document_of(row).is_some_and(|(number, _)| wanted.get(number) == Some(&true))
            })
    }
}

impl View {
    /// A generation as it was made.
    pub(crate) fn new(generation: u64, dimensions: usize, part: Part) -> View {
        View { generation, revision: 0, dimensions, parts: vec![(0, Arc::new(part))], dead: Dead::default() }
    }

    /// The picture after a change.
    pub(crate) fn with(&self, change: Change) -> Result<View, IndexError> {
        let mut next = View { revision: self.revision + 1, ..self.clone() };
        for id in change.ids() {
            if let Some((_, rows)) = self.find(id) {
                next.dead.add(rows);
            }
        }
        if !change.put.is_empty() {
            next.push(change.put)?;
        }
        Ok(next)
    }

    /// The picture after all these changes.
    pub(crate) fn with_all(self, changes: Vec<Change>) -> Result<View, IndexError> {
        if changes.is_empty() { Ok(self) } else { self.with(Change::joined(changes)) }
    }

    /// Adds contents as the last part, together with those parts before it that are not much larger.
    fn push(&mut self, mut contents: Vec<Content>) -> Result<(), IndexError> {
        let mut rows: usize = contents.iter().map(|content| content.passages.len()).sum();
        // The generation stays as it is.
        while self.parts.len() > 1
            && let Some((first, part)) = self.parts.last()
            && part.rows() <= JOIN_TIMES * rows
        {
            let mut joined: Vec<Content> = part
                .documents()
                .filter(|(_, rows)| !self.dead.has(first + rows.start))
                .map(|(info, rows)| part.content(info, rows))
                .collect();
            rows += joined.iter().map(|content| content.passages.len()).sum::<usize>();
            joined.append(&mut contents);
            contents = joined;
            self.dead.cut(*first);
            self.parts.pop();
        }
        let first = self.rows();
        self.parts.push((first, Arc::new(Part::fresh(contents, self.dimensions)?)));
        Ok(())
    }

    /// Rows, dead ones too.
    pub(crate) fn rows(&self) -> usize {
        self.parts.last().map_or(0, |(first, part)| first + part.rows())
    }

    /// Rows that came after the generation, dead ones too.
    pub(crate) fn fresh_rows(&self) -> usize {
        self.rows() - self.parts.first().map_or(0, |(_, part)| part.rows())
    }

    /// Rows that are dead.
    pub(crate) fn dead_rows(&self) -> usize {
        self.dead.count
    }

    /// All documents that are alive, in order, each with its part, its info and its rows within the part.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&Part, &DocumentInfo, Range<usize>)> {
        self.parts.iter().flat_map(move |(first, part)| {
            part.documents()
                .filter(move |(_, rows)| !self.dead.has(first + rows.start))
                .map(|(info, rows)| (part.as_ref(), info, rows))
        })
    }

    /// The living document of that name, and its rows.
    pub(crate) fn find(&self, id: &str) -> Option<(&DocumentInfo, Range<usize>)> {
        self.parts.iter().rev().find_map(|(first, part)| {
            let (info, rows) = part.document(id)?;
            (!self.dead.has(first + rows.start)).then_some((info, first + rows.start..first + rows.end))
        })
    }

    /// The living document of that name with its passages and vectors.
    pub(crate) fn content(&self, id: &str) -> Option<Content> {
        let (info, rows) = self.find(id)?;
        let (first, part) = self.part(rows.start)?;
        Some(part.content(info, rows.start - first..rows.end - first))
    }

    /// The passages of a document, in reading order.
    pub(crate) fn passages_of(&self, id: &str) -> Vec<Arc<Passage>> {
        let rows = self.find(id).map_or(0..0, |(_, rows)| rows);
        rows.filter_map(|row| self.passage(row).cloned()).collect()
    }

    fn part(&self, row: usize) -> Option<(usize, &Part)> {
        let at = self.parts.partition_point(|(first, _)| *first <= row).checked_sub(1)?;
        self.parts.get(at).map(|(first, part)| (*first, part.as_ref()))
    }

    /// The passage of a row.
    pub(crate) fn passage(&self, row: usize) -> Option<&Arc<Passage>> {
        self.part(row).and_then(|(first, part)| part.passage(row - first))
    }

    /// Passages of the document that a row belongs to.
    pub(crate) fn passages_beside(&self, row: usize) -> usize {
        self.part(row)
            .and_then(|(first, part)| part.document_of(row - first))
            .map_or(0, |(_, info)| info.passages)
    }

    /// The living passage of that name.
    pub(crate) fn get(&self, id: PassageId) -> Option<&Arc<Passage>> {
        self.parts.iter().rev().find_map(|(first, part)| {
            let row = part.row_of(id).filter(|row| !self.dead.has(first + row))?;
            part.passage(row)
        })
    }

    /// The cosine of a query and one row.
    pub(crate) fn cosine(&self, query: &[f32], row: usize) -> Option<f32> {
        self.part(row).and_then(|(first, part)| part.vectors.cosine(query, row - first))
    }

    /// What a filter leaves of each part; dead rows are never wanted.
    pub(crate) fn wanted(&self, filter: &Filter<'_>) -> Vec<WantedPart<'_>> {
        let wanted = self.parts.iter().map(|(first, part)| {
            let dead = (self.dead.count > 0).then_some(&self.dead);
            let documents = (*filter != Filter::ALL || part.has_owners())
                .then(|| part.documents().map(|(info, _)| filter.wants(info)).collect::<Vec<bool>>());
            let count = match (dead, &documents) {
                (None, None) => part.rows(),
                _ => part
                    .documents()
                    .enumerate()
                    .filter(|(at, (_, rows))| {
                        !self.dead.has(first + rows.start)
                            && documents.as_ref().is_none_or(|wanted| wanted.get(*at) == Some(&true))
                    })
                    .map(|(_, (_, rows))| rows.len())
                    .sum(),
            };
            WantedPart { part, first: *first, count, dead, documents }
        });
        wanted.collect()
    }
}
