//! Why is there no answer?

use budgets::Stage;
use engine::{CodecError, SubmitError};
use index::SearchError;
use thiserror::Error;

/// A question that is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The question has no letter or digit.
    #[error("the question is empty")]
    EmptyQuestion,
    /// The question is longer than `Limits::query_chars_max`.
    #[error("the question has {chars} characters, at most {chars_max} are taken")]
    QuestionTooLong {
        /// Its length.
        chars: usize,
        /// The bound.
        chars_max: usize,
    },
    /// The conversation has more turns than `Limits::conversation_turns_max`.
    #[error("the conversation has {turns} turns, at most {turns_max} are taken")]
    ConversationTooLong {
        /// Its turns.
        turns: usize,
        /// The bound.
        turns_max: usize,
    },
    /// A setting is out of range; the message names it.
    #[error("{0}")]
    InvalidSetting(String),
    /// As many questions are under way as the service takes.
    #[error("{in_flight} questions are under way; try again later")]
    Busy {
        /// Questions under way.
        in_flight: usize,
    },
    /// The deadline passed before there was anything to show.
    #[error("the deadline passed in stage {}", stage.name())]
    Expired {
        /// The stage in which it passed.
        stage: Stage,
    },
    /// The search failed.
    #[error("search: {0}")]
    Retrieval(SearchError),
    /// The model's chat template refused the prompt.
    #[error("{0}")]
    Prompt(CodecError),
    /// The engine did not take the prompt.
    #[error("{0}")]
    Engine(SubmitError),
    /// The engine failed on the way, or cancelled of its own accord.
    #[error("generation: {0}")]
    Generation(String),
    /// A defect of this service; the message is for its log.
    #[error("internal: {0}")]
    Internal(String),
}

impl From<SearchError> for AnswerError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::EmptyQuery => Self::EmptyQuestion,
            SearchError::QueryTooLong { chars, chars_max } => Self::QuestionTooLong { chars, chars_max },
            SearchError::Expired { stage } => Self::Expired { stage },
            arm @ SearchError::Arm { .. } => Self::Retrieval(arm),
        }
    }
}
