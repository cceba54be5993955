//! How does `POST /v1/answer` run: one question in, events or one document out?

use crate::cancel::Registration;
use crate::context::Context;
use crate::convert;
use crate::error::ApiError;
use crate::error_table as table;
use crate::extract::JsonBody;
use crate::measure::AnswerWatch;
use crate::openapi::AnswerFailures;
use crate::state::Shared;
use crate::{slo, sse};
use answer::{AnswerEvent, AnswerStream};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::{FutureExt, stream};
use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Answers a question from the indexed documents, with citations.
///
/// Streams events (`text/event-stream`): one `sources` (SourcesEvent), any number of `delta` (DeltaEvent), then exactly
/// one `final` (FinalEvent) or `error` (ErrorBody). The status is decided before the stream begins. With
/// `stream: false` the reply is one JSON document. Closing the connection cancels the answer in both cases.
#[utoipa::path(
    post, path = "/v1/answer", tag = "answers",
    params(
        ("x-slo-total-ms" = Option<u64>, Header, description = "Limit on the whole answer; the tighter of header and body applies"),
        ("x-slo-tpot-ms" = Option<u64>, Header, description = "Longest mean time between tokens; it bounds the prefill of others that joins this answer's steps"),
        ("x-slo-ttft-ms" = Option<u64>, Header, description = "Limit on the time to the first token; the tighter of header and body applies"),
    ),
    request_body = wire::AnswerRequest,
    responses(
        (status = 200, description = "The answer", content(
            (String = "text/event-stream"),
            (wire::AnswerResponse = "application/json"),
        )),
        AnswerFailures,
    ),
)]
pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<wire::AnswerRequest>,
) -> Result<Response, ApiError> {
    shared.check_open()?;
    let limits = &shared.api.limits;
    let times = slo::times(request.slo, &headers, context.arrived, limits)?;
    let streamed = request.stream.unwrap_or(true);
    let question = convert::question(request, &context, &times, limits, shared.api.answerer.settings())?;
    let registration = shared.cancels.enter(&context.id);
    let events = shared.api.answerer.ask(question)?;
    let watch = AnswerWatch::start(Arc::clone(&shared), context.arrived);
    let mut running = Running { events, registration, watch, id: context.id, asked: times.asked };
    // Nothing is sent before the first event, so that a failure to find sources still has a status of its own.
    let first = running.next().await;
    match first {
        Outcome::Failed(error) => Err(error),
        first if streamed => Ok(event_stream(first, running)),
        first => whole(first, running).await,
    }
}

/// An answer on its way. Dropping it, wherever that happens, cancels the work.
struct Running {
    events: AnswerStream,
    registration: Registration,
    watch: AnswerWatch,
    id: String,
    asked: wire::Slo,
}

/// What an answer does next, in wire types.
enum Outcome {
    Sources(wire::SourcesEvent),
    Delta(wire::DeltaEvent),
    Final(Box<wire::FinalEvent>),
    Failed(ApiError),
}

impl Running {
    /// The next event. `Final` and `Failed` are the last.
    async fn next(&mut self) -> Outcome {
        let event = tokio::select! {
            biased;
            () = self.registration.cancelled() => {
                self.watch.cancelled();
                return Outcome::Failed(ApiError::of(table::CANCELLED, "the request was cancelled"));
            }
            event = AssertUnwindSafe(self.events.next()).catch_unwind() => event,
        };
        // The outer layer catches a panic before the response; behind it, a stream would just break off.
        let Ok(event) = event else {
            tracing::error!(id = self.id, "an answer panicked");
            self.watch.failed();
            return Outcome::Failed(ApiError::of(table::INTERNAL, "the server made a mistake"));
        };
        match event {
            Some(AnswerEvent::Sources(sources)) => {
                let sources = sources.into_iter().map(convert::source).collect();
                let time_to_sources_ms = convert::ms(self.watch.sources());
                Outcome::Sources(wire::SourcesEvent { id: self.id.clone(), sources, time_to_sources_ms })
            }
            Some(AnswerEvent::Delta(text)) => {
                self.watch.delta();
                Outcome::Delta(wire::DeltaEvent { text })
            }
            Some(AnswerEvent::Final(report)) => {
                self.watch.finished(&report);
                Outcome::Final(Box::new(convert::final_event(*report, &self.id, &self.asked)))
            }
            Some(AnswerEvent::Failed(error)) => {
                self.watch.failed();
                Outcome::Failed(error.into())
            }
            None => {
                self.watch.failed();
                Outcome::Failed(ApiError::of(table::INTERNAL, "the answer ended without a final event"))
            }
        }
    }
}

fn event_stream(first: Outcome, running: Running) -> Response {
    let state = Some((running, Some(first)));
    sse::response(stream::unfold(state, |state| async move {
        let (mut running, pending) = state?;
        let outcome = match pending {
            Some(outcome) => outcome,
            None => running.next().await,
        };
        let (event, last) = encode(&outcome, &running.watch);
        Some((Ok(event), (!last).then_some((running, None))))
    }))
}

fn encode(outcome: &Outcome, watch: &AnswerWatch) -> (Event, bool) {
    match outcome {
        Outcome::Sources(data) => (sse::named("sources", data), false),
        Outcome::Delta(data) => (sse::named("delta", data), false),
        Outcome::Final(data) => (sse::named("final", data), true),
        Outcome::Failed(error) => {
            watch.error_in_stream(error);
            (sse::named("error", &error.body()), true)
        }
    }
}

async fn whole(first: Outcome, mut running: Running) -> Result<Response, ApiError> {
    let mut sources = Vec::new();
    let mut outcome = first;
    loop {
        match outcome {
            Outcome::Sources(event) => sources = event.sources,
            Outcome::Delta(_) => {}
            Outcome::Failed(error) => return Err(error),
            Outcome::Final(answer) => {
                let timing = server_timing(&answer.timing);
                let mut response = Json(wire::AnswerResponse { sources, answer: *answer }).into_response();
                if let Ok(value) = HeaderValue::from_str(&timing) {
                    response.headers_mut().insert("server-timing", value);
                }
                return Ok(response);
            }
        }
        outcome = running.next().await;
    }
}

/// The `Server-Timing` header, which browsers show beside the request.
fn server_timing(timing: &wire::Timing) -> String {
    let mut line = format!("sources;dur={}", timing.time_to_sources_ms);
    if let Some(ttft) = timing.ttft_ms {
        let _ = write!(line, ", ttft;dur={ttft}");
    }
    for (stage, took) in &timing.stages_ms {
        let _ = write!(line, ", {stage};dur={took}");
    }
    let _ = write!(line, ", total;dur={}", timing.total_ms);
    line
}
