//! What does a text mean, as a vector? BERT sentence embeddings (MiniLM) on the same kernels as the language model.
//!
//! Texts are packed one after another without padding; only attention knows where each begins. Mean of the token
//! vectors, then unit length, as sentence-transformers/all-MiniLM-L6-v2 defines it.

use crate::error::LoadError;
use kernels::{
    Activations, AttentionShape, Compute, Isa, KvView, Matrix, QueryRow, add, attention, bias, gelu,
    kv_store, layer_norm, matmul,
};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// Tokens of a text that count, with the two markers; the model was trained on no more.
const TOKENS_MAX: usize = 256;

/// Tokens of one pass through the model: enough to fill the matrix product, little enough to stay in the cache.
const PASS_TOKENS: usize = 2048;

/// A text that could not be embedded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The tokenizer failed.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The numbers left the finite range.
    #[error("the encoder produced no finite vector")]
    NotFinite,
}

struct Linear {
    weight: Matrix,
    bias: Vec<f32>,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

struct Layer {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    out_norm: Norm,
    up: Linear,
    down: Linear,
    down_norm: Norm,
}

/// A loaded encoder; one call computes at a time.
pub struct Encoder {
    tokenizer: tokenizers::Tokenizer,
    words: Vec<f32>,
    /// Position and first token-type embedding, added.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    shape: AttentionShape,
    compute: Mutex<Compute>,
}

const EPS: f32 = 1e-12;
/// Width and head of MiniLM-L6; heads are not stated in the safetensors file.
const HEAD_DIM: usize = 32;

impl Encoder {
    /// Loads safetensors weights and a tokenizer.json, to compute with `threads` threads and `isa`.
    ///
    /// # Errors
    /// When a file cannot be read or does not hold a BERT encoder.
    pub fn load(weights: &Path, tokenizer: &Path, threads: usize, isa: Isa) -> Result<Self, LoadError> {
        let bytes =
            std::fs::read(weights).map_err(|source| LoadError::Io { path: weights.to_path_buf(), source })?;
        let invalid = |path: &Path, message: String| LoadError::Invalid { path: path.to_path_buf(), message };
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| invalid(weights, error.to_string()))?;
        let source = Source { tensors };
        let mut tokenizer = tokenizers::Tokenizer::from_file(tokenizer)
            .map_err(|error| invalid(tokenizer, error.to_string()))?;
        // The file's own limits are for padded batches of 128; lengths are handled here.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| LoadError::Tokenizer(error.to_string()))?;

        let norm = source.norm("embeddings.LayerNorm")?;
        let width = norm.weight.len();
        let words = source.vector("embeddings.word_embeddings.weight")?;
        let mut positions = source.vector("embeddings.position_embeddings.weight")?;
        let types = source.vector("embeddings.token_type_embeddings.weight")?;
        if !width.is_multiple_of(HEAD_DIM)
            || types.len() < width
            || positions.len() < TOKENS_MAX * width
            || words.len() < tokenizer.get_vocab_size(true) * width
        {
            return Err(invalid(
                weights,
                "the embeddings do not fit the tokenizer or each other".to_string(),
            ));
        }
        for position in positions.chunks_exact_mut(width) {
            add(position, &types[..width]);
        }
        let mut layers = Vec::new();
        while source.has(&format!("encoder.layer.{}.attention.self.query.weight", layers.len())) {
            layers.push(source.layer(layers.len(), width)?);
        }
        if layers.is_empty() {
            return Err(LoadError::tensor(
                "encoder.layer.0.attention.self.query.weight",
                "is missing from the file",
            ));
        }
        let heads = width / HEAD_DIM;
        let shape = AttentionShape { heads, kv_heads: heads, head_dim: HEAD_DIM };
        let compute = Mutex::new(Compute::new(threads, isa));
        Ok(Self { tokenizer, words, positions, norm, layers, shape, compute })
    }

    /// Length of a vector.
    pub fn dimensions(&self) -> usize {
        self.norm.weight.len()
    }

    /// Tokens of a text, without markers and without the limit that `embed` puts on it.
    pub fn count_tokens(&self, text: &str) -> usize {
        self.tokenizer.encode_fast(text, false).map_or(text.len() / 4, |encoding| encoding.len())
    }

