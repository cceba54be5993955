//! How does an index change while it is searched? A commit makes the next picture, writes the change to the journal, and
//! only then swaps the pictures; so what was acknowledged is on disk and is seen, and a search that runs keeps its own.
//!
//! When much has come or gone, a thread writes a new generation from the picture of that moment. Commits go on
//! meanwhile: their changes go to a new journal, and are applied to the new generation when it takes over.

use crate::change::Change;
use crate::generation;
use crate::journal::{self, Journal};
use crate::part::Part;
use crate::rows::Rows;
use crate::vector::Threads;
use crate::view::View;
use crate::{Embed, IndexError, write};
use budgets::Limits;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// A rebuild begins when more than this share of the generation has come or gone.
const CHANGED_SHARE: f64 = 0.2;

/// Where a writer's index lies.
pub(crate) struct Disk {
    pub(crate) dir: PathBuf,
    pub(crate) embed: Arc<dyn Embed>,
    /// Keeps other writers out.
    pub(crate) _lock: File,
}

/// The picture at hand, and what it takes to change it.
pub(crate) struct Live {
    view: RwLock<Arc<View>>,
    writer: Option<Writer>,
}

struct Writer {
    disk: Disk,
    fresh_rows_max: usize,
    /// No rebuild before so many rows have come or gone; below that the parts in memory cost next to nothing.
    changed_min: usize,
    state: Mutex<State>,
    /// Told when a rebuild ends.
    ended: Condvar,
}

struct State {
    journal: Journal,
    /// What was committed since the rebuild that runs began.
    since: Option<Vec<Change>>,
    /// After a failure the next rebuild waits for so many changed rows.
    changed_min: usize,
}

impl Live {
    pub(crate) fn read_only(view: View) -> Live {
        Live { view: RwLock::new(Arc::new(view)), writer: None }
    }

    pub(crate) fn new(view: View, disk: Disk, journal: Journal, limits: &Limits) -> Live {
        let (fresh_rows_max, changed_min) = (limits.live_passages_max, limits.rebuild_passages_min);
        let state = Mutex::new(State { journal, since: None, changed_min });
        let writer = Writer { disk, fresh_rows_max, changed_min, state, ended: Condvar::new() };
        Live { view: RwLock::new(Arc::new(view)), writer: Some(writer) }
    }

    /// The picture at hand.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn swap(&self, view: View) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writer.is_some()
    }

    /// Makes a change durable and visible. `make` gets the picture that the change will be applied to; what it gives
    /// beside the change is given back.
    ///
    /// # Errors
    /// `ReadOnly`, `Behind`, a full disk; then nothing has changed.
    pub(crate) fn commit<T>(
        self: &Arc<Self>,
        make: impl FnOnce(&View) -> (Change, T),
    ) -> Result<T, IndexError> {
        let writer = self.writer.as_ref().ok_or(IndexError::ReadOnly)?;
        let mut state = writer.lock();
        let view = self.view();
        let (change, told) = make(&view);
        if change.put.is_empty() && change.delete.is_empty() {
            return Ok(told);
        }
        let waiting = view.fresh_rows() + change.passages();
        // Deleting is always possible: it is what a full index needs.
        if waiting > writer.fresh_rows_max && !change.put.is_empty() {
            self.rebuild_if_due(writer, &mut state, &view, true);
            return Err(IndexError::Behind { waiting, waiting_max: writer.fresh_rows_max });
        }
        let kept = state.since.is_some().then(|| change.clone());
        let record = journal::encode(&change)?;
        let next = view.with(change)?;
        state.journal.append(&record)?;
        if let (Some(since), Some(change)) = (&mut state.since, kept) {
            since.push(change);
        }
        self.swap(next);
        let view = self.view();
        self.rebuild_if_due(writer, &mut state, &view, false);
        Ok(told)
    }

    /// Starts a rebuild unless one runs or too little has changed.
    fn rebuild_if_due(self: &Arc<Self>, writer: &Writer, state: &mut State, view: &Arc<View>, is_full: bool) {
        let changed = view.fresh_rows() + view.dead_rows();
        let base = view.rows() - view.fresh_rows();
        let due = changed >= state.changed_min && changed as f64 > CHANGED_SHARE * base as f64;
        if state.since.is_some() || !(due || is_full) {
            return;
        }
        // From here on changes go to a journal that the new generation will not hold.
        match Journal::create(&writer.disk.dir, state.journal.number + 1) {
            Ok(journal) => state.journal = journal,
            Err(error) => return tracing::warn!(%error, "no rebuild of the index could begin"),
        }
        state.since = Some(Vec::new());
        let (live, view, journal) = (Arc::clone(self), Arc::clone(view), state.journal.number);
        let run = move || live.rebuild(&view, journal);
        if let Err(error) = std::thread::Builder::new().name("rebuild".into()).spawn(run) {
            state.since = None;
            tracing::warn!(%error, "no rebuild of the index could begin");
        }
    }

    /// Writes the picture as a generation, and lets it take over with what was committed meanwhile.
    fn rebuild(&self, view: &View, journal: u64) {
        let Some(writer) = &self.writer else { return };
        let made =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.disk.generation(view, journal)));
        let made = made.unwrap_or_else(|_| Err(IndexError::Vector("a rebuild panicked".into())));
        let mut state = writer.lock();
        let since = state.since.take().unwrap_or_default();
        match made.and_then(|base| base.with_all(since)) {
            Ok(next) => {
                tracing::info!(generation = next.generation, passages = next.rows(), "the index was rebuilt");
                state.changed_min = writer.changed_min;
                self.swap(next);
            }
            Err(error) => {
                state.changed_min = 2 * (view.fresh_rows() + view.dead_rows()).max(writer.changed_min);
                tracing::warn!(%error, "a rebuild of the index failed; the old generation and its journals stay");
            }
        }
        writer.ended.notify_all();
    }

    pub(crate) fn settle(&self) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.lock();
        while state.since.is_some() {
            state = writer.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Writer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// Writes all living documents of a picture as a generation, and opens it.
    fn generation(&self, view: &View, journal: u64) -> Result<View, IndexError> {
        let mut rows = Rows::default();
        view.documents().for_each(|(part, info, range)| rows.push(part.content(info, range)));
        write::write(&self.dir, &rows, self.embed.as_ref(), journal, Threads::One, &mut |_| {})?;
        let part =
            |opened: generation::Opened| Ok((opened.manifest.generation, Part::open(&opened.whole()?)?));
        let (generation, part) = generation::open(&self.dir, part)?;
        Ok(View::new(generation, self.embed.dimensions(), part))
    }
}
