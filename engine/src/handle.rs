//! How does a caller reach the engine? A handle that never blocks, and one stream per request.

use crate::shared::{Live, Shared, Submission};
use crate::worker::Worker;
use crate::{
    ChatMessage, Codec, CodecError, EngineStats, Event, FinishReason, Finished, GenerateRequest, StepRecord,
    SubmitError, Timing, Usage, settings,
};
use budgets::{Clock, Deadline, LimitError, Limits};
use sched::{Policy, Runner, RunnerLimits, TokenId};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc;

/// A loaded model.
pub struct EngineModel {
    /// The name that the API shows.
    pub id: String,
    /// Computes steps.
    pub runner: Box<dyn Runner>,
    /// Text to tokens and back.
    pub codec: Arc<dyn Codec>,
    /// Time that the start may spend on measuring how long the runner's steps take; zero spends none, and the engine
    /// learns it from the first requests.
    pub calibration: Duration,
}

/// What the engine runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// See [`EngineModel::id`].
    pub model_id: String,
    /// Longest sequence, prompt and answer together.
    pub context_tokens_max: usize,
    /// Positions in a KV block.
    pub block_tokens: usize,
    /// KV blocks.
    pub blocks_total: usize,
    /// Size of the vocabulary; token ids lie below it.
    pub vocab_tokens: usize,
}

/// An engine that cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The bounds contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitError),
    /// The runner has nothing to run on.
    #[error("the runner cannot be used: {0}")]
    Runner(String),
    /// The system gives no thread.
    #[error("the engine's thread could not start: {0}")]
    Thread(#[from] std::io::Error),
}

/// The handle to a running engine; clones reach the same one. The engine ends when the last handle is gone and the
/// last stream has ended.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    /// Dropped before `wake`, so that the thread, when woken, finds the channel closed.
    submissions: SyncSender<Submission>,
    model_id: String,
    codec: Arc<dyn Codec>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    runner: RunnerLimits,
    wake: WakeOnDrop,
}

