//! How far is a long ingest? Jobs that put many documents piece by piece, and what became of each.

use super::Intake;
use crate::context::Context;
use crate::error::ApiError;
use crate::error_table as table;
use crate::extract::PathId;
use crate::openapi::ListFailures;
use crate::state::Shared;
use axum::extract::State;
use axum::{Extension, Json};
use index::{DocumentInfo, IndexError, NewDocument, Outcome};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Jobs that are remembered; the oldest that have ended go first.
const KEPT: usize = 256;
/// Failures that a job tells one by one.
const FAILURES_MAX: usize = 100;
/// Documents, and their bytes, that are put together: enough to embed well, few enough to let others in between.
const PIECE_DOCUMENTS: usize = 32;
const PIECE_BYTES: usize = 1 << 20;
/// While the index rebuilds and takes no more, a job asks again so often.
const BEHIND_POLL: Duration = Duration::from_millis(250);

/// A document to be put, or why not, with its place in what was sent.
pub(super) struct Sent {
    pub(super) place: usize,
    pub(super) id: Option<String>,
    pub(super) document: Result<NewDocument, ApiError>,
}

/// All jobs that are remembered, oldest first, each with its owner.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<VecDeque<(Option<Arc<str>>, wire::Job)>>);

impl Jobs {
    fn add(&self, owner: Option<Arc<str>>, job: wire::Job) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while jobs.len() >= KEPT
            && let Some(ended) = jobs.iter().position(|(_, job)| job.status != wire::JobStatus::Running)
        {
            jobs.remove(ended);
        }
        jobs.push_back((owner, job));
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut wire::Job)) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, job)) = jobs.iter_mut().rev().find(|(_, job)| job.id == id) {
            change(job);
        }
    }

    /// A job, for its owner alone.
    pub(super) fn get(&self, owner: Option<&str>, id: &str) -> Option<wire::Job> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = jobs.iter().rev().find(|(of, job)| job.id == id && of.as_deref() == owner);
        found.map(|(_, job)| job.clone())
    }
}

/// Shows how far a job is. Jobs are forgotten when the server ends; what `done` counts is on disk.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "documents",
    params(("id" = String, Path, description = "Name of the job")),
    responses((status = 200, description = "The job", body = wire::Job), ListFailures),
)]
pub(crate) async fn job(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    PathId(id): PathId,
) -> Result<Json<wire::Job>, ApiError> {
    let tenant = context.caller.as_ref().and_then(|caller| caller.tenant.as_deref());
    shared.intake.jobs.get(tenant, &id).map(Json).ok_or_else(|| {
        ApiError::of(table::JOB_NOT_FOUND, format!("there is no job {id:?} of this caller")).param("id")
    })
}

/// Notes a job under the request's own name and puts its documents in the background; ends when all are put.
pub(super) fn start(
    shared: &Arc<Shared>,
    context: &Context,
    sent: Vec<Sent>,
    place: OwnedSemaphorePermit,
) -> (wire::Job, tokio::task::JoinHandle<()>) {
    let job = wire::Job {
        id: context.id.clone(),
        status: wire::JobStatus::Running,
        total: sent.len(),
        done: 0,
        created: 0,
        replaced: 0,
        unchanged: 0,
        failed: 0,
        failures: Vec::new(),
    };
    let owner = context.caller.as_ref().and_then(|caller| caller.tenant.clone());
    shared.intake.jobs.add(owner, job.clone());
    let (shared, id) = (Arc::clone(shared), job.id.clone());
    let running = tokio::spawn(async move {
        let ended = run(&shared, &id, sent).await;
        shared.intake.jobs.change(&id, |job| job.status = ended);
        drop(place);
    });
    (job, running)
}

/// Puts all documents, piece by piece.
async fn run(shared: &Shared, id: &str, sent: Vec<Sent>) -> wire::JobStatus {
    let mut sent = sent.into_iter().peekable();
    while sent.peek().is_some() {
        let (mut piece, mut labels, mut bytes) = (Vec::new(), Vec::new(), 0);
        while piece.len() < PIECE_DOCUMENTS
            && bytes < PIECE_BYTES
            && let Some(one) = sent.next()
        {
            match one.document {
                Ok(document) => {
                    bytes += document.bytes.len();
                    piece.push(document);
                    labels.push((one.place, one.id));
                }
                Err(error) => note(shared, id, (one.place, one.id), Err(error)),
            }
        }
        let Some(outcomes) = put(&shared.intake, piece).await else { return wire::JobStatus::Stopped };
        for (label, outcome) in labels.into_iter().zip(outcomes) {
            note(shared, id, label, outcome.map(|(outcome, _)| outcome));
        }
    }
    wire::JobStatus::Done
}

type Put = Result<(Outcome, DocumentInfo), ApiError>;

/// Puts a piece, and what of it met an index that rebuilds once more, until it is through; none when the server stops.
async fn put(intake: &Intake, piece: Vec<NewDocument>) -> Option<Vec<Put>> {
    let count = piece.len();
    let mut outcomes: Vec<Option<Put>> = (0..count).map(|_| None).collect();
    let mut left: Vec<(usize, NewDocument)> = piece.into_iter().enumerate().collect();
    while !left.is_empty() {
        if intake.is_stopped() {
            return None;
        }
        let made = match intake.put_all(left.iter().map(|(_, document)| document.clone()).collect()).await {
            Ok(made) => made,
            Err(error) => {
                left.drain(..).for_each(|(at, _)| outcomes[at] = Some(Err(error.clone())));
                break;
            }
        };
        let mut again = Vec::new();
        for ((at, document), outcome) in left.into_iter().zip(made) {
            match outcome {
                Err(IndexError::Behind { .. }) => again.push((at, document)),
                outcome => outcomes[at] = Some(outcome.map_err(ApiError::from)),
            }
        }
        left = again;
        if !left.is_empty() {
            tokio::time::sleep(BEHIND_POLL).await;
        }
    }
    Some(outcomes.into_iter().flatten().collect())
}

fn note(
    shared: &Shared,
    id: &str,
    (place, document): (usize, Option<String>),
    outcome: Result<Outcome, ApiError>,
) {
    shared.metrics.document(outcome.as_ref().map_or("failed", |outcome| super::put_outcome(*outcome)));
    shared.intake.jobs.change(id, |job| {
        job.done += 1;
        match outcome {
            Ok(Outcome::Created) => job.created += 1,
            Ok(Outcome::Replaced) => job.replaced += 1,
            Ok(Outcome::Unchanged) => job.unchanged += 1,
            Err(error) => {
                job.failed += 1;
                if job.failures.len() < FAILURES_MAX {
                    job.failures.push(wire::JobFailure { id: document, place, error: error.body().error });
                }
            }
        }
    });
}
