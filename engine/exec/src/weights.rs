//! Where do the weights come from? Read from the GGUF, checked against the config and packed, on all threads.

use crate::config::{Architecture, ModelConfig};
use crate::error::LoadError;
use crate::gguf::{Gguf, RawTensor};
use crate::load::LoadOptions;
use kernels::{Format, Linear, Matrix, dequantize_row};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One transformer layer.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    /// Queries, keys and values.
    pub(crate) qkv: [Linear; 3],
    pub(crate) attention_out: Linear,
    pub(crate) ffn_norm: Vec<f32>,
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// All weights of a model.
pub(crate) struct Weights {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vec<f32>,
    pub(crate) output: Linear,
}

/// The token embedding stays as the file has it: a step reads a few rows of it.
pub(crate) struct Embedding {
    raw: RawTensor,
    row_bytes: usize,
}

impl Embedding {
    pub(crate) fn vocab(&self) -> usize {
        self.raw.rows
    }

    /// Writes the embedding of `token`, which must be below `vocab()`.
    pub(crate) fn row(&self, token: u32, out: &mut [f32]) -> Result<(), kernels::FormatError> {
        let from = token as usize * self.row_bytes;
        dequantize_row(self.raw.format, &self.raw.bytes[from..from + self.row_bytes], out)
    }
}

impl Weights {
    pub(crate) fn load(gguf: &Gguf, config: &ModelConfig, options: &LoadOptions) -> Result<Self, LoadError> {
        let raw = gguf.tensor("token_embd.weight")?;
        if raw.cols != config.width {
            return Err(LoadError::tensor(
                "token_embd.weight",
                format!("is {} wide, not {}", raw.cols, config.width),
            ));
        }
        let row_bytes =
            raw.format.row_bytes(raw.cols).map_err(|error| LoadError::format("token_embd.weight", &error))?;
        let vocab = raw.rows;
        // Tied weights: the output matrix is the embedding again.
        let output = if gguf.has("output.weight") { "output.weight" } else { "token_embd.weight" };

        let mut names = vec![(output.to_string(), vocab, config.width)];
        for layer in 0..config.layers {
            names.extend(
                layer_shapes(config).map(|(name, rows, cols)| (tensor_name(layer, name), rows, cols)),
            );
        }
        let mut matrices = pack_all(gguf, &names, options)?;
        let mut take =
            |name: String| matrices.remove(&name).ok_or_else(|| LoadError::tensor(&name, "was not packed"));

        let mut layers = Vec::with_capacity(config.layers);
        for at in 0..config.layers {
            let vector = |name: &str, len| vector(gguf, &tensor_name(at, name), len);
            let (q_width, kv_width) = widths(config);
            let [q, k, v] = match config.architecture {
                Architecture::Qwen2 => [
                    Some(vector("attn_q.bias", q_width)?),
                    Some(vector("attn_k.bias", kv_width)?),
                    Some(vector("attn_v.bias", kv_width)?),
                ],
                Architecture::Llama => [None, None, None],
            };
            layers.push(Layer {
                attention_norm: vector("attn_norm.weight", config.width)?,
                qkv: [
                    Linear { weights: take(tensor_name(at, "attn_q.weight"))?, bias: q },
                    Linear { weights: take(tensor_name(at, "attn_k.weight"))?, bias: k },
                    Linear { weights: take(tensor_name(at, "attn_v.weight"))?, bias: v },
                ],
                attention_out: Linear::new(take(tensor_name(at, "attn_output.weight"))?),
                ffn_norm: vector("ffn_norm.weight", config.width)?,
                gate: Linear::new(take(tensor_name(at, "ffn_gate.weight"))?),
                up: Linear::new(take(tensor_name(at, "ffn_up.weight"))?),
                down: Linear::new(take(tensor_name(at, "ffn_down.weight"))?),
            });
        }
        let norm = vector(gguf, "output_norm.weight", config.width)?;
        let output = Linear::new(take(output.to_string())?);
        Ok(Self { embedding: Embedding { raw, row_bytes }, layers, norm, output })
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.embedding.raw.bytes.len() + self.matrix_bytes()
    }

