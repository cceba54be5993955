//! How does a question become an answer that cites its sources? The pipeline over index and engine.
//!
//! Knows nothing of HTTP or wire types. [`Answerer::ask`] is the way in, `pipeline` shows the whole path; the steps
//! that decide something (packing, finding citations, judging support) are pure and tested without either floor below.

mod citer;
mod error;
mod marks;
mod pack;
mod pipeline;
mod prompt;
mod question;
mod report;
mod retrieve;
pub mod score;
mod sentences;
mod stream;
mod support;
mod terms;

pub use citer::{Checked, Citer};
pub use error::AnswerError;
pub use marks::without_marks;
pub use pipeline::Answerer;
pub use prompt::{NOTHING_FOUND, REFUSAL};
pub use question::{AnswerSettings, Question};
pub use report::{AnswerEvent, CitationReport, FinalReport, SentenceReport, Source};
pub use stream::AnswerStream;
pub use support::{Bearing, SUPPORT_CLEAR, SUPPORT_MIN, Support};
