//! What does the caller of one request see? Its text, its times and its one end.

use crate::shared::{Live, Submission};
use crate::text::TextStream;
use crate::{Delta, Event, FinishReason, Finished, GenerateRequest, Grammar, Timing, TokenLogprob, Usage};
use budgets::Moment;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The loop thread's end of a [`crate::Generation`].
pub(crate) struct Stream {
    events: mpsc::Sender<Event>,
    text: TextStream,
    /// Not yet passed on; see [`Delta::tokens`].
    tokens: Vec<TokenLogprob>,
    wants_tokens: bool,
    grammar: Option<Box<dyn Grammar>>,
    usage: Usage,
    submitted: Moment,
    started: Option<Moment>,
    first_token: Option<Moment>,
    last_token: Option<Moment>,
    place: Option<OwnedSemaphorePermit>,
    /// Last, so that a drain that sees no live request finds every other part gone.
    _live: Live,
}

impl Stream {
    /// Splits a submission into the caller's stream and the request.
    pub(crate) fn new(submission: Submission) -> (Self, GenerateRequest) {
        let Submission { mut request, submitted, events, grammar, place, live } = submission;
        let stream = Self {
            events,
            text: TextStream::new(std::mem::take(&mut request.stop)),
            tokens: Vec::new(),
            wants_tokens: request.sampling.top_logprobs.is_some(),
            grammar,
            usage: Usage { prompt_tokens: request.prompt.len(), ..Usage::default() },
            submitted,
            started: None,
            first_token: None,
            last_token: None,
            place: Some(place),
            _live: live,
        };
        (stream, request)
    }

    /// Nobody reads it any more.
    pub(crate) fn gone(&self) -> bool {
        self.events.is_closed()
    }

    pub(crate) fn submitted(&self) -> Moment {
        self.submitted
    }

    /// A step that began at `now` computes something for it.
    pub(crate) fn start(&mut self, now: Moment) {
        self.started.get_or_insert(now);
        self.place = None;
    }

    /// Its prompt's tokens that were found in the prefix cache.
    pub(crate) fn set_cached(&mut self, tokens: usize) {
        self.usage.cached_tokens = tokens.min(self.usage.prompt_tokens);
    }

    /// The constraint on its text.
    pub(crate) fn grammar(&mut self) -> Option<&mut dyn Grammar> {
        self.grammar.as_deref_mut().map(|grammar| grammar as _)
    }

    /// The caller wants to know the tokens' probabilities.
    pub(crate) fn wants_tokens(&self) -> bool {
        self.wants_tokens
    }

    /// Keeps a token for the next delta.
    pub(crate) fn add_token(&mut self, token: TokenLogprob) {
        self.tokens.push(token);
    }

    /// Counts a token made at `now`; tells whether it is the first, and the time since the token before it, or since
    /// the submission.
    pub(crate) fn count(&mut self, now: Moment) -> (bool, Duration) {
        let before = self.last_token.replace(now);
        self.first_token.get_or_insert(now);
        self.usage.completion_tokens += 1;
        (before.is_none(), now.since(before.unwrap_or(self.submitted)))
    }

    /// Passes on what the token's bytes make certain; a stop string ends the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<FinishReason> {
        let piece = self.text.push(bytes);
        if !piece.text.is_empty() {
            self.send_text(piece.text);
        }
        piece.stop.map(FinishReason::StopString)
    }

    /// Passes on what was held back and settles how the stream ended; [`Stream::deliver`] tells the caller.
    pub(crate) fn close(&mut self, reason: FinishReason, now: Moment) -> Finished {
        self.place = None;
        let piece = self.text.finish();
        if !(piece.text.is_empty() && self.tokens.is_empty()) {
            self.send_text(piece.text);
        }
        let reason = piece.stop.map_or(reason, FinishReason::StopString);
        Finished { reason, usage: self.usage, timing: self.timing(now) }
    }

    /// Sends the last event.
    pub(crate) fn deliver(self, finished: Finished) {
        self.send(Event::Finished(finished));
    }

    fn timing(&self, now: Moment) -> Timing {
        let started = self.started.unwrap_or(now);
        let first = self.first_token.unwrap_or(now);
        Timing {
            queue: started.since(self.submitted),
            prefill: first.since(started),
            decode: self.last_token.map_or_else(Default::default, |last| last.since(first)),
            first_token: self.first_token.map(|first| first.since(self.submitted)),
        }
    }

    fn send_text(&mut self, text: String) {
        let tokens = std::mem::take(&mut self.tokens);
        self.send(Event::Delta(Delta { text, tokens }));
    }

    fn send(&self, event: Event) {
        // The channel has room for one delta a token, what was held back, and the end, so it is never full; a reader
        // that is gone is noticed before the next step.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.events.try_send(event) {
            tracing::error!("an event was dropped: the stream's channel is too small");
            debug_assert!(false, "the stream's channel is too small");
        }
    }
}
