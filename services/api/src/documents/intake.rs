//! How many documents are taken in at once, and where? A few bodies wait, one piece of work runs, on threads that may
//! block.

use crate::error::ApiError;
use crate::error_table as table;
use index::{DocumentInfo, Index, IndexError, NewDocument, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests whose bodies are held at once, bulk jobs that have not ended among them: a bound on memory.
const PLACES: usize = 8;

/// The way in for documents.
pub(crate) struct Intake {
    index: Arc<Index>,
    places: Arc<Semaphore>,
    /// One at a time: parsing and embedding use all threads anyway.
    turn: Arc<Semaphore>,
    stopped: AtomicBool,
    pub(super) jobs: super::jobs::Jobs,
}

impl Intake {
    pub(crate) fn new(index: Arc<Index>) -> Intake {
        Intake {
            index,
            places: Arc::new(Semaphore::new(PLACES)),
            turn: Arc::new(Semaphore::new(1)),
            stopped: AtomicBool::new(false),
            jobs: super::jobs::Jobs::default(),
        }
    }

    /// Lets no job begin another piece of work.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// A place for a body.
    ///
    /// # Errors
    /// 503 when all are taken.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let full = |_| {
            let message = format!("{PLACES} requests with documents are under way; try again shortly");
            ApiError::of(table::INTAKE_FULL, message)
        };
        Arc::clone(&self.places).try_acquire_owned().map_err(full)
    }

    /// Puts one document; goes on if the caller leaves.
    pub(super) async fn put(
        &self,
        document: NewDocument,
        place: OwnedSemaphorePermit,
    ) -> Result<(Outcome, DocumentInfo), ApiError> {
        let put = self.blocking(move |index| {
            let put = index.put(document);
            drop(place);
            put
        });
        Ok(put.await??)
    }

    /// Puts several as one commit; one outcome for each.
    pub(super) async fn put_all(
        &self,
        documents: Vec<NewDocument>,
    ) -> Result<Vec<Result<(Outcome, DocumentInfo), IndexError>>, ApiError> {
        self.blocking(move |index| index.put_all(documents)).await
    }

    /// Deletes a document; false when there is none of that name.
    pub(super) async fn delete(&self, id: String) -> Result<bool, ApiError> {
        let index = Arc::clone(&self.index);
        // Needs no turn: it embeds nothing.
        let deleted = tokio::task::spawn_blocking(move || index.delete(&[&id])).await.map_err(lost)?;
        Ok(deleted?.into_iter().any(|there| there))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Index) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let turn = turn.map_err(|error| ApiError::of(table::INTERNAL, error.to_string()))?;
        let index = Arc::clone(&self.index);
        let work = move || {
            let done = work(&index);
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(work).await.map_err(lost)
    }
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` hands it over.
fn lost(error: tokio::task::JoinError) -> ApiError {
    tracing::error!(%error, "taking in documents failed");
    ApiError::of(table::INDEX_FAILED, "taking in the documents failed; the server's log says why")
}
