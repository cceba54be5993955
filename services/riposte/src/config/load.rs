//! Which value wins? Joins defaults, file, environment and flags, in this order; the later one wins.

use super::{Config, Key};
use figment::error::Kind;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider, Source};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The file that is read from the current folder when no other is named.
const FILE_NAME: &str = "riposte.toml";

/// Variables that begin so are configuration: `RIPOSTE_MODEL_KV_MIB` is `model.kv_mib`.
const ENV_PREFIX: &str = "RIPOSTE_";

/// Variables with the prefix that are not configuration keys: the file's path, and switches of the test suite.
const ENV_RESERVED: [&str; 2] = ["RIPOSTE_CONFIG", "RIPOSTE_REQUIRE_WEIGHTS"];

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The named file is not there or cannot be read.
    #[error("configuration file {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A key that does not exist, with the place where it was set.
    #[error("unknown key {key} in {place}")]
    UnknownKey {
        /// The key with its table.
        key: String,
        /// The file, variable or flag.
        place: String,
    },
    /// A value of the wrong type, or text that is not TOML.
    #[error("{message} ({place})")]
    Value {
        /// What is wrong.
        message: String,
        /// The file, variable or flag.
        place: String,
    },
    /// Values that contradict each other or stand outside their range.
    #[error("{0}")]
    Range(String),
}

/// A value set by a command-line flag.
#[derive(Clone, Debug)]
pub struct Override {
    /// The flag, as typed: `--model`.
    pub flag: &'static str,
    /// The key it sets: `model.name`.
    pub key: &'static str,
    /// The value.
    pub value: Value,
}

/// The raw layers, before they are joined.
#[derive(Debug, Default)]
pub struct Layers {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The environment: every variable; those without the prefix are ignored.
    pub env: Vec<(String, String)>,
    /// The flags.
    pub flags: Vec<Override>,
}

/// A configuration together with the origin of each value.
#[derive(Debug)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    pub(super) figment: Figment,
}

impl Layers {
    /// Layers of this process: `file` if named, else [`FILE_NAME`] if present; then the environment; then `flags`.
    ///
    /// # Errors
    /// When the named file is not there.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<Override>) -> Result<Self, ConfigError> {
        let file = match file {
            Some(path) => match std::fs::metadata(&path) {
                Ok(_) => Some(path),
                Err(source) => return Err(ConfigError::File { path, source }),
            },
            None => Some(PathBuf::from(FILE_NAME)).filter(|path| path.is_file()),
        };
        // A variable that is not Unicode cannot be one of ours: keys and values are text.
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Ok(Self { file, env, flags })
    }

    /// Joins the layers and checks the result.
    ///
    /// # Errors
    /// See [`ConfigError`]; the first problem is reported.
    pub fn resolve(self) -> Result<Resolved, ConfigError> {
        let mut figment = Figment::from(Serialized::defaults(Config::default()));
        if let Some(path) = &self.file {
            // Read here and not by the provider: it would take an unreadable file for an absent one.
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::File { path: path.clone(), source })?;
            figment = figment.merge(FileLayer { path, text });
        }
        for (name, value) in self.env {
            if let Some(key) = key_of_variable(&name) {
                let value = value.parse::<Value>().unwrap_or(Value::from(value.clone()));
                figment = figment.merge(OneValue { origin: format!("environment {name}"), key, value });
            }
        }
        for Override { flag, key, value } in self.flags {
            figment = figment.merge(OneValue { origin: format!("flag {flag}"), key: key.to_string(), value });
        }
        let config: Config = figment.extract().map_err(|error| explain(&error))?;
        check(&config)?;
        Ok(Resolved { config, figment })
    }
}

/// `RIPOSTE_MODEL_KV_MIB` to `model.kv_mib`: tables are one word, so the first underscore ends the table's name.
fn key_of_variable(name: &str) -> Option<String> {
    let rest = name.strip_prefix(ENV_PREFIX).filter(|_| !ENV_RESERVED.contains(&name))?;
    Some(rest.to_ascii_lowercase().replacen('_', ".", 1))
}

/// The TOML file; its origin in messages is its path as given.
struct FileLayer<'a> {
    path: &'a Path,
    text: String,
}

impl Provider for FileLayer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::from("file", Source::File(self.path.to_path_buf()))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Toml::string(&self.text).data()
    }
}

/// One value from one place.
struct OneValue {
    origin: String,
    key: String,
    value: Value,
}

impl Provider for OneValue {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let nested = figment::util::nest(&self.key, self.value.clone());
        let dict = nested.into_dict().unwrap_or_default();
        Ok(Profile::Default.collect(dict))
    }
}

