//! How good are the answers? Questions with known answers, asked in process, scored and written down.

pub mod answers;
pub mod handbook;
mod judged;
pub mod perplexity;
mod ranking;
pub mod retrieval;
mod score;
mod squad;
