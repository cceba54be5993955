//! Which passages share the query's terms, and hold them close together? BM25 in tantivy over title, headings and text.

use crate::arm::{ArmError, Found};
use crate::bm25::{self, Counted, FieldWeight};
use crate::near;
use crate::view::WantedPart;
use crate::{IndexError, Passage};
use budgets::{Clock, Deadline};
use std::path::Path;
use std::sync::Arc;
use tantivy::directory::RamDirectory;
use tantivy::schema::{FAST, Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter,
    TextAnalyzer, TokenizerManager,
};
use tantivy::{Index, IndexReader, ReloadPolicy, TantivyDocument};

/// Name of the analyzer; part of the format, because terms in the index are this analyzer's.
const ANALYZER: &str = "english";
/// Memory for terms before they go to disk, and for those of a part in memory, which go nowhere.
const WRITER_BYTES: usize = 64 << 20;
const MEMORY_BYTES: usize = 15 << 20;
/// Longest word that is indexed, in bytes.
const WORD_BYTES_MAX: usize = 60;
/// Most different terms of one query that are looked up; later ones are left out.
const QUERY_TERMS_MAX: usize = 128;

/// Weight of each field, and how far its length devalues its terms. Title and headings say what a passage is about, yet
/// they repeat over all passages of a document or section; their lengths say little.
const TITLE: (f32, f32) = (1.2, 0.3);
const HEADINGS: (f32, f32) = (1.3, 0.3);
const TEXT: (f32, f32) = (1.0, 0.4);

/// What nearness counts beside BM25; chosen on the tuning half of SciFact.
const NEARNESS: f32 = 0.25;

/// An open lexical index.
pub(crate) struct Lexical {
    reader: IndexReader,
    analyzer: TextAnalyzer,
    fields: Fields,
}

#[derive(Clone, Copy)]
struct Fields {
    row: Field,
    title: Field,
    headings: Field,
    text: Field,
}

const ROW: &str = "row";

fn schema() -> (Schema, Fields) {
    // Positions are left out: there are no phrase queries, and they are the largest part of an index.
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(ANALYZER)
        .set_index_option(IndexRecordOption::WithFreqs)
        .set_fieldnorms(true);
    let words = TextOptions::default().set_indexing_options(indexing);
    let mut schema = Schema::builder();
    let row = schema.add_u64_field(ROW, FAST);
    let title = schema.add_text_field("title", words.clone());
    let headings = schema.add_text_field("headings", words.clone());
    let text = schema.add_text_field("text", words);
    (schema.build(), Fields { row, title, headings, text })
}

fn analyzer() -> Result<TextAnalyzer, IndexError> {
    let stop_words = StopWordFilter::new(Language::English)
        .ok_or_else(|| IndexError::Lexical("no English stop words in this build".into()))?;
    Ok(TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(WORD_BYTES_MAX))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .filter(stop_words)
        .filter(Stemmer::new(Language::English))
        .build())
}

/// Writes the lexical index of `passages` into the empty folder `dir`; a passage's row is its place in the slice.
pub(crate) fn write(dir: &Path, passages: &[Arc<Passage>]) -> Result<(), IndexError> {
    let (schema, fields) = schema();
    let index = Index::create_in_dir(dir, schema)?;
    index.tokenizers().register(ANALYZER, analyzer()?);
    // One thread, so that the same passages give the same segments.
    let mut writer = index.writer_with_num_threads(1, WRITER_BYTES)?;
    for (row, passage) in passages.iter().enumerate() {
        writer.add_document(fields.document(row, passage))?;
    }
    writer.commit()?;
    Ok(writer.wait_merging_threads()?)
}

impl Fields {
    fn document(&self, row: usize, passage: &Passage) -> TantivyDocument {
        let mut document = TantivyDocument::new();
        document.add_u64(self.row, row as u64);
        document.add_text(self.title, &passage.title);
        document.add_text(self.headings, passage.headings.join("\n"));
        document.add_text(self.text, &passage.text);
        document
    }
}

impl From<tantivy::TantivyError> for ArmError {
    fn from(error: tantivy::TantivyError) -> Self {
        ArmError::Failed(error.to_string())
    }
}

impl From<tantivy::TantivyError> for IndexError {
    fn from(error: tantivy::TantivyError) -> Self {
        IndexError::Lexical(error.to_string())
    }
}

