//! What happened to each request, and when? An engine of a given policy, requests at their times, outcomes.

use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use crate::handbook;
use budgets::{Clock, Deadline, Limits, Moment, SystemClock};
use engine::{Engine, Event, Finished, GenerateRequest, Policy, TokenId};
use std::sync::Arc;
use std::time::Duration;

/// An engine under test and its clock.
pub struct Rig {
    /// The engine.
    pub engine: Engine,
    clock: Arc<dyn Clock>,
}

/// A request and when it comes.
pub struct Job {
    /// After the start of the run.
    pub at: Duration,
    /// The request.
    pub request: GenerateRequest,
}

/// What became of it; all times since the start of the run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When it was due to come: what waits before the engine is part of its latency.
    pub came: Duration,
    /// When each piece of text came.
    pub deltas: Vec<Duration>,
    /// When it ended.
    pub ended: Duration,
    /// How, and what it used.
    pub finished: Finished,
    /// The text.
    pub text: String,
}

impl Outcome {
    /// Time to the first text, from when the request was due to come.
    pub fn ttft(&self) -> Duration {
        self.deltas.first().unwrap_or(&self.ended).saturating_sub(self.came)
    }

    /// Time to the end.
    pub fn total(&self) -> Duration {
        self.ended.saturating_sub(self.came)
    }
}

impl Rig {
    /// Loads the configured model into an engine of that policy.
    ///
    /// # Errors
    /// When the model cannot be had or loaded.
    pub fn start(config: &Config, limits: &Limits, policy: &Policy) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let (model, _) = compose::language_model(config)?;
        let engine = Engine::start(model, Arc::clone(&clock), limits, policy).map_err(Failure::new)?;
        Ok(Self { engine, clock })
    }

    /// Now, for [`Rig::follow`].
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Sends every job at its time and waits for all.
    ///
    /// # Errors
    /// When a request is refused or fails.
    pub async fn run(&self, jobs: Vec<Job>) -> Result<Vec<Outcome>, Failure> {
        let began = self.now();
        let tasks = jobs.into_iter().map(|job| async move {
            tokio::time::sleep(job.at).await;
            self.follow(job.request, began, job.at).await
        });
        futures::future::try_join_all(tasks).await
    }

    /// Sends one request now and waits for its end; times count from `began`, its own from `came`.
    ///
    /// # Errors
    /// When the request is refused or fails.
    pub async fn follow(
        &self,
        request: GenerateRequest,
        began: Moment,
        came: Duration,
    ) -> Result<Outcome, Failure> {
        let mut generation = self.engine.submit(request).map_err(Failure::new)?;
        let (mut deltas, mut text) = (Vec::new(), String::new());
        while let Some(event) = generation.next().await {
            let at = self.now().since(began);
            match event {
                Event::Delta(delta) => {
                    deltas.push(at);
                    text.push_str(&delta.text);
                }
                Event::Finished(finished) => {
                    if let engine::FinishReason::Failed(message) = &finished.reason {
                        return Err(Failure::new(format!("a request failed: {message}")));
                    }
                    return Ok(Outcome { came, deltas, ended: at, finished, text });
                }
            }
        }
        Err(Failure::new("a stream broke off"))
    }

    /// Lets the engine end before the next one starts.
    pub async fn stop(self) {
        self.engine.drain(Deadline::NEVER).await;
    }
}

/// Real text as tokens, to cut prompts from.
pub struct Words(Vec<TokenId>);

impl Words {
    /// The handbook's pages in the model's tokens.
    ///
    /// # Errors
    /// When the pages cannot be read.
    pub fn load(engine: &Engine) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut text = String::new();
        for page in handbook::pages(folder.path())? {
            text.push_str(&std::fs::read_to_string(page)?);
        }
        Ok(Self(engine.encode(&text)))
    }

    /// `count` tokens from place `from` on, as on a ring.
    pub fn cut(&self, from: usize, count: usize) -> Vec<TokenId> {
        (from..from + count).map(|place| self.0[place % self.0.len()]).collect()
    }

    /// Tokens in all.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A request that makes exactly `output` tokens after `prompt`.
pub fn exactly(prompt: Vec<TokenId>, output: usize) -> GenerateRequest {
    GenerateRequest { output_tokens_min: output, ..GenerateRequest::new(prompt, output) }
}
