//! How does a command ask a question of its own? Through the answer pipeline, like the API, without a socket.

use crate::compose::Service;
use crate::config::Config;
use crate::failure::Failure;
use answer::{AnswerEvent, FinalReport, Question, Source};
use budgets::Deadline;
use engine::{Sampling, Tenant};
use index::OwnedFilter;
use std::time::Duration;

/// A whole answer.
pub struct Answered {
    /// What it may cite.
    pub sources: Vec<Source>,
    /// The answer and how it came about.
    pub report: FinalReport,
}

impl Answered {
    /// Sources that the answer cites, in the order of their first citation.
    pub fn cited(&self) -> Vec<&Source> {
        let mut cited: Vec<&Source> = Vec::new();
        for citation in self.report.sentences.iter().flat_map(|sentence| &sentence.citations) {
            let source = self.sources.iter().find(|source| source.number == citation.number);
            if let Some(source) = source.filter(|source| !cited.iter().any(|c| c.number == source.number)) {
                cited.push(source);
            }
        }
        cited
    }
}

/// Asks `text` with the configured settings; `piece` sees the answer's text as it comes.
///
/// # Errors
/// When the question is refused or no answer comes.
pub async fn ask(
    service: &Service,
    config: &Config,
    text: &str,
    mut piece: impl FnMut(&str) -> std::io::Result<()>,
) -> Result<Answered, Failure> {
    let arrived = service.clock.now();
    let deadline = Deadline::after(arrived, Duration::from_millis(config.limits.total_ms_max));
    let question = Question {
        text: text.to_string(),
        conversation: Vec::new(),
        filter: OwnedFilter::default(),
        passages_max: config.answer.passages_max,
        output_tokens_max: config.answer.output_tokens_max,
        sampling: Sampling::default(),
        arrived,
        first_token_deadline: deadline,
        deadline,
        tpot: None,
        tenant: Tenant::default(),
    };
    let mut stream = service.answerer.ask(question).map_err(Failure::new)?;
    let mut sources = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            AnswerEvent::Sources(found) => sources = found,
            AnswerEvent::Delta(text) => piece(&text)?,
            AnswerEvent::Final(report) => return Ok(Answered { sources, report: *report }),
            AnswerEvent::Failed(error) => return Err(Failure::new(error)),
        }
    }
    Err(Failure::new("the answer broke off without an end"))
}
