//! How do OpenAI chat requests become engine requests, and what the engine says OpenAI replies?

use crate::chat_options;
use crate::context::Context;
use crate::convert::{self, SamplingFields};
use crate::error::ApiError;
use crate::error_table as table;
use budgets::{Limits, Stage};
use engine::{ChatMessage, Constraint, FinishReason, Role, Sampling, Usage};

/// What a chat request asks of the engine, apart from its messages and its time.
pub(crate) struct Settings {
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<String>,
    /// Absent when the caller leaves it to the server.
    pub(crate) output_tokens_max: Option<usize>,
    pub(crate) output_tokens_min: usize,
    /// What the reply must conform to, and the field that said so.
    pub(crate) constraint: Option<(Constraint, &'static str)>,
}

impl Settings {
    /// Most tokens of the reply to a prompt of that length. What the caller asked for stands, even if it does not fit
    /// (the engine then refuses); a caller who did not ask gets what fits. The least length must fit in it.
    pub(crate) fn output_tokens(
        &self,
        prompt_tokens: usize,
        context_tokens_max: usize,
        limits: &Limits,
    ) -> Result<usize, ApiError> {
        let fits = context_tokens_max.saturating_sub(prompt_tokens).max(1);
        let most = self.output_tokens_max.unwrap_or_else(|| limits.output_tokens_max.min(fits));
        if self.output_tokens_min > most {
            let message =
                format!("min_tokens is {}, and the reply has at most {most}", self.output_tokens_min);
            return Err(ApiError::of(table::INVALID_VALUE, message).param("min_tokens"));
        }
        Ok(most)
    }
}

/// Reads and checks the settings.
pub(crate) fn settings(
    request: &wire::ChatRequest,
    context: &Context,
    limits: &Limits,
    vocab_tokens: usize,
) -> Result<Settings, ApiError> {
    if request.n.is_some_and(|n| n != 1) {
        return Err(ApiError::of(table::INVALID_VALUE, "n must be 1").param("n"));
    }
    let fields = SamplingFields {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        repetition_penalty: request.repetition_penalty,
        seed: request.seed.map(i64::cast_unsigned),
    };
    let (name, tokens) = match request.max_completion_tokens {
        Some(tokens) => ("max_completion_tokens", Some(tokens)),
        None => ("max_tokens", request.max_tokens),
    };
    Ok(Settings {
        sampling: Sampling {
            logit_bias: chat_options::logit_bias(request, vocab_tokens)?,
            top_logprobs: chat_options::top_logprobs(request)?,
            ..convert::sampling(fields, context)?
        },
        output_tokens_min: request.min_tokens.unwrap_or(0),
        constraint: chat_options::constraint(request)?,
        stop: stop(request.stop.clone(), limits)?,
        output_tokens_max: tokens
            .map(|tokens| convert::count(name, Some(tokens), tokens, limits.output_tokens_max))
            .transpose()?,
    })
}

fn stop(stop: Option<wire::Stop>, limits: &Limits) -> Result<Vec<String>, ApiError> {
    let strings = match stop {
        None => Vec::new(),
        Some(wire::Stop::One(string)) => vec![string],
        Some(wire::Stop::Many(strings)) => strings,
    };
    let problem = if strings.len() > limits.stop_strings_max {
        format!("at most {} stop strings are taken", limits.stop_strings_max)
    } else if strings.iter().any(String::is_empty) {
        "a stop string must not be empty".to_string()
    } else if strings.iter().any(|string| string.len() > limits.stop_string_bytes_max) {
        format!("a stop string may have {} bytes", limits.stop_string_bytes_max)
    } else {
        return Ok(strings);
    };
    Err(ApiError::of(table::INVALID_VALUE, problem).param("stop"))
}

/// Reads the conversation.
pub(crate) fn messages(messages: Vec<wire::ChatMessage>) -> Result<Vec<ChatMessage>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::of(table::INVALID_CHAT, "messages must not be empty").param("messages"));
    }
    messages.into_iter().enumerate().map(|(at, message)| chat_message(at, message)).collect()
}

fn chat_message(at: usize, message: wire::ChatMessage) -> Result<ChatMessage, ApiError> {
    let role = match message.role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let text = format!("role {other:?} is not served: use system, developer, user or assistant");
            return Err(ApiError::of(table::INVALID_CHAT, text).param(format!("messages[{at}].role")));
        }
    };
    let content = match message.content {
        None => String::new(),
        Some(wire::ChatContent::Text(text)) => text,
        Some(wire::ChatContent::Parts(parts)) => joined(at, parts)?,
    };
    Ok(ChatMessage { role, content })
}

fn joined(at: usize, parts: Vec<wire::ContentPart>) -> Result<String, ApiError> {
    parts
        .into_iter()
        .map(|part| match part.text {
            Some(text) if part.kind == "text" => Ok(text),
            _ => {
                let text = format!("content of type {:?} is not served, only text", part.kind);
                Err(ApiError::of(table::INVALID_CHAT, text).param(format!("messages[{at}].content")))
            }
        })
        .collect()
}