struct WakeOnDrop(Arc<Shared>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Engine {
    /// Starts the engine's thread, after measuring the runner; see [`EngineModel::calibration`].
    ///
    /// # Errors
    /// When the limits contradict each other, the runner has no blocks, or there is no thread.
    pub fn start(
        model: EngineModel,
        clock: Arc<dyn Clock>,
        limits: &Limits,
        policy: &Policy,
    ) -> Result<Engine, StartError> {
        let calibration = model.calibration;
        let (engine, mut worker) = Self::assemble(model, clock, limits, policy)?;
        worker.calibrate(calibration);
        let thread = std::thread::Builder::new().name("engine".to_string()).spawn(move || worker.run())?;
        engine.shared().set_thread(thread.thread().clone());
        Ok(engine)
    }

    /// The engine without its thread: a test turns the worker by hand.
    pub(crate) fn assemble(
        model: EngineModel,
        clock: Arc<dyn Clock>,
        limits: &Limits,
        policy: &Policy,
    ) -> Result<(Engine, Worker), StartError> {
        limits.check()?;
        let runner = model.runner.limits();
        if runner.block_tokens == 0 || runner.blocks_total == 0 || runner.context_tokens_max < 2 {
            return Err(StartError::Runner(format!("{runner:?} leaves no room for a sequence")));
        }
        let blocks = EngineStats {
            blocks_free: runner.blocks_total,
            blocks_total: runner.blocks_total,
            ..EngineStats::default()
        };
        let shared = Shared::new(limits.queue_requests_max, blocks);
        // Whoever sends holds a place in the queue, so a channel of as many slots is never full.
        let (submissions, received) = std::sync::mpsc::sync_channel(limits.queue_requests_max);
        let worker = Worker::new(
            model.runner,
            Arc::clone(&model.codec),
            Arc::clone(&clock),
            (limits, policy),
            received,
            Arc::clone(&shared),
        );
        let inner = Inner {
            submissions,
            model_id: model.id,
            codec: model.codec,
            clock,
            limits: limits.clone(),
            runner,
            wake: WakeOnDrop(shared),
        };
        Ok((Engine { inner: Arc::new(inner) }, worker))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.wake.0
    }

    /// Asks for an answer. Never waits for the engine; a constraint is prepared on the caller's thread, which takes
    /// milliseconds, and longer for the first of all.
    ///
    /// # Errors
    /// See [`SubmitError`]; a request that is refused costs nothing.
    pub fn submit(&self, request: GenerateRequest) -> Result<Generation, SubmitError> {
        let inner = &*self.inner;
        let shared = self.shared();
        let live = Live::new(shared);
        if shared.closed() {
            return Err(SubmitError::ShuttingDown);
        }
        settings::check(&request, &inner.limits, &inner.runner)?;
        let place = shared.take_place().map_err(|waiting| SubmitError::QueueFull { waiting })?;
        // With a place in hand: a queue that is full costs no preparation.
        let constraint = request.constraint.as_ref().map(|constraint| inner.codec.constrain(constraint));
        let grammar =
            constraint.transpose().map_err(|error| SubmitError::InvalidConstraint(error.to_string()))?;
        // One delta a token, one for what was held back, one end: a reader that is slow holds up nobody.
        let (events, received) = mpsc::channel(request.output_tokens_max + 2);
        let submission = Submission { request, submitted: inner.clock.now(), events, grammar, place, live };
        inner.submissions.try_send(submission).map_err(|refused| match refused {
            TrySendError::Full(_) => SubmitError::QueueFull { waiting: shared.waiting() },
            TrySendError::Disconnected(_) => SubmitError::ShuttingDown,
        })?;
        shared.wake();
        Ok(Generation { events: received, shared: Arc::clone(shared), finished: false })
    }

    /// Tokens of plain text.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        self.inner.codec.encode(text)
    }

    /// Tokens of a conversation, ready for the assistant's turn.
    ///
    /// # Errors
    /// When the model's template refuses the conversation.
    pub fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, CodecError> {
        self.inner.codec.encode_chat(messages)
    }

    /// What it runs on.
    pub fn info(&self) -> EngineInfo {
        let runner = self.inner.runner;
        EngineInfo {
            model_id: self.inner.model_id.clone(),
            context_tokens_max: runner.context_tokens_max,
            block_tokens: runner.block_tokens,
            blocks_total: runner.blocks_total,
            vocab_tokens: runner.vocab_tokens,
        }
    }

    /// What it has done, as of its last step.
    pub fn stats(&self) -> EngineStats {
        self.shared().stats()
    }

    /// What its last steps did, after step number `after` (0 for all that are kept), oldest first.
    pub fn step_records(&self, after: u64) -> Vec<StepRecord> {
        self.shared().records.after(after)
    }

    /// Refuses new requests at once, lets those taken end, cancels what is left at `deadline`, and returns when
    /// nothing is left. A drained engine stays closed.
    pub async fn drain(&self, deadline: Deadline) {
        self.close(deadline);
        self.shared().all_ended().await;
    }

    /// The part of a drain that does not wait.
    pub(crate) fn close(&self, deadline: Deadline) {
        self.shared().close(deadline);
    }
}

/// The stream of one request. Dropping it cancels the request, whatever its phase.
pub struct Generation {
    events: mpsc::Receiver<Event>,
    shared: Arc<Shared>,
    finished: bool,
}

impl Generation {
    /// The next event; `None` after [`Event::Finished`], which comes exactly once.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        self.last_is_finished(event)
    }

    /// A stream whose sender is gone without an end means that the engine's thread died; its reader still gets one.
    fn last_is_finished(&mut self, event: Option<Event>) -> Option<Event> {
        let event = match event {
            None if self.finished => return None,
            None => Event::Finished(Finished {
                reason: FinishReason::Failed("the engine stopped".to_string()),
                usage: Usage::default(),
                timing: Timing::default(),
            }),
            Some(event) => event,
        };
        self.finished |= matches!(event, Event::Finished(_));
        Some(event)
    }

    /// What can be read without waiting.
    #[cfg(test)]
    pub(crate) fn ready(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // Closed before the thread is woken, so that it finds the stream closed; an idle engine sleeps until then.
        self.events.close();
        self.shared.wake();
    }
}
