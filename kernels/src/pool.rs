//! Who does the arithmetic? A small pool of threads that one owner drives through parallel loops.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker looks for the next loop before it sleeps. A model step is a few hundred loops some
/// microseconds apart, and waking a sleeper costs more than that; beyond it the machine is idle and must stay so.
const SPIN: Duration = Duration::from_micros(60);

/// Looks between two looks at the clock, and between two offers of the core to others.
const LOOKS: u32 = 128;

/// A borrowed loop body with its lifetime erased; see the safety argument in [`Pool::run`].
#[derive(Clone, Copy)]
struct Body(*const (dyn Fn(usize) + Sync));

#[derive(Clone, Copy)]
struct Loop {
    body: Body,
    items: usize,
}

/// A value alone on its cache lines (two, since processors fetch them in pairs).
#[repr(align(128))]
struct Apart<T>(T);

/// Set in the state while the current loop may be joined; the bits below count those who did, those above the loops.
const OPEN: u64 = 1 << 31;
const ONE_LOOP: u64 = 1 << 32;

struct Shared {
    /// Number of the loop, whether it is open, and how many workers are in it.
    state: Apart<AtomicU64>,
    next: Apart<AtomicUsize>,
    /// Written by the owner while no worker is in a loop and none can enter; read by workers that entered.
    current: UnsafeCell<Option<Loop>>,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    panicked: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: `current` is written only while the state is closed and empty, and read only between entering and leaving.
unsafe impl Sync for Shared {}
// SAFETY: the body behind `current` is `Sync`, and is reached only while `Pool::run` keeps it alive.
unsafe impl Send for Shared {}

/// A pool of `threads - 1` workers; the caller of [`Pool::run`] is the last thread.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts a pool that computes with `threads` threads (at least 1), counting its owner.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: Apart(AtomicU64::new(0)),
            next: Apart(AtomicUsize::new(0)),
            current: UnsafeCell::new(None),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
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
        // SAFETY: the lifetime is erased only inside this call. A worker reaches the body only after it entered the
        // open loop, which counts it in the state; the loop is closed and the count awaited as zero before this
        // function returns or unwinds.
        let erased = Body(unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                body,
            )
        });
        shared.panicked.store(false, Ordering::Relaxed);
        shared.next.0.store(0, Ordering::Relaxed);
        // SAFETY: the last loop was closed and left by all, so nobody reads it.
        unsafe { *shared.current.get() = Some(Loop { body: erased, items }) };
        let serial = (shared.state.0.load(Ordering::Relaxed) & !(ONE_LOOP - 1)).wrapping_add(ONE_LOOP);
        // Sequentially consistent, as the count of sleepers is: either this sees the sleeper, or it sees the loop.
        shared.state.0.store(serial | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
            shared.wake.notify_all();
        }
        let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take_items(shared, items, body)));
        let mut looks = 0;
        shared.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        while shared.state.0.load(Ordering::Acquire) != serial {
            pause(&mut looks);
        }
        if let Err(payload) = mine {
            std::panic::resume_unwind(payload);
        }
        assert!(!shared.panicked.load(Ordering::Acquire), "a kernel panicked on a pool thread");
    }
}

/// Waits a moment; now and then the core is offered to whoever else needs it, perhaps the thread that is waited for.
fn pause(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(LOOKS) {
        std::thread::yield_now();
    }
    std::hint::spin_loop();
}

fn take_items(shared: &Shared, items: usize, body: &(dyn Fn(usize) + Sync)) {
    loop {
        let at = shared.next.0.fetch_add(1, Ordering::Relaxed);
        if at >= items {
            return;
        }
        body(at);
    }
}

impl Shared {
    /// Enters the current loop if it is open and none of those `seen`.
    fn enter(&self, seen: &mut u64) -> bool {
        let mut state = self.state.0.load(Ordering::SeqCst);
        while state & OPEN != 0 && state / ONE_LOOP != *seen {
            match self.state.0.compare_exchange_weak(state, state + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    *seen = state / ONE_LOOP;
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Enters the next loop, spinning for a while and sleeping thereafter; `false` when the pool ends.
    fn next_loop(&self, seen: &mut u64) -> bool {
        let mut idle_since = None;
        for looks in 1u32.. {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            if self.enter(seen) {
                return true;
            }
            std::hint::spin_loop();
            if looks.is_multiple_of(LOOKS) && idle_since.get_or_insert_with(Instant::now).elapsed() > SPIN {
                break;
            }
        }
        let mut sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let entered = loop {
            if self.stop.load(Ordering::Relaxed) {
                break false;
            }
            if self.enter(seen) {
                break true;
            }
            sleep = self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        entered
    }
}

fn work(shared: &Shared) {
    let mut seen = 0;
    while shared.next_loop(&mut seen) {
        // SAFETY: this worker has entered the loop, so the owner waits for it before it writes or returns.
        if let Some(Loop { body, items }) = unsafe { *shared.current.get() } {
            // SAFETY: as above: the body outlives the loop.
            let body = unsafe { &*body.0 };
            let take = std::panic::AssertUnwindSafe(|| take_items(shared, items, body));
            if std::panic::catch_unwind(take).is_err() {
                shared.panicked.store(true, Ordering::Release);
            }
        }
        shared.state.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let _guard = self.shared.sleep.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Where `from` stands, after checking that `len` elements from there on are inside; for strided writes.
    pub(crate) fn reach(&self, from: usize, len: usize) -> *mut T {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len), "part outside the slice");
        self.start.wrapping_add(from)
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