    /// A unit-length vector for each text; of a long text the first 256 tokens count.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EncodeError> {
        let mut ids = Vec::with_capacity(texts.len());
        for text in texts {
            let encoding = self
                .tokenizer
                .encode_fast(*text, true)
                .map_err(|error| EncodeError::Tokenizer(error.to_string()))?;
            let mut tokens = encoding.get_ids().to_vec();
            if tokens.len() > TOKENS_MAX {
                let end = tokens.last().copied();
                tokens.truncate(TOKENS_MAX - 1);
                tokens.extend(end);
            }
            ids.push(tokens);
        }
        let mut compute = self.compute.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vectors = Vec::with_capacity(texts.len());
        let mut from = 0;
        while from < ids.len() {
            let (mut to, mut tokens) = (from, 0);
            while to < ids.len() && (to == from || tokens + ids[to].len() <= PASS_TOKENS) {
                tokens += ids[to].len();
                to += 1;
            }
            self.pass(&mut compute, &ids[from..to], &mut vectors)?;
            from = to;
        }
        Ok(vectors)
    }

    fn pass(
        &self,
        compute: &mut Compute,
        texts: &[Vec<u32>],
        vectors: &mut Vec<Vec<f32>>,
    ) -> Result<(), EncodeError> {
        let width = self.dimensions();
        let tokens: usize = texts.iter().map(Vec::len).sum();
        let mut x = Vec::with_capacity(tokens * width);
        for text in texts {
            for (position, id) in text.iter().enumerate() {
                let from = *id as usize * width;
                let word = self.words.get(from..from + width).ok_or(EncodeError::NotFinite)?;
                x.extend(
                    word.iter()
                        .zip(&self.positions[position * width..])
                        .map(|(word, position)| word + position),
                );
            }
        }
        layer_norm(compute, &mut x, &self.norm.weight, &self.norm.bias, EPS);
        let layout = Layout::new(texts);
        let rows = layout.rows(texts);
        let mut kv = vec![0u16; layout.blocks * self.shape.block_elements()];
        for layer in &self.layers {
            self.layer(compute, layer, &rows, &mut kv, &mut x, tokens);
        }
        for row in &rows {
            let mut mean = vec![0f32; width];
            for token in x[row.first * width..(row.first + row.tokens) * width].chunks_exact(width) {
                add(&mut mean, token);
            }
            let length = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
            if !(length.is_finite() && length > 0.0) {
                return Err(EncodeError::NotFinite);
            }
            mean.iter_mut().for_each(|x| *x /= length);
            vectors.push(mean);
        }
        Ok(())
    }

    fn layer(
        &self,
        compute: &mut Compute,
        layer: &Layer,
        rows: &[QueryRow<'_>],
        kv: &mut [u16],
        x: &mut [f32],
        tokens: usize,
    ) {
        let (width, block) = (self.dimensions(), AttentionShape::BLOCK_TOKENS);
        let input = Activations::float(x, tokens);
        let [q, k, v] = [&layer.q, &layer.k, &layer.v].map(|linear| linear.apply(compute, &input));
        for row in rows {
            for token in 0..row.tokens {
                let at = (row.first + token) * width;
                let slot = token % block;
                kv_store(
                    kv,
                    self.shape,
                    row.blocks[token / block],
                    slot,
                    &k[at..at + width],
                    &v[at..at + width],
                );
            }
        }
        let mut mixed = vec![0.0; q.len()];
        attention(compute, KvView { bits: kv, shape: self.shape }, rows, &q, &mut mixed);
        let mixed = Activations::float(&mixed, tokens);
        add(x, &layer.out.apply(compute, &mixed));
        layer_norm(compute, x, &layer.out_norm.weight, &layer.out_norm.bias, EPS);
        let input = Activations::float(x, tokens);
        let mut hidden = layer.up.apply(compute, &input);
        gelu(compute, &mut hidden, layer.up.weight.rows());
        let hidden = Activations::float(&hidden, tokens);
        add(x, &layer.down.apply(compute, &hidden));
        layer_norm(compute, x, &layer.down_norm.weight, &layer.down_norm.bias, EPS);
    }
}

