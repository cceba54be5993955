//! How does a model file become a runner? Open, check, pack, and say what was found.

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::forward::Model;
use crate::gguf::Gguf;
use crate::runner::DeviceRunner;
use crate::tokenizer::Tokenizer;
use crate::weights::Weights;
use kernels::{Compute, Isa, KvFormat};
use sched::{Runner, RunnerLimits};
use std::path::Path;
use std::time::{Duration, Instant};

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads that compute.
    pub threads: usize,
    /// Memory for keys and values.
    pub kv_bytes: usize,
    /// Instruction set; `Isa::detect()` unless a test wants another.
    pub isa: Isa,
    /// How keys and values are kept.
    pub kv_format: KvFormat,
    /// Widens all weights to f32, so that nothing is lost and nothing quantised: what the file means, at several times
    /// the memory; to measure what the packed weights lose.
    pub widened: bool,
}

impl LoadOptions {
    /// The best that this machine has, with keys and values in 16 bits.
    pub fn new(threads: usize, kv_bytes: usize) -> Self {
        Self { threads, kv_bytes, isa: Isa::detect(), kv_format: KvFormat::default(), widened: false }
    }
}

/// What was loaded.
#[derive(Clone, Debug)]
pub struct ModelSummary {
    /// The model's shape.
    pub config: ModelConfig,
    /// Bytes of weights in memory.
    pub weights_bytes: usize,
    /// Of them, bytes of the matrices that a decode step reads.
    pub matrix_bytes: usize,
    /// Weights of the layers' matrices, which each token is multiplied with.
    pub layer_weights: usize,
    /// Weights of the output matrix, which each draw is multiplied with.
    pub output_weights: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Instruction set in use.
    pub isa: Isa,
    /// KV pool.
    pub limits: RunnerLimits,
    /// Bytes of the KV pool.
    pub kv_bytes: usize,
    /// Bits of a number in it.
    pub kv_bits: usize,
    /// Time to load and pack.
    pub took: Duration,
}

/// A model, ready to run.
pub struct Loaded {
    /// Computes steps.
    pub runner: DeviceRunner,
    /// Text to tokens and back, with the chat template.
    pub tokenizer: Tokenizer,
    /// What to tell the operator.
    pub summary: ModelSummary,
}

/// Loads a GGUF file.
///
/// # Errors
/// See [`LoadError`]; a damaged or hostile file gives an error, never a panic.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Loaded, LoadError> {
    let began = Instant::now();
    let gguf = Gguf::open(path)?;
    let config = ModelConfig::read(&gguf)?;
    let tokenizer =
        Tokenizer::from_gguf(&gguf.content).map_err(|error| LoadError::Tokenizer(error.to_string()))?;
    let weights = Weights::load(&gguf, &config, options)?;
    let (weights_bytes, matrix_bytes) = (weights.bytes(), weights.matrix_bytes());
    let (layer_weights, output_weights) = weights.counts();
    let compute = Compute::new(options.threads, options.isa);
    let (threads, isa) = (compute.threads(), compute.isa());
    let model = Model::new(config.clone(), weights);
    let runner = DeviceRunner::new(model, compute, options.kv_bytes, options.kv_format)?;
    let limits = runner.limits();
    let kv_bytes = limits.blocks_total * config.kv_block_bytes(options.kv_format);
    let summary = ModelSummary {
        config,
        weights_bytes,
        matrix_bytes,
        layer_weights,
        output_weights,
        threads,
        isa,
        limits,
        kv_bytes,
        kv_bits: options.kv_format.bits(),
        took: began.elapsed(),
    };
    Ok(Loaded { runner, tokenizer, summary })
}
