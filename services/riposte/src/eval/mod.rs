//! How good are the answers? Questions with known answers, asked in process, scored and written down.

pub mod answers;
pub mod handbook;
pub mod perplexity;
mod score;
mod squad;