impl Linear {
    fn apply(&self, compute: &mut Compute, input: &Activations<'_>) -> Vec<f32> {
        let mut out = vec![0.0; input.rows() * self.weight.rows()];
        matmul(compute, &self.weight, input, &mut out);
        bias(&mut out, &self.bias);
        out
    }
}

/// Which scratch blocks hold each text's keys and values.
struct Layout {
    tables: Vec<Vec<u32>>,
    blocks: usize,
}

impl Layout {
    fn new(texts: &[Vec<u32>]) -> Self {
        let mut blocks = 0u32;
        let tables = texts
            .iter()
            .map(|text| {
                let first = blocks;
                blocks += text.len().div_ceil(AttentionShape::BLOCK_TOKENS) as u32;
                (first..blocks).collect()
            })
            .collect();
        Self { tables, blocks: blocks as usize }
    }

    fn rows<'a>(&'a self, texts: &[Vec<u32>]) -> Vec<QueryRow<'a>> {
        let mut first = 0;
        let row = |(blocks, text): (&'a Vec<u32>, &Vec<u32>)| {
            first += text.len();
            QueryRow { blocks, start: 0, tokens: text.len(), first: first - text.len(), causal: false }
        };
        self.tables.iter().zip(texts).map(row).collect()
    }
}

/// Tensors by name, with or without the `bert.` prefix that some files carry.
struct Source<'a> {
    tensors: SafeTensors<'a>,
}

impl Source<'_> {
    fn has(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok() || self.tensors.tensor(&format!("bert.{name}")).is_ok()
    }

    fn shaped(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), LoadError> {
        let tensor = self
            .tensors
            .tensor(name)
            .or_else(|_| self.tensors.tensor(&format!("bert.{name}")))
            .map_err(|error| LoadError::tensor(name, error.to_string()))?;
        if tensor.dtype() != Dtype::F32 {
            return Err(LoadError::tensor(name, format!("has type {:?}, not F32", tensor.dtype())));
        }
        let values =
            tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Ok((tensor.shape().to_vec(), values))
    }

    fn vector(&self, name: &str) -> Result<Vec<f32>, LoadError> {
        self.shaped(name).map(|(_, values)| values)
    }

    fn norm(&self, name: &str) -> Result<Norm, LoadError> {
        let weight = self.vector(&format!("{name}.weight"))?;
        let bias = self.vector(&format!("{name}.bias"))?;
        if weight.is_empty() || weight.len() != bias.len() {
            return Err(LoadError::tensor(name, "weight and bias differ in length or are empty"));
        }
        Ok(Norm { weight, bias })
    }

    fn linear(&self, name: &str, outputs: Option<usize>, inputs: usize) -> Result<Linear, LoadError> {
        let (shape, values) = self.shaped(&format!("{name}.weight"))?;
        let bias = self.vector(&format!("{name}.bias"))?;
        let [rows, cols] = shape[..] else {
            return Err(LoadError::tensor(name, "is no matrix"));
        };
        if cols != inputs || rows != bias.len() || outputs.is_some_and(|outputs| outputs != rows) {
            return Err(LoadError::tensor(name, format!("is {rows} x {cols}, which does not fit its place")));
        }
        let weight =
            Matrix::pack_f32(rows, cols, &values).map_err(|error| LoadError::format(name, &error))?;
        Ok(Linear { weight, bias })
    }

    fn layer(&self, at: usize, width: usize) -> Result<Layer, LoadError> {
        let name = |part: &str| format!("encoder.layer.{at}.{part}");
        let up = self.linear(&name("intermediate.dense"), None, width)?;
        let hidden = up.weight.rows();
        let layer = Layer {
            q: self.linear(&name("attention.self.query"), Some(width), width)?,
            k: self.linear(&name("attention.self.key"), Some(width), width)?,
            v: self.linear(&name("attention.self.value"), Some(width), width)?,
            out: self.linear(&name("attention.output.dense"), Some(width), width)?,
            out_norm: self.norm(&name("attention.output.LayerNorm"))?,
            down: self.linear(&name("output.dense"), Some(width), hidden)?,
            down_norm: self.norm(&name("output.LayerNorm"))?,
            up,
        };
        if layer.out_norm.weight.len() != width || layer.down_norm.weight.len() != width {
            return Err(LoadError::tensor(&name("LayerNorm"), format!("is not {width} long")));
        }
        Ok(layer)
    }
}
