//! How does a step plan become tokens? Checks the plan, runs the model over its rows and draws.

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::forward::Model;
use crate::sampler::{self, SampleError};
use kernels::{AttentionShape, Compute, kv_copy};
use sched::{BlockCopy, Drawn, RowPlan, RunError, Runner, RunnerLimits, StepOutput, StepPlan};

/// The runner on this machine's CPU: a model, its KV pool and the threads that compute.
pub struct DeviceRunner {
    model: Model,
    compute: Compute,
    /// `[layer][block][...]`; see `kernels::AttentionShape`. Bits of f16.
    kv: Vec<u16>,
    limits: RunnerLimits,
}

impl DeviceRunner {
    pub(crate) fn new(model: Model, compute: Compute, kv_bytes: usize) -> Result<Self, LoadError> {
        let block = model.config.kv_block_bytes();
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
        let kv = zeroed(model.config.layers * blocks_total * model.config.attention.block_elements())?;
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
        plan.check(&self.limits)?;
        let tables = plan.rows.iter().map(table).collect::<Result<Vec<_>, _>>()?;
        self.copy(&plan.copies)?;
        if plan.rows.is_empty() {
            return Ok(Vec::new());
        }
        self.model.forward(&mut self.compute, &mut self.kv, &plan.rows, &tables)
    }

    /// Copies blocks, in order, in every layer.
    fn copy(&mut self, copies: &[BlockCopy]) -> Result<(), RunError> {
        let outside = |copy: &&BlockCopy| copy.from.max(copy.to).0 as usize >= self.limits.blocks_total;
        if let Some(copy) = copies.iter().find(outside) {
            return Err(RunError::InvalidPlan(format!("{copy:?} names a block that the pool does not have")));
        }
        let part = self.kv.len() / self.model.config.layers;
        for layer in self.kv.chunks_exact_mut(part) {
            for copy in copies {
                kv_copy(layer, self.model.config.attention, copy.from.0, copy.to.0);
            }
        }
        Ok(())
    }
}

/// A draw that failed, as the engine wants it told.
fn draw_error(row: &RowPlan, error: &SampleError) -> RunError {
    match error {
        SampleError::NotFinite => RunError::NotFinite(row.seq),
        SampleError::NoneAllowed => RunError::NoTokenAllowed(row.seq),
        SampleError::Setting(_) => RunError::InvalidPlan(format!("{:?}: {error}", row.seq)),
    }
}

/// Memory for that many elements, or an error where the system has none to give.
fn zeroed(elements: usize) -> Result<Vec<u16>, LoadError> {
    // Asked for and given back first, because the line below ends the process when it fails. It is the one that stays:
    // the system hands out zeroed pages as they are touched, while a reserved vector would be filled at once.
    let asked = Vec::<u16>::new().try_reserve_exact(elements);
    asked.map_err(|_| LoadError::KvTooLarge { given: elements.saturating_mul(size_of::<u16>()) })?;
    Ok(vec![0; elements])
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
        let mut logits = self.logits(plan)?;
        let draws = plan.rows.iter().filter_map(|row| row.draw.as_ref().map(|draw| (row, draw)));
        let drawn = draws
            .zip(logits.chunks_exact_mut(self.limits.vocab_tokens))
            .map(|((row, draw), logits)| {
                let choice = sampler::draw(logits, draw).map_err(|error| draw_error(row, &error))?;
                Ok(Drawn { seq: row.seq, token: choice.token, logprob: choice.logprob, top: choice.top })
            })
            .collect::<Result<Vec<_>, RunError>>()?;
        Ok(StepOutput { drawn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0, 0, 0]);
        for elements in [1 << 50, 1 << 62, usize::MAX] {
            assert!(matches!(zeroed(elements), Err(LoadError::KvTooLarge { .. })), "{elements}");
        }
    }
}
