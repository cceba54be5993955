//! How does a question become a cited answer? The whole path, in one function.

use crate::citer::Citer;
use crate::pack::{Packed, Room, pack, shared_tokens};
use crate::question::{check_text, validate};
use crate::retrieve::{bears, left_out, search_text};
use crate::{
    AnswerError, AnswerEvent, AnswerSettings, AnswerStream, Bearing, FinalReport, Question, SentenceReport,
    Source, prompt,
};
use budgets::{Clock, Deadline, Limits, Moment, Stage, Timeline};
use engine::{Engine, Event, FinishReason, Finished, GenerateRequest, Generation, Usage};
use index::{Arms, Coverage, Index, OwnedFilter, Query, SearchResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Events that wait for the caller; when it is slow, the pipeline waits with it.
const EVENTS_WAITING_MAX: usize = 16;

/// Answers questions from an index with an engine. Cheap to clone.
#[derive(Clone)]
pub struct Answerer {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    index: Arc<Index>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    settings: AnswerSettings,
    /// First prompt tokens that every question has: the instructions.
    shared_tokens: usize,
    /// One permit per question under way: what the engine can hold, so that searches are bounded too.
    places: Arc<Semaphore>,
    places_total: usize,
}

impl Answerer {
    /// Puts the parts together.
    pub fn new(
        engine: Engine,
        index: Arc<Index>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        settings: AnswerSettings,
    ) -> Self {
        let places_total = limits.queue_requests_max.saturating_add(limits.running_sequences_max).max(1);
        let places = Arc::new(Semaphore::new(places_total.min(Semaphore::MAX_PERMITS)));
        let shared_tokens = shared_tokens(&|messages| engine.encode_chat(messages));
        let shared = Shared { engine, index, clock, limits, settings, shared_tokens, places, places_total };
        Self { shared: Arc::new(shared) }
    }

    /// The settings, for callers that name no number of their own.
    pub fn settings(&self) -> &AnswerSettings {
        &self.shared.settings
    }

    /// Takes a question. The stream does the work as it is read, and dropping it cancels everything. It must be read
    /// within a tokio runtime.
    ///
    /// # Errors
    /// What is known at the door: a bad question, a deadline that has passed, or too many questions under way.
    pub fn ask(&self, question: Question) -> Result<AnswerStream, AnswerError> {
        validate(&question, &self.shared.limits, self.shared.clock.now())?;
        let place = self.place()?;
        let (events, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let shared = self.shared.clone();
        let work = async move {
            let mut path = Path::new(&shared, &question, &events);
            let last = match path.pipeline().await {
                Ok(report) => AnswerEvent::Final(Box::new(report)),
                Err(error) => AnswerEvent::Failed(error),
            };
            drop(place);
            path.send(last).await;
        };
        Ok(AnswerStream::new(receiver, Box::pin(work)))
    }

    /// Searches without asking the model.
    ///
    /// # Errors
    /// A bad query, a deadline that passed, or a failed search.
    pub async fn search(
        &self,
        text: &str,
        filter: &OwnedFilter,
        limit: usize,
        deadline: Deadline,
    ) -> Result<SearchResult, AnswerError> {
        check_text(text, &self.shared.limits)?;
        if !(1..=self.shared.limits.search_hits_max).contains(&limit) {
            let max = self.shared.limits.search_hits_max;
            return Err(AnswerError::InvalidSetting(format!(
                "limit must lie between 1 and {max}, not {limit}"
            )));
        }
        let place = self.place()?;
        let what = (text.to_string(), filter.clone());
        let result = search(&self.shared.index, what, limit, deadline).await;
        drop(place);
        result
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, AnswerError> {
        let busy = |_| AnswerError::Busy { in_flight: self.shared.places_total };
        self.shared.places.clone().try_acquire_owned().map_err(busy)
    }
}

/// One question on its way.
struct Path<'a> {
    shared: &'a Shared,
    question: &'a Question,
    events: &'a mpsc::Sender<AnswerEvent>,
    timeline: Timeline,
    degraded: Vec<String>,
    generation: u64,
    time_to_sources: Duration,
    first_token: Option<Duration>,
}

/// What the model wrote, checked.
struct Written {
    text: String,
    sentences: Vec<SentenceReport>,
    removed: usize,
    added: usize,
    grounded: bool,
    finish: FinishReason,
    usage: Usage,
}

impl<'a> Path<'a> {
    fn new(shared: &'a Shared, question: &'a Question, events: &'a mpsc::Sender<AnswerEvent>) -> Self {
        Self {
            shared,
            question,
            events,
            timeline: Timeline::default(),
            degraded: Vec::new(),
            generation: 0,
            time_to_sources: Duration::ZERO,
            first_token: None,
        }
    }

    /// The whole path: search, decide whether anything bears on the question, pack, generate, cite, report.
    async fn pipeline(&mut self) -> Result<FinalReport, AnswerError> {
        self.timeline.add(Stage::Admit, self.elapsed());
        let searched =
            search_text(&self.question.text, &self.question.conversation, self.shared.limits.query_chars_max);
        let result = self.retrieve(&searched).await?;
        if !bears(&result, &searched, &self.shared.settings) {
            let written = self.say_nothing_found(&result).await;
            return Ok(self.report(written));
        }
        let sources: Vec<Source> =
            result.hits.iter().enumerate().map(|(place, hit)| Source::new(place + 1, hit)).collect();
        let (packed, sources) = self.pack(sources).await?;
        let bearing = Bearing::new(
            sources.iter().map(|source| format!("{}\n{}", source.path(), source.text)),
            &searched,
        );
        // Submitted before anything is shown: a full queue is then a plain error, not one behind a first event.
        let generation = self.submit(packed)?;
        self.show_sources(sources).await;
        let written = self.write(generation, Citer::new(bearing)).await?;
        Ok(self.report(written))
    }

    /// Searches within a share of the time that is left until the first token is due.
    async fn retrieve(&mut self, searched: &str) -> Result<SearchResult, AnswerError> {
        let settings = &self.shared.settings;
        let deadline = self.first_deadline().share(self.now(), settings.retrieval_share);
        let limit = self.question.passages_max;
        let what = (searched.to_string(), self.question.filter.clone());
        let result = search(&self.shared.index, what, limit, deadline).await?;
        for (stage, took) in result.timeline.stages() {
            self.timeline.add(stage, took);
        }
        self.generation = result.generation;
        self.degraded.extend(left_out(result.coverage).map(str::to_string));
        self.check_deadline(Stage::Fuse)?;
        Ok(result)
    }

    /// Packs the prompt on a blocking thread, since it runs the tokenizer; returns the sources that stand in it.
    async fn pack(&mut self, mut sources: Vec<Source>) -> Result<(Packed, Vec<Source>), AnswerError> {
        let began = self.now();
        let info = self.shared.engine.info();
        let left = info.context_tokens_max.saturating_sub(self.question.output_tokens_max);
        let room = Room {
            tokens_max: left.min(self.shared.limits.prompt_tokens_max),
            turns_max: self.shared.settings.conversation_turns_max,
        };
        let engine = self.shared.engine.clone();
        let (turns, question) = (self.question.conversation.clone(), self.question.text.clone());
        let packing = tokio::task::spawn_blocking(move || {
            let packed = pack(&sources, &turns, &question, room, &|messages| engine.encode_chat(messages))?;
            sources.truncate(packed.sources);
            Ok((packed, sources))
        });
        let (mut packed, sources) = joined(packing.await)?;
        self.degraded.append(&mut packed.degraded);
        self.timeline.add(Stage::Pack, self.now().since(began));
        self.check_deadline(Stage::Pack)?;
        Ok((packed, sources))
    }

    fn submit(&self, packed: Packed) -> Result<Generation, AnswerError> {
        let request = GenerateRequest {
            sampling: self.question.sampling.clone(),
            first_token_deadline: self.question.first_token_deadline,
            deadline: self.question.deadline,
            tpot: self.question.tpot,
            tenant: self.question.tenant,
            shared_tokens: self.shared.shared_tokens,
            ..GenerateRequest::new(packed.tokens, self.question.output_tokens_max)
        };
        self.shared.engine.submit(request).map_err(AnswerError::Engine)
    }

    /// Streams the model's text through the citation check.
    async fn write(&mut self, mut generation: Generation, mut citer: Citer) -> Result<Written, AnswerError> {
        let mut citing = Duration::ZERO;
        let mut finished = None;
        while let Some(event) = generation.next().await {
            match event {
                Event::Delta(delta) => {
                    let began = self.now();
                    let checked = citer.push(&delta.text);
                    citing += self.now().since(began);
                    self.show(checked).await;
                }
                Event::Finished(last) => {
                    finished = Some(last);
                    break;
                }
            }
        }
        let Some(finished) = finished else {
            return Err(AnswerError::Generation("the engine's stream broke off".to_string()));
        };
        self.timeline.add(Stage::Queue, finished.timing.queue);
        self.timeline.add(Stage::Prefill, finished.timing.prefill);
        self.timeline.add(Stage::Decode, finished.timing.decode);
        check_finish(&finished)?;
        let began = self.now();
        let (rest, checked) = citer.finish();
        self.timeline.add(Stage::Cite, citing + self.now().since(began));
        self.show(rest).await;
        let cited = checked.sentences.iter().any(|sentence| !sentence.citations.is_empty());
        Ok(Written {
            text: checked.text,
            sentences: checked.sentences,
            removed: checked.removed,
            added: checked.added,
            grounded: cited || !checked.refused,
            finish: finished.reason,
            usage: finished.usage,
        })
    }

    /// No passage bears on the question: says so without asking the model, which would have to invent.
    async fn say_nothing_found(&mut self, result: &SearchResult) -> Written {
        let whole = result.coverage == Coverage::WHOLE;
        let text = if whole { prompt::NOTHING_FOUND } else { prompt::NOTHING_FOUND_IN_TIME }.to_string();
        self.show_sources(Vec::new()).await;
        self.show(text.clone()).await;
        let sentence = SentenceReport {
            text: text.clone(),
            start: 0,
            end: text.len(),
            citations: Vec::new(),
            attributed: false,
        };
        Written {
            text,
            sentences: vec![sentence],
            removed: 0,
            added: 0,
            grounded: false,
            finish: FinishReason::EndOfText,
            usage: Usage::default(),
        }
    }

    async fn show_sources(&mut self, sources: Vec<Source>) {
        self.time_to_sources = self.elapsed();
        self.send(AnswerEvent::Sources(sources)).await;
    }

    async fn show(&mut self, text: String) {
        if !text.is_empty() {
            self.first_token.get_or_insert(self.now().since(self.question.arrived));
            self.send(AnswerEvent::Delta(text)).await;
        }
    }

    /// A closed channel needs no answer here: it means that the stream was dropped, and this future with it.
    async fn send(&self, event: AnswerEvent) {
        let _ = self.events.send(event).await;
    }

    fn report(&mut self, written: Written) -> FinalReport {
        FinalReport {
            text: written.text,
            sentences: written.sentences,
            citations_removed: written.removed,
            citations_added: written.added,
            grounded: written.grounded,
            finish: written.finish,
            usage: written.usage,
            timeline: std::mem::take(&mut self.timeline),
            time_to_sources: self.time_to_sources,
            first_token: self.first_token,
            total: self.elapsed(),
            degraded: std::mem::take(&mut self.degraded),
            model: self.shared.engine.info().model_id,
            generation: self.generation,
        }
    }

    fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    fn elapsed(&self) -> Duration {
        self.now().since(self.question.arrived)
    }

    fn first_deadline(&self) -> Deadline {
        self.question.first_token_deadline.min(self.question.deadline)
    }

    fn check_deadline(&self, stage: Stage) -> Result<(), AnswerError> {
        if self.first_deadline().expired(self.now()) { Err(AnswerError::Expired { stage }) } else { Ok(()) }
    }
}

async fn search(
    index: &Arc<Index>,
    (text, filter): (String, OwnedFilter),
    limit: usize,
    deadline: Deadline,
) -> Result<SearchResult, AnswerError> {
    let index = index.clone();
    let searching = tokio::task::spawn_blocking(move || {
        index
            .search(&Query { text: &text, limit, deadline, arms: Arms::Both, filter: filter.as_filter() })
            .map_err(AnswerError::from)
    });
    joined(searching.await)
}

/// A blocking task that panicked is a failed request, not a failed process.
fn joined<T>(result: Result<Result<T, AnswerError>, tokio::task::JoinError>) -> Result<T, AnswerError> {
    result.unwrap_or_else(|error| Err(AnswerError::Internal(error.to_string())))
}

/// Which endings leave an answer to show?
fn check_finish(finished: &Finished) -> Result<(), AnswerError> {
    match &finished.reason {
        FinishReason::EndOfText
        | FinishReason::StopString(_)
        | FinishReason::Length
        | FinishReason::ExpiredInDecode => Ok(()),
        FinishReason::ExpiredInQueue => Err(AnswerError::Expired { stage: Stage::Queue }),
        FinishReason::ExpiredInPrefill => Err(AnswerError::Expired { stage: Stage::Prefill }),
        FinishReason::Cancelled => Err(AnswerError::Generation("cancelled by the engine".to_string())),
        FinishReason::Failed(message) => Err(AnswerError::Generation(message.clone())),
    }
}
