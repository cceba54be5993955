//! How is a running request ended from outside? By its id, for callers behind a proxy that swallows disconnects.

use crate::extract::PathId;
use crate::state::Shared;
use axum::Json;
use axum::extract::State;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Requests that can be cancelled now. Holds one entry for each running request, so it is bounded as they are.
#[derive(Default)]
pub(crate) struct Cancels {
    running: Mutex<HashMap<String, Arc<Notify>>>,
}

impl Cancels {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        // A panic elsewhere cannot leave a map half changed, so a poisoned lock is still good.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request until the registration is dropped.
    pub(crate) fn enter(self: &Arc<Self>, id: &str) -> Registration {
        let notify = Arc::new(Notify::new());
        self.lock().insert(id.to_string(), Arc::clone(&notify));
        Registration { cancels: Arc::clone(self), id: id.to_string(), notify }
    }

    /// How many requests are running.
    pub(crate) fn running(&self) -> usize {
        self.lock().len()
    }

    /// Ends a request; false when it is not running.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        match self.lock().get(id) {
            // `notify_one` keeps its permit, so a request that is not waiting this instant still sees it.
            Some(notify) => {
                notify.notify_one();
                true
            }
            None => false,
        }
    }
}

/// A running request's entry.
pub(crate) struct Registration {
    cancels: Arc<Cancels>,
    id: String,
    notify: Arc<Notify>,
}

impl Registration {
    /// Completes when someone cancels the request.
    pub(crate) async fn cancelled(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cancels.lock().remove(&self.id);
    }
}

/// Ends a running answer or chat completion.
///
/// The id stands in the `sources` event, in a chat completion's `id` and in the `x-request-id` header. Ending a request
/// that has ended already is no error.
#[utoipa::path(
    post, path = "/v1/cancel/{id}", tag = "answers",
    params(("id" = String, Path, description = "Id of the request")),
    responses(
        (status = 200, description = "Whether it was running", body = wire::CancelResponse),
        (status = 400, description = "The id is not UTF-8", body = wire::ErrorBody),
    ),
)]
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    PathId(id): PathId,
) -> Json<wire::CancelResponse> {
    let key = id.strip_prefix("chatcmpl-").unwrap_or(&id);
    Json(wire::CancelResponse { cancelled: shared.cancels.cancel(key), id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancel_that_comes_before_the_wait_is_seen() {
        let cancels = Arc::new(Cancels::default());
        let registration = cancels.enter("a");
        assert!(cancels.cancel("a"));
        assert!(!cancels.cancel("b"));
        registration.cancelled().await;
        drop(registration);
        assert!(!cancels.cancel("a"));
        assert!(cancels.lock().is_empty());
    }
}
