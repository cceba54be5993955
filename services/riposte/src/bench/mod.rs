//! What does each part of the scheduler buy on this machine? `riposte bench scheduling`: each policy beside its
//! alternative, on the real model, in turn.

mod batching;
mod capacity;
mod chunks;
mod cost;
mod drive;
mod figures;
mod prefix;

use crate::cli::{BenchPart, SchedulingArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::{FAINT, STRONG, paint};
use comfy_table::{Table, presets};
use std::io::Write as _;

/// What a part found.
pub struct Found {
    /// What was compared, in a sentence.
    pub title: String,
    /// Column names, then rows.
    pub table: Vec<Vec<String>>,
    /// What the table does not say by itself.
    pub notes: Vec<String>,
    /// The figures for machines.
    pub json: serde_json::Value,
}

/// Runs the parts that were asked for and prints a table for each.
///
/// # Errors
/// When the model cannot be loaded, a trace cannot be read, or a request fails.
pub async fn scheduling(args: &SchedulingArgs, config: &Config) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let mut all = serde_json::Map::new();
    let parts = if args.part.is_empty() { BenchPart::ALL.to_vec() } else { args.part.clone() };
    for part in parts {
        let found = match part {
            BenchPart::Batching => batching::run(args, config).await?,
            BenchPart::Prefix => prefix::run(args, config).await?,
            BenchPart::Chunks => chunks::run(args, config).await?,
            BenchPart::Capacity => capacity::run(args, config)?,
            BenchPart::Cost => cost::run(args, config).await?,
        };
        if args.json.as_deref() != Some(std::path::Path::new("-")) {
            write!(out, "{}", show(&found))?;
        }
        all.insert(part.name().to_string(), found.json);
    }
    let Some(path) = &args.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&all).map_err(Failure::new)? + "\n";
    if path == std::path::Path::new("-") {
        return Ok(out.write_all(text.as_bytes())?);
    }
    std::fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn show(found: &Found) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut rows = found.table.iter();
    if let Some(header) = rows.next() {
        table.set_header(header);
    }
    table.add_rows(rows);
    let notes: String = found.notes.iter().map(|note| format!("  {}\n", paint(FAINT, note))).collect();
    format!("\n{}\n{table}\n{notes}", paint(STRONG, &found.title))
}
