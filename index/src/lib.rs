//! Which passages of which documents answer this query, and how sure are we within the time left?
//!
//! `ingest` turns files into documents, `split` cuts documents into passages, [`build()`] writes passages, a BM25 index
//! and vectors as one immutable generation on disk, and [`Index`] opens the current generation and searches it.
//! Knows nothing of language models, prompts or HTTP: the [`Embed`] trait is all it sees of a model.

mod alike;
mod arm;
mod bm25;
mod build;
mod embed;
mod error;
mod fuse;
mod generation;
mod ingest;
mod lexical;
mod near;
mod passage;
mod progress;
mod query;
mod rows;
mod search;
mod split;
mod vector;

pub use build::build;
pub use embed::{Embed, EmbedError};
pub use error::{IndexError, SearchError};
pub use passage::{Passage, PassageId, SourceSpan};
pub use progress::{Phase, Progress, Skipped, Summary};
pub use query::{ArmScore, Arms, Coverage, Hit, IndexInfo, Query, SearchResult};
pub use search::Index;
