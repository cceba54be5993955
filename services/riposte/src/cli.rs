//! What can be typed? The commands and flags, and which configuration keys the flags set.

use crate::config::{KeyDocuments, Override};
use clap::builder::TypedValueParser as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use figment::value::Value;
use std::path::PathBuf;

mod measure;

pub use measure::*;

/// Answers questions from your documents, with citations, inside a latency budget.
///
/// Start with `riposte demo`: it fetches a small model, indexes the handbook that comes
/// with the program and serves answers on http://127.0.0.1:8080.
#[derive(Debug, Parser)]
#[command(name = "riposte", version, verbatim_doc_comment, after_help = EXIT_CODES)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 it failed; 2 the command line or the configuration is wrong.\n\
    Every configuration key is described in docs/configuration.md; `riposte config show` prints those in force.";

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Common {
    /// Configuration file [default: riposte.toml in the current folder, if there is one]
    #[arg(long, global = true, value_name = "FILE", env = "RIPOSTE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Never download anything: models must be in the cache already
    #[arg(long, global = true)]
    pub offline: bool,
    /// Folder of downloaded models [default: riposte/models in the user's cache folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub models_dir: Option<PathBuf>,
    /// Log events on stderr: error, warn, info, debug, or a filter such as engine=debug,warn
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fetch models, index the handbook, answer a sample question and serve: everything in one
    Demo(DemoArgs),
    /// Serve answers from an index over HTTP
    Serve(ServeArgs),
    /// Index documents: .md .rst .html .txt .pdf .docx .csv .tsv .jsonl files, source code, and folders of them
    Index(IndexArgs),
    /// List, fetch and locate models
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Make keys for callers
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure the quality of answers
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Measure the engine on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Load a running server and report latency percentiles
    Loadtest(LoadArgs),
    /// Replay a trace of requests through the scheduler on a virtual clock: hours of traffic in seconds
    Simulate(SimulateArgs),
}

/// Which model computes, and with what.
#[derive(Debug, Default, Args)]
pub struct ModelArgs {
    /// Language model: a name from `riposte models list`, or a path to a GGUF file
    #[arg(long, value_name = "NAME|PATH")]
    pub model: Option<String>,
    /// Threads that compute [default: one per physical core]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Memory for the KV cache, in MiB [default: 512]
    #[arg(long, value_name = "MIB")]
    pub kv_mib: Option<u32>,
    /// Bits of a number in the KV cache: 16, or 8 for half the memory and a little less precision [default: 16]
    #[arg(long, value_name = "BITS")]
    pub kv_bits: Option<u32>,
}

/// `riposte demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Answer this question, print answer, sources and timing, and exit
    #[arg(long, value_name = "QUESTION")]
    pub once: Option<String>,
    /// Address and port to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub listen: Option<String>,
    /// Folder of the demo's own index [default: riposte/demo in the user's data folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `riposte serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Folder of the index, as written by `riposte index` [default: riposte/index in the user's data folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Index this folder or file and follow its changes while serving; may be given several times
    #[arg(long, value_name = "PATH")]
    pub watch: Vec<PathBuf>,
    /// Let callers put and delete documents over HTTP
    #[arg(long)]
    pub writable: bool,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `riposte index`
#[derive(Debug, Args)]
pub struct IndexArgs {
    /// Files and folders to index
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Folder of the index; an index that is there is replaced [default: riposte/index in the user's data folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// `riposte models`
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models of the registry and which of them are in the cache
    List,
    /// Fetch a model into the cache and check it against its SHA-256
    Pull {
        /// A name from `riposte models list`
        name: String,
    },
    /// Print the path of a model's weights in the cache
    Path {
        /// A name from `riposte models list`
        name: String,
    },
}

/// `riposte keys`
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Draw a key, and print it with the entry of the configuration that admits it
    New {
        /// The key's name: a-z, 0-9, - and _
        name: String,
        /// Which documents its bearer may put and delete
        #[arg(long, value_enum, default_value = "none")]
        documents: KeyDocuments,
    },
}

/// `riposte config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the configuration in force as TOML, each value with its origin
    Show,
}

