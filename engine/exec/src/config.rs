//! What shape has this model? Read from the GGUF's metadata once, checked, then immutable.

use crate::error::LoadError;
use crate::gguf::{Gguf, metadata};
use kernels::{AttentionShape, KvFormat, RopeStyle};

/// Architectures with a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Llama and its kin (SmolLM2 among them).
    Llama,
    /// Qwen2 and Qwen2.5: as llama, with biases on the attention inputs and rotary halves.
    Qwen2,
}

/// Sizes and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Its architecture.
    pub architecture: Architecture,
    /// Name as the file states it.
    pub name: String,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Width inside the feed-forward part.
    pub hidden: usize,
    /// Attention heads.
    pub attention: AttentionShape,
    /// Longest sequence that the model was made for.
    pub context_tokens: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Dimensions of a head that rotate.
    pub rope_dims: usize,
    /// How they pair.
    pub rope_style: RopeStyle,
    /// Added to the mean square before its root.
    pub norm_eps: f32,
}

impl ModelConfig {
    pub(crate) fn read(gguf: &Gguf) -> Result<Self, LoadError> {
        let name = gguf.string("general.architecture")?;
        let (architecture, rope_style) = match name.as_str() {
            "llama" => (Architecture::Llama, RopeStyle::Interleaved),
            "qwen2" => (Architecture::Qwen2, RopeStyle::Halves),
            _ => return Err(LoadError::Architecture(name)),
        };
        let key = |suffix: &str| format!("{name}.{suffix}");
        let number = |suffix: &str, max| match gguf.number(&key(suffix), max) {
            Ok(0) => Err(metadata(&key(suffix), "is 0")),
            other => other,
        };
        let width = number("embedding_length", 1 << 16)?;
        let heads = number("attention.head_count", 1024)?;
        let kv_heads =
            gguf.optional(&key("attention.head_count_kv"), |g, k| g.number(k, 1024))?.unwrap_or(heads).max(1);
        let head_dim =
            gguf.optional(&key("attention.key_length"), |g, k| g.number(k, 1024))?.unwrap_or(width / heads);
        let rope_dims =
            gguf.optional(&key("rope.dimension_count"), |g, k| g.number(k, 1024))?.unwrap_or(head_dim);
        if heads % kv_heads != 0 || head_dim == 0 || rope_dims > head_dim || rope_dims % 2 != 0 {
            let message =
                format!("{heads} heads, {kv_heads} KV heads, head of {head_dim}, {rope_dims} rotating");
            return Err(metadata(&key("attention.head_count"), &message));
        }
        // A scaled rope that is silently ignored gives wrong answers at length, so it is refused.
        if let Some(scaling) = gguf.optional(&key("rope.scaling.type"), Gguf::string)?
            && scaling != "none"
        {
            return Err(metadata(&key("rope.scaling.type"), &format!("{scaling:?} is not supported")));
        }
        Ok(Self {
            architecture,
            name: gguf.optional("general.name", Gguf::string)?.unwrap_or_else(|| name.clone()),
            layers: number("block_count", 1024)?,
            width,
            hidden: number("feed_forward_length", 1 << 20)?,
            attention: AttentionShape { heads, kv_heads, head_dim },
            context_tokens: number("context_length", 1 << 24)?,
            rope_base: gguf.optional(&key("rope.freq_base"), Gguf::float)?.unwrap_or(10_000.0),
            rope_dims,
            rope_style,
            norm_eps: gguf.float(&key("attention.layer_norm_rms_epsilon"))?,
        })
    }

    /// Bytes of one KV block over all layers.
    pub fn kv_block_bytes(&self, format: KvFormat) -> usize {
        self.layers * format.block_bytes(self.attention)
    }
}
