//! What does the model think comes next? The forward pass of llama and qwen2 over the rows of one step.

use crate::config::ModelConfig;
use crate::weights::{Layer, Weights};
use kernels::{
    Activations, Angles, Compute, Forms, KvPool, QueryRow, attention, product, product_add, product_swiglu,
    rms_norm, rope_and_store,
};
use sched::{RowPlan, RunError};

/// A loaded model: config, weights, and the memory that its steps work in.
pub(crate) struct Model {
    pub(crate) config: ModelConfig,
    pub(crate) weights: Weights,
    angles: Angles,
    work: Work,
}

/// What a step computes in; kept, so that a step asks the system for nothing.
#[derive(Default)]
struct Work {
    /// `[token][width]`: the residual stream.
    x: Vec<f32>,
    /// `[token][q heads, k heads, v heads][dim]`.
    qkv: Vec<f32>,
    /// `[token][head][dim]`: what attention gives.
    mixed: Vec<f32>,
    /// Input of the next product, and of the one after it.
    input: Activations,
    hidden: Activations,
    /// `[draw][vocab]`.
    logits: Vec<f32>,
}

impl Model {
    pub(crate) fn new(config: ModelConfig, weights: Weights) -> Self {
        let angles = Angles::new(config.rope_base, config.rope_dims, config.rope_style);
        Self { config, weights, angles, work: Work::default() }
    }

    /// Logits (`[wanted][vocab]`) after the step's tokens whose number is in `wanted`, counted over all rows. `tables`
    /// are the rows' blocks; new keys and values go into `kv`.
    ///
    /// The plan has passed `StepPlan::check` for this model.
    ///
    /// # Errors
    /// When an embedding row cannot be read.
    pub(crate) fn forward(
        &mut self,
        compute: &mut Compute,
        kv: &mut KvPool,
        plan: &[RowPlan],
        tables: &[Vec<u32>],
        wanted: &[usize],
    ) -> Result<&mut [f32], RunError> {
        let (width, eps) = (self.config.width, self.config.norm_eps);
        self.embed(plan)?;
        let rows = query_rows(plan, tables);
        let positions = rows.iter().map(|row| row.start + row.tokens).max().unwrap_or(0);
        self.angles.reach(positions);
        let Self { config, weights, angles, work } = self;
        for (at, layer) in weights.layers.iter().enumerate() {
            attend(compute, config, layer, (angles, &mut *kv, at), &rows, work);
            feed_forward(compute, config, layer, work);
        }
        // Only the rows that draw enter the output product, the largest one of the step.
        let mut last = Vec::with_capacity(wanted.len() * width);
        for token in wanted {
            last.extend_from_slice(&work.x[token * width..(token + 1) * width]);
        }
        let output = &weights.output;
        let forms = Forms::of(compute, [&output.weights]);
        rms_norm(compute, forms, &last, &weights.norm, eps, &mut work.input);
        work.logits.resize(wanted.len() * output.weights.rows(), 0.0);
        product(compute, &[output], &work.input, &mut work.logits);
        Ok(&mut work.logits)
    }

    /// What the last step's [`Model::forward`] gave, as scratch for the sampler.
    pub(crate) fn logits(&mut self) -> &mut [f32] {
        &mut self.work.logits
    }

    fn embed(&mut self, plan: &[RowPlan]) -> Result<(), RunError> {
        let width = self.config.width;
        let tokens: usize = plan.iter().map(|row| row.tokens.len()).sum();
        self.work.x.resize(tokens * width, 0.0);
        let all = plan.iter().flat_map(|row| &row.tokens);
        for (token, out) in all.zip(self.work.x.chunks_exact_mut(width)) {
            self.weights.embedding.row(*token, out).map_err(|error| RunError::Device(error.to_string()))?;
        }
        Ok(())
    }
}

/// The step's tokens, flat: rows one after another.
fn query_rows<'a>(plan: &[RowPlan], tables: &'a [Vec<u32>]) -> Vec<QueryRow<'a>> {
    let mut first = 0;
    let row = |(row, blocks): (&RowPlan, &'a Vec<u32>)| {
        first += row.tokens.len();
        let tokens = row.tokens.len();
        QueryRow { blocks, start: row.start, tokens, first: first - tokens, causal: true }
    };
    plan.iter().zip(tables).map(row).collect()
}

fn attend(
    compute: &mut Compute,
    config: &ModelConfig,
    layer: &Layer,
    (angles, kv, at): (&Angles, &mut KvPool, usize),
    rows: &[QueryRow<'_>],
    work: &mut Work,
) {
    let (shape, tokens) = (config.attention, work.x.len() / config.width);
    let parts = layer.qkv.each_ref();
    let forms = Forms::of(compute, parts.map(|part| &part.weights));
    rms_norm(compute, forms, &work.x, &layer.attention_norm, config.norm_eps, &mut work.input);
    work.qkv.resize(tokens * shape.qkv_width(), 0.0);
    product(compute, &parts, &work.input, &mut work.qkv);
    rope_and_store(compute, Some(angles), kv, at, rows, &mut work.qkv);
    work.mixed.resize(tokens * shape.heads * shape.head_dim, 0.0);
    attention(compute, kv.layer(at), rows, &work.qkv, shape.qkv_width(), &mut work.mixed);
    let forms = Forms::of(compute, [&layer.attention_out.weights]);
    work.input.fill(compute, forms, &work.mixed, tokens);
    product_add(compute, &layer.attention_out, &work.input, &mut work.x);
}

fn feed_forward(compute: &mut Compute, config: &ModelConfig, layer: &Layer, work: &mut Work) {
    let forms = Forms::of(compute, [&layer.gate.weights, &layer.up.weights]);
    rms_norm(compute, forms, &work.x, &layer.ffn_norm, config.norm_eps, &mut work.input);
    let forms = Forms::of(compute, [&layer.down.weights]);
    product_swiglu(compute, [&layer.gate, &layer.up], &work.input, forms, &mut work.hidden);
    product_add(compute, &layer.down, &work.hidden, &mut work.x);
}
