//! How does the index reach the encoder? A newtype, since neither floor may know the other.

use exec::Encoder;
use index::{Embed, EmbedError};

/// The encoder as the index wants it.
pub struct ModelEmbed {
    /// Names the model: an index opens only with the embedder that built it.
    pub id: String,
    /// Computes.
    pub encoder: Encoder,
}

impl Embed for ModelEmbed {
    fn id(&self) -> &str {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.encoder.dimensions()
    }

    fn count_tokens(&self, text: &str) -> usize {
        self.encoder.count_tokens(text)
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.encoder.embed(texts).map_err(|error| EmbedError(error.to_string()))
    }
}
