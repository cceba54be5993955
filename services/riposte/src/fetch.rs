//! Are the models here, and if not, how do they come? Names to files, with a progress bar while they download.

use crate::config::Config;
use crate::failure::Failure;
use crate::ui::bytes;
use crate::ui::progress::{Progress, Unit, say};
use models::{
    Kind, ModelFiles, ModelSpec, Phase, PullError, PullProgress, Registry, RegistryError, Store, Wanted,
};
use std::path::PathBuf;

/// A file of weights and the model's name.
pub struct LanguageModel {
    /// The name that the API shows.
    pub id: String,
    /// The GGUF file.
    pub weights: PathBuf,
}

/// The files of an embedder and its name.
pub struct EmbedderFiles {
    /// The name that the index remembers.
    pub id: String,
    /// The safetensors file.
    pub weights: PathBuf,
    /// The tokenizer.json.
    pub tokenizer: PathBuf,
}

/// The store that the configuration names.
///
/// # Errors
/// When there is no folder to keep models in.
pub fn store(config: &Config) -> Result<Store, Failure> {
    let dir = if config.models.dir.as_os_str().is_empty() {
        models::cache_dir(|name| std::env::var_os(name)).map_err(pull_failure)?
    } else {
        config.models.dir.clone()
    };
    Ok(Store::new(dir, config.models.offline))
}

/// The language model that the configuration names: from the registry, fetched when it is not here, or a local file.
///
/// # Errors
/// When the name is not known or the model cannot be had.
pub fn language_model(config: &Config) -> Result<LanguageModel, Failure> {
    let registry = Registry::built_in().map_err(Failure::new)?;
    let files = match registry.resolve(&config.model.name).map_err(unknown)? {
        Wanted::Known(spec) => {
            of_kind(spec, Kind::Generator, "model.name")?;
            pull(&store(config)?, spec)?
        }
        Wanted::Local(path) => ModelFiles::local(path),
    };
    Ok(LanguageModel { id: files.model.clone(), weights: files.weights().to_path_buf() })
}

/// The embedder that the configuration names, fetched when it is not here.
///
/// # Errors
/// When the name is not known or the model cannot be had.
pub fn embedder(config: &Config) -> Result<EmbedderFiles, Failure> {
    let registry = Registry::built_in().map_err(Failure::new)?;
    let spec = known(&registry, &config.embedder.name)?;
    of_kind(spec, Kind::Embedder, "embedder.name")?;
    let files = pull(&store(config)?, spec)?;
    let tokenizer =
        files.tokenizer().ok_or_else(|| Failure::new(format!("{} has no tokenizer", spec.name)))?;
    Ok(EmbedderFiles {
        id: files.model.clone(),
        weights: files.weights().to_path_buf(),
        tokenizer: tokenizer.to_path_buf(),
    })
}

/// The model `name` of the registry.
///
/// # Errors
/// When it is not there.
pub fn known<'a>(registry: &'a Registry, name: &str) -> Result<&'a ModelSpec, Failure> {
    registry.get(name).ok_or_else(|| {
        let names: Vec<_> = registry.models().iter().map(|model| model.name.as_str()).collect();
        unknown(RegistryError::Unknown { wanted: name.to_string(), known: names.join(", ") })
    })
}

/// The files of `spec`, fetched with a progress bar when they are not here.
///
/// # Errors
/// When no source gives them, or fetching is not allowed.
pub fn pull(store: &Store, spec: &ModelSpec) -> Result<ModelFiles, Failure> {
    if let Ok(files) = store.path(spec) {
        return Ok(files);
    }
    let label = format!("pulling {} ({})", spec.name, bytes(spec.bytes()));
    let mut bar = Progress::start(label, Unit::Bytes);
    let files = store.pull(spec, &mut |news| show(&mut bar, news)).map_err(pull_failure)?;
    bar.done(&format!("pulled {} into {}, checksum right", spec.name, store.dir().display()));
    Ok(files)
}

fn show(bar: &mut Progress, news: &PullProgress) {
    match &news.phase {
        Phase::Waiting => bar.label(&format!("{}: waiting for another pull", news.model)),
        Phase::Fetching(source) => bar.label(&format!("{} from {source}", news.file)),
        Phase::SourceFailed(source, reason) => {
            say(&format!("{}: {source}: {reason}; trying the next source", news.model));
        }
        Phase::Verifying => bar.label(&format!("{}: checking its SHA-256", news.file)),
        Phase::Done => {}
    }
    bar.at(news.bytes_done, news.bytes_total);
}

fn of_kind(spec: &ModelSpec, kind: Kind, key: &str) -> Result<(), Failure> {
    if spec.kind == kind {
        return Ok(());
    }
    let message = format!("{key} is {}, which is a model of another kind ({:?})", spec.name, spec.kind);
    Err(Failure::usage(message).hint("`riposte models list`"))
}

fn unknown(error: RegistryError) -> Failure {
    Failure::usage(error).hint("`riposte models list`")
}

fn pull_failure(error: PullError) -> Failure {
    match error {
        PullError::NotPulled { .. } => Failure::new(error).hint("without --offline"),
        error => Failure::new(error),
    }
}
