//! What do the handles and the loop thread both see? Counts and flags; sequences and blocks are the thread's alone.

use crate::records::StepRecords;
use crate::{EngineStats, Event, GenerateRequest, Grammar};
use budgets::{Deadline, Moment};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// A request on its way to the loop thread.
pub(crate) struct Submission {
    pub(crate) request: GenerateRequest,
    pub(crate) submitted: Moment,
    pub(crate) events: mpsc::Sender<Event>,
    /// The request's constraint, understood.
    pub(crate) grammar: Option<Box<dyn Grammar>>,
    /// Its place in the queue, given back when something is computed for it or it ends.
    pub(crate) place: OwnedSemaphorePermit,
    pub(crate) live: Live,
}

/// State of one engine that is not a sequence.
pub(crate) struct Shared {
    /// No new requests.
    closed: AtomicBool,
    /// When a drain cancels what still runs.
    drain_deadline: Mutex<Option<Deadline>>,
    /// Requests taken and not ended.
    live: watch::Sender<usize>,
    /// Places in the queue: from submission to the first computation.
    places: Arc<Semaphore>,
    places_total: usize,
    queue_full: AtomicU64,
    stats: Mutex<EngineStats>,
    pub(crate) records: StepRecords,
    thread: OnceLock<Thread>,
}

impl Shared {
    pub(crate) fn new(queue_requests_max: usize, stats: EngineStats) -> Arc<Self> {
        let places_total = queue_requests_max.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            closed: AtomicBool::new(false),
            drain_deadline: Mutex::new(None),
            live: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(places_total)),
            places_total,
            queue_full: AtomicU64::new(0),
            stats: Mutex::new(stats),
            records: StepRecords::default(),
            thread: OnceLock::new(),
        })
    }

    pub(crate) fn set_thread(&self, thread: Thread) {
        // Set once, by the function that starts the thread.
        let _ = self.thread.set(thread);
    }

    /// Ends the loop thread's sleep, or the next one if it does not sleep now.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Takes a place in the queue.
    ///
    /// # Errors
    /// The number of requests that wait, when no place is left.
    pub(crate) fn take_place(&self) -> Result<OwnedSemaphorePermit, usize> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            self.queue_full.fetch_add(1, Ordering::Relaxed);
            self.waiting()
        })
    }

    pub(crate) fn waiting(&self) -> usize {
        self.places_total - self.places.available_permits()
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes no new requests from now on, and cancels what still runs at `deadline`; the earliest one counts.
    pub(crate) fn close(&self, deadline: Deadline) {
        self.closed.store(true, Ordering::SeqCst);
        let mut known = lock(&self.drain_deadline);
        *known = Some(known.map_or(deadline, |earlier| earlier.min(deadline)));
        drop(known);
        self.wake();
    }

    pub(crate) fn drain_deadline(&self) -> Deadline {
        lock(&self.drain_deadline).unwrap_or(Deadline::NEVER)
    }

    /// Resolves when no request is live.
    pub(crate) async fn all_ended(&self) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.live.subscribe().wait_for(|live| *live == 0).await;
    }

    pub(crate) fn publish(&self, stats: &EngineStats) {
        lock(&self.stats).clone_from(stats);
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let stats = lock(&self.stats).clone();
        let queue_full = self.queue_full.load(Ordering::Relaxed);
        EngineStats { waiting: self.waiting(), queue_full, ..stats }
    }
}

/// Counts a request as live until it is dropped. Taken before the check for a closed engine, so that a drain either
/// refuses a request or waits for it.
pub(crate) struct Live(Arc<Shared>);

impl Live {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.live.send_modify(|live| *live += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.send_modify(|live| *live -= 1);
    }
}

/// Nothing here can be left half changed by a panic, so a poisoned lock is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
