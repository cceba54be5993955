//! How often is the gold answer in the answer, and the gold paragraph cited? `riposte eval answers`.

use super::score::f1_inside;
use super::squad::{self, Asked};
use crate::ask::{Answered, ask};
use crate::cli::SquadArgs;
use crate::compose::{self, Opening, Service};
use crate::config::Config;
use crate::failure::Failure;
use crate::index_cmd;
use crate::ui::progress::{Progress, Unit};
use answer::score::{self, Estimate};
use futures::StreamExt as _;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;

/// Fixed, so that the same answers give the same intervals.
const BOOTSTRAP_SEED: u64 = 1;

/// One question and what came of it.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    question: String,
    golds: Vec<String>,
    gold_paragraph: String,
    answer: String,
    error: Option<String>,
    /// Documents in the prompt, best first.
    retrieved: Vec<String>,
    /// Documents cited, in the order of their first citation.
    cited: Vec<String>,
    grounded: bool,
    contains: bool,
    f1_inside: f64,
    exact: bool,
    f1: f64,
    first_text_ms: Option<f64>,
    total_ms: f64,
    completion_tokens: usize,
}

/// One measure over all questions; a question without an answer counts as wrong.
#[derive(Debug, Serialize)]
struct Measure {
    name: &'static str,
    mean: f64,
    /// Ends of the 95 % interval.
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    embedder: &'a str,
    file: String,
    passages_max: usize,
    output_tokens_max: usize,
    questions: usize,
    failed: usize,
    measures: &'a [Measure],
    first_text_ms_mean: f64,
    total_ms_mean: f64,
    rows: &'a [Row],
}

/// Indexes the paragraphs of the file in a folder of their own, asks, scores and prints the figures.
///
/// # Errors
/// When the file cannot be read, a model cannot be had, or no question was chosen.
pub async fn run(args: &SquadArgs, config: &Config) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let squad = squad::lay_out(&args.squad, folder.path())?;
    let chosen = squad::spread(squad.questions, args.limit);
    if chosen.is_empty() || args.concurrency == 0 {
        return Err(Failure::usage("no question to ask").hint("--limit and --concurrency of at least 1"));
    }
    let data = folder.path().join("index");
    let embed = compose::embedder(config)?;
    index_cmd::build(&squad.paths, &data, embed.as_ref(), config)?;
    let service = compose::service(config, &data, Opening::Read, embed)?;

    let total = chosen.len() as u64;
    let bar = Progress::start(format!("asking {total} questions"), Unit::Things("questions"));
    let asking = futures::stream::iter(chosen).map(|asked| row(&service, config, asked));
    let mut asking = asking.buffered(args.concurrency);
    let mut rows = Vec::new();
    while let Some(row) = asking.next().await {
        rows.push(row);
        bar.at(rows.len() as u64, total);
    }
    bar.done(&format!("asked {total} questions"));

    let (engine, index) = (service.engine.info(), service.index.info());
    let report = Report {
        model: &engine.model_id,
        embedder: &index.embedder,
        file: args.squad.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        passages_max: config.answer.passages_max,
        output_tokens_max: config.answer.output_tokens_max,
        questions: rows.len(),
        failed: rows.iter().filter(|row| row.error.is_some()).count(),
        measures: &measures(&rows),
        first_text_ms_mean: mean(&rows, |row| row.first_text_ms.unwrap_or(row.total_ms)),
        total_ms_mean: mean(&rows, |row| row.total_ms),
        rows: &rows,
    };
    let mut out = anstream::stdout();
    write!(out, "{}", table(&report))?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).map_err(Failure::new)?;
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        writeln!(out, "Every answer: {}", path.display())?;
    }
    Ok(())
}

async fn row(service: &Service, config: &Config, asked: Asked) -> Row {
    let answered = ask(service, config, &asked.question, |_| Ok(())).await;
    let mut row = Row {
        id: asked.id,
        question: asked.question,
        gold_paragraph: asked.paragraph,
        answer: String::new(),
        error: None,
        retrieved: Vec::new(),
        cited: Vec::new(),
        grounded: false,
        contains: false,
        f1_inside: 0.0,
        exact: false,
        f1: 0.0,
        first_text_ms: None,
        total_ms: 0.0,
        completion_tokens: 0,
        golds: asked.golds,
    };
    match answered {
        Ok(answered) => fill(&mut row, answered),
        Err(failure) => row.error = Some(failure.to_string()),
    }
    row
}

