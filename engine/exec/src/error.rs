//! Why can a model not be loaded?

use kernels::FormatError;
use std::path::PathBuf;
use thiserror::Error;

/// A model file that cannot be used. The file is untrusted: every field is checked before it sizes anything.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a GGUF or safetensors file, or a damaged one.
    #[error("{path} is no valid model file: {message}")]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// An architecture that has no forward pass here.
    #[error("architecture {0:?} is not supported; llama and qwen2 are")]
    Architecture(String),
    /// A metadata key is missing, has the wrong type or an impossible value.
    #[error("metadata {key}: {message}")]
    Metadata {
        /// The key.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// A tensor is missing, misshapen or of a type without a kernel.
    #[error("tensor {name}: {message}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// The tokenizer cannot be built.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The KV memory holds less than one block.
    #[error("{given} bytes of KV memory hold no block; one takes {block}: raise model.kv_mib")]
    KvTooSmall {
        /// What was given.
        given: usize,
        /// Bytes of one block over all layers.
        block: usize,
    },
    /// The system does not give that much memory.
    #[error("there are no {given} bytes of memory for the KV blocks: lower model.kv_mib")]
    KvTooLarge {
        /// What was asked for.
        given: usize,
    },
}

impl LoadError {
    pub(crate) fn tensor(name: &str, message: impl Into<String>) -> Self {
        LoadError::Tensor { name: name.to_string(), message: message.into() }
    }

    pub(crate) fn format(name: &str, error: &FormatError) -> Self {
        Self::tensor(name, error.to_string())
    }
}
