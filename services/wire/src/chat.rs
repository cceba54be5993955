//! How does the OpenAI chat shape look? Requests, replies and chunks, as far as the engine can serve them.
//!
//! Fields that are not named here are ignored on purpose: clients of that API send many.

use crate::{ChatLogprobs, ResponseFormat, Slo, StructuredOutputs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A part of a message's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContentPart {
    /// Only `text` is understood.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A message's content: a string or a list of text parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ChatContent {
    /// One string.
    Text(String),
    /// Parts, joined in order.
    Parts(Vec<ContentPart>),
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `system`, `developer` (read as `system`), `user` or `assistant`.
    #[schema(example = "user")]
    pub role: String,
    /// What is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ChatContent>,
}

/// One stop string or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Stop {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// How to stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Send one more chunk before the end, with the usage and no choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_usage: Option<bool>,
}

/// Body of `POST /v1/chat/completions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatRequest {
    /// Which model; the served one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Most tokens in the reply. `max_completion_tokens` wins when both are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_tokens: Option<usize>,
    /// Most tokens in the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<usize>,
    /// 0 (the default here) takes the most likely token each time.
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
    /// Above 1 makes repeating a token less likely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(exclusive_minimum = 0, maximum = 2)]
    pub repetition_penalty: Option<f32>,
    /// Same seed, messages and settings: same reply. Drawn when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The reply ends before the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// The reply does not end before this many tokens, unless a stop string, a constraint or a deadline ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<usize>,
    /// Added to the logits of tokens, by token id: -100 forbids, 100 all but forces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// Report each token's probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// Report this many likeliest tokens in each place, too; needs `logprobs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<usize>,
    /// The form of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// A form that `response_format` does not know; an extension of this server, named as vLLM names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_outputs: Option<StructuredOutputs>,
    /// Chunks as they come, or one JSON document (the default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// How to stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Replies to make; only 1 is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1)]
    pub n: Option<u32>,
    /// Time limits; an extension of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
}

/// What the prompt's tokens were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptTokensDetails {
    /// Prompt tokens whose KV was already there.
    pub cached_tokens: usize,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChatUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the reply.
    pub completion_tokens: usize,
    /// Both.
    pub total_tokens: usize,
    /// More on the prompt.
    pub prompt_tokens_details: PromptTokensDetails,
}

/// The message of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChatReply {
    /// Always `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// The one choice of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatChoice {
    /// Always 0.
    pub index: u32,
    /// The reply.
    pub message: ChatReply,
    /// Probabilities, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: String,
    /// What ended it when `finish_reason` cannot say: `deadline` or `cancelled`; an extension of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_detail: Option<String>,
}

/// Answer to `POST /v1/chat/completions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatCompletion {
    /// Names the reply.
    pub id: String,
    /// Always `chat.completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Which model.
    pub model: String,
    /// One choice.
    pub choices: Vec<ChatChoice>,
    /// Tokens.
    pub usage: ChatUsage,
}

/// What a chunk adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChatDelta {
    /// In the first chunk: `assistant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The next piece of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// The one choice of a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatChunkChoice {
    /// Always 0.
    pub index: u32,
    /// What it adds.
    pub delta: ChatDelta,
    /// Probabilities of the tokens since the chunk before, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<ChatLogprobs>,
    /// In the last chunk with a choice: `stop` or `length`; else null.
    pub finish_reason: Option<String>,
    /// What ended it when `finish_reason` cannot say: `deadline` or `cancelled`; an extension of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_detail: Option<String>,
}

/// One `data:` line of a streamed reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatChunk {
    /// Names the reply.
    pub id: String,
    /// Always `chat.completion.chunk`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Which model.
    pub model: String,
    /// One choice; none in the usage chunk.
    pub choices: Vec<ChatChunkChoice>,
    /// In the usage chunk alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ChatUsage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Option<&Stop>) {
        let request: ChatRequest = serde_json::from_str(json).unwrap();
        assert_eq!(request.stop.as_ref(), expected, "{json}");
    }

    #[test]
    fn stop_is_a_string_a_list_or_nothing() {
        check(r#"{"messages":[]}"#, None);
        check(r#"{"messages":[],"stop":null}"#, None);
        check(r#"{"messages":[],"stop":"x"}"#, Some(&Stop::One("x".into())));
        check(r#"{"messages":[],"stop":["x","y"]}"#, Some(&Stop::Many(vec!["x".into(), "y".into()])));
    }

    #[test]
    fn fields_that_are_not_known_are_ignored() {
        check(r#"{"messages":[{"role":"user","content":"a","name":"b"}],"logit_bias":{},"user":"me"}"#, None);
    }
}
