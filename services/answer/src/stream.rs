//! How is an answer read? The stream that does the work while it is polled, and stops it when it is dropped.

use crate::AnswerEvent;
use std::pin::Pin;
use tokio::sync::mpsc;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Events of one answer. Nothing runs detached: dropping the stream drops the pipeline, and with it the generation.
/// Only a search that is already on its thread runs on, until its own deadline.
pub struct AnswerStream {
    events: mpsc::Receiver<AnswerEvent>,
    /// `None` once it has ended.
    work: Option<Work>,
}

impl AnswerStream {
    pub(crate) fn new(events: mpsc::Receiver<AnswerEvent>, work: Work) -> Self {
        Self { events, work: Some(work) }
    }

    /// The next event; `None` after `Final` or `Failed`. Cancel-safe: a call that is dropped loses no event.
    pub async fn next(&mut self) -> Option<AnswerEvent> {
        loop {
            let Some(work) = self.work.as_mut() else {
                return self.events.recv().await;
            };
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Some(event),
                () = work => self.work = None,
            }
        }
    }
}
