//! Who turns text into vectors? A trait, because this floor must not know the models.

use thiserror::Error;

/// The embedder could not embed; the message says why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("embedding failed: {0}")]
pub struct EmbedError(pub String);

/// Turns text into unit vectors whose dot product says how close two meanings are.
pub trait Embed: Send + Sync {
    /// Names the model and its version; an index opens only with the embedder that built it.
    fn id(&self) -> &str;

    /// Length of every vector.
    fn dimensions(&self) -> usize;

    /// Number of the embedder's own tokens in `text`.
    fn count_tokens(&self, text: &str) -> usize;

    /// One vector of length one per text, in order.
    ///
    /// # Errors
    /// The model failed; no vector of the batch can be used.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;
}
