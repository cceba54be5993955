//! How likely was each token? OpenAI's shape of logarithmic probabilities.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token that might have come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopLogprob {
    /// The token as text; bytes that are no whole character show as `\xf0`, a control token as `token_id:7`.
    pub token: String,
    /// Its id, as `logit_bias` takes it; an extension of this server.
    pub token_id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Its bytes; null for a control token.
    pub bytes: Option<Vec<u8>>,
}

/// A token that came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenLogprob {
    /// The token as text; bytes that are no whole character show as `\xf0`, a control token as `token_id:7`.
    pub token: String,
    /// Its id, as `logit_bias` takes it; an extension of this server.
    pub token_id: u32,
    /// Natural logarithm of its probability under the model, before temperature, bias and constraints.
    pub logprob: f32,
    /// Its bytes; those of all tokens in order are the reply's, and a stop string's when one ended it. None for a control
    /// token.
    pub bytes: Vec<u8>,
    /// The likeliest tokens in its place, likeliest first.
    pub top_logprobs: Vec<TopLogprob>,
}

/// Probabilities of a reply's or a chunk's tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatLogprobs {
    /// Token by token.
    pub content: Vec<TokenLogprob>,
}
