//! How well does each arm of the search rank a judged set, and how fast? `riposte eval retrieval`.

use super::judged::{self, Asked, Half, JudgedSet};
use super::ranking;
use crate::bench::figures::percentile;
use crate::cli::{QueryHalf, RetrievalArgs};
use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use crate::index_cmd;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{FAINT, STRONG, paint};
use answer::score;
use budgets::{Clock, Deadline, SystemClock};
use comfy_table::{Table, presets};
use index::{Arms, Filter, Index, Query};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hits as a page or a prompt takes them; nDCG and the reciprocal rank look no further.
const SHORT: usize = 10;
/// Passages that are asked for to have so many documents.
const SHORT_HITS: usize = 30;
/// Documents among which recall looks.
const LONG: usize = 100;
/// Hits that are asked for to have [`LONG`] documents: several passages may be of one document.
const LONG_HITS: usize = 400;
/// Fixed, so that the same ranking gives the same interval.
const BOOTSTRAP_SEED: u64 = 1;

/// A way to search, and what it gave for each query.
struct Arm {
    name: &'static str,
    arms: Arms,
    ndcg: Vec<f64>,
    recall: Vec<f64>,
    reciprocal: Vec<f64>,
    first: Vec<f64>,
    took: Vec<Duration>,
}

impl Arm {
    fn new(name: &'static str, arms: Arms) -> Self {
        let none = Vec::new;
        Self { name, arms, ndcg: none(), recall: none(), reciprocal: none(), first: none(), took: vec![] }
    }
}

/// Indexes the documents, asks every query of each arm, and prints the figures.
///
/// # Errors
/// When the set cannot be read, or the embedder cannot be had.
pub fn run(args: &RetrievalArgs, config: &Config) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let JudgedSet { paths, queries } = match (&args.corpus, &args.queries, &args.qrels, &args.squad) {
        (Some(corpus), Some(queries), Some(qrels), _) => judged::beir(corpus, queries, qrels, folder.path())?,
        (_, _, _, Some(squad)) => judged::squad(squad, folder.path())?,
        _ => return Err(Failure::usage("no judged set").hint("--corpus, --queries and --qrels, or --squad")),
    };
    let wanted = |asked: &Asked| match args.half {
        QueryHalf::All => true,
        QueryHalf::Tuning => judged::half(&asked.id) == Half::Tuning,
        QueryHalf::Test => judged::half(&asked.id) == Half::Test,
    };
    let queries: Vec<Asked> = queries.into_iter().filter(wanted).collect();
    if queries.is_empty() {
        return Err(Failure::usage("no query of the set has a judgement"));
    }
    let data = args.index.clone().unwrap_or_else(|| folder.path().join("index"));
    let embed = compose::embedder(config)?;
    index_cmd::build(&paths, &data, embed.as_ref(), config)?;
    let mut limits = config.limits.clone();
    limits.search_hits_max = limits.search_hits_max.max(LONG_HITS);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let index = Index::open(&data, embed, clock, &limits).map_err(Failure::new)?;
    let mut arms = [
        Arm::new("lexical", Arms::Lexical),
        Arm::new("vector", Arms::Vector),
        Arm::new("hybrid", Arms::Both),
    ];
    let total = (queries.len() * arms.len()) as u64;
    let bar = Progress::start("searching", Unit::Things("queries"));
    for (at, asked) in queries.iter().enumerate() {
        for (turn, arm) in arms.iter_mut().enumerate() {
            ask(&index, asked, arm)?;
            bar.at((at * 3 + turn + 1) as u64, total);
        }
    }
    bar.done(&format!("searched {} queries", queries.len()));
    let json = report(&arms, paths.len(), index.info().passages, queries.len(), args.half);
    if args.json.as_deref() != Some(Path::new("-")) {
        show(&arms, &json)?;
    }
    crate::bench::write_json(args.json.as_deref(), &json)
}

/// One query: the short list as the service asks for it, which is timed, and a long one for recall.
fn ask(index: &Index, asked: &Asked, arm: &mut Arm) -> Result<(), Failure> {
    let query = Query {
        text: &asked.text,
        limit: SHORT_HITS,
        deadline: Deadline::NEVER,
        arms: arm.arms,
        filter: Filter::ALL,
    };
    let began = Instant::now();
    let short = index.search(&query).map_err(Failure::new)?;
    arm.took.push(began.elapsed());
    let long = index.search(&Query { limit: LONG_HITS, ..query }).map_err(Failure::new)?;
    let (short, long) = (documents(&short.hits), documents(&long.hits));
    arm.ndcg.push(ranking::ndcg(&short, &asked.judged, SHORT));
    arm.reciprocal.push(ranking::reciprocal_rank(&short, &asked.judged, SHORT));
    arm.first.push(ranking::first(&short, &asked.judged));
    arm.recall.push(ranking::recall(&long, &asked.judged, LONG));
    Ok(())
}

/// The documents of the hits, each where its best passage stands.
fn documents(hits: &[index::Hit]) -> Vec<String> {
    let mut seen = HashSet::new();
    let names = hits.iter().map(|hit| &hit.passage.document_id);
    names.filter(|name| seen.insert(name.as_str())).cloned().collect()
}

fn report(arms: &[Arm], documents: usize, passages: usize, queries: usize, half: QueryHalf) -> Value {
    let figure = |values: &[f64]| {
        let found = score::mean(values, BOOTSTRAP_SEED);
        json!({ "mean": found.mean, "low": found.low, "high": found.high })
    };
    let ms = |took: &[Duration], share| percentile(took, share).as_secs_f64() * 1e3;
    json!({
        "documents": documents,
        "passages": passages,
        "queries": queries,
        "half": format!("{half:?}").to_lowercase(),
        "arms": arms.iter().map(|arm| json!({
            "name": arm.name,
            "ndcg_10": figure(&arm.ndcg),
            "recall_100": figure(&arm.recall),
            "mrr_10": figure(&arm.reciprocal),
            "first": figure(&arm.first),
            "p50_ms": ms(&arm.took, 0.5),
            "p90_ms": ms(&arm.took, 0.9),
            "p99_ms": ms(&arm.took, 0.99),
        })).collect::<Vec<_>>(),
    })
}

fn show(arms: &[Arm], json: &Value) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "nDCG@10", "recall@100", "MRR@10", "first place", "p50", "p90", "p99 ms"]);
    for arm in arms {
        let share = |values: &[f64]| {
            let found = score::mean(values, BOOTSTRAP_SEED);
            format!("{:.4} [{:.3} to {:.3}]", found.mean, found.low, found.high)
        };
        let ms = |share| format!("{:.1}", percentile(&arm.took, share).as_secs_f64() * 1e3);
        table.add_row([
            arm.name.to_string(),
            share(&arm.ndcg),
            share(&arm.recall),
            share(&arm.reciprocal),
            share(&arm.first),
            ms(0.5),
            ms(0.9),
            ms(0.99),
        ]);
    }
    let title = format!(
        "{} queries ({}) over {} documents in {} passages",
        json["queries"],
        json["half"].as_str().unwrap_or_default(),
        json["documents"],
        json["passages"]
    );
    let note =
        "means with 95 % intervals; a document stands where its best passage does; times of one query alone";
    Ok(write!(anstream::stdout(), "\n{}\n{table}\n  {}\n", paint(STRONG, title), paint(FAINT, note))?)
}
