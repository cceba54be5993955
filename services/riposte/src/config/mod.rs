//! What has the operator decided? The resolved configuration: read once, then immutable and passed down.
//!
//! Raw layers (defaults, file, environment, flags) are joined in [`load`]. No other module reads a setting from the
//! environment, only the user's cache and data folders.

mod load;
mod show;
#[cfg(test)]
mod tests;

pub use load::{ConfigError, Layers, Override, Resolved, check_key};

use api::{Access, Caller, Writes};
use budgets::Limits;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be configured. Each field is one TOML table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The HTTP server.
    pub server: Server,
    /// The language model.
    pub model: Model,
    /// How the language model's work is scheduled.
    pub engine: Engine,
    /// The embedding model.
    pub embedder: Embedder,
    /// Where models come from and are kept.
    pub models: Models,
    /// The index of documents.
    pub index: Index,
    /// Keys that callers bring, by name; anyone may call when there are none.
    pub keys: BTreeMap<String, Key>,
    /// The demo.
    pub demo: Demo,
    /// How a question is answered.
    pub answer: Answer,
    /// Every bound of the service.
    pub limits: Limits,
    /// Log output.
    pub log: Log,
}

/// `[server]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: String,
    /// How long running answers may go on after Ctrl-C.
    pub drain_ms: u64,
    /// Questions that the page offers before the first one is asked.
    pub sample_questions: Vec<String>,
}

impl Default for Server {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8080".to_string(), drain_ms: 10_000, sample_questions: Vec::new() }
    }
}

/// `[model]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// A name from `riposte models list`, or a path to a GGUF file.
    pub name: String,
    /// Threads that compute; 0 takes one per physical core.
    pub threads: usize,
    /// Memory for the KV blocks.
    pub kv_mib: usize,
    /// Bits of a number in them: 16, or 8.
    pub kv_bits: u8,
}

impl Default for Model {
    fn default() -> Self {
        Self { name: "qwen2.5-coder-0.5b-instruct".to_string(), threads: 0, kv_mib: 512, kv_bits: 16 }
    }
}

/// `[engine]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// Keep computed KV for prompts that begin with the same tokens.
    pub prefix_cache: bool,
    /// A stream without a time per token of its own bears steps that take this many times a step without prefill.
    pub step_stretch_max: f64,
    /// After this wait a request goes before all later ones, whatever their deadlines.
    pub patience_ms: u64,
    /// Time at start to measure how long steps take; 0 learns it from the first requests.
    pub calibration_ms: u64,
}

impl Default for Engine {
    fn default() -> Self {
        let policy = engine::Policy::default();
        Self {
            prefix_cache: policy.prefix_cache,
            step_stretch_max: policy.step_stretch_max,
            patience_ms: u64::try_from(policy.patience.as_millis()).unwrap_or(u64::MAX),
            calibration_ms: 800,
        }
    }
}

impl Engine {
    /// The same, as the scheduler takes it.
    pub fn policy(&self) -> engine::Policy {
        engine::Policy {
            prefix_cache: self.prefix_cache,
            step_stretch_max: self.step_stretch_max,
            patience: Duration::from_millis(self.patience_ms),
            ..engine::Policy::default()
        }
    }
}

/// `[embedder]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Embedder {
    /// A name from `riposte models list`.
    pub name: String,
    /// Threads that embed; 0 takes one per physical core.
    pub threads: usize,
}

impl Default for Embedder {
    fn default() -> Self {
        Self { name: "all-minilm-l6-v2".to_string(), threads: 0 }
    }
}

/// `[models]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Models {
    /// Folder of downloaded models; empty takes `riposte/models` in the user's cache folder.
    pub dir: PathBuf,
    /// Never download: a model must be in the cache already.
    pub offline: bool,
}

