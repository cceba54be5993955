//! How does a step plan become tokens? Checks the plan, runs the model over its rows and draws.

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::forward::Model;
use crate::sampler::{self, Choice, SampleError};
use kernels::{AttentionShape, Compute, KvFormat, KvPool};
use sched::{BlockCopy, Drawn, RowPlan, RunError, Runner, RunnerLimits, StepOutput, StepPlan};

/// The runner on this machine's CPU: a model, its KV pool and the threads that compute.
pub struct DeviceRunner {
    model: Model,
    compute: Compute,
    kv: KvPool,
    limits: RunnerLimits,
}

impl DeviceRunner {
    pub(crate) fn new(
        model: Model,
        compute: Compute,
        kv_bytes: usize,
        kv_format: KvFormat,
    ) -> Result<Self, LoadError> {
        let block = model.config.kv_block_bytes(kv_format);
        // Block ids are 32 bits wide; no machine's memory reaches that.
        let blocks_total = (kv_bytes / block).min(u32::MAX as usize);
        if blocks_total == 0 {
            return Err(LoadError::KvTooSmall { given: kv_bytes, block });
        }
        let limits = RunnerLimits {
            block_tokens: AttentionShape::BLOCK_TOKENS,
            blocks_total,
            context_tokens_max: model.config.context_tokens,
            vocab_tokens: model.weights.embedding.vocab(),
        };
        let kv = KvPool::new(model.config.attention, kv_format, model.config.layers, blocks_total)
            .map_err(|error| LoadError::KvTooLarge { given: error.bytes })?;
        Ok(Self { model, compute, kv, limits })
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.model.config
    }

    /// The logits that a plan's draws would see, `[draw][vocab]`; for tests against other engines.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn logits(&mut self, plan: &StepPlan) -> Result<Vec<f32>, RunError> {
        self.forward(plan, &drawing(plan)).map(|logits| logits.to_vec())
    }

    /// The logits after each token of a plan, `[token][vocab]`, rows one after another; to score a text.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn logits_of_all(&mut self, plan: &StepPlan) -> Result<&[f32], RunError> {
        let tokens = plan.rows.iter().map(|row| row.tokens.len()).sum();
        self.forward(plan, &(0..tokens).collect::<Vec<_>>()).map(|logits| &*logits)
    }

    /// Logits after the tokens `wanted`, counted over all rows.
    fn forward(&mut self, plan: &StepPlan, wanted: &[usize]) -> Result<&mut [f32], RunError> {
        plan.check(&self.limits)?;
        let tables = plan.rows.iter().map(table).collect::<Result<Vec<_>, _>>()?;
        self.copy(&plan.copies)?;
        if plan.rows.is_empty() {
            return Ok(&mut []);
        }
        self.model.forward(&mut self.compute, &mut self.kv, &plan.rows, &tables, wanted)
    }

    /// Copies blocks, in order, in every layer.
    fn copy(&mut self, copies: &[BlockCopy]) -> Result<(), RunError> {
        let outside = |copy: &&BlockCopy| copy.from.max(copy.to).0 as usize >= self.limits.blocks_total;
        if let Some(copy) = copies.iter().find(outside) {
            return Err(RunError::InvalidPlan(format!("{copy:?} names a block that the pool does not have")));
        }
        copies.iter().for_each(|copy| self.kv.copy(copy.from.0, copy.to.0));
        Ok(())
    }
}

/// The last token of each row that draws, counted over all rows.
fn drawing(plan: &StepPlan) -> Vec<usize> {
    let mut end = 0;
    let rows = plan.rows.iter().filter_map(|row| {
        end += row.tokens.len();
        row.draw.is_some().then_some(end - 1)
    });
    rows.collect()
}

/// A draw that failed, as the engine wants it told.
fn draw_error(row: &RowPlan, error: &SampleError) -> RunError {
    match error {
        SampleError::NotFinite => RunError::NotFinite(row.seq),
        SampleError::NoneAllowed => RunError::NoTokenAllowed(row.seq),
        SampleError::Setting(_) => RunError::InvalidPlan(format!("{:?}: {error}", row.seq)),
    }
}

/// A row's block table. More spans than one, or a shift, are passage KV, a later feature; see [`sched::Span`].
fn table(row: &RowPlan) -> Result<Vec<u32>, RunError> {
    match row.spans.as_slice() {
        [span] if span.shift == 0 => Ok(span.blocks.iter().map(|block| block.0).collect()),
        _ => {
            Err(RunError::InvalidPlan(format!("{:?}: a row reads exactly one span, without shift", row.seq)))
        }
    }
}

impl Runner for DeviceRunner {
    fn limits(&self) -> RunnerLimits {
        self.limits
    }

    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError> {
        self.forward(plan, &drawing(plan))?;
        let vocab = self.limits.vocab_tokens;
        let draws = plan.rows.iter().filter_map(|row| row.draw.as_ref().map(|draw| (row, draw)));
        let logits = self.model.logits().chunks_exact_mut(vocab);
        let mut drawn: Vec<_> = draws.zip(logits).map(|(draw, logits)| (draw, logits, None)).collect();
        self.compute.each(&mut drawn, &|_, ((_, draw), logits, choice)| {
            *choice = Some(sampler::draw(logits, draw));
        });
        let drawn = drawn.into_iter().filter_map(|((row, _), _, choice)| {
            let result = choice?.map_err(|error| draw_error(row, &error));
            Some(result.map(|Choice { token, logprob, top }| Drawn { seq: row.seq, token, logprob, top }))
        });
        Ok(StepOutput { drawn: drawn.collect::<Result<_, _>>()? })
    }
}
