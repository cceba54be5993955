//! Who asks what, when? N callers, each of which asks its next question as soon as it has its answer.

use crate::report::Report;
use crate::sse::{SseEvent, SseReader};
use budgets::{Clock, Moment, SystemClock};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thiserror::Error;

/// Longest event that is read; a server that sends more is broken.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Base address: `http://127.0.0.1:8080`.
    pub url: String,
    /// Callers at a time.
    pub concurrency: usize,
    /// Questions in all.
    pub requests: usize,
    /// Questions, asked in turn.
    pub questions: Vec<String>,
    /// Latency budget that each request states.
    pub total_ms: Option<u64>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a final event whose text is complete.
    Answered,
    /// Otherwise, with the reason: a status and code, a finish reason, or a broken connection.
    Other(String),
}

/// What one caller saw of one request. Times run from the moment the request is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The question.
    pub question: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Until the sources event.
    pub sources_ms: Option<f64>,
    /// Until the first delta.
    pub first_token_ms: Option<f64>,
    /// Until the end.
    pub total_ms: f64,
    /// Tokens of the answer, as the server counted them.
    pub completion_tokens: usize,
}

/// A run that could not begin.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Nothing to do.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// No server, or not ready.
    #[error("{url} is not ready: {problem}")]
    NotReady {
        /// Where.
        url: String,
        /// What came back.
        problem: String,
    },
    /// The HTTP client could not be made.
    #[error("HTTP client: {0}")]
    Client(reqwest::Error),
}

/// Carries out `plan`; `done` is called after each request with the number finished.
///
/// # Errors
/// When the plan is empty or the server is not ready. Requests that fail later are samples, not errors.
pub async fn run(plan: Plan, done: impl Fn(usize) + Send + Sync + 'static) -> Result<Report, LoadError> {
    let needs = [
        (plan.concurrency, "concurrency"),
        (plan.requests, "requests"),
        (plan.questions.len(), "number of questions"),
    ];
    if let Some((_, name)) = needs.iter().find(|(count, _)| *count == 0) {
        return Err(LoadError::Zero(name));
    }
    // Through a proxy the proxy would be measured.
    let client = reqwest::Client::builder().no_proxy().build().map_err(LoadError::Client)?;
    ready(&client, &plan.url).await?;

    let clock = Arc::new(SystemClock::default());
    let began = clock.now();
    let (plan, done) = (Arc::new(plan), Arc::new(done));
    let (next, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..plan.concurrency.min(plan.requests))
        .map(|_| {
            let (client, plan, clock) = (client.clone(), Arc::clone(&plan), Arc::clone(&clock));
            let (next, finished, done) = (Arc::clone(&next), Arc::clone(&finished), Arc::clone(&done));
            tokio::spawn(async move {
                let mut samples = Vec::new();
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= plan.requests {
                        return samples;
                    }
                    samples.push(ask(&client, &plan, turn, clock.as_ref()).await);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            })
        })
        .collect();
    let mut samples = Vec::with_capacity(plan.requests);
    for caller in callers {
        samples.extend(caller.await.unwrap_or_default());
    }
    Ok(Report::of(plan.concurrency, clock.now().since(began).as_secs_f64(), samples))
}

async fn ready(client: &reqwest::Client, url: &str) -> Result<(), LoadError> {
    let not_ready = |problem: String| LoadError::NotReady { url: url.to_string(), problem };
    let request = client.get(format!("{url}/readyz")).timeout(Duration::from_secs(5));
    let response = request.send().await.map_err(|error| not_ready(root(&error)))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(not_ready(format!("HTTP {status}"))),
    }
}

async fn ask(client: &reqwest::Client, plan: &Plan, turn: usize, clock: &SystemClock) -> Sample {
    let question = plan.questions[turn % plan.questions.len()].clone();
    let began = clock.now();
    let mut seen = Seen::default();
    let outcome = match stream(client, plan, &question, clock, began, &mut seen).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Other(root(&error)),
    };
    Sample {
        question,
        outcome,
        sources_ms: seen.sources_ms,
        first_token_ms: seen.first_token_ms,
        total_ms: ms(clock.now().since(began)),
        completion_tokens: seen.completion_tokens,
    }
}

/// What has come of one answer so far.
#[derive(Default)]
struct Seen {
    sources_ms: Option<f64>,
    first_token_ms: Option<f64>,
    completion_tokens: usize,
}

async fn stream(
    client: &reqwest::Client,
    plan: &Plan,
    question: &str,
    clock: &SystemClock,
    began: Moment,
    seen: &mut Seen,
) -> Result<Outcome, reqwest::Error> {
    let slo = plan.total_ms.map(|total| wire::Slo { total_ms: Some(total), ..wire::Slo::default() });
    let body = wire::AnswerRequest {
        question: question.to_string(),
        stream: Some(true),
        slo,
        ..wire::AnswerRequest::default()
    };
    let mut response = client.post(format!("{}/v1/answer", plan.url)).json(&body).send().await?;
    let status = response.status();
    if !status.is_success() {
        let code = response.json::<wire::ErrorBody>().await.map(|body| body.error.code);
        return Ok(Outcome::Other(format!("HTTP {} {}", status.as_u16(), code.unwrap_or_default())));
    }
    let mut reader = SseReader::default();
    while let Some(bytes) = response.chunk().await? {
        for event in reader.push(&bytes) {
            if let Some(outcome) = seen.take(&event, clock.now().since(began)) {
                return Ok(outcome);
            }
        }
        if reader.pending_bytes() > EVENT_BYTES_MAX {
            return Ok(Outcome::Other(format!("an event of more than {EVENT_BYTES_MAX} bytes")));
        }
    }
    Ok(Outcome::Other("the stream ended without a final event".to_string()))
}

impl Seen {
    /// Notes `event`, which came `at` after the request; gives the outcome when it is the last one.
    fn take(&mut self, event: &SseEvent, at: Duration) -> Option<Outcome> {
        match event.name.as_str() {
            "sources" => self.sources_ms = Some(ms(at)),
            "delta" => {
                self.first_token_ms.get_or_insert(ms(at));
            }
            "final" => return Some(self.finish(&event.data)),
            "error" => {
                let body = serde_json::from_str::<wire::ErrorBody>(&event.data);
                let code = body.map_or_else(|_| "unreadable".to_string(), |body| body.error.code);
                return Some(Outcome::Other(format!("error event {code}")));
            }
            _ => {}
        }
        None
    }

    fn finish(&mut self, data: &str) -> Outcome {
        match serde_json::from_str::<wire::FinalEvent>(data) {
            Ok(end) => {
                self.completion_tokens = end.usage.completion_tokens;
                match end.finish_reason {
                    wire::Finish::Stop | wire::Finish::Length => Outcome::Answered,
                    other => Outcome::Other(format!("finish {other:?}").to_lowercase()),
                }
            }
            Err(error) => Outcome::Other(format!("unreadable final event: {error}")),
        }
    }
}

/// The innermost cause: "connection refused" says more than "error sending request".
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
