//! What does the model think comes next? The forward pass of llama and qwen2 over the rows of one step.

use crate::config::ModelConfig;
use crate::weights::{Layer, Weights};
use kernels::{
    Activations, AttentionShape, Compute, KvView, QueryRow, add, attention, bias, kv_store, matmul, rms_norm,
    rope, swiglu,
};
use sched::{RowPlan, RunError};

/// A loaded model: config and weights, without state.
pub(crate) struct Model {
    pub(crate) config: ModelConfig,
    pub(crate) weights: Weights,
}

/// A step's tokens, flat: rows one after another.
struct Batch<'a> {
    rows: Vec<QueryRow<'a>>,
    tables: &'a [Vec<u32>],
    /// `[token][rope_dims / 2]`.
    angles: Vec<(f32, f32)>,
    tokens: usize,
}

impl Model {
    /// Logits (`[draw][vocab]`) after the last token of each row that has a draw. `tables` are the rows' blocks; new
    /// keys and values go into `kv`, which holds `layers` parts of equal length.
    ///
    /// The plan has passed `StepPlan::check` for this model.
    ///
    /// # Errors
    /// When an embedding row cannot be read.
    pub(crate) fn forward(
        &self,
        compute: &mut Compute,
        kv: &mut [u16],
        plan: &[RowPlan],
        tables: &[Vec<u32>],
    ) -> Result<Vec<f32>, RunError> {
        let width = self.config.width;
        let mut x = self.embed(plan)?;
        let batch = self.batch(plan, tables);
        let part = kv.len() / self.config.layers;
        for (layer, kv) in self.weights.layers.iter().zip(kv.chunks_exact_mut(part)) {
            self.attend(compute, layer, kv, &batch, &mut x);
            self.feed_forward(compute, layer, &mut x, batch.tokens);
        }
        // Only the rows that draw enter the output product, the largest one of the step.
        let mut last = Vec::new();
        for (row, at) in plan.iter().zip(&batch.rows) {
            if row.draw.is_some() {
                let token = at.first + at.tokens - 1;
                last.extend_from_slice(&x[token * width..(token + 1) * width]);
            }
        }
        let draws = last.len() / width;
        let mut normed = vec![0.0; last.len()];
        rms_norm(compute, &last, &self.weights.norm, self.config.norm_eps, &mut normed);
        Ok(product(compute, &self.weights.output, &normed, draws))
    }

    fn embed(&self, plan: &[RowPlan]) -> Result<Vec<f32>, RunError> {
        let width = self.config.width;
        let tokens: usize = plan.iter().map(|row| row.tokens.len()).sum();
        let mut x = vec![0.0; tokens * width];
        let all = plan.iter().flat_map(|row| &row.tokens);
        for (token, out) in all.zip(x.chunks_exact_mut(width)) {
            self.weights.embedding.row(*token, out).map_err(|error| RunError::Device(error.to_string()))?;
        }
        Ok(x)
    }

    fn batch<'a>(&self, plan: &[RowPlan], tables: &'a [Vec<u32>]) -> Batch<'a> {
        let half = self.config.rope_dims / 2;
        let (mut rows, mut angles, mut tokens) = (Vec::new(), Vec::new(), 0);
        for (row, blocks) in plan.iter().zip(tables) {
            rows.push(QueryRow {
                blocks,
                start: row.start,
                tokens: row.tokens.len(),
                first: tokens,
                causal: true,
            });
            tokens += row.tokens.len();
            for position in row.start..row.start + row.tokens.len() {
                angles.extend((0..half).map(|i| {
                    // In f64: at position 30,000 an f32 angle is off by a thousandth of a turn.
                    let exponent = -2.0 * i as f64 / self.config.rope_dims as f64;
                    let angle = position as f64 * f64::from(self.config.rope_base).powf(exponent);
                    (angle.cos() as f32, angle.sin() as f32)
                }));
            }
        }
        Batch { rows, tables, angles, tokens }
    }

    fn attend(&self, compute: &mut Compute, layer: &Layer, kv: &mut [u16], batch: &Batch<'_>, x: &mut [f32]) {
        let shape = self.config.attention;
        let mut normed = vec![0.0; x.len()];
        rms_norm(compute, x, &layer.attention_norm, self.config.norm_eps, &mut normed);
        let input = Activations::new(compute, &normed, batch.tokens);
        let mut project = |weights, biases: Option<&Vec<f32>>| {
            let mut out = vec![0.0; batch.tokens * kernels::Matrix::rows(weights)];
            matmul(compute, weights, &input, &mut out);
            if let Some(biases) = biases {
                bias(&mut out, biases);
            }
            out
        };
        let biases = layer.biases.as_ref();
        let mut q = project(&layer.q, biases.map(|b| &b[0]));
        let mut k = project(&layer.k, biases.map(|b| &b[1]));
        let v = project(&layer.v, biases.map(|b| &b[2]));
        rope(&mut q, shape.heads, shape.head_dim, &batch.angles, self.config.rope_style);
        rope(&mut k, shape.kv_heads, shape.head_dim, &batch.angles, self.config.rope_style);
        store(kv, shape, batch, &k, &v);
        let mut mixed = vec![0.0; q.len()];
        attention(compute, KvView { bits: kv, shape }, &batch.rows, &q, &mut mixed);
        add(x, &product(compute, &layer.attention_out, &mixed, batch.tokens));
    }

    fn feed_forward(&self, compute: &mut Compute, layer: &Layer, x: &mut [f32], tokens: usize) {
        let mut normed = vec![0.0; x.len()];
        rms_norm(compute, x, &layer.ffn_norm, self.config.norm_eps, &mut normed);
        let input = Activations::new(compute, &normed, tokens);
        let (mut gate, mut up) =
            (vec![0.0; tokens * self.config.hidden], vec![0.0; tokens * self.config.hidden]);
        matmul(compute, &layer.gate, &input, &mut gate);
        matmul(compute, &layer.up, &input, &mut up);
        swiglu(compute, &mut gate, &up, self.config.hidden);
        add(x, &product(compute, &layer.down, &gate, tokens));
    }
}

fn product(compute: &mut Compute, weights: &kernels::Matrix, x: &[f32], rows: usize) -> Vec<f32> {
    let input = Activations::new(compute, x, rows);
    let mut out = vec![0.0; rows * weights.rows()];
    matmul(compute, weights, &input, &mut out);
    out
}

/// New keys and values go to their slots, token by token.
fn store(kv: &mut [u16], shape: AttentionShape, batch: &Batch<'_>, k: &[f32], v: &[f32]) {
    let (width, block) = (shape.kv_heads * shape.head_dim, AttentionShape::BLOCK_TOKENS);
    for (row, table) in batch.rows.iter().zip(batch.tables) {
        for token in 0..row.tokens {
            let (position, at) = (row.start + token, (row.first + token) * width);
            let slot = position % block;
            kv_store(kv, shape, table[position / block], slot, &k[at..at + width], &v[at..at + width]);
        }
    }
}
