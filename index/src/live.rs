//! How does an index change while it is searched? A commit makes the next picture, writes the change to the journal, and
//! only then swaps the pictures; so what was acknowledged is on disk and is seen, and a search that runs keeps its own.
//!
//! When much has come or gone, a thread writes a new generation from the picture of that moment (`rebuild`).

use crate::change::{Change, Joined};
use crate::journal::{self, Journal};
use crate::view::View;
use crate::{Embed, IndexError};
use budgets::Limits;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// A rebuild begins when more than this share of the generation has come or gone.
const CHANGED_SHARE: f64 = 0.2;
/// A rebuild begins also when the journal has so many bytes. Documents that are replaced over and over change few rows,
/// yet each of their versions is in the journal.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;

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
    pub(crate) writer: Option<Writer>,
}

pub(crate) struct Writer {
    pub(crate) disk: Disk,
    fresh_rows_max: usize,
    /// No rebuild before so many rows have come or gone; below that the parts in memory cost next to nothing.
    pub(crate) changed_min: usize,
    /// How long text may lie on disk that no picture holds any more, before a rebuild begins for its sake.
    deleted_text_max: Duration,
    state: Mutex<State>,
    /// Told when a rebuild ends.
    pub(crate) ended: Condvar,
}

pub(crate) struct State {
    pub(crate) journal: Journal,
    /// What was committed since the rebuild that runs began.
    pub(crate) since: Option<Joined>,
    /// After a failure the next rebuild waits for so many changed rows.
    pub(crate) changed_min: usize,
    /// Text was deleted or replaced that the next rebuild will clear from the disk.
    pub(crate) has_deleted_text: bool,
    /// A thread waits to clear it.
    pub(crate) clearing: bool,
    /// Why the last rebuild failed, if it did.
    pub(crate) failure: Option<IndexError>,
}

impl Live {
    pub(crate) fn read_only(view: View) -> Live {
        Live { view: RwLock::new(Arc::new(view)), writer: None }
    }

    /// What takes changes of `view`, whose journal may hold text that is deleted already.
    pub(crate) fn new(view: View, disk: Disk, journal: Journal, limits: &Limits) -> Arc<Live> {
        let state = State {
            has_deleted_text: !journal.is_empty(),
            journal,
            since: None,
            changed_min: limits.rebuild_passages_min,
            clearing: false,
            failure: None,
        };
        let writer = Writer {
            disk,
            fresh_rows_max: limits.live_passages_max,
            changed_min: limits.rebuild_passages_min,
            deleted_text_max: Duration::from_millis(limits.deleted_text_ms_max),
            state: Mutex::new(state),
            ended: Condvar::new(),
        };
        let live = Arc::new(Live { view: RwLock::new(Arc::new(view)), writer: Some(writer) });
        if let Some(writer) = &live.writer {
            live.clear_later(writer, &mut writer.lock());
        }
        live
    }

    /// The picture at hand.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows the next picture to all searches that begin from now on. The caller holds the state.
    pub(crate) fn swap(&self, next: View) {
        let next = Arc::new(next);
        let old = std::mem::replace(&mut *self.view.write().unwrap_or_else(PoisonError::into_inner), next);
        // Nobody waits while what only the old picture held is given back.
        drop(old);
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writer.is_some()
    }

    /// Makes a change durable and visible. `make` gets the picture that the change will be applied to; what it gives
    /// beside the change is given back.
    ///
    /// # Errors
    /// `ReadOnly`, `TooManyPassages`, `Behind`, a full disk; then nothing has changed.
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
        self.has_room(writer, &mut state, &view, &change)?;
        let removes = change.ids().any(|id| view.find(id).is_some());
        let kept = state.since.is_some().then(|| change.clone());
        let record = journal::encode(&change, state.journal.len())?;
        let next = view.with(change)?;
        state.journal.append(&record)?;
        if let (Some(since), Some(change)) = (&mut state.since, kept) {
            since.add(change);
        }
        state.has_deleted_text |= removes;
        let changed = next.fresh_rows() + next.dead_rows();
        let base = next.rows() - next.fresh_rows();
        let is_due = is_due(changed, base, state.changed_min, state.journal.len());
        self.swap(next);
        if is_due {
            self.try_rebuild(writer, &mut state);
        }
        self.clear_later(writer, &mut state);
        Ok(told)
    }

    /// Refuses documents for which there is no room in memory. Deleting is always possible: it is what a full index needs.
    fn has_room(
        self: &Arc<Self>,
        writer: &Writer,
        state: &mut State,
        view: &View,
        change: &Change,
    ) -> Result<(), IndexError> {
        let (passages, passages_max) = (change.passages(), writer.fresh_rows_max);
        if passages > passages_max {
            return Err(IndexError::TooManyPassages { passages, passages_max });
        }
        let waiting = view.fresh_rows() + passages;
        if waiting <= passages_max || change.put.is_empty() {
            return Ok(());
        }
        self.try_rebuild(writer, state);
        Err(IndexError::Behind { waiting, waiting_max: passages_max })
    }

    /// Begins a rebuild unless one runs.
    fn try_rebuild(self: &Arc<Self>, writer: &Writer, state: &mut State) {
        if state.since.is_none()
            && let Err(error) = self.begin_rebuild(writer, state)
        {
            tracing::warn!(%error, "no rebuild of the index could begin");
        }
    }

    /// Sees to it that text which was deleted leaves the disk in time, though nothing else may ask for a rebuild.
    pub(crate) fn clear_later(self: &Arc<Self>, writer: &Writer, state: &mut State) {
        if state.clearing || !state.has_deleted_text {
            return;
        }
        let (live, wait) = (Arc::downgrade(self), writer.deleted_text_max);
        let clear = move || {
            std::thread::sleep(wait);
            // The index may have been closed; who opens it next sees to the rest.
            if let Some(live) = live.upgrade() {
                live.clear();
            }
        };
        match std::thread::Builder::new().name("clear".into()).spawn(clear) {
            Ok(_) => state.clearing = true,
            Err(error) => tracing::warn!(%error, "deleted text stays on the disk until the next rebuild"),
        }
    }
}

/// Whether so much has changed that a rebuild is worth its work.
fn is_due(changed: usize, base: usize, changed_min: usize, journal_bytes: u64) -> bool {
    let is_much = changed >= changed_min && changed as f64 > CHANGED_SHARE * base as f64;
    is_much || journal_bytes > JOURNAL_BYTES_MAX
}

impl Writer {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no rebuild is running.
    pub(crate) fn settled<'w>(&'w self, mut state: MutexGuard<'w, State>) -> MutexGuard<'w, State> {
        while state.since.is_some() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_is_due_when_a_fifth_has_changed_and_enough_or_when_the_journal_is_long() {
        assert!(!is_due(2_047, 0, 2_048, 0) && is_due(2_048, 0, 2_048, 0));
        assert!(!is_due(20_000, 100_000, 2_048, 0) && is_due(20_001, 100_000, 2_048, 0));
        // One document that is replaced over and over changes one row.
        assert!(!is_due(1, 0, 2_048, 128 << 20) && is_due(1, 100_000, 2_048, (128 << 20) + 1));
    }
}
