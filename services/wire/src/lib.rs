//! What travels over the wire? The JSON types of the HTTP API, for the server and for clients written in Rust.
//!
//! Knows nothing of engines, indexes or HTTP: serde and schema derives only. The API converts to and from its own
//! records by hand, so that a change inside never changes the wire by accident.

mod answer;
mod chat;
mod documents;
mod error;
mod format;
mod logprobs;
mod models;
mod search;
mod source;

pub use answer::{
    AnswerRequest, AnswerResponse, CancelResponse, Citation, CitationCounts, DeltaEvent, FinalEvent, Finish,
    Message, Role, Sentence, Slo, SloOutcome, SourcesEvent, Timing, TokenUsage,
};
pub use chat::{
    ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatContent, ChatDelta, ChatMessage, ChatReply,
    ChatRequest, ChatUsage, ContentPart, PromptTokensDetails, Stop, StreamOptions,
};
pub use documents::{
    Collection, CollectionList, DeleteResponse, Document, DocumentBody, DocumentDetail, DocumentList,
    DocumentPassage, Filter, Job, JobFailure, JobStatus, PutOutcome, PutResponse,
};
pub use error::{ErrorBody, ErrorDetail};
pub use format::{JsonSchemaFormat, ResponseFormat, StructuredOutputs};
pub use logprobs::{ChatLogprobs, TokenLogprob, TopLogprob};
pub use models::{Model, ModelList, Readiness};
pub use search::{ArmScore, Coverage, SearchHit, SearchRequest, SearchResponse};
pub use source::{Source, Span};