/// `[index]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Index {
    /// Folder of the index that `riposte index` writes and `riposte serve` opens.
    pub data: PathBuf,
    /// Anyone who calls may put and delete documents. With keys, each key says what its bearer may.
    pub writable: bool,
    /// Files and folders that the index follows while it is served.
    pub watch: Vec<PathBuf>,
    /// How often they are looked at.
    pub watch_ms: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self { data: data_home().join("index"), writable: false, watch: Vec::new(), watch_ms: 2_000 }
    }
}

/// `[keys.NAME]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// SHA-256 of the key, in hexadecimal digits: the key itself stands nowhere.
    pub sha256: String,
    /// Whose key it is; absent, the table's own name. Several keys may be one tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Which documents its bearer may put and delete.
    #[serde(default)]
    pub documents: KeyDocuments,
}

/// Which documents the bearer of a key may put and delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum KeyDocuments {
    /// None
    #[default]
    None,
    /// Its tenant's own, which nobody else sees
    Own,
    /// Those that everyone sees
    Shared,
}

impl Config {
    /// Who may use the service; keys have been checked by then.
    pub fn access(&self) -> Access {
        let writes = |documents| match documents {
            KeyDocuments::None => Writes::None,
            KeyDocuments::Own => Writes::Own,
            KeyDocuments::Shared => Writes::Shared,
        };
        if self.keys.is_empty() {
            return Access::Open(if self.index.writable { Writes::Shared } else { Writes::None });
        }
        Access::keys(self.keys.iter().filter_map(|(name, key)| {
            let tenant = key.tenant.as_deref().unwrap_or(name);
            let caller = Caller { tenant: Some(tenant.into()), writes: writes(key.documents) };
            Some((digest(&key.sha256)?, caller))
        }))
    }
}

/// The bytes of a SHA-256 in hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        text.as_bytes().chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect();
    bytes?.try_into().ok()
}

/// `[demo]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demo {
    /// Folder of the demo's own index. It is separate, so that the demo never replaces an index of yours.
    pub data: PathBuf,
    /// The question that the demo asks itself at start.
    pub question: String,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            data: data_home().join("demo"),
            question: "What is the KV cache and why does it grow?".to_string(),
        }
    }
}

/// `[answer]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// Passages in a prompt, when the request does not say.
    pub passages_max: usize,
    /// Tokens in an answer, when the request does not say.
    pub output_tokens_max: usize,
    /// Earlier turns of a conversation that go into the prompt.
    pub conversation_turns_max: usize,
    /// Share of the time left until the first token that the search may take.
    pub retrieval_share: f64,
    /// A passage bears on a question from this cosine on.
    pub cosine_min: f64,
    /// A passage bears on a question when it holds this share of the question's content words.
    pub question_share_min: f64,
}

impl Default for Answer {
    fn default() -> Self {
        let settings = answer::AnswerSettings::default();
        Self {
            passages_max: settings.passages_max,
            output_tokens_max: settings.output_tokens_max,
            conversation_turns_max: settings.conversation_turns_max,
            retrieval_share: settings.retrieval_share,
            cosine_min: plain(settings.cosine_min),
            question_share_min: plain(settings.question_share_min),
        }
    }
}

impl Answer {
    /// The same, as the answer pipeline takes it.
    #[allow(clippy::cast_possible_truncation)] // Thresholds of two or three digits.
    pub fn settings(&self) -> answer::AnswerSettings {
        answer::AnswerSettings {
            passages_max: self.passages_max,
            output_tokens_max: self.output_tokens_max,
            conversation_turns_max: self.conversation_turns_max,
            retrieval_share: self.retrieval_share,
            cosine_min: self.cosine_min as f32,
            question_share_min: self.question_share_min as f32,
        }
    }
}

/// The double that prints like the float: 0.3, not 0.30000001192092896.
fn plain(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Which events reach stderr, in the syntax of tracing's `EnvFilter`: `warn`, `info`, `engine=debug,warn`.
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "warn".to_string() }
    }
}

/// `riposte` in the user's data folder, per the XDG base directories; the current folder without a home.
fn data_home() -> PathBuf {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map_or_else(|| PathBuf::from(".riposte"), |folder| folder.join("riposte"))
}
