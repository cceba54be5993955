//! How is a file fetched from the Hugging Face hub without waiting long where the hub cannot be reached?

use crate::error::FetchError;
use crate::fetch::HubFile;
use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// The first answer comes within this, or the hub counts as unreachable.
const FIRST_ANSWER: Duration = Duration::from_secs(3);
/// A download without a byte for this long is given up.
const STALL: Duration = Duration::from_secs(30);
/// The client goes on where the last try ended, so a flaky line gets there in a few tries.
const TRIES: usize = 3;

enum Event {
    Bytes(u64),
    Done(Result<PathBuf, ApiError>),
}

/// Downloads `file` into the client's own folder structure under `dir`, resuming what is there.
///
/// The client has no time limits, so it runs on a thread of its own and this one watches the clock.
pub(crate) fn download(
    endpoint: Option<&str>,
    file: HubFile,
    dir: &Path,
    tick: &mut dyn FnMut(u64),
) -> Result<PathBuf, FetchError> {
    // No token: what the registry names is public, and a credential of the person's is none of our business.
    let builder = ApiBuilder::from_env();
    let builder = match endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint.to_string()),
        None => builder,
    };
    let api = builder
        .with_cache_dir(dir.to_path_buf())
        .with_token(None)
        .with_progress(false)
        .build()
        .map_err(|e| FetchError::Refused(e.to_string()))?;
    ask(&api, file)?;
    let mut tries = 0;
    loop {
        tries += 1;
        match watch(&start(&api, file), tick)? {
            Ok(path) => return std::fs::canonicalize(&path).map_err(FetchError::disk(&path)),
            Err(ApiError::IoError(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                return Err(FetchError::Disk { path: dir.to_path_buf(), error });
            }
            Err(_) if tries < TRIES => {}
            Err(error) => return Err(FetchError::Refused(error.to_string())),
        }
    }
}

/// Asks for the file's size, to learn within a bounded time whether the hub answers at all.
fn ask(api: &Api, file: HubFile) -> Result<(), FetchError> {
    let (answer, answers) = channel();
    let (api, url) = (api.clone(), repo(api, file).url(file.file));
    thread::spawn(move || answer.send(api.metadata(&url).map(|_| ()).map_err(|e| e.to_string())));
    match answers.recv_timeout(FIRST_ANSWER) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(FetchError::Unreachable(reason)),
        Err(_) => Err(FetchError::Unreachable(format!("no answer within {} s", FIRST_ANSWER.as_secs()))),
    }
}

fn repo(api: &Api, file: HubFile) -> ApiRepo {
    api.repo(Repo::with_revision(file.repo.to_string(), RepoType::Model, file.revision.to_string()))
}

fn start(api: &Api, file: HubFile) -> Receiver<Event> {
    let (events, received) = channel();
    let (repo, name) = (repo(api, file), file.file.to_string());
    thread::spawn(move || {
        let meter = Meter { events: events.clone(), bytes: 0 };
        // When nobody listens any more the download was given up, and its result is of no use.
        let _ = events.send(Event::Done(repo.download_with_progress(&name, meter)));
    });
    received
}

fn watch(
    events: &Receiver<Event>,
    tick: &mut dyn FnMut(u64),
) -> Result<Result<PathBuf, ApiError>, FetchError> {
    loop {
        match events.recv_timeout(STALL) {
            Ok(Event::Bytes(bytes)) => tick(bytes),
            Ok(Event::Done(result)) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => return Err(FetchError::Stalled(STALL.as_secs())),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(FetchError::Refused("the hub client stopped".into()));
            }
        }
    }
}

struct Meter {
    events: Sender<Event>,
    bytes: u64,
}

impl Progress for Meter {
    fn init(&mut self, _size: usize, _filename: &str) {
        self.bytes = 0;
    }

    fn update(&mut self, size: usize) {
        self.bytes += size as u64;
        let _ = self.events.send(Event::Bytes(self.bytes));
    }

    fn finish(&mut self) {}
}
