//! How much do the query's terms weigh in each passage? BM25 over several fields at once (BM25F; Zaragoza and others,
//! TREC 2004): a term's occurrences in all fields are weighed and added up before they are damped, so that a passage
//! does not win by saying one word in its title, in its heading and in its text.
//!
//! Terms are taken one after another, the rarest first. So what has been counted when time runs out is the part that
//! tells passages apart best, and every passage has been judged by the same terms.

use crate::arm::{ArmError, Found, TopRows};
use crate::view::WantedPart;
use budgets::{Clock, Deadline};
use std::sync::Arc;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::Postings;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet, InvertedIndexReader, Searcher, SegmentReader, TERMINATED, Term};

/// Where a further occurrence of a term begins to count less; Anserini's default.
const SATURATION: f32 = 0.9;
/// Postings between two looks at the clock.
const POSTINGS_PER_CHECK: usize = 512;

/// How much a field counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldWeight {
    pub(crate) field: Field,
    /// What an occurrence in it is worth beside one in a field of weight 1.
    pub(crate) weight: f32,
    /// How far a long field devalues its terms: 0 not at all, 1 in proportion.
    pub(crate) length: f32,
}

/// A field in one segment.
struct FieldReader {
    weighed: FieldWeight,
    index: Arc<InvertedIndexReader>,
    norms: FieldNormReader,
    /// Mean length of the field over all segments, in terms.
    mean: f32,
}

/// One segment with the sums so far.
struct Segment<'a> {
    part: &'a WantedPart<'a>,
    reader: &'a SegmentReader,
    fields: Vec<FieldReader>,
    /// `[document]`: sum over the terms so far, and the weighed occurrences of the term at hand.
    scores: Vec<f32>,
    occurrences: Vec<f32>,
    /// Documents that hold the term at hand, and those with a score.
    holders: Vec<u32>,
    scored: Vec<u32>,
}

/// A term of the query.
struct Weighed<'a> {
    term: &'a str,
    /// Logarithm of its rarity.
    idf: f32,
}

/// What a search gives back.
pub(crate) struct Counted<'a> {
    pub(crate) found: Found,
    /// The terms that some passage holds, with the logarithm of their rarity.
    pub(crate) rarity: Vec<(&'a str, f32)>,
}

/// A part's text index, opened for one search.
pub(crate) type Opened<'a> = (Searcher, &'a WantedPart<'a>);

/// The best `depth` wanted rows of all parts for `terms`; a row's number within its part stands in the fast field `row`.
/// How rare a term is, and how long a field, is counted over all parts, dead rows included until they are written anew.
///
/// # Errors
/// `Expired` when not even one term was counted in time.
pub(crate) fn search<'a>(
    parts: &[Opened<'_>],
    fields: &[FieldWeight],
    row: &str,
    terms: &'a [String],
    depth: usize,
    (deadline, clock): (Deadline, &dyn Clock),
) -> Result<Counted<'a>, ArmError> {
    if deadline.expired(clock.now()) {
        return Err(ArmError::Expired);
    }
    let mut segments = open(parts, fields)?;
    let plan = weigh(&segments, terms)?;
    let whole: f32 = plan.iter().map(|one| one.idf).sum();
    let (mut counted, mut seen) = (0.0, 0);
    'terms: for one in &plan {
        for segment in &mut segments {
            if !segment.count(one.term, &mut seen, (deadline, clock))? {
                break 'terms;
            }
        }
        segments.iter_mut().for_each(|segment| segment.add(one.idf));
        counted += one.idf;
    }
    if counted == 0.0 && whole > 0.0 {
        return Err(ArmError::Expired);
    }
    let mut top = TopRows::new(depth);
    for segment in &segments {
        let rows = segment.reader.fast_fields().u64(row)?;
        for document in &segment.scored {
            let row = rows.first(*document).and_then(|row| usize::try_from(row).ok());
            if let Some(row) = row.filter(|row| segment.part.has(*row)) {
                top.offer(segment.part.first + row, segment.scores[*document as usize]);
            }
        }
    }
    let share = if whole > 0.0 { counted / whole } else { 1.0 };
    let rarity = plan.iter().map(|one| (one.term, one.idf)).collect();
    Ok(Counted { found: Found { ranked: top.into_ranked(), share }, rarity })
}

