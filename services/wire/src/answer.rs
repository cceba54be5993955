//! How is a question asked and an answer streamed?
//!
//! The events of a stream, in order: one `sources` ([`SourcesEvent`]), any number of `delta` ([`DeltaEvent`]), then
//! exactly one `final` ([`FinalEvent`]) or `error` ([`crate::ErrorBody`]).

use crate::{Filter, Source};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Who said a message of the conversation so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person.
    User,
    /// The service.
    Assistant,
}

/// A message of the conversation so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who.
    pub role: Role,
    /// What.
    pub content: String,
}

/// Time limits in milliseconds, counted from the arrival of the request. The headers `x-slo-ttft-ms`, `x-slo-tpot-ms` and
/// `x-slo-total-ms` mean the same; the tighter of the two applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Until the first token of the answer. A request that cannot keep it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttft_ms: Option<u64>,
    /// Mean time per output token after the first. While the answer streams, other prompts are computed in pieces that
    /// keep its steps within this; it ends no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub tpot_ms: Option<u64>,
    /// Until the last event. Nothing is computed after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub total_ms: Option<u64>,
}

/// Body of `POST /v1/answer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    /// What to answer.
    #[schema(example = "When does speculative decoding pay?")]
    pub question: String,
    /// Earlier messages, oldest first, for follow-up questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conversation: Vec<Message>,
    /// Which documents the answer may draw on; all that the caller may see when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Most passages in the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub passages_max: Option<usize>,
    /// Most tokens in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_tokens: Option<usize>,
    /// 0 (the default) takes the most likely token each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f32>,
    /// Keep the smallest set of tokens whose probability reaches this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// Keep the k most likely tokens; 0 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Drop tokens below this share of the most likely one's probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Same seed, question and settings: same answer. Drawn when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Above 1 makes repeating a token less likely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(exclusive_minimum = 0, maximum = 2)]
    pub repetition_penalty: Option<f32>,
    /// Events as they come (the default), or one JSON document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(default = true)]
    pub stream: Option<bool>,
    /// Time limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
}

/// Data of the first event, `sources`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SourcesEvent {
    /// Names the answer; `POST /v1/cancel/{id}` ends it.
    pub id: String,
    /// What the answer may cite, by number.
    pub sources: Vec<Source>,
    /// From arrival to this event, milliseconds.
    pub time_to_sources_ms: f64,
}

/// Data of a `delta` event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeltaEvent {
    /// The next piece of the checked answer; all of them together are the final event's text.
    pub text: String,
}

/// A source that bears a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Citation {
    /// Number of the source.
    pub number: usize,
    /// How well it bears the sentence, 0 to 1.
    pub support: f32,
}

/// A sentence of the answer and what bears it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sentence {
    /// The sentence.
    pub text: String,
    /// First byte in the final text (UTF-8).
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
    /// What bears it; empty when nothing does.
    pub citations: Vec<Citation>,
    /// The service added the citation; the model had given none.
    pub attributed: bool,
}

/// What the citation check changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CitationCounts {
    /// Citations that named no source or one that does not bear the sentence.
    pub removed: usize,
    /// Citations added to sentences that had none.
    pub added: usize,
}

/// Why the answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it, or a stop string did.
    Stop,
    /// `max_tokens` or the model's context was reached.
    Length,
    /// The deadline passed; the text so far is valid.
    Deadline,
    /// The caller cancelled it. Such an answer ends with `error` today, not with `final`.
    Cancelled,
    /// The engine failed. Such an answer ends with `error` today, not with `final`.
    Failed,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens whose KV was already there.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub completion_tokens: usize,
    /// Prompt and answer together.
    pub total_tokens: usize,
}

/// Where the time went, milliseconds from the arrival of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timing {
    /// Until the sources were known.
    pub time_to_sources_ms: f64,
    /// Until the first token; absent when none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Mean time per output token after the first; absent below two tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    /// Until this event.
    pub total_ms: f64,
    /// By stage. Lexical and vector search overlap, so the sum may exceed the total.
    pub stages_ms: BTreeMap<String, f64>,
}

/// Which of the limits asked for were kept; absent where none was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SloOutcome {
    /// First token in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_met: Option<bool>,
    /// Pace kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_met: Option<bool>,
    /// Finished in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_met: Option<bool>,
}

/// Data of the last event, `final`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FinalEvent {
    /// Names the answer.
    pub id: String,
    /// Which model wrote it.
    pub model: String,
    /// The answer after the citation check; every `[n]` in it names a source.
    pub text: String,
    /// The answer sentence by sentence.
    pub sentences: Vec<Sentence>,
    /// What the citation check changed.
    pub citations: CitationCounts,
    /// False when the documents hold no answer, as far as search or model can tell, and the text says so.
    pub grounded: bool,
    /// Why it ended.
    pub finish_reason: Finish,
    /// Tokens.
    pub usage: TokenUsage,
    /// Times.
    pub timing: Timing,
    /// Which limits were kept; absent when the request set none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<SloOutcome>,
    /// What was left out to keep the limits; empty when nothing was.
    pub degraded: Vec<String>,
    /// Snapshot of the index that was searched.
    pub generation: u64,
}

/// Answer to `POST /v1/answer` with `stream: false`: the sources and the fields of the final event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AnswerResponse {
    /// What the answer may cite, by number.
    pub sources: Vec<Source>,
    /// The rest.
    #[serde(flatten)]
    pub answer: FinalEvent,
}

/// Answer to `POST /v1/cancel/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelResponse {
    /// The request that was named.
    pub id: String,
    /// Was it running? False when it had ended before or never existed.
    pub cancelled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_alone_is_a_request_and_streams() {
        let request: AnswerRequest = serde_json::from_str(r#"{"question":"why?"}"#).unwrap();
        assert_eq!(request, AnswerRequest { question: "why?".into(), ..AnswerRequest::default() });
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"question":"why?"}"#);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error =
            serde_json::from_str::<AnswerRequest>(r#"{"question":"why?","max_token":3}"#).unwrap_err();
        assert!(error.to_string().contains("max_token"), "{error}");
        let nested = r#"{"question":"why?","slo":{"totalms":3}}"#;
        assert!(serde_json::from_str::<AnswerRequest>(nested).is_err());
    }
}