impl Lexical {
    /// Opens what [`write`] wrote.
    pub(crate) fn open(dir: &Path) -> Result<Lexical, IndexError> {
        let index = Index::open_in_dir(dir)?;
        let analyzer = analyzer()?;
        index.tokenizers().register(ANALYZER, analyzer.clone());
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        Ok(Lexical { reader, analyzer, fields: schema().1 })
    }

    /// An index of `passages` in memory; a passage's row is its place in the slice.
    pub(crate) fn in_memory(passages: &[Arc<Passage>]) -> Result<Lexical, IndexError> {
        let (schema, fields) = schema();
        let (manager, analyzer) = (TokenizerManager::default(), analyzer()?);
        manager.register(ANALYZER, analyzer.clone());
        let builder = Index::builder().schema(schema).tokenizers(manager);
        let mut writer = builder.single_segment_index_writer(RamDirectory::default(), MEMORY_BYTES)?;
        for (row, passage) in passages.iter().enumerate() {
            writer.add_document(fields.document(row, passage))?;
        }
        let index = writer.finalize()?;
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        Ok(Lexical { reader, analyzer, fields })
    }

    /// The different terms of a text.
    fn terms(&self, text: &str) -> Vec<String> {
        let mut terms: Vec<String> = Vec::new();
        let mut analyzer = self.analyzer.clone();
        let mut stream = analyzer.token_stream(text);
        while terms.len() < QUERY_TERMS_MAX && stream.advance() {
            let term = &stream.token().text;
            if !terms.contains(term) {
                terms.push(term.clone());
            }
        }
        terms
    }
}

/// The best `depth` of the wanted passages for `text`, best first, by their rows through all parts; none when no term of
/// it is left after stop words. What was counted when the deadline came is given back.
///
/// Terms are taken from the text by the analyzer; the text never meets a query parser, so no text is malformed.
pub(crate) fn search(
    parts: &[WantedPart<'_>],
    text: &str,
    depth: usize,
    (deadline, clock): (Deadline, &dyn Clock),
) -> Result<Found, ArmError> {
    let Some(lexical) = parts.first().map(|one| &one.part.lexical) else { return Ok(Found::NOTHING) };
    let Fields { title, headings, text: body, .. } = lexical.fields;
    let fields = [(title, TITLE), (headings, HEADINGS), (body, TEXT)]
        .map(|(field, (weight, length))| FieldWeight { field, weight, length });
    let terms = lexical.terms(text);
    let searchers: Vec<_> = parts.iter().map(|one| (one.part.lexical.reader.searcher(), one)).collect();
    let Counted { mut found, rarity } =
        bm25::search(&searchers, &fields, ROW, &terms, depth, (deadline, clock))?;
    let (terms, rarity): (Vec<&str>, Vec<f32>) = rarity.into_iter().unzip();
    let mut analyzer = lexical.analyzer.clone();
    // The best come first, so a deadline in between leaves each with its lead.
    for ranked in &mut found.ranked {
        if deadline.expired(clock.now()) {
            break;
        }
        let holder = parts.iter().rev().find(|one| one.first <= ranked.row);
        if let Some(passage) = holder.and_then(|one| one.part.passage(ranked.row - one.first)) {
            ranked.score += NEARNESS * nearness(&mut analyzer, passage, &terms, &rarity);
        }
    }
    found.ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    Ok(found)
}

/// How close together the terms stand in a passage's title, headings and text, each taken by itself.
fn nearness(analyzer: &mut TextAnalyzer, passage: &Passage, terms: &[&str], rarity: &[f32]) -> f32 {
    let mut sums = vec![0.0; terms.len()];
    let headings = passage.headings.iter().map(|heading| (heading.as_str(), HEADINGS.0));
    let fields = [(passage.title.as_str(), TITLE.0), (passage.text.as_str(), TEXT.0)];
    for (text, weight) in headings.chain(fields) {
        let mut places = near::Places::new();
        let mut stream = analyzer.token_stream(text);
        while stream.advance() {
            let token = stream.token();
            if let Some(term) = terms.iter().position(|term| *term == token.text) {
                places.push((token.position, term));
            }
        }
        near::pair(&places, rarity, weight, &mut sums);
    }
    near::score(&sums, rarity)
}
