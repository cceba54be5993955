//! How does a running server hold up? `riposte loadtest`: questions in, a table of percentiles out.

use crate::cli::LoadArgs;
use crate::failure::Failure;
use crate::handbook;
use crate::ui::progress::{Progress, Unit};
use loadtest::{LoadError, Percentiles, Plan, Report};
use std::fmt::Write as _;
use std::io::Write as _;

/// Runs the load and prints the table.
///
/// # Errors
/// When the questions cannot be read, the server is not ready, or nothing was answered.
pub async fn run(args: &LoadArgs) -> Result<(), Failure> {
    let questions = match &args.questions {
        None => handbook::questions(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_string)
            .collect(),
    };
    let total = args.requests;
    let plan = Plan {
        url: args.url.trim_end_matches('/').to_string(),
        concurrency: args.concurrency,
        requests: total,
        questions,
        total_ms: args.total_ms,
    };
    let bar =
        Progress::start(format!("{} callers, {total} questions", args.concurrency), Unit::Things("answers"));
    let handle = bar.handle();
    let report = loadtest::run(plan, move |done| handle.at(done as u64, total as u64)).await;
    let report = report.map_err(|error| match error {
        LoadError::NotReady { .. } => Failure::new(error).hint("`riposte demo` in another terminal"),
        LoadError::Zero(_) => Failure::usage(error),
        LoadError::Client(_) => Failure::new(error),
    })?;
    bar.done(&format!("{} of {total} answered", report.answered));
    anstream::stdout().write_all(table(&report).as_bytes())?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).map_err(Failure::new)?;
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    match report.answered {
        0 => Err(Failure::new("no question was answered").hint("a look at the server's log")),
        _ => Ok(()),
    }
}

fn table(report: &Report) -> String {
    let mut text = format!("  {:<18} {:>10} {:>10} {:>10}\n", "seconds", "p50", "p90", "p99");
    let rows = [
        ("to the sources", report.sources),
        ("to the first token", report.first_token),
        ("to the end", report.total),
    ];
    for (label, row) in rows {
        if let Some(Percentiles { p50_ms, p90_ms, p99_ms }) = row {
            let [p50, p90, p99] = [p50_ms, p90_ms, p99_ms].map(|ms| format!("{:.2}", ms / 1e3));
            let _ = writeln!(text, "  {label:<18} {p50:>10} {p90:>10} {p99:>10}");
        }
    }
    let _ = writeln!(
        text,
        "  {} callers, {:.1} s, {:.2} answers/s, {:.1} tokens/s",
        report.concurrency, report.wall_s, report.answers_per_s, report.tokens_per_s
    );
    for (reason, count) in &report.others {
        let _ = writeln!(text, "  not answered: {count} x {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_seconds_and_says_what_was_not_answered() {
        let even = Percentiles { p50_ms: 1_500.0, p90_ms: 2_000.0, p99_ms: 12_345.0 };
        let report = Report {
            concurrency: 3,
            wall_s: 10.0,
            answered: 5,
            others: [("HTTP 503 queue_full".to_string(), 2)].into(),
            sources: None,
            first_token: None,
            total: Some(even),
            tokens_per_s: 40.0,
            answers_per_s: 0.5,
            samples: Vec::new(),
        };
        let table = table(&report);
        assert!(table.contains("1.50       2.00      12.3"), "{table}");
        assert!(table.contains("not answered: 2 x HTTP 503 queue_full"), "{table}");
        assert!(!table.contains("to the sources"), "{table}");
    }
}
