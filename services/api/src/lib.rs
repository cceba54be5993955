//! How does HTTP reach the answer path? Routes, bodies, deadlines from headers, event streams, metrics and the page.
//!
//! Decides nothing about answers: it turns a request into a [`answer::Question`] or an engine request with an absolute
//! deadline, turns what comes back into wire types, and makes sure that a caller who goes away is noticed.

mod access;
mod answers;
mod cancel;
mod chat;
mod chat_convert;
mod chat_options;
mod connections;
mod context;
mod convert;
mod documents;
mod engine_times;
mod error;
mod error_table;
mod extract;
mod layers;
mod measure;
mod metric_names;
mod openapi;
mod ops;
mod page;
mod router;
mod search;
mod serve;
mod slo;
mod sse;
mod state;

pub use access::{Access, Caller, Writes};
pub use openapi::document as openapi_document;
pub use router::{ROUTES, router};
pub use serve::{ServeError, serve};
pub use state::ApiState;
