//! What does a question give back? Events of the stream and the report at its end.

use crate::AnswerError;
use budgets::Timeline;
use engine::{FinishReason, Usage};
use index::{Hit, SourceSpan};
use std::time::Duration;

/// A piece of the answer stream.
#[derive(Clone, Debug)]
pub enum AnswerEvent {
    /// What the answer may cite; the first event, empty when nothing was found.
    Sources(Vec<Source>),
    /// The next piece of the checked answer; all of them together are [`FinalReport::text`].
    Delta(String),
    /// The last event of an answer.
    Final(Box<FinalReport>),
    /// The last event of an answer that could not be given.
    Failed(AnswerError),
}

/// A passage that stands in the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The n of `[n]`, from 1.
    pub number: usize,
    /// Title of its document.
    pub title: String,
    /// Headings above it, outermost first.
    pub headings: Vec<String>,
    /// Path of the file as it was given to the index.
    pub source: String,
    /// Where in the file.
    pub span: SourceSpan,
    /// Its text.
    pub text: String,
    /// Fused score of the search; comparable within one answer only.
    pub score: f32,
    /// Name of its document.
    pub document_id: String,
    /// Name of the passage.
    pub passage_id: u64,
}

impl Source {
    /// The hit as source `number`.
    pub fn new(number: usize, hit: &Hit) -> Self {
        let passage = &hit.passage;
        Self {
            number,
            title: passage.title.clone(),
            headings: passage.headings.clone(),
            source: passage.source.clone(),
            span: passage.span,
            text: passage.text.clone(),
            score: hit.score,
            document_id: passage.document_id.clone(),
            passage_id: passage.id.0,
        }
    }

    /// Title and headings in one line: `title > heading > heading`.
    pub fn path(&self) -> String {
        let mut path = self.title.clone();
        for heading in &self.headings {
            path.push_str(" > ");
            path.push_str(heading);
        }
        path
    }
}

/// A citation that stands in the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CitationReport {
    /// Number of the source.
    pub number: usize,
    /// How well that source bears the sentence, 0 to 1; see [`crate::Bearing`].
    pub support: f32,
}

/// A sentence of the answer. Fenced code is none and is not listed.
#[derive(Clone, Debug, PartialEq)]
pub struct SentenceReport {
    /// The sentence with its citations.
    pub text: String,
    /// Its first byte in the answer.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
    /// What bears it; empty when it cites nothing and no source clearly bears it.
    pub citations: Vec<CitationReport>,
    /// The service added the citation.
    pub attributed: bool,
}

/// The answer and how it came about.
#[derive(Clone, Debug)]
pub struct FinalReport {
    /// The checked answer; every citation in it names a source.
    pub text: String,
    /// Its sentences in order.
    pub sentences: Vec<SentenceReport>,
    /// Citations that named no source, or one that does not bear the sentence.
    pub citations_removed: usize,
    /// Citations that the service added.
    pub citations_added: usize,
    /// False when the documents hold no answer and the text says so.
    pub grounded: bool,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens; zero when the model was not asked.
    pub usage: Usage,
    /// What each stage took.
    pub timeline: Timeline,
    /// From arrival to the sources.
    pub time_to_sources: Duration,
    /// From arrival to the first piece of text; `None` when none came.
    pub first_token: Option<Duration>,
    /// From arrival to this report.
    pub total: Duration,
    /// What was left out to keep the limits; empty when nothing was.
    pub degraded: Vec<String>,
    /// The model's id.
    pub model: String,
    /// The index generation that was searched.
    pub generation: u64,
}
