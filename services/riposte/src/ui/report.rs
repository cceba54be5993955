//! What did the start find? Model, compute, GPU, KV blocks, index and address, one line each.

use super::{LINK, STRONG, bytes, paint, took};
use crate::compose::Service;

/// Files that one round names when they were skipped.
const SKIPPED_SHOWN: usize = 20;

/// The start-up report; `address` is absent when nothing is served.
pub fn start(service: &Service, address: Option<&str>) -> String {
    let summary = &service.summary;
    let (engine, index) = (service.engine.info(), service.index.info());
    let mut rows = vec![
        (
            "model",
            format!(
                "{} ({:?}, {} layers), {} of weights in memory, loaded in {}",
                engine.model_id,
                summary.config.architecture,
                summary.config.layers,
                bytes(summary.weights_bytes as u64),
                took(summary.took),
            ),
        ),
        ("compute", format!("{} threads, {}", summary.threads, summary.isa)),
        ("gpu", gpu()),
        (
            "kv",
            format!(
                "{} blocks of {} tokens: {} tokens in {}",
                engine.blocks_total,
                engine.block_tokens,
                engine.blocks_total * engine.block_tokens,
                bytes(summary.kv_bytes as u64),
            ),
        ),
        (
            "index",
            format!(
                "generation {}: {} documents, {} passages, embedded by {}{}",
                index.generation,
                index.documents,
                index.passages,
                index.embedder,
                if index.is_writable { ", takes documents" } else { "" },
            ),
        ),
    ];
    rows.extend(address.map(|address| ("address", paint(LINK, address))));
    let line =
        |(label, value): (&str, String)| format!("  {} {value}\n", paint(STRONG, format!("{label:<8}")));
    rows.into_iter().map(line).collect()
}

/// What one look at the watched folders did, in a line, and a line for each of the first files that cannot be read.
pub fn round(round: &index::Round) -> String {
    let counts = [
        (round.created, "new"),
        (round.replaced, "changed"),
        (round.deleted, "gone"),
        (round.unchanged, "as before"),
    ];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let told = if told.is_empty() { "nothing new".to_string() } else { told.join(", ") };
    let skipped = round.skipped.iter().take(SKIPPED_SHOWN);
    let skipped = skipped.map(|skipped| format!("\nskipped {}: {}", skipped.path.display(), skipped.reason));
    format!("watched folders: {told}{}", skipped.collect::<String>())
}

fn gpu() -> String {
    match kernels::cuda::probe() {
        Ok(gpu) => format!(
            "{} with {}, compute capability {}.{}: found, but this release computes on the CPU",
            gpu.name,
            bytes(gpu.memory_bytes as u64),
            gpu.capability.0,
            gpu.capability.1
        ),
        Err(reason) => format!("no GPU: {reason}; using the CPU"),
    }
}
