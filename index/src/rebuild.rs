//! How does what has changed become a new generation while documents come and go? A thread writes the picture of one
//! moment; commits go on meanwhile to a new journal, and are applied to the new generation before it takes over.

use crate::change::Joined;
use crate::journal::Journal;
use crate::live::{Disk, Live, State, Writer};
use crate::part::Part;
use crate::rows::Rows;
use crate::vector::Threads;
use crate::view::View;
use crate::{IndexError, generation, write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Documents that changed meanwhile and are applied while commits wait; of more, most are applied before, and commits go
/// on.
const CATCH_UP_DOCUMENTS: usize = 256;
/// So often they are; if by then documents still come faster than they are applied, commits wait.
const CATCH_UPS_MAX: usize = 8;

impl Live {
    /// Starts a rebuild; none may be running.
    pub(crate) fn begin_rebuild(
        self: &Arc<Self>,
        writer: &Writer,
        state: &mut State,
    ) -> Result<(), IndexError> {
        // From here on changes go to a journal that the new generation will not hold, and the one before must be whole.
        state.journal.mend()?;
        state.journal = Journal::create(&writer.disk.dir, state.journal.number.saturating_add(1))?;
        let (live, view, journal) = (Arc::clone(self), self.view(), state.journal.number);
        let run = move || live.rebuild(&view, journal);
        let started = std::thread::Builder::new().name("rebuild".into()).spawn(run);
        started.map_err(generation::io(&writer.disk.dir))?;
        (state.since, state.has_deleted_text) = (Some(Joined::default()), false);
        Ok(())
    }

    /// Writes the picture as a generation, and lets it take over with what was committed meanwhile.
    fn rebuild(self: &Arc<Self>, view: &View, journal: u64) {
        let Some(writer) = &self.writer else { return };
        let made = catch_unwind(AssertUnwindSafe(|| self.take_over(writer, view, journal)));
        let made = made.unwrap_or_else(|_| Err(IndexError::Vector("a rebuild panicked".into())));
        if let Err(error) = made {
            tracing::warn!(%error, "a rebuild of the index failed; the old generation and its journals stay");
            let mut state = writer.lock();
            let changed = view.fresh_rows() + view.dead_rows();
            state.changed_min = changed.max(writer.changed_min).saturating_mul(2);
            (state.since, state.has_deleted_text, state.failure) = (None, true, Some(error));
            self.clear_later(writer, &mut state);
        }
        writer.ended.notify_all();
    }

    /// What was committed meanwhile stays marked as such until the end, so that no other rebuild begins before.
    fn take_over(&self, writer: &Writer, view: &View, journal: u64) -> Result<(), IndexError> {
        let mut next = writer.disk.generation(view, journal)?;
        for catch_up in 0.. {
            let mut state = writer.lock();
            let since = state.since.as_mut().map(std::mem::take).unwrap_or_default();
            if since.len() > CATCH_UP_DOCUMENTS && catch_up < CATCH_UPS_MAX {
                drop(state);
                next = next.with(since.into_change())?;
                continue;
            }
            if since.len() > 0 {
                next = next.with(since.into_change())?;
            }
            tracing::info!(generation = next.generation, passages = next.rows(), "the index was rebuilt");
            self.swap(next);
            (state.since, state.failure, state.changed_min) = (None, None, writer.changed_min);
            break;
        }
        Ok(())
    }

    /// Waits until no rebuild is running.
    pub(crate) fn settle(&self) {
        if let Some(writer) = &self.writer {
            drop(writer.settled(writer.lock()));
        }
    }

    /// Rebuilds now, and waits for it.
    pub(crate) fn compact(self: &Arc<Self>) -> Result<(), IndexError> {
        let writer = self.writer.as_ref().ok_or(IndexError::ReadOnly)?;
        // One that runs already may have begun before what the caller wants gone was deleted.
        let mut state = writer.settled(writer.lock());
        self.begin_rebuild(writer, &mut state)?;
        writer.settled(state).failure.take().map_or(Ok(()), Err)
    }

    /// Clears deleted text from the disk, if there is any still.
    pub(crate) fn clear(self: &Arc<Self>) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.settled(writer.lock());
        state.clearing = false;
        if state.has_deleted_text
            && let Err(error) = self.begin_rebuild(writer, &mut state)
        {
            tracing::warn!(%error, "deleted text stays on the disk, as no rebuild could begin");
            self.clear_later(writer, &mut state);
        }
    }
}

impl Disk {
    /// Writes all living documents of a picture as a generation, and opens it.
    fn generation(&self, view: &View, journal: u64) -> Result<View, IndexError> {
        let mut rows = Rows::default();
        view.documents().for_each(|(part, info, range)| rows.push(part.content(info, range)));
        write::write(&self.dir, &rows, self.embed.as_ref(), journal, Threads::One, &mut |_| {})?;
        drop(rows);
        let part =
            |opened: generation::Opened| Ok((opened.manifest.generation, Part::open(&opened.whole()?)?));
        let (generation, part) = generation::open(&self.dir, part)?;
        Ok(View::new(generation, self.embed.dimensions(), part))
    }
}
