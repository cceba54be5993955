//! How does an answer look in a terminal? The text as it streams, then its sources, then where the time went.

use super::{FAINT, LINK, STRONG, paint, took};
use crate::ask::Answered;
use answer::Source;
use std::fmt::Write as _;

/// A piece of the answer with its citations coloured.
pub fn tint(text: &str) -> String {
    let mut tinted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open);
        tinted.push_str(before);
        let mark = after.find(']').map_or(1, |close| close + 1);
        let inner = &after[1..mark.saturating_sub(1).max(1)];
        if inner.is_empty() || !inner.bytes().all(|byte| byte.is_ascii_digit()) {
            tinted.push('[');
            rest = &after[1..];
        } else {
            tinted.push_str(&paint(LINK, &after[..mark]));
            rest = &after[mark..];
        }
    }
    tinted.push_str(rest);
    tinted
}

/// The sources, cited ones first to the eye, and the timing line.
pub fn footer(answered: &Answered) -> String {
    let cited: Vec<usize> = answered.cited().iter().map(|source| source.number).collect();
    let mut text = String::from("\n");
    if answered.sources.is_empty() {
        let _ = writeln!(text, "{}", paint(FAINT, "No source was found."));
    } else {
        let _ = writeln!(text, "{}", paint(STRONG, "Sources"));
    }
    for source in &answered.sources {
        let number = format!("[{}]", source.number);
        let line = format!("{} {}", source.path(), paint(FAINT, place(source)));
        if cited.contains(&source.number) {
            let _ = writeln!(text, "  {} {line}", paint(LINK, number));
        } else {
            let _ = writeln!(text, "  {number} {line} {}", paint(FAINT, "(not cited)"));
        }
    }
    let _ = writeln!(text, "\n{}", paint(FAINT, timing(answered)));
    text
}

/// Where the passage stands: `docs/handbook/02-kv-cache.md:12-30`.
pub fn place(source: &Source) -> String {
    let span = &source.span;
    match (span.page, span.start_line) {
        (Some(page), _) => format!("{} page {page}", source.source),
        (None, 0) => source.source.clone(),
        (None, first) if first == span.end_line => format!("{}:{first}", source.source),
        (None, first) => format!("{}:{first}-{}", source.source, span.end_line),
    }
}

/// Where the time went, in one line.
#[allow(clippy::cast_precision_loss)] // Token counts.
pub fn timing(answered: &Answered) -> String {
    let report = &answered.report;
    let mut line = format!("sources {}", took(report.time_to_sources));
    if let Some(first) = report.first_token {
        let _ = write!(line, ", first text {}", took(first));
    }
    let _ = write!(line, ", total {}", took(report.total));
    let usage = report.usage;
    let _ = write!(line, "; {} prompt and {} answer tokens", usage.prompt_tokens, usage.completion_tokens);
    let decode = report.timeline.get(budgets::Stage::Decode).unwrap_or_default().as_secs_f64();
    if usage.completion_tokens > 1 && decode > 0.0 {
        let _ = write!(line, ", {:.1} tokens/s", (usage.completion_tokens - 1) as f64 / decode);
    }
    let stages = report.timeline.stages().into_iter().filter(|(_, spent)| spent.as_micros() >= 500);
    let stages: Vec<_> = stages.map(|(stage, spent)| format!("{} {}", stage.name(), took(spent))).collect();
    if !stages.is_empty() {
        let _ = write!(line, "; {}", stages.join(", "));
    }
    if !report.degraded.is_empty() {
        let _ = write!(line, "; degraded: {}", report.degraded.join(", "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, marked: &[&str]) {
        let tinted = tint(text);
        assert_eq!(anstream::adapter::strip_str(&tinted).to_string(), text, "only colour may be added");
        for mark in marked {
            assert!(tinted.contains(&paint(LINK, mark)), "{mark} is not coloured in {tinted:?}");
        }
        assert_eq!(tinted.matches(&LINK.to_string()).count(), marked.len(), "{tinted:?}");
    }

    #[test]
    fn citations_are_coloured_and_nothing_else() {
        check("It grows [1][12], linearly.", &["[1]", "[12]"]);
        check("an array[i] and [] and [see 3] and [", &[]);
        check("half [1", &[]);
        check("é [2] ü", &["[2]"]);
    }
}