/// The place a value came from, in the operator's words.
pub(super) fn origin(metadata: &Metadata) -> String {
    match &metadata.source {
        Some(Source::File(path)) => path.display().to_string(),
        _ if metadata.name.starts_with("environment ") || metadata.name.starts_with("flag ") => {
            metadata.name.to_string()
        }
        _ => "default".to_string(),
    }
}

fn explain(error: &figment::Error) -> ConfigError {
    let place = error.metadata.as_ref().map_or_else(|| "configuration".to_string(), origin);
    let path = error.path.join(".");
    match &error.kind {
        Kind::UnknownField(field, _) => {
            let key = if path.is_empty() || path == *field || path.ends_with(&format!(".{field}")) {
                if path.is_empty() { field.clone() } else { path }
            } else {
                format!("{path}.{field}")
            };
            ConfigError::UnknownKey { key, place }
        }
        kind if path.is_empty() => ConfigError::Value { message: one_line(&kind.to_string()), place },
        kind => ConfigError::Value { message: format!("{path}: {}", one_line(&kind.to_string())), place },
    }
}

/// TOML syntax errors draw the place over several lines; an error here is one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().filter(|word| !matches!(*word, "|" | "^")).collect::<Vec<_>>().join(" ")
}

/// Longest name of a key or tenant.
const NAME_BYTES_MAX: usize = 64;

/// Names stand in addresses and figures, so they are plain.
///
/// # Errors
/// Says which is not, or that the digest is none.
pub fn check_key(name: &str, key: &Key) -> Result<(), ConfigError> {
    let is_plain = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain)
    };
    for (what, text) in [("the name", name), ("tenant", key.tenant.as_deref().unwrap_or(name))] {
        if !is_plain(text) {
            let rule = "has 1 to 64 of the characters a-z, 0-9, - and _";
            return Err(ConfigError::Range(format!("keys.{name}: {what} {rule}, not {text:?}")));
        }
    }
    if super::digest(&key.sha256).is_none() {
        let hint = "`riposte keys new NAME` makes a key and its entry";
        return Err(ConfigError::Range(format!("keys.{name}.sha256 is no SHA-256 of 64 digits; {hint}")));
    }
    Ok(())
}

/// Most threads of one pool. More than any machine has cores; far more would exhaust the system's memory maps.
const THREADS_MAX: usize = 1_024;

fn check(config: &Config) -> Result<(), ConfigError> {
    config.keys.iter().try_for_each(|(name, key)| check_key(name, key))?;
    config.limits.check().map_err(|error| ConfigError::Range(error.to_string()))?;
    let (answer, limits) = (&config.answer, &config.limits);
    let unit = 0.0..=1.0;
    let rules = [
        (!config.model.name.is_empty(), "model.name must not be empty"),
        (config.model.kv_mib >= 1, "model.kv_mib must be at least 1"),
        (matches!(config.model.kv_bits, 8 | 16), "model.kv_bits must be 16 or 8"),
        (config.model.threads <= THREADS_MAX, "model.threads must be at most 1024"),
        (config.embedder.threads <= THREADS_MAX, "embedder.threads must be at most 1024"),
        (
            (1.0..=1_000.0).contains(&config.engine.step_stretch_max),
            "engine.step_stretch_max must be between 1 and 1000",
        ),
        (config.engine.patience_ms >= 1, "engine.patience_ms must be at least 1"),
        (config.engine.calibration_ms <= 60_000, "engine.calibration_ms must be at most 60000"),
        (!config.embedder.name.is_empty(), "embedder.name must not be empty"),
        (!config.demo.question.trim().is_empty(), "demo.question must not be empty"),
        (config.index.watch_ms >= 1, "index.watch_ms must be at least 1"),
        (config.demo.data != config.index.data, "demo.data must not be index.data"),
        (
            (1..=limits.prompt_passages_max).contains(&answer.passages_max),
            "answer.passages_max must be between 1 and limits.prompt_passages_max",
        ),
        (
            (1..=limits.output_tokens_max).contains(&answer.output_tokens_max),
            "answer.output_tokens_max must be between 1 and limits.output_tokens_max",
        ),
        (unit.contains(&answer.retrieval_share), "answer.retrieval_share must be between 0 and 1"),
        ((-1.0..=1.0).contains(&answer.cosine_min), "answer.cosine_min must be between -1 and 1"),
        (unit.contains(&answer.question_share_min), "answer.question_share_min must be between 0 and 1"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(ConfigError::Range((*rule).to_string())),
        None => Ok(()),
    }
}
