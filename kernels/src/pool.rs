//! Who does the arithmetic? A small pool of threads that one owner drives through parallel loops.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker looks for the next loop before it sleeps. A model step is a few hundred loops some
/// microseconds apart, and waking a sleeper costs more than that; beyond it the machine is idle and must stay so.
const SPIN: Duration = Duration::from_micros(60);

/// A borrowed loop body with its lifetime erased; see the safety argument in [`Pool::run`].
#[derive(Clone, Copy)]
struct Body(*const (dyn Fn(usize) + Sync));

// SAFETY: the pointee is `Sync`, and `Pool::run` keeps it alive until no worker can touch it.
unsafe impl Send for Body {}

struct Loop {
    body: Body,
    items: usize,
    serial: usize,
}

struct Shared {
    current: Mutex<Option<Loop>>,
    wake: Condvar,
    serial: AtomicUsize,
    next: AtomicUsize,
    busy: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
}

/// A pool of `threads - 1` workers; the caller of [`Pool::run`] is the last thread.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

fn lock(shared: &Shared) -> MutexGuard<'_, Option<Loop>> {
    shared.current.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts a pool that computes with `threads` threads (at least 1), counting its owner.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            current: Mutex::new(None),
            wake: Condvar::new(),
            serial: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let workers = (1..threads.max(1))
            .filter_map(|at| {
                let shared = Arc::clone(&shared);
                // Fewer workers than asked for is slower, not wrong: the owner does their items.
                std::thread::Builder::new().name(format!("kernel-{at}")).spawn(move || work(&shared)).ok()
            })
            .collect();
        Self { shared, workers }
    }

    /// Threads that compute, counting the owner.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(i)` for every `i` below `items`, each exactly once, on any thread; returns when all are done.
    ///
    /// # Panics
    /// When a body panicked.
    pub fn run(&mut self, items: usize, body: &(dyn Fn(usize) + Sync)) {
        if items <= 1 || self.workers.is_empty() {
            (0..items).for_each(body);
            return;
        }
        let shared = &*self.shared;
        shared.panicked.store(false, Ordering::Relaxed);
        // SAFETY: the lifetime is erased only inside this call. Workers reach the body through `current`, under the
        // lock, and count themselves in `busy` there; the body is removed from `current` and `busy` awaited as zero
        // before this function returns or unwinds.
        let erased = Body(unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                body,
            )
        });
        {
            let mut current = lock(shared);
            let serial = shared.serial.load(Ordering::Relaxed).wrapping_add(1);
            shared.next.store(0, Ordering::Relaxed);
            *current = Some(Loop { body: erased, items, serial });
            shared.serial.store(serial, Ordering::Release);
        }
        shared.wake.notify_all();
        let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take_items(shared, items, body)));
        *lock(shared) = None;
        while shared.busy.load(Ordering::Acquire) != 0 {
            std::hint::spin_loop();
        }
        if let Err(payload) = mine {
            std::panic::resume_unwind(payload);
        }
        assert!(!shared.panicked.load(Ordering::Acquire), "a kernel panicked on a pool thread");
    }
}

fn take_items(shared: &Shared, items: usize, body: &(dyn Fn(usize) + Sync)) {
    loop {
        let at = shared.next.fetch_add(1, Ordering::Relaxed);
        if at >= items {
            return;
        }
        body(at);
    }
}

fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        let idle_since = Instant::now();
        while shared.serial.load(Ordering::Acquire) == seen
            && !shared.stop.load(Ordering::Relaxed)
            && idle_since.elapsed() < SPIN
        {
            std::hint::spin_loop();
        }
        let mut current = lock(shared);
        let (body, items) = loop {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            match &*current {
                Some(job) if job.serial != seen => {
                    seen = job.serial;
                    break (job.body, job.items);
                }
                // A loop that ended before this worker woke is done; do not spin on its number again.
                _ => seen = shared.serial.load(Ordering::Relaxed),
            }
            current = shared.wake.wait(current).unwrap_or_else(PoisonError::into_inner);
        };
        shared.busy.fetch_add(1, Ordering::AcqRel);
        drop(current);
        // SAFETY: `busy` was raised under the lock while the loop was current, so `run` waits for this worker.
        let body = unsafe { &*body.0 };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take_items(shared, items, body))).is_err()
        {
            shared.panicked.store(true, Ordering::Release);
        }
        shared.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let _guard = lock(&self.shared);
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked outside a body has nothing left to clean up.
            let _ = worker.join();
        }
    }
}

/// A slice whose disjoint parts are written by several threads at once.
#[derive(Clone, Copy)]
pub(crate) struct Shards<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: access goes through `part`, whose contract demands disjoint ranges.
unsafe impl<T: Send> Send for Shards<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shards<T> {}

impl<T> Shards<T> {
    pub(crate) fn new(whole: &mut [T]) -> Self {
        Self { start: whole.as_mut_ptr(), len: whole.len() }
    }

    /// The part `from..from + len`.
    ///
    /// # Safety
    /// While the part lives, the slice given to `new` must live and no other part may overlap this one.
    #[allow(clippy::mut_from_ref, reason = "disjointness is the caller's contract")]
    pub(crate) unsafe fn part(&self, from: usize, len: usize) -> &mut [T] {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len), "part outside the slice");
        // SAFETY: in bounds by the assertion; unique by the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_runs_exactly_once() {
        let mut pool = Pool::new(4);
        for items in [0usize, 1, 2, 7, 1000] {
            for _ in 0..50 {
                let counts: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                pool.run(items, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_owner_and_the_pool_lives_on() {
        let mut pool = Pool::new(3);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(100, &|i| assert!(i != 50, "planned"));
        }));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(10, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 45);
    }

    #[test]
    fn an_idle_pool_wakes_again() {
        let mut pool = Pool::new(2);
        for _ in 0..3 {
            std::thread::sleep(SPIN * 20);
            let sum = AtomicUsize::new(0);
            pool.run(64, &|_| {
                sum.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 64);
        }
    }
}
