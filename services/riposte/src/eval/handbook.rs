//! Does the demo answer the handbook's questions from the right page? `riposte eval handbook`, a report to be read.

use crate::ask::{Answered, ask};
use crate::cli::HandbookArgs;
use crate::config::Config;
use crate::demo;
use crate::failure::Failure;
use crate::ui::answer::{place, timing};
use crate::ui::progress::{Progress, Unit};
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// A line of a question file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    question: String,
    /// File name of the page that answers it.
    page: String,
    /// A right answer, for the reader.
    expect: String,
    /// Any one of these, in any case, marks an answer that is probably right.
    must_contain: Vec<String>,
}

/// A question with its answer and what can be told without reading.
struct Judged {
    asked: Asked,
    outcome: Result<Answered, Failure>,
}

impl Judged {
    /// The page of the first citation.
    fn first_page(&self) -> Option<String> {
        let answered = self.outcome.as_ref().ok()?;
        let source = &answered.cited().first()?.source;
        Some(Path::new(source).file_name()?.to_string_lossy().into_owned())
    }

    fn right_page(&self) -> bool {
        self.first_page().as_deref() == Some(self.asked.page.as_str())
    }

    fn has_expected_words(&self) -> bool {
        let text = self.outcome.as_ref().map(|answered| answered.report.text.to_lowercase());
        let text = text.unwrap_or_default();
        self.asked.must_contain.iter().any(|words| text.contains(&words.to_lowercase()))
    }
}

/// Asks every question of the files and writes the report.
///
/// # Errors
/// When a file cannot be read, a model cannot be had, or the report cannot be written.
pub async fn run(args: &HandbookArgs, config: &Config) -> Result<(), Failure> {
    let mut questions = Vec::new();
    for path in &args.questions {
        questions.extend(read(path)?);
    }
    let service = demo::prepare(config)?;
    let total = questions.len() as u64;
    let bar = Progress::start(format!("asking {total} questions"), Unit::Things("questions"));
    let mut judged = Vec::new();
    for asked in questions {
        // One after the other: the times in the report are those of a person alone with the demo.
        let outcome = ask(&service, config, &asked.question, |_| Ok(())).await;
        judged.push(Judged { asked, outcome });
        bar.at(judged.len() as u64, total);
    }
    bar.done(&format!("asked {total} questions"));
    let report = write_report(&judged, &service.engine.info().model_id);
    match &args.out {
        Some(path) => std::fs::write(path, report)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?,
        None => anstream::stdout().write_all(report.as_bytes())?,
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Asked>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())).hint("--questions FILE..."))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| Failure::new(format!("{} line {}: {error}", path.display(), number + 1)))
    };
    lines.map(parse).collect()
}

fn write_report(judged: &[Judged], model: &str) -> String {
    let mut text = format!("# The handbook's questions, answered by {model}\n\n");
    let count = |holds: &dyn Fn(&Judged) -> bool| judged.iter().filter(|judged| holds(judged)).count();
    let _ = writeln!(
        text,
        "{} questions; first citation on the right page: {}; expected words in the answer: {}; no answer: {}. Made by \
         `riposte eval handbook`; the last column is filled in by reading.\n",
        judged.len(),
        count(&Judged::right_page),
        count(&Judged::has_expected_words),
        count(&|judged| judged.outcome.is_err()),
    );
    text.push_str(
        "| # | Question | Page | First citation | Right page | Expected words | Judged by reading |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|\n");
    let yes = |holds| if holds { "yes" } else { "no" };
    for (at, one) in judged.iter().enumerate() {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | |",
            at + 1,
            one.asked.question.replace('|', "\\|"),
            one.asked.page,
            one.first_page().unwrap_or_else(|| "none".to_string()),
            yes(one.right_page()),
            yes(one.has_expected_words()),
        );
    }
    for (at, one) in judged.iter().enumerate() {
        let _ = write!(text, "\n## {}. {}\n\n", at + 1, one.asked.question);
        let _ = writeln!(text, "Expected ({}): {}\n", one.asked.page, one.asked.expect);
        match &one.outcome {
            Ok(answered) => {
                for line in answered.report.text.lines() {
                    let _ = writeln!(text, "> {line}");
                }
                text.push('\n');
                for source in answered.cited() {
                    let _ = writeln!(text, "- [{}] {} ({})", source.number, source.path(), place(source));
                }
                let _ = writeln!(text, "\n{}", timing(answered));
            }
            Err(failure) => {
                let _ = writeln!(text, "No answer: {failure}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_s_question_files_can_be_read_and_name_real_pages() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for file in ["handbook-questions-a.jsonl", "handbook-questions-b.jsonl"] {
            let questions = read(&docs.join("reports").join(file)).unwrap();
            assert!(questions.len() >= 10, "{file}");
            for asked in questions {
                assert!(
                    docs.join("handbook").join(&asked.page).is_file(),
                    "{}: {}",
                    asked.question,
                    asked.page
                );
                assert!(!asked.must_contain.is_empty() && !asked.expect.is_empty(), "{}", asked.question);
            }
        }
    }

    #[test]
    fn a_question_without_an_answer_is_in_the_report_and_counts_as_wrong() {
        let asked = Asked {
            question: "a | b?".into(),
            page: "01.md".into(),
            expect: "x".into(),
            must_contain: vec![String::new()],
        };
        let judged = [Judged { asked, outcome: Err(Failure::new("late")) }];
        let report = write_report(&judged, "m");
        assert!(report.contains("| 1 | a \\| b? | 01.md | none | no |"), "{report}");
        assert!(report.contains("No answer: late") && report.contains("no answer: 1"), "{report}");
    }
}