fn open<'a>(parts: &'a [Opened<'_>], fields: &[FieldWeight]) -> Result<Vec<Segment<'a>>, ArmError> {
    let of =
        |(searcher, part): &'a Opened<'_>| searcher.segment_readers().iter().map(move |one| (*part, one));
    let all: Vec<(&WantedPart<'_>, &SegmentReader)> = parts.iter().flat_map(of).collect();
    let documents: u64 = all.iter().map(|(_, one)| u64::from(one.max_doc())).sum();
    let mut means = Vec::new();
    for weighed in fields {
        let mut terms = 0;
        for (_, reader) in &all {
            terms += reader.inverted_index(weighed.field)?.total_num_tokens();
        }
        means.push((terms as f32 / documents.max(1) as f32).max(1.0));
    }
    let mut segments = Vec::new();
    for (part, reader) in all {
        let mut readers = Vec::new();
        for (weighed, mean) in fields.iter().zip(&means) {
            readers.push(FieldReader {
                weighed: *weighed,
                index: reader.inverted_index(weighed.field)?,
                norms: reader.get_fieldnorms_reader(weighed.field)?,
                mean: *mean,
            });
        }
        let numbers = || vec![0.0; reader.max_doc() as usize];
        segments.push(Segment {
            part,
            reader,
            fields: readers,
            scores: numbers(),
            occurrences: numbers(),
            holders: Vec::new(),
            scored: Vec::new(),
        });
    }
    Ok(segments)
}

/// The terms that some passage holds, rarest first. How many hold a term is taken from the field in which most do.
fn weigh<'a>(segments: &[Segment<'_>], terms: &'a [String]) -> Result<Vec<Weighed<'a>>, ArmError> {
    let documents: f32 = segments.iter().map(|segment| segment.scores.len() as f32).sum();
    let mut plan = Vec::new();
    for term in terms {
        let mut holders = 0.0f32;
        for segment in segments {
            let mut most = 0;
            for field in &segment.fields {
                let found = field.index.doc_freq(&Term::from_field_text(field.weighed.field, term));
                most = most.max(found.map_err(|error| ArmError::Failed(error.to_string()))?);
            }
            holders += most as f32;
        }
        if holders > 0.0 {
            let idf = (1.0 + (documents - holders + 0.5) / (holders + 0.5)).ln();
            plan.push(Weighed { term, idf });
        }
    }
    plan.sort_by(|a, b| b.idf.total_cmp(&a.idf));
    Ok(plan)
}

impl Segment<'_> {
    /// Counts a term's weighed occurrences; false when the time was over before all were counted.
    fn count(
        &mut self,
        term: &str,
        seen: &mut usize,
        (deadline, clock): (Deadline, &dyn Clock),
    ) -> Result<bool, ArmError> {
        for field in &self.fields {
            let FieldWeight { field: name, weight, length } = field.weighed;
            let term = Term::from_field_text(name, term);
            let postings = field.index.read_postings(&term, IndexRecordOption::WithFreqs);
            let Some(mut postings) = postings.map_err(|error| ArmError::Failed(error.to_string()))? else {
                continue;
            };
            let mut document = postings.doc();
            while document != TERMINATED {
                *seen += 1;
                if (*seen).is_multiple_of(POSTINGS_PER_CHECK) && deadline.expired(clock.now()) {
                    return Ok(false);
                }
                let terms = field.norms.fieldnorm(document) as f32;
                let devalued = 1.0 - length + length * terms / field.mean;
                let occurrences = &mut self.occurrences[document as usize];
                if *occurrences == 0.0 {
                    self.holders.push(document);
                }
                *occurrences += weight * postings.term_freq() as f32 / devalued;
                document = postings.advance();
            }
        }
        Ok(true)
    }

    /// Adds the counted term to the scores.
    fn add(&mut self, idf: f32) {
        for document in self.holders.drain(..) {
            let occurrences = std::mem::take(&mut self.occurrences[document as usize]);
            let score = &mut self.scores[document as usize];
            if *score == 0.0 {
                self.scored.push(document);
            }
            *score += idf * occurrences * (1.0 + SATURATION) / (occurrences + SATURATION);
        }
    }
}
