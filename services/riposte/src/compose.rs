//! How is everything built? The one composition root: models to engine and embedder, index, answer pipeline, server.

use crate::codec::ModelCodec;
use crate::config::Config;
use crate::embed::ModelEmbed;
use crate::failure::Failure;
use crate::fetch;
use answer::Answerer;
use api::ApiState;
use budgets::{Clock, SystemClock};
use engine::{Engine, EngineModel};
use exec::{Encoder, LoadOptions, ModelSummary};
use index::{Embed, Index};
use kernels::{Isa, KvFormat};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A running service, without its server.
pub struct Service {
    /// The answer pipeline.
    pub answerer: Answerer,
    /// The engine's handle.
    pub engine: Engine,
    /// The open index.
    pub index: Arc<Index>,
    /// The clock on which all deadlines are made.
    pub clock: Arc<dyn Clock>,
    /// What was loaded.
    pub summary: ModelSummary,
}

/// What the service may do to its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Search it.
    Read,
    /// Search it, and put and delete documents; made where there is none.
    Live,
}

/// Opens the index in `data`, loads the language model and puts the answer pipeline over both.
///
/// # Errors
/// When there is no index, or the model is missing or cannot be loaded.
pub fn service(
    config: &Config,
    data: &Path,
    opening: Opening,
    embed: Arc<dyn Embed>,
) -> Result<Service, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    // First, because it fails at once where the model would load for seconds.
    let open = if opening == Opening::Live { Index::open_live } else { Index::open };
    let index = open(data, embed, Arc::clone(&clock), &config.limits).map_err(Failure::new)?;
    let index = Arc::new(index);
    let (model, summary) = language_model(config)?;
    let engine = Engine::start(model, Arc::clone(&clock), &config.limits, &config.engine.policy())
        .map_err(Failure::new)?;
    let settings = config.answer.settings();
    let answerer = Answerer::new(
        engine.clone(),
        Arc::clone(&index),
        Arc::clone(&clock),
        config.limits.clone(),
        settings,
    );
    Ok(Service { answerer, engine, index, clock, summary })
}

/// The embedding model, fetched when it is not in the cache.
///
/// # Errors
/// When it is missing or cannot be loaded.
pub fn embedder(config: &Config) -> Result<Arc<dyn Embed>, Failure> {
    let id = fetch::embedder(config)?.id;
    Ok(Arc::new(ModelEmbed { id, encoder: encoder(config)? }))
}

/// The embedding model alone.
///
/// # Errors
/// As [`embedder`].
pub fn encoder(config: &Config) -> Result<Encoder, Failure> {
    let files = fetch::embedder(config)?;
    let threads = threads(config.embedder.threads);
    Encoder::load(&files.weights, &files.tokenizer, threads, Isa::detect()).map_err(Failure::new)
}

/// The language model, fetched when it is not in the cache.
///
/// # Errors
/// When it is missing or cannot be loaded.
pub fn language_model(config: &Config) -> Result<(EngineModel, ModelSummary), Failure> {
    let loaded = load_model(config, config.model.kv_mib.saturating_mul(1 << 20))?;
    let codec = Arc::new(ModelCodec(loaded.tokenizer));
    let calibration = Duration::from_millis(config.engine.calibration_ms);
    let id = fetch::language_model(config)?.id;
    Ok((EngineModel { id, runner: Box::new(loaded.runner), codec, calibration }, loaded.summary))
}

/// The language model alone, with `kv_bytes` of memory for keys and values.
///
/// # Errors
/// As [`language_model`].
pub fn load_model(config: &Config, kv_bytes: usize) -> Result<exec::Loaded, Failure> {
    let file = fetch::language_model(config)?;
    exec::load(&file.weights, &load_options(config, kv_bytes)).map_err(Failure::new)
}

/// How the configuration wants the language model loaded.
pub fn load_options(config: &Config, kv_bytes: usize) -> LoadOptions {
    let kv_format = if config.model.kv_bits == 8 { KvFormat::Bits8 } else { KvFormat::Bits16 };
    LoadOptions { kv_format, ..LoadOptions::new(threads(config.model.threads), kv_bytes) }
}

/// What the HTTP API stands on; the page offers `sample_questions` before the first question is asked.
pub fn api_state(service: &Service, config: &Config, sample_questions: &[String]) -> ApiState {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    ApiState {
        answerer: service.answerer.clone(),
        engine: service.engine.clone(),
        index: Arc::clone(&service.index),
        clock: Arc::clone(&service.clock),
        access: if service.index.info().is_writable { config.access() } else { config.access().read_only() },
        limits: config.limits.clone(),
        started_unix_s: now.unwrap_or_default().as_secs(),
        sample_questions: sample_questions.to_vec(),
        drain: Duration::from_millis(config.server.drain_ms),
    }
}

/// Threads that compute: as configured, or one for each core that this process may use. Two threads of one core share
/// its multipliers, so they would only wait for each other.
pub fn threads(configured: usize) -> usize {
    match configured {
        0 => num_cpus::get().min(num_cpus::get_physical()).max(1),
        threads => threads,
    }
}
