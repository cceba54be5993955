//! Which passages of which documents answer this query, and how sure are we within the time left?
//!
//! `ingest` turns files into documents, `split` cuts documents into passages, [`build()`] writes passages, a BM25 index
//! and vectors as one immutable generation on disk, and [`Index`] opens the current generation, searches it, and takes
//! documents while it is searched.
//! Knows nothing of language models, prompts or HTTP: the [`Embed`] trait is all it sees of a model.

mod alike;
mod arm;
mod bm25;
mod build;
mod change;
mod digest;
mod document;
mod embed;
mod error;
mod fuse;
mod generation;
mod ingest;
mod journal;
mod lexical;
mod live;
#[cfg(test)]
mod mutate;
mod near;
mod open;
mod part;
mod passage;
mod progress;
mod put;
mod query;
mod rebuild;
mod rows;
mod search;
mod split;
mod stored;
mod vector;
mod vectorize;
mod view;
mod watch;
mod write;

pub use build::build;
pub use document::{
    COLLECTION_DEFAULT, Date, DocumentInfo, Filter, Meta, Origin, OwnedFilter, full_id, parse_id,
};
pub use embed::{Embed, EmbedError};
pub use error::{IndexError, SearchError};
pub use ingest::reads;
pub use open::Index;
pub use passage::{Passage, PassageId, SourceSpan};
pub use progress::{Phase, Progress, Skipped, Summary};
pub use put::{NewDocument, Outcome};
pub use query::{ArmScore, Arms, CollectionInfo, Coverage, Hit, IndexInfo, Query, SearchResult};
pub use watch::{Follower, Round, Watch};
