//! How does `POST /v1/chat/completions` run: messages straight to the engine, without retrieval?

use crate::cancel::Registration;
use crate::chat_convert::{self as convert, Ending, ReplyHead};
use crate::chat_options;
use crate::context::Context;
use crate::error::ApiError;
use crate::error_table as table;
use crate::extract::JsonBody;
use crate::measure::ChatWatch;
use crate::openapi::ChatFailures;
use crate::state::Shared;
use crate::{slo, sse};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use engine::{Delta, Event as EngineEvent, Finished, GenerateRequest, Generation, SubmitError};
use futures::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The status waits this long for the first text, so that early failures have a status of their own; then it is sent
/// anyway, because proxies cut connections that stay silent while a long prompt is computed.
const FIRST_EVENT_WAIT: Duration = Duration::from_secs(10);

/// Continues a conversation with the language model alone, in the shape of OpenAI's API.
///
/// With `stream: true` the reply is a sequence of ChatChunk lines that ends with `[DONE]`; an error after the first
/// chunk is a line with an ErrorBody, without `[DONE]` behind it. Fields that this server does not know are ignored.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai",
    params(
        ("x-slo-total-ms" = Option<u64>, Header, description = "Limit on the whole reply; the tighter of header and body applies"),
        ("x-slo-tpot-ms" = Option<u64>, Header, description = "Longest mean time between tokens; it bounds the prefill of others that joins this reply's steps"),
        ("x-slo-ttft-ms" = Option<u64>, Header, description = "Limit on the time to the first token; the tighter of header and body applies"),
    ),
    request_body = wire::ChatRequest,
    responses(
        (status = 200, description = "The reply", content(
            (wire::ChatCompletion = "application/json"),
            (String = "text/event-stream"),
        )),
        ChatFailures,
    ),
)]
pub(crate) async fn chat(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<wire::ChatRequest>,
) -> Result<Response, ApiError> {
    shared.check_open()?;
    let limits = &shared.api.limits;
    let head = ReplyHead {
        id: format!("chatcmpl-{}", context.id),
        created: shared.unix_s(),
        model: served_model(&shared, request.model.as_deref())?,
    };
    let times = slo::times(request.slo, &headers, context.arrived, limits)?;
    let info = shared.api.engine.info();
    let settings = convert::settings(&request, &context, limits, info.vocab_tokens)?;
    let streamed = request.stream.unwrap_or(false);
    let with_usage = request.stream_options.unwrap_or_default().include_usage.unwrap_or(false);
    let messages = convert::messages(request.messages)?;

    let registration = shared.cancels.enter(&context.id);
    let engine = shared.api.engine.clone();
    // A large conversation takes long to tokenize, and other requests share this thread.
    let prompt = tokio::task::spawn_blocking(move || engine.encode_chat(&messages))
        .await
        .map_err(|_| ApiError::of(table::INTERNAL, "the conversation could not be tokenized"))??;
    let output_tokens_max = settings.output_tokens(prompt.len(), info.context_tokens_max, limits)?;
    let (constraint, constrained_by) = settings.constraint.unzip();
    let request = GenerateRequest {
        sampling: settings.sampling,
        stop: settings.stop,
        first_token_deadline: times.first_token,
        deadline: times.total,
        tpot: times.tpot,
        output_tokens_min: settings.output_tokens_min,
        constraint,
        tenant: context.tenant,
        ..GenerateRequest::new(prompt, output_tokens_max)
    };
    let engine = shared.api.engine.clone();
    // A constraint takes milliseconds to prepare, the first one more, and other requests share this thread.
    let submitted = match constrained_by {
        None => engine.submit(request),
        Some(_) => tokio::task::spawn_blocking(move || engine.submit(request))
            .await
            .map_err(|_| ApiError::of(table::INTERNAL, "the constraint could not be prepared"))?,
    };
    let generation = submitted.map_err(|error| match (&error, constrained_by) {
        (SubmitError::InvalidConstraint(_), Some(field)) => ApiError::from(error).param(field),
        _ => ApiError::from(error),
    })?;
    let watch = ChatWatch::start(Arc::clone(&shared), context.arrived);
    let running = Running { generation, registration, watch };
    if streamed { chunk_stream(head, running, with_usage).await } else { whole(&head, running).await }
}

