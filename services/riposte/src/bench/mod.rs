//! How fast is it on this machine? `riposte bench engine` and `encode`: the kernels as shares of what the machine can do;
//! `riposte bench scheduling`: each policy beside its alternative, on the real model, in turn.

mod batching;
mod capacity;
mod chunks;
mod cost;
mod drive;
mod encode;
mod engine;
pub mod figures;
mod prefix;

use crate::cli::{BenchPart, EncodeArgs, EngineArgs, SchedulingArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::{FAINT, STRONG, paint};
use comfy_table::{Table, presets};
use std::io::Write as _;
use std::path::Path;

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
        if args.json.as_deref() != Some(Path::new("-")) {
            write!(out, "{}", show(&found))?;
        }
        all.insert(part.name().to_string(), found.json);
    }
    write_json(args.json.as_deref(), &all)
}

/// `riposte bench engine`
///
/// # Errors
/// When the model cannot be loaded, or the figures cannot be written.
pub fn engine(args: &EngineArgs, config: &Config) -> Result<(), Failure> {
    one(&engine::run(args, config)?, args.json.as_deref())
}

/// `riposte bench encode`
///
/// # Errors
/// When the model cannot be loaded, or a file cannot be read or written.
pub fn encode(args: &EncodeArgs, config: &Config) -> Result<(), Failure> {
    one(&encode::run(args, config)?, args.json.as_deref())
}

fn one(found: &Found, json: Option<&Path>) -> Result<(), Failure> {
    if json != Some(Path::new("-")) {
        write!(anstream::stdout(), "{}", show(found))?;
    }
    write_json(json, &found.json)
}

/// Writes figures to a file, or prints them for `-`.
pub(crate) fn write_json(path: Option<&Path>, figures: &impl serde::Serialize) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(figures).map_err(Failure::new)? + "\n";
    if path == Path::new("-") {
        return Ok(anstream::stdout().write_all(text.as_bytes())?);
    }
    std::fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// What was measured on.
#[derive(Clone, Debug, serde::Serialize)]
struct Machine {
    cpu: String,
    threads: usize,
    isa: String,
}

fn machine(threads: usize, isa: kernels::Isa) -> Machine {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = name.map_or_else(|| "unnamed processor".to_string(), |(_, name)| name.trim().to_string());
    Machine { cpu, threads, isa: isa.to_string() }
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
