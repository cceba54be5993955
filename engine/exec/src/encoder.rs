//! What does a text mean, as a vector? BERT sentence embeddings (MiniLM) on the same kernels as the language model.
//!
//! Texts are packed one after another without padding; only attention knows where each begins. Mean of the token
//! vectors, then unit length, as sentence-transformers/all-MiniLM-L6-v2 defines it.

use crate::error::LoadError;
use kernels::{
    Activations, AttentionShape, Compute, Forms, Isa, KvFormat, KvPool, Linear, Matrix, QueryRow, attention,
    layer_norm, product, product_add, product_gelu, rope_and_store,
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
    /// The system has no memory for a batch's keys and values.
    #[error("no memory for the keys and values of a batch")]
    OutOfMemory,
    /// The numbers left the finite range.
    #[error("the encoder produced no finite vector")]
    NotFinite,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

struct Layer {
    qkv: [Linear; 3],
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
    desk: Mutex<Desk>,
}

/// Who computes, and in which memory; one call at a time.
struct Desk {
    compute: Compute,
    /// Keys and values of the layer at hand.
    kv: KvPool,
    work: Work,
}

#[derive(Default)]
struct Work {
    /// `[token][width]`: the residual stream.
    x: Vec<f32>,
    /// `[token][q heads, k heads, v heads][dim]`.
    qkv: Vec<f32>,
    mixed: Vec<f32>,
    input: Activations,
    hidden: Activations,
}

const EPS: f32 = 1e-12;
/// Width and head of MiniLM-L6; heads are not stated in the safetensors file.
const HEAD_DIM: usize = 32;

impl Encoder {
    /// Loads safetensors weights and a tokenizer.json, to compute with `threads` threads and `isa`. Matrices are kept in
    /// 8 bits with a scale for each 32 inputs.
    ///
    /// # Errors
    /// When a file cannot be read or does not hold a BERT encoder.
    pub fn load(weights: &Path, tokenizer: &Path, threads: usize, isa: Isa) -> Result<Self, LoadError> {
        Self::open(weights, tokenizer, Compute::new(threads, isa), Matrix::pack_eight)
    }

    /// As [`Encoder::load`], with matrices in f32 as the file has them: several times slower, to compare with.
    ///
    /// # Errors
    /// As [`Encoder::load`].
    pub fn load_f32(weights: &Path, tokenizer: &Path, threads: usize, isa: Isa) -> Result<Self, LoadError> {
        Self::open(weights, tokenizer, Compute::new(threads, isa), Matrix::pack_f32)
    }

    fn open(weights: &Path, tokenizer: &Path, compute: Compute, pack: Pack) -> Result<Self, LoadError> {
        let bytes =
            std::fs::read(weights).map_err(|source| LoadError::Io { path: weights.to_path_buf(), source })?;
        let invalid = |path: &Path, message: String| LoadError::Invalid { path: path.to_path_buf(), message };
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| invalid(weights, error.to_string()))?;
        let source = Source { tensors, pack };
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
            position.iter_mut().zip(&types[..width]).for_each(|(position, kind)| *position += kind);
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
        let kv = KvPool::new(shape, KvFormat::Bits16, 1, 0)
            .map_err(|error| LoadError::KvTooLarge { given: error.bytes })?;
        let desk = Mutex::new(Desk { compute, kv, work: Work::default() });
        Ok(Self { tokenizer, words, positions, norm, layers, shape, desk })
    }

    /// Length of a vector.
    pub fn dimensions(&self) -> usize {
        self.norm.weight.len()
    }

    /// Weights of the layers' matrices, which each token is multiplied with.
    pub fn layer_weights(&self) -> usize {
        let matrices = |layer: &Layer| {
            let others = [&layer.out, &layer.up, &layer.down];
            let all = layer.qkv.iter().chain(others);
            all.map(|linear| linear.weights.rows() * linear.weights.cols()).sum::<usize>()
        };
        self.layers.iter().map(matrices).sum()
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
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vectors = Vec::with_capacity(texts.len());
        let mut from = 0;
        while from < ids.len() {
            let (mut to, mut tokens) = (from, 0);
            while to < ids.len() && (to == from || tokens + ids[to].len() <= PASS_TOKENS) {
                tokens += ids[to].len();
                to += 1;
            }
            self.pass(&mut desk, &ids[from..to], &mut vectors)?;
            from = to;
        }
        Ok(vectors)
    }

    fn pass(
        &self,
        desk: &mut Desk,
        texts: &[Vec<u32>],
        vectors: &mut Vec<Vec<f32>>,
    ) -> Result<(), EncodeError> {
        let Desk { compute, kv, work } = desk;
        let width = self.dimensions();
        work.x.clear();
        for text in texts {
            for (position, id) in text.iter().enumerate() {
                let from = *id as usize * width;
                let word = self.words.get(from..from + width).ok_or(EncodeError::NotFinite)?;
                let places = &self.positions[position * width..];
                work.x.extend(word.iter().zip(places).map(|(word, position)| word + position));
            }
        }
        let layout = Layout::new(texts);
        let rows = layout.rows(texts);
        kv.reserve(layout.blocks).map_err(|_| EncodeError::OutOfMemory)?;
        let forms = Forms::of(compute, self.layers[0].qkv.each_ref().map(|part| &part.weights));
        norm(compute, forms, &self.norm, &mut work.x, &mut work.input);
        for layer in &self.layers {
            self.layer(compute, layer, &rows, kv, work);
        }
        for row in &rows {
            let mut mean = vec![0f32; width];
            for token in work.x[row.first * width..(row.first + row.tokens) * width].chunks_exact(width) {
                mean.iter_mut().zip(token).for_each(|(mean, x)| *mean += x);
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

    /// One layer: its input and the next one's stand in `work.input`.
    fn layer(
        &self,
        compute: &mut Compute,
        layer: &Layer,
        rows: &[QueryRow<'_>],
        kv: &mut KvPool,
        work: &mut Work,
    ) {
        let (shape, tokens) = (self.shape, work.x.len() / self.dimensions());
        work.qkv.resize(tokens * shape.qkv_width(), 0.0);
        product(compute, &layer.qkv.each_ref(), &work.input, &mut work.qkv);
        rope_and_store(compute, None, kv, 0, rows, &mut work.qkv);
        work.mixed.resize(work.x.len(), 0.0);
        attention(compute, kv.layer(0), rows, &work.qkv, shape.qkv_width(), &mut work.mixed);
        let forms = Forms::of(compute, [&layer.out.weights]);
        work.input.fill(compute, forms, &work.mixed, tokens);
        product_add(compute, &layer.out, &work.input, &mut work.x);
        let forms = Forms::of(compute, [&layer.up.weights]);
        norm(compute, forms, &layer.out_norm, &mut work.x, &mut work.input);
        let forms = Forms::of(compute, [&layer.down.weights]);
        product_gelu(compute, &layer.up, &work.input, forms, &mut work.hidden);
        product_add(compute, &layer.down, &work.hidden, &mut work.x);
        // All layers keep their matrices in one form, so this serves the next one.
        let forms = Forms::of(compute, layer.qkv.each_ref().map(|part| &part.weights));
        norm(compute, forms, &layer.down_norm, &mut work.x, &mut work.input);
    }
}

fn norm(compute: &mut Compute, forms: Forms, norm: &Norm, x: &mut [f32], out: &mut Activations) {
    layer_norm(compute, forms, x, (&norm.weight, &norm.bias), EPS, out);
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
    pack: Pack,
}

/// How a matrix is kept: rows, columns, values.
type Pack = fn(usize, usize, &[f32]) -> Result<Matrix, kernels::FormatError>;

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
        let weights = (self.pack)(rows, cols, &values).map_err(|error| LoadError::format(name, &error))?;
        Ok(Linear { weights, bias: Some(bias) })
    }

    fn layer(&self, at: usize, width: usize) -> Result<Layer, LoadError> {
        let name = |part: &str| format!("encoder.layer.{at}.{part}");
        let up = self.linear(&name("intermediate.dense"), None, width)?;
        let hidden = up.weights.rows();
        let layer = Layer {
            qkv: [
                self.linear(&name("attention.self.query"), Some(width), width)?,
                self.linear(&name("attention.self.key"), Some(width), width)?,
                self.linear(&name("attention.self.value"), Some(width), width)?,
            ],
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