/// The model that a request names, if it is served here.
pub(crate) fn served_model(shared: &Shared, asked: Option<&str>) -> Result<String, ApiError> {
    let served = shared.api.engine.info().model_id;
    match asked {
        Some(asked) if asked != served => {
            let message = format!("the model {asked:?} is not served here; {served:?} is");
            Err(ApiError::of(table::MODEL_NOT_FOUND, message).param("model"))
        }
        _ => Ok(served),
    }
}

/// A reply on its way. Dropping it, wherever that happens, cancels the work.
struct Running {
    generation: Generation,
    registration: Registration,
    watch: ChatWatch,
}

/// What a reply does next.
enum Outcome {
    Text(Delta),
    Ended(Ending, Finished),
    Failed(ApiError),
}

impl Running {
    /// The next piece. `Ended` and `Failed` are the last.
    async fn next(&mut self) -> Outcome {
        let event = tokio::select! {
            biased;
            () = self.registration.cancelled() => {
                return Outcome::Failed(ApiError::of(table::CANCELLED, "the request was cancelled"));
            }
            event = self.generation.next() => event,
        };
        match event {
            Some(EngineEvent::Delta(delta)) => {
                // A delta may bring probabilities alone, and those are no text.
                if !delta.text.is_empty() {
                    self.watch.delta();
                }
                Outcome::Text(delta)
            }
            Some(EngineEvent::Finished(finished)) => match convert::ending(finished.reason.clone()) {
                Ok(ending) => Outcome::Ended(ending, finished),
                Err(error) => Outcome::Failed(error),
            },
            None => Outcome::Failed(ApiError::of(table::INTERNAL, "the reply ended without a finish")),
        }
    }
}

async fn whole(head: &ReplyHead, mut running: Running) -> Result<Response, ApiError> {
    let mut content = String::new();
    let mut logprobs: Option<wire::ChatLogprobs> = None;
    loop {
        match running.next().await {
            Outcome::Text(delta) => {
                content.push_str(&delta.text);
                if let Some(more) = chat_options::logprobs(&delta) {
                    logprobs.get_or_insert_default().content.extend(more.content);
                }
            }
            Outcome::Failed(error) => return Err(error),
            Outcome::Ended(ending, finished) => {
                let mut response =
                    Json(head.whole(content, logprobs, &ending, &finished.usage)).into_response();
                if let Ok(value) = HeaderValue::from_str(&server_timing(&finished)) {
                    response.headers_mut().insert("server-timing", value);
                }
                return Ok(response);
            }
        }
    }
}

fn server_timing(finished: &Finished) -> String {
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let timing = &finished.timing;
    format!(
        "queue;dur={:.3}, prefill;dur={:.3}, decode;dur={:.3}",
        ms(timing.queue),
        ms(timing.prefill),
        ms(timing.decode)
    )
}

/// A chunk stream between two polls.
struct Chunks {
    head: ReplyHead,
    running: Option<Running>,
    ready: VecDeque<Event>,
    with_usage: bool,
}

async fn chunk_stream(head: ReplyHead, mut running: Running, with_usage: bool) -> Result<Response, ApiError> {
    let first = tokio::time::timeout(FIRST_EVENT_WAIT, running.next()).await.ok();
    if let Some(Outcome::Failed(error)) = first {
        return Err(error);
    }
    let ready = VecDeque::from([sse::bare(&head.opening())]);
    let mut chunks = Chunks { head, running: Some(running), ready, with_usage };
    if let Some(first) = first {
        chunks.take(first);
    }
    Ok(sse::response(stream::unfold(chunks, |mut chunks| async move {
        if chunks.ready.is_empty() {
            let outcome = chunks.running.as_mut()?.next().await;
            chunks.take(outcome);
        }
        chunks.ready.pop_front().map(|event| (Ok(event), chunks))
    })))
}

impl Chunks {
    /// Turns an outcome into lines; the last ones let go of the engine's stream.
    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Text(delta) => {
                let logprobs = chat_options::logprobs(&delta);
                self.ready.push_back(sse::bare(&self.head.text(delta.text, logprobs)));
            }
            Outcome::Ended(ending, finished) => {
                self.ready.push_back(sse::bare(&self.head.closing(&ending)));
                if self.with_usage {
                    self.ready.push_back(sse::bare(&self.head.usage(&finished.usage)));
                }
                self.ready.push_back(Event::default().data("[DONE]"));
                self.running = None;
            }
            Outcome::Failed(error) => {
                if let Some(running) = &self.running {
                    running.watch.error_in_stream(&error);
                }
                self.ready.push_back(sse::bare(&error.body()));
                self.running = None;
            }
        }
    }
}