    /// Bytes of the matrices: the embedding's rows are looked up, not multiplied.
    pub(crate) fn matrix_bytes(&self) -> usize {
        let layers = self.layers.iter().flat_map(Layer::matrices);
        layers.chain([&self.output.weights]).map(Matrix::bytes).sum()
    }

    /// Numbers of weights: of the layers' matrices, and of the output's.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |matrix: &Matrix| matrix.rows() * matrix.cols();
        (self.layers.iter().flat_map(Layer::matrices).map(count).sum(), count(&self.output.weights))
    }
}

impl Layer {
    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let others = [&self.attention_out, &self.gate, &self.up, &self.down];
        self.qkv.iter().chain(others).map(|linear| &linear.weights)
    }
}

fn tensor_name(layer: usize, name: &str) -> String {
    format!("blk.{layer}.{name}")
}

/// Widths of q and of k and v.
fn widths(config: &ModelConfig) -> (usize, usize) {
    let shape = config.attention;
    (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim)
}

/// The matrices of one layer: name, outputs, inputs.
fn layer_shapes(config: &ModelConfig) -> [(&'static str, usize, usize); 7] {
    let (q, kv) = widths(config);
    let (width, hidden) = (config.width, config.hidden);
    [
        ("attn_q.weight", q, width),
        ("attn_k.weight", kv, width),
        ("attn_v.weight", kv, width),
        ("attn_output.weight", width, q),
        ("ffn_gate.weight", hidden, width),
        ("ffn_up.weight", hidden, width),
        ("ffn_down.weight", width, hidden),
    ]
}

fn vector(gguf: &Gguf, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
    let raw = gguf.tensor(name)?;
    if raw.rows != 1 || raw.cols != len {
        return Err(LoadError::tensor(
            name,
            format!("is {} x {}, not a vector of {len}", raw.rows, raw.cols),
        ));
    }
    let mut values = vec![0.0; len];
    dequantize_row(raw.format, &raw.bytes, &mut values).map_err(|error| LoadError::format(name, &error))?;
    Ok(values)
}

fn pack_one(gguf: &Gguf, name: &str, rows: usize, cols: usize, widened: bool) -> Result<Matrix, LoadError> {
    let raw = gguf.tensor(name)?;
    if (raw.rows, raw.cols) != (rows, cols) {
        return Err(LoadError::tensor(name, format!("is {} x {}, not {rows} x {cols}", raw.rows, raw.cols)));
    }
    let quantised = !matches!(raw.format, Format::F32 | Format::F16 | Format::Bf16);
    if quantised && !cols.is_multiple_of(32) {
        return Err(LoadError::tensor(name, format!("has {cols} columns, no multiple of 32")));
    }
    let failed = |error| LoadError::format(name, &error);
    if widened {
        let row_bytes = raw.format.row_bytes(cols).map_err(failed)?;
        let mut values = vec![0.0; rows * cols];
        for (row, raw_row) in values.chunks_exact_mut(cols).zip(raw.bytes.chunks_exact(row_bytes)) {
            dequantize_row(raw.format, raw_row, row).map_err(failed)?;
        }
        return Matrix::pack_f32(rows, cols, &values).map_err(failed);
    }
    Matrix::pack(raw.format, rows, cols, &raw.bytes).map_err(failed)
}

fn pack_all(
    gguf: &Gguf,
    names: &[(String, usize, usize)],
    options: &LoadOptions,
) -> Result<HashMap<String, Matrix>, LoadError> {
    let next = AtomicUsize::new(0);
    let packed = Mutex::new(Ok(HashMap::with_capacity(names.len())));
    std::thread::scope(|scope| {
        let work = || {
            while let Some((name, rows, cols)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let matrix = pack_one(gguf, name, *rows, *cols, options.widened);
                let mut packed = packed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match (&mut *packed, matrix) {
                    (Ok(map), Ok(matrix)) => {
                        map.insert(name.clone(), matrix);
                    }
                    (Ok(_), Err(error)) => *packed = Err(error),
                    (Err(_), _) => return,
                }
            }
        };
        for _ in 1..options.threads {
            // Where no thread is to be had, this one does all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    packed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
