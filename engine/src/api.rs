//! What can be asked of the engine, and what does it answer with?

use budgets::Deadline;
use sched::{KvSpace, Sampling, Tenant, TokenId};
use std::time::Duration;
use thiserror::Error;

/// One request to the engine.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The prompt as tokens; see [`crate::Engine::encode_chat`] and [`crate::Engine::encode`].
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The answer ends before the first of these; they are not part of it.
    pub stop: Vec<String>,
    /// At most this many tokens are made.
    pub output_tokens_max: usize,
    /// The first token must come by then; one that comes later is not part of the answer.
    pub first_token_deadline: Deadline,
    /// The last token must come by then; tokens that come later are not part of the answer.
    pub deadline: Deadline,
    /// The longest mean time between tokens that the caller bears; it bounds the prefill that joins its steps.
    pub tpot: Option<Duration>,
    /// The answer does not end before this many tokens, unless a stop string or a deadline ends it.
    pub output_tokens_min: usize,
    /// What the answer's text must conform to.
    pub constraint: Option<Constraint>,
    /// Whose KV this is: cached blocks past `shared_tokens` serve this tenant alone.
    pub tenant: Tenant,
    /// The prompt's first tokens that every tenant may share, because the service wrote them: the system prefix.
    pub shared_tokens: usize,
    /// What else KV depends on.
    pub space: KvSpace,
}

impl GenerateRequest {
    /// A request for at most `output_tokens_max` tokens after `prompt`, with defaults for everything else: greedy,
    /// without deadlines, of no tenant, nothing shared.
    pub fn new(prompt: Vec<TokenId>, output_tokens_max: usize) -> Self {
        Self {
            prompt,
            sampling: Sampling::default(),
            stop: Vec::new(),
            output_tokens_max,
            first_token_deadline: Deadline::NEVER,
            deadline: Deadline::NEVER,
            tpot: None,
            output_tokens_min: 0,
            constraint: None,
            tenant: Tenant::default(),
            shared_tokens: 0,
            space: KvSpace::default(),
        }
    }
}

/// What an answer's text must conform to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// JSON that this JSON schema (as JSON text) describes; `{}` takes any JSON.
    JsonSchema(String),
    /// Text that this regular expression matches as a whole.
    Regex(String),
}

/// A token of the answer with its probability; see [`Sampling::top_logprobs`].
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: TokenId,
    /// Its bytes: a part of a character, at times.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability under the model, before temperature and filters.
    pub logprob: f32,
    /// The likeliest tokens in its place: bytes and logarithmic probability, likeliest first.
    pub top: Vec<(TokenId, Vec<u8>, f32)>,
}

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Text that will not change any more.
    Delta(Delta),
    /// The last event of every stream, exactly once.
    Finished(Finished),
}

/// New text. It never splits a character and holds no part of a stop string.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// May be empty in the last delta of a stream.
    pub text: String,
    /// The tokens since the delta before, when the request asked for their probabilities. Text that is held back comes
    /// with a later delta, so tokens and text line up only over the whole stream.
    pub tokens: Vec<TokenLogprob>,
}

/// How and why a stream ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Why.
    pub reason: FinishReason,
    /// Tokens.
    pub usage: Usage,
    /// Times.
    pub timing: Timing,
}

/// Why a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its answer.
    EndOfText,
    /// A stop string came.
    StopString(String),
    /// `output_tokens_max` or the model's context was reached.
    Length,
    /// A deadline passed while the request waited.
    ExpiredInQueue,
    /// A deadline passed while the prompt was computed.
    ExpiredInPrefill,
    /// The deadline passed while tokens were made; the text so far is valid.
    ExpiredInDecode,
    /// The caller went away or cancelled.
    Cancelled,
    /// The step failed; the message says how.
    Failed(String),
}

impl FinishReason {
    /// The reason without its particulars, as metrics name it.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::EndOfText => "end_of_text",
            FinishReason::StopString(_) => "stop_string",
            FinishReason::Length => "length",
            FinishReason::ExpiredInQueue => "expired_in_queue",
            FinishReason::ExpiredInPrefill => "expired_in_prefill",
            FinishReason::ExpiredInDecode => "expired_in_decode",
            FinishReason::Cancelled => "cancelled",
            FinishReason::Failed(_) => "failed",
        }
    }
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens whose KV was already there.
    pub cached_tokens: usize,
    /// Tokens made, the one that ends the answer among them.
    pub completion_tokens: usize,
}

/// Times of one request, all from its submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Submission to the first step that computed something for it.
    pub queue: Duration,
    /// From there to the first token.
    pub prefill: Duration,
    /// First token to last.
    pub decode: Duration,
    /// Submission to the first token; `None` if none came.
    pub first_token: Option<Duration>,
}

/// A request that the engine does not take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// The queue is full: try again later.
    #[error("the engine's queue is full ({waiting} requests wait)")]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
    },
    /// Nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt cannot fit.
    #[error("the prompt has {tokens} tokens and at most {max} fit")]
    PromptTooLong {
        /// Its tokens.
        tokens: usize,
        /// What fits.
        max: usize,
    },
    /// A setting is out of range; the message names it.
    #[error("{0}")]
    InvalidSetting(String),
    /// The constraint cannot be followed; the message says why.
    #[error("the constraint: {0}")]
    InvalidConstraint(String),
    /// The engine is shutting down.
    #[error("the engine is shutting down")]
    ShuttingDown,
}
