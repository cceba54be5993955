//! How do documents get into an index? `riposte index`, and the same for the demo.

use crate::compose;
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit, say};
use crate::ui::{STRONG, paint};
use index::{Embed, IndexError, Phase, Summary};
use std::path::{Path, PathBuf};

/// Files that are named one by one when they were skipped; of more, the number is told.
const SKIPPED_SHOWN: usize = 20;

/// Indexes `paths` into the configured folder and says what came of it.
///
/// # Errors
/// When the embedder cannot be had or nothing could be indexed.
pub fn run(paths: &[PathBuf], config: &Config) -> Result<(), Failure> {
    let embed = compose::embedder(config)?;
    let summary = build(paths, &config.index.data, embed.as_ref(), config)?;
    say(&format!("  {} {}", paint(STRONG, "index  "), config.index.data.display()));
    if let Some(first) = summary.lossy.first() {
        let count = summary.lossy.len();
        say(&format!(
            "{count} file(s) held bytes that are no text in their encoding, such as {}",
            first.display()
        ));
    }
    if summary.kept > 0 {
        say(&format!("{} document(s) that were put by themselves were kept", summary.kept));
    }
    if summary.other_files > 0 {
        say(&format!("{} file(s) of other kinds were left out", summary.other_files));
    }
    Ok(())
}

/// Indexes `paths` into `data` with a progress bar, and names the files that were skipped.
///
/// # Errors
/// See [`IndexError`].
pub fn build(paths: &[PathBuf], data: &Path, embed: &dyn Embed, config: &Config) -> Result<Summary, Failure> {
    let mut bar = Progress::start("indexing: looking for documents", Unit::Things("files and passages"));
    let mut report = |news: &index::Progress| {
        bar.label(match news.phase {
            Phase::Scan => "indexing: looking for documents",
            Phase::Parse => "indexing: reading documents",
            Phase::Embed => "indexing: embedding passages",
            Phase::Write => "indexing: writing",
        });
        bar.at(news.done as u64, news.total as u64);
    };
    let built = index::build(paths, data, embed, &config.limits, &mut report);
    let summary = built.map_err(|error| match error {
        IndexError::Nothing { .. } | IndexError::Path { .. } => Failure::new(error)
            .hint("a folder with .md, .rst, .html, .txt, .pdf, .docx, .csv or .jsonl files or source code"),
        error => Failure::new(error),
    })?;
    let reused =
        if summary.reused > 0 { format!(", {} vectors reused", summary.reused) } else { String::new() };
    bar.done(&format!(
        "indexed {} documents as {} passages, generation {}{reused}",
        summary.documents, summary.passages, summary.generation
    ));
    for skipped in summary.skipped.iter().take(SKIPPED_SHOWN) {
        say(&format!("skipped {}: {}", skipped.path.display(), skipped.reason));
    }
    if summary.skipped.len() > SKIPPED_SHOWN {
        say(&format!("... and {} more were skipped", summary.skipped.len() - SKIPPED_SHOWN));
    }
    Ok(summary)
}