fn fill(row: &mut Row, answered: Answered) {
    row.retrieved = answered.sources.iter().map(|source| source.document_id.clone()).collect();
    row.cited = answered.cited().iter().map(|source| source.document_id.clone()).collect();
    let report = answered.report;
    row.contains = score::contains_answer(&report.text, &row.golds);
    row.f1_inside = f1_inside(&report.text, &row.golds);
    row.exact = score::exact_match(&report.text, &row.golds);
    row.f1 = score::f1(&report.text, &row.golds);
    row.grounded = report.grounded;
    row.first_text_ms = report.first_token.map(|first| first.as_secs_f64() * 1e3);
    row.total_ms = report.total.as_secs_f64() * 1e3;
    row.completion_tokens = report.usage.completion_tokens;
    row.answer = report.text;
}

fn measures(rows: &[Row]) -> Vec<Measure> {
    let measure = |name, estimate: Estimate| {
        let Estimate { mean, low, high, .. } = estimate;
        Measure { name, mean, low, high }
    };
    let share = |name, holds: &dyn Fn(&Row) -> bool| {
        measure(name, score::share(rows.iter().filter(|row| holds(row)).count(), rows.len()))
    };
    let mean = |name, value: &dyn Fn(&Row) -> f64| {
        measure(name, score::mean(&rows.iter().map(value).collect::<Vec<_>>(), BOOTSTRAP_SEED))
    };
    vec![
        share("gold paragraph in the prompt", &|row| row.retrieved.contains(&row.gold_paragraph)),
        share("gold answer inside the answer, exact", &|row| row.contains),
        mean("gold answer inside the answer, F1", &|row| row.f1_inside),
        share("whole answer, exact match", &|row| row.exact),
        mean("whole answer, F1", &|row| row.f1),
        share("cites the gold paragraph", &|row| row.cited.contains(&row.gold_paragraph)),
        share("cites the gold paragraph first", &|row| row.cited.first() == Some(&row.gold_paragraph)),
        share("cites nothing", &|row| row.cited.is_empty()),
        share("says that nothing was found", &|row| row.error.is_none() && !row.grounded),
    ]
}

#[allow(clippy::cast_precision_loss)] // Counts of questions.
fn mean(rows: &[Row], value: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(value).sum::<f64>() / rows.len().max(1) as f64
}

fn table(report: &Report) -> String {
    let Report { model, embedder, file, questions, failed, .. } = report;
    let mut text = format!("{model} on {file}, passages embedded by {embedder}\n");
    let _ = writeln!(text, "  {questions} questions, {failed} without an answer; means with 95 % intervals");
    for Measure { name, mean, low, high } in report.measures {
        let [mean, low, high] = [mean, low, high].map(|share| format!("{:.1}", 100.0 * share));
        let _ = writeln!(text, "  {name:<40} {mean:>6} %  ({low} to {high})");
    }
    let [first, total] = [report.first_text_ms_mean, report.total_ms_mean].map(|ms| ms / 1e3);
    let _ = writeln!(text, "  first text after {first:.1} s, whole answer after {total:.1} s, in the mean");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(retrieved: &[&str], cited: &[&str], contains: bool, error: Option<&str>) -> Row {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        Row {
            id: String::new(),
            question: String::new(),
            golds: Vec::new(),
            gold_paragraph: "gold".to_string(),
            answer: String::new(),
            error: error.map(str::to_string),
            retrieved: owned(retrieved),
            cited: owned(cited),
            grounded: !cited.is_empty(),
            contains,
            f1_inside: 0.0,
            exact: false,
            f1: 0.0,
            first_text_ms: None,
            total_ms: 100.0,
            completion_tokens: 0,
        }
    }

    #[test]
    fn a_failed_question_counts_as_wrong_everywhere() {
        let rows = [
            row(&["gold", "x"], &["gold"], true, None),
            row(&["gold", "x"], &["x", "gold"], false, None),
            row(&["x"], &[], false, None),
            row(&[], &[], false, Some("late")),
        ];
        let measures = measures(&rows);
        let check = |name: &str, expected: f64| {
            let found = measures.iter().find(|measure| measure.name == name).unwrap();
            assert_eq!(found.mean, expected, "{name}");
            assert!(found.low <= found.mean && found.mean <= found.high, "{found:?}");
        };
        check("gold paragraph in the prompt", 0.5);
        check("gold answer inside the answer, exact", 0.25);
        check("cites the gold paragraph", 0.5);
        check("cites the gold paragraph first", 0.25);
        check("cites nothing", 0.5);
        check("says that nothing was found", 0.25);
        assert_eq!(mean(&rows, |row| row.total_ms), 100.0);
    }
}
