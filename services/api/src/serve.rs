//! How does the server run, and how does it stop without cutting anyone off?

use crate::connections::{Activity, Bounded};
use crate::router;
use crate::state::{ApiState, Shared};
use budgets::Deadline;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Histogram samples are folded into buckets this often, so that they stay few when nobody scrapes. The engine keeps
/// the records of its last few thousand steps, and no device computes so many in this time: none is lost.
const UPKEEP: Duration = Duration::from_secs(1);
/// How often the drain looks whether the last request has ended.
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// Once all work has ended, connections get this long to take what is left in their buffers.
const LINGER: Duration = Duration::from_secs(2);

/// The server stopped for a reason that is not the shutdown signal.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The listener failed.
    #[error("the listener failed: {0}")]
    Listener(#[from] std::io::Error),
}

/// Serves until `shutdown` completes, then drains: `/readyz` says 503, new work is refused with 503, running streams go
/// on to their end or until `state.drain` is over, and the engine is told to cancel what is left.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(
    listener: TcpListener,
    state: ApiState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let shared = Shared::new(state);
    let app = router::with_shared(Arc::clone(&shared));
    let listener = Bounded::new(listener, shared.api.limits.connections_max);
    let (drained, when_drained) = oneshot::channel();
    let stopping = Arc::clone(&shared);
    let graceful = async move {
        shutdown.await;
        drain(&stopping).await;
        let _ = drained.send(());
    };
    let server = axum::serve(listener, app.into_make_service_with_connect_info::<Activity>())
        .with_graceful_shutdown(graceful);
    tokio::select! {
        result = server.into_future() => result?,
        () = upkeep(&shared) => {}
        () = linger(when_drained) => tracing::warn!("some connections did not close in time"),
    }
    Ok(())
}

async fn upkeep(shared: &Shared) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        shared.metrics.upkeep(&shared.api.engine);
    }
}

async fn linger(when_drained: oneshot::Receiver<()>) {
    if when_drained.await.is_err() {
        // The server future went first; it alone decides.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(LINGER).await;
}

/// Waits for requests that were taken, including those that have not reached the engine yet, then closes the engine.
async fn drain(shared: &Shared) {
    shared.start_draining();
    let deadline = Deadline::after(shared.api.clock.now(), shared.api.drain);
    tracing::info!(running = shared.cancels.running(), "draining");
    while shared.cancels.running() > 0 && !deadline.expired(shared.api.clock.now()) {
        tokio::time::sleep(DRAIN_POLL).await;
    }
    shared.api.engine.drain(deadline).await;
}