/// How a reply that has text ended, in OpenAI's words, which know no deadline: such a reply was cut short.
pub(crate) struct Ending {
    pub(crate) reason: &'static str,
    pub(crate) detail: Option<&'static str>,
}

/// The ending of a reply, or the error if it has none.
pub(crate) fn ending(reason: FinishReason) -> Result<Ending, ApiError> {
    match reason {
        FinishReason::EndOfText | FinishReason::StopString(_) => Ok(Ending { reason: "stop", detail: None }),
        FinishReason::Length => Ok(Ending { reason: "length", detail: None }),
        FinishReason::ExpiredInDecode => Ok(Ending { reason: "length", detail: Some("deadline") }),
        FinishReason::ExpiredInQueue => Err(table::expired(Stage::Queue)),
        FinishReason::ExpiredInPrefill => Err(table::expired(Stage::Prefill)),
        FinishReason::Cancelled => Err(ApiError::of(table::CANCELLED, "the request was cancelled")),
        FinishReason::Failed(message) => Err(ApiError::of(table::GENERATION_FAILED, message)),
    }
}

pub(crate) fn usage(usage: &Usage) -> wire::ChatUsage {
    wire::ChatUsage {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        total_tokens: usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details: wire::PromptTokensDetails { cached_tokens: usage.cached_tokens },
    }
}

/// What all chunks of a reply share.
#[derive(Clone)]
pub(crate) struct ReplyHead {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl ReplyHead {
    fn chunk(&self, choices: Vec<wire::ChatChunkChoice>, usage: Option<wire::ChatUsage>) -> wire::ChatChunk {
        wire::ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk".to_string(),
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
        }
    }

    fn choice(
        &self,
        delta: wire::ChatDelta,
        logprobs: Option<wire::ChatLogprobs>,
        ending: Option<&Ending>,
    ) -> wire::ChatChunk {
        let choice = wire::ChatChunkChoice {
            index: 0,
            delta,
            logprobs,
            finish_reason: ending.map(|ending| ending.reason.to_string()),
            finish_detail: ending.and_then(|ending| ending.detail).map(str::to_string),
        };
        self.chunk(vec![choice], None)
    }

    /// The first chunk.
    pub(crate) fn opening(&self) -> wire::ChatChunk {
        let delta = wire::ChatDelta { role: Some("assistant".to_string()), content: Some(String::new()) };
        self.choice(delta, None, None)
    }

    /// A piece of text.
    pub(crate) fn text(&self, text: String, logprobs: Option<wire::ChatLogprobs>) -> wire::ChatChunk {
        self.choice(wire::ChatDelta { role: None, content: Some(text) }, logprobs, None)
    }

    /// The last chunk with a choice.
    pub(crate) fn closing(&self, ending: &Ending) -> wire::ChatChunk {
        self.choice(wire::ChatDelta::default(), None, Some(ending))
    }

    /// The chunk after it, if the caller asked for it.
    pub(crate) fn usage(&self, tokens: &Usage) -> wire::ChatChunk {
        self.chunk(Vec::new(), Some(usage(tokens)))
    }

    /// The whole reply at once.
    pub(crate) fn whole(
        &self,
        content: String,
        logprobs: Option<wire::ChatLogprobs>,
        ending: &Ending,
        tokens: &Usage,
    ) -> wire::ChatCompletion {
        let choice = wire::ChatChoice {
            index: 0,
            message: wire::ChatReply { role: "assistant".to_string(), content },
            logprobs,
            finish_reason: ending.reason.to_string(),
            finish_detail: ending.detail.map(str::to_string),
        };
        wire::ChatCompletion {
            id: self.id.clone(),
            object: "chat.completion".to_string(),
            created: self.created,
            model: self.model.clone(),
            choices: vec![choice],
            usage: usage(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<ChatMessage>, ApiError> {
        messages(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn parts_are_joined_and_developers_are_system() {
        let read = read(
            r#"[{"role":"developer","content":"be kind"},
                {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                {"role":"assistant"}]"#,
        )
        .unwrap();
        let expected = [(Role::System, "be kind"), (Role::User, "ab"), (Role::Assistant, "")];
        assert_eq!(read.iter().map(|m| (m.role, m.content.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_the_engine_cannot_read_is_refused_by_place() {
        let check = |json: &str, param: &str| {
            assert_eq!(read(json).unwrap_err().body().error.param.as_deref(), Some(param), "{json}");
        };
        check("[]", "messages");
        check(r#"[{"role":"user","content":"a"},{"role":"tool","content":"b"}]"#, "messages[1].role");
        check(r#"[{"role":"user","content":[{"type":"image_url"}]}]"#, "messages[0].content");
    }

    #[test]
    fn stop_strings_are_bounded() {
        let limits = Limits { stop_strings_max: 2, stop_string_bytes_max: 3, ..Limits::default() };
        let many = |strings: &[&str]| {
            stop(Some(wire::Stop::Many(strings.iter().map(ToString::to_string).collect())), &limits).is_ok()
        };
        assert!(many(&["a", "abc"]));
        assert!(!many(&["a", "b", "c"]));
        assert!(!many(&["abcd"]));
        assert!(!many(&[""]));
    }
}
