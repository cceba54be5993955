//! What can be asked of `riposte eval` and `riposte bench`?

use super::ModelArgs;
use clap::builder::TypedValueParser as _;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `riposte eval`
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Index the paragraphs of a SQuAD file, ask its questions and score answers and citations
    Answers(SquadArgs),
    /// Ask the demo the questions of JSONL files and write a report to be judged by reading
    Handbook(HandbookArgs),
    /// Score a text with the packed weights, and with the same weights in f32
    Perplexity(PerplexityArgs),
    /// Rank the documents of a judged set with each arm of the search, and score the rankings
    Retrieval(RetrievalArgs),
}

/// `riposte eval retrieval`
#[derive(Debug, Args)]
pub struct RetrievalArgs {
    /// Documents: JSON lines with _id, title and text, packed with gzip if the name ends in .gz
    #[arg(long, value_name = "FILE", required_unless_present = "squad", requires_all = ["queries", "qrels"])]
    pub corpus: Option<PathBuf>,
    /// Queries: JSON lines with _id and text
    #[arg(long, value_name = "FILE", requires = "corpus")]
    pub queries: Option<PathBuf>,
    /// Judgements: lines of query, document and grade with tabs between, under a header
    #[arg(long, value_name = "FILE", requires = "corpus")]
    pub qrels: Option<PathBuf>,
    /// A SQuAD 1.1 file in place of the three: its paragraphs are the documents
    #[arg(long, value_name = "FILE", conflicts_with = "corpus")]
    pub squad: Option<PathBuf>,
    /// Only the half of the queries to tune on, or the half that is held out; by a hash of the query's id
    #[arg(long, value_name = "HALF", default_value = "all")]
    pub half: QueryHalf,
    /// Keep the index in this folder and use it again, instead of building one for this run
    #[arg(long, value_name = "DIR")]
    pub index: Option<PathBuf>,
    /// Write the figures to this file, as JSON; `-` prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Which queries of a judged set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryHalf {
    /// Every query
    All,
    /// Those to choose settings by
    Tuning,
    /// Those held out
    Test,
}

/// `riposte eval perplexity`
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// The text, UTF-8
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// Score at most this many tokens of it
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Tokens of a window; each begins with an empty context, and its second half is scored
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(16..).map(usize::from))]
    pub window: usize,
    /// Write the figures to this file, as JSON; `-` prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `riposte eval answers`
#[derive(Debug, Args)]
pub struct SquadArgs {
    /// A file in SQuAD 1.1 format (JSON)
    #[arg(long, value_name = "FILE")]
    pub squad: PathBuf,
    /// Ask this many questions, spread evenly over the file
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Write figures and every answer to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Questions that are answered at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub concurrency: usize,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `riposte eval handbook`
#[derive(Debug, Args)]
pub struct HandbookArgs {
    /// JSONL files with question, page, expect and must_contain in each line
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    pub questions: Vec<PathBuf>,
    /// Write the report to this file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `riposte bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Prefill and decode of the model's steps alone, as shares of what this machine can do
    Engine(EngineArgs),
    /// Passages embedded per second, many at once against one at a time
    Encode(EncodeArgs),
    /// Each policy of the scheduler beside its alternative, on the model, in turn
    Scheduling(SchedulingArgs),
}

/// `riposte bench engine`
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Measure only this figure, such as prefill-512, decode-8 or depth-4096; may be given several times
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub repeats: usize,
    /// Write the figures to this file, as JSON; `-` prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `riposte bench encode`
#[derive(Debug, Args)]
pub struct EncodeArgs {
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub repeats: usize,
    /// Threads that compute [default: one per physical core]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Embed the lines of this file [default: 100 texts of 200 tokens from the handbook]
    #[arg(long, value_name = "FILE")]
    pub texts: Option<PathBuf>,
    /// Write the vectors to this file, one JSON array in each line
    #[arg(long, value_name = "FILE")]
    pub vectors: Option<PathBuf>,
    /// Write the figures to this file, as JSON; `-` prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `riposte bench scheduling`
#[derive(Debug, Args)]
pub struct SchedulingArgs {
    /// What to measure; may be given several times [default: everything]
    #[arg(long, value_name = "PART")]
    pub part: Vec<BenchPart>,
    /// Times that each comparison is repeated
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub rounds: usize,
    /// Requests of a workload
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub requests: usize,
    /// Lengths of the trace are divided by this
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..).map(usize::from))]
    pub scale: usize,
    /// CSV file of time, prompt tokens and output tokens [default: an excerpt of the Azure conversation trace]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the figures to this file, as JSON; `-` prints them instead of the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchPart {
    /// Static against continuous batching
    Batching,
    /// The prefix cache off against on
    Prefix,
    /// Whole prompts against chunks among running streams
    Chunks,
    /// Memory for the longest sequence against blocks on demand
    Capacity,
    /// The cost model's error
    Cost,
}

impl BenchPart {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 5] = [Self::Batching, Self::Prefix, Self::Chunks, Self::Capacity, Self::Cost];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batching => "batching",
            Self::Prefix => "prefix",
            Self::Chunks => "chunks",
            Self::Capacity => "capacity",
            Self::Cost => "cost",
        }
    }
}