/// `riposte loadtest`
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Base address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Requests in flight; each caller asks its next question when it has its answer
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub concurrency: usize,
    /// Questions asked in all
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub requests: usize,
    /// File with one question per line, asked in turn [default: questions about the handbook]
    #[arg(long, value_name = "FILE")]
    pub questions: Option<PathBuf>,
    /// Latency budget that each request states
    #[arg(long, value_name = "MS")]
    pub total_ms: Option<u64>,
    /// Write every request's figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `riposte simulate`
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct SimulateArgs {
    /// File with the trace
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// How the trace is written [default: mooncake for .jsonl files, else azure]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<SimulateFormat>,
    /// All lengths are divided by this
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub scale: usize,
    /// When requests come
    #[arg(long, value_name = "WHEN", default_value = "recorded")]
    pub arrivals: SimulateArrivals,
    /// Requests per second, on average [default: as recorded]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Seed of tokens, Poisson arrivals and noise
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Replay only so many requests, from the first on
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
    /// KV blocks of 16 tokens [default: what 512 MiB hold for the default model]
    #[arg(long, value_name = "N", default_value_t = 2_730)]
    pub blocks: usize,
    /// Longest sequence that the model takes, in tokens
    #[arg(long, value_name = "N", default_value_t = 32_768)]
    pub context_tokens: usize,
    /// Keep nothing of earlier prompts
    #[arg(long)]
    pub no_prefix_cache: bool,
    /// Let whole batches wait for their longest sequence
    #[arg(long = "static")]
    pub static_batches: bool,
    /// Compute each prompt in one step
    #[arg(long)]
    pub no_chunks: bool,
    /// Spread of a step's time around the predicted, as a share of it
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub noise: f64,
    /// A good answer has its first token by then
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    pub ttft_ms: u64,
    /// A good answer takes at most this long per token after the first, on average
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub tpot_ms: u64,
    /// Every request asks for these two: it ends if its first token is not there in time
    #[arg(long)]
    pub slo: bool,
    /// Time of each step in microseconds: of the step itself, a prefill token, a chunk, a draw after a chunk, a position
    /// read by a prefill token, a decode row, a position read by a decode row [default: of the default model on two cores]
    #[arg(long, value_name = "US,...", value_delimiter = ',', default_values_t = DEFAULT_COST_US)]
    pub cost_us: Vec<f64>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// What the default model's steps take on two cores when nothing else runs: fitted to the speeds of prefill at 128, 512
/// and 2,048 tokens and of decode at 1 and 16 rows in docs/reports/2026-11-30-engine.md.
const DEFAULT_COST_US: [f64; 7] = [12_000.0, 730.0, 0.0, 0.0, 1.2, 2_500.0, 1.0];

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimulateFormat {
    /// CSV of TIMESTAMP, ContextTokens, GeneratedTokens
    Azure,
    /// JSONL with timestamp, input_length, output_length, hash_ids
    Mooncake,
}

/// Times of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimulateArrivals {
    /// As in the trace, stretched to `--rate`
    Recorded,
    /// Independent of each other
    Poisson,
}

impl Cli {
    /// The configuration values that the flags set.
    pub fn overrides(&self) -> Vec<Override> {
        let mut found = Vec::new();
        let mut set = |flag, key, value: Option<Value>| {
            found.extend(value.map(|value| Override { flag, key, value }));
        };
        set("--offline", "models.offline", self.common.offline.then(|| Value::from(true)));
        set("--models-dir", "models.dir", path(self.common.models_dir.as_ref()));
        set("--log", "log.filter", self.common.log.clone().map(Value::from));
        let (listen, data, model) = match &self.command {
            Command::Demo(args) => (args.listen.as_ref(), None, Some(&args.model)),
            Command::Serve(args) => (args.listen.as_ref(), args.data.as_ref(), Some(&args.model)),
            Command::Index(args) => (None, args.data.as_ref(), None),
            Command::Eval(EvalCommand::Answers(args)) => (None, None, Some(&args.model)),
            Command::Eval(EvalCommand::Handbook(args)) => (None, None, Some(&args.model)),
            Command::Eval(EvalCommand::Perplexity(args)) => (None, None, Some(&args.model)),
            Command::Bench(BenchCommand::Scheduling(args)) => (None, None, Some(&args.model)),
            Command::Bench(BenchCommand::Engine(args)) => (None, None, Some(&args.model)),
            Command::Bench(BenchCommand::Encode(_))
            | Command::Eval(EvalCommand::Retrieval(_))
            | Command::Models(_)
            | Command::Keys(_)
            | Command::Config(_)
            | Command::Loadtest(_)
            | Command::Simulate(_) => (None, None, None),
        };
        if let Command::Serve(args) = &self.command {
            let watched: Vec<Value> = args.watch.iter().filter_map(|one| path(Some(one))).collect();
            set("--watch", "index.watch", (!watched.is_empty()).then(|| Value::from(watched)));
            set("--writable", "index.writable", args.writable.then(|| Value::from(true)));
        }
        if let Command::Demo(args) = &self.command {
            set("--data", "demo.data", path(args.data.as_ref()));
        }
        if let Command::Bench(BenchCommand::Encode(args)) = &self.command {
            set("--threads", "embedder.threads", args.threads.map(Value::from));
        }
        set("--listen", "server.listen", listen.cloned().map(Value::from));
        set("--data", "index.data", path(data));
        if let Some(model) = model {
            set("--model", "model.name", model.model.clone().map(Value::from));
            set("--threads", "model.threads", model.threads.map(Value::from));
            set("--kv-mib", "model.kv_mib", model.kv_mib.map(Value::from));
            set("--kv-bits", "model.kv_bits", model.kv_bits.map(Value::from));
        }
        found
    }
}

fn path(path: Option<&PathBuf>) -> Option<Value> {
    path.map(|path| Value::from(path.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_name_the_key_they_set() {
        let cli = Cli::parse_from(["riposte", "--offline", "serve", "--model", "m.gguf", "--data", "/d"]);
        let keys: Vec<_> = cli.overrides().iter().map(|set| (set.flag, set.key)).collect();
        assert_eq!(
            keys,
            [("--offline", "models.offline"), ("--data", "index.data"), ("--model", "model.name")]
        );
    }
}
