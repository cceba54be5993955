//! What did the start find? Model, compute, GPU, KV blocks, index and address, one line each.

use super::{LINK, STRONG, bytes, paint, took};
use crate::compose::Service;

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
                "generation {}: {} documents, {} passages, embedded by {}",
                index.generation, index.documents, index.passages, index.embedder
            ),
        ),
    ];
    rows.extend(address.map(|address| ("address", paint(LINK, address))));
    let line =
        |(label, value): (&str, String)| format!("  {} {value}\n", paint(STRONG, format!("{label:<8}")));
    rows.into_iter().map(line).collect()
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
