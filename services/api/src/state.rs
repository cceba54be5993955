//! What do all handlers share?

use crate::access::Access;
use crate::cancel::Cancels;
use crate::context::RequestIds;
use crate::documents::Intake;
use crate::error::ApiError;
use crate::error_table;
use crate::measure::Metrics;
use answer::Answerer;
use budgets::{Clock, Limits, Moment};
use engine::Engine;
use index::Index;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the composition root hands to the API.
#[derive(Clone)]
pub struct ApiState {
    /// The answer pipeline.
    pub answerer: Answerer,
    /// The engine, for chat completions and its figures.
    pub engine: Engine,
    /// The index, for its figures.
    pub index: Arc<Index>,
    /// The clock that all deadlines are made on.
    pub clock: Arc<dyn Clock>,
    /// Who may use the service, and for what.
    pub access: Access,
    /// All bounds.
    pub limits: Limits,
    /// Wall time at which the server started, seconds since 1970; replies carry wall time counted from here.
    pub started_unix_s: u64,
    /// Questions that the page offers before the first one is asked.
    pub sample_questions: Vec<String>,
    /// How long running streams may go on after the shutdown signal.
    pub drain: Duration,
}

/// The state behind every handler.
pub(crate) struct Shared {
    pub(crate) api: ApiState,
    pub(crate) metrics: Metrics,
    pub(crate) cancels: Arc<Cancels>,
    pub(crate) ids: RequestIds,
    pub(crate) intake: Arc<Intake>,
    started: Moment,
    draining: AtomicBool,
}

impl Shared {
    pub(crate) fn new(api: ApiState) -> Arc<Self> {
        let metrics = Metrics::new(&api.engine.info().model_id);
        let started = api.clock.now();
        let intake = Arc::new(Intake::new(Arc::clone(&api.index)));
        Arc::new(Self {
            intake,
            api,
            metrics,
            cancels: Arc::default(),
            ids: RequestIds::default(),
            started,
            draining: AtomicBool::new(false),
        })
    }

    /// Wall time now, seconds since 1970.
    pub(crate) fn unix_s(&self) -> u64 {
        self.api.started_unix_s + self.api.clock.now().since(self.started).as_secs()
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.intake.stop();
    }

    /// Refuses new work while the server drains.
    pub(crate) fn check_open(&self) -> Result<(), ApiError> {
        if self.draining() {
            return Err(ApiError::of(error_table::SHUTTING_DOWN, "the server is shutting down"));
        }
        Ok(())
    }
}
