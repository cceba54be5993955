//! Which status and code does each failure get? The one table, and the maps from the lower floors' enums onto it.

use crate::error::ApiError;
use answer::AnswerError;
use budgets::Stage;
use engine::{CodecError, SubmitError};
use index::{IndexError, SearchError};

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// HTTP status, where the response has not begun.
    pub(crate) status: u16,
    /// Family, the `type` of the body.
    pub(crate) kind: &'static str,
    /// Stable name, the `code` of the body.
    pub(crate) code: &'static str,
}

const INVALID: &str = "invalid_request_error";
const AUTHENTICATION: &str = "authentication_error";
const PERMISSION: &str = "permission_error";
const NOT_FOUND_KIND: &str = "not_found_error";
const OVERLOADED: &str = "overloaded_error";
const TIMEOUT: &str = "timeout_error";
const CANCELLED_KIND: &str = "cancelled_error";
const SERVER: &str = "server_error";

macro_rules! rows {
    ($($name:ident = $status:literal $kind:ident $code:literal;)*) => {
        $(pub(crate) const $name: Row = Row { status: $status, kind: $kind, code: $code };)*
        #[cfg(test)]
        pub(crate) const ALL: &[Row] = &[$($name),*];
    };
}

rows! {
    MALFORMED_JSON      = 400 INVALID "malformed_json";
    INVALID_BODY        = 400 INVALID "invalid_body";
    INVALID_VALUE       = 400 INVALID "invalid_value";
    INVALID_HEADER      = 400 INVALID "invalid_header";
    EMPTY_QUERY         = 400 INVALID "empty_query";
    QUERY_TOO_LONG      = 400 INVALID "query_too_long";
    EMPTY_PROMPT        = 400 INVALID "empty_prompt";
    CONTEXT_EXCEEDED    = 400 INVALID "context_length_exceeded";
    INVALID_CHAT        = 400 INVALID "invalid_conversation";
    INVALID_DOCUMENT    = 400 INVALID "invalid_document";
    UNKNOWN_KEY         = 401 AUTHENTICATION "unknown_key";
    READ_ONLY           = 403 PERMISSION "read_only";
    CROSS_ORIGIN        = 403 PERMISSION "cross_origin";
    DOCUMENT_NOT_FOUND  = 404 NOT_FOUND_KIND "document_not_found";
    JOB_NOT_FOUND       = 404 NOT_FOUND_KIND "job_not_found";
    UNKNOWN_ROUTE       = 404 NOT_FOUND_KIND "unknown_route";
    MODEL_NOT_FOUND     = 404 INVALID "model_not_found";
    METHOD_NOT_ALLOWED  = 405 INVALID "method_not_allowed";
    BODY_TIMEOUT        = 408 TIMEOUT "body_timeout";
    BODY_TOO_LARGE      = 413 INVALID "body_too_large";
    NOT_JSON            = 415 INVALID "unsupported_media_type";
    CANCELLED           = 499 CANCELLED_KIND "cancelled";
    INTERNAL            = 500 SERVER "internal_error";
    RETRIEVAL_FAILED    = 500 SERVER "retrieval_failed";
    GENERATION_FAILED   = 500 SERVER "generation_failed";
    INDEX_FAILED        = 500 SERVER "index_failed";
    INDEX_BEHIND        = 503 OVERLOADED "index_behind";
    INTAKE_FULL         = 503 OVERLOADED "intake_full";
    QUEUE_FULL          = 503 OVERLOADED "queue_full";
    BUSY                = 503 OVERLOADED "busy";
    SHUTTING_DOWN       = 503 OVERLOADED "shutting_down";
    EXPIRED             = 504 TIMEOUT "deadline_exceeded";
}

/// The deadline passed in `stage`.
pub(crate) fn expired(stage: Stage) -> ApiError {
    ApiError::of(EXPIRED, format!("the deadline passed in stage {}", stage.name())).stage(stage)
}

impl From<SearchError> for ApiError {
    fn from(error: SearchError) -> Self {
        let message = error.to_string();
        match error {
            SearchError::EmptyQuery => ApiError::of(EMPTY_QUERY, message),
            SearchError::QueryTooLong { .. } => ApiError::of(QUERY_TOO_LONG, message),
            SearchError::Expired { stage } => expired(stage),
            SearchError::Arm { stage, .. } => ApiError::of(RETRIEVAL_FAILED, message).stage(stage),
        }
    }
}

impl From<IndexError> for ApiError {
    fn from(error: IndexError) -> Self {
        let row = match &error {
            IndexError::Document { .. } | IndexError::TooManyPassages { .. } => INVALID_DOCUMENT,
            IndexError::ReadOnly => READ_ONLY,
            IndexError::Behind { .. } => INDEX_BEHIND,
            _ => INDEX_FAILED,
        };
        // What failed inside may name paths of the server; that is for its log.
        if row.status == 500 {
            tracing::error!(%error, "a document could not be put or deleted");
            return ApiError::of(row, "the index could not take the change; the server's log says why");
        }
        ApiError::of(row, error.to_string())
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::QueueFull { .. } => ApiError::of(QUEUE_FULL, message).stage(Stage::Queue),
            SubmitError::EmptyPrompt => ApiError::of(EMPTY_PROMPT, message),
            SubmitError::PromptTooLong { .. } => ApiError::of(CONTEXT_EXCEEDED, message),
            SubmitError::InvalidSetting(_) | SubmitError::InvalidConstraint(_) => {
                ApiError::of(INVALID_VALUE, message)
            }
            SubmitError::ShuttingDown => ApiError::of(SHUTTING_DOWN, message),
        }
    }
}

impl From<CodecError> for ApiError {
    fn from(error: CodecError) -> Self {
        ApiError::of(INVALID_CHAT, error.to_string()).param("messages")
    }
}

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        let message = error.to_string();
        match error {
            AnswerError::EmptyQuestion => ApiError::of(EMPTY_QUERY, message).param("question"),
            AnswerError::QuestionTooLong { .. } => ApiError::of(QUERY_TOO_LONG, message).param("question"),
            AnswerError::ConversationTooLong { .. } => {
                ApiError::of(INVALID_VALUE, message).param("conversation")
            }
            AnswerError::InvalidSetting(_) => ApiError::of(INVALID_VALUE, message),
            AnswerError::Busy { .. } => ApiError::of(BUSY, message).stage(Stage::Admit),
            AnswerError::Prompt(_) => ApiError::of(INVALID_CHAT, message),
            AnswerError::Expired { stage } => expired(stage),
            AnswerError::Retrieval(error) => error.into(),
            AnswerError::Engine(error) => error.into(),
            AnswerError::Generation(_) => ApiError::of(GENERATION_FAILED, message),
            AnswerError::Internal(_) => ApiError::of(INTERNAL, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_has_a_valid_status_and_a_code_of_its_own() {
        let codes: HashSet<_> = ALL.iter().map(|row| row.code).collect();
        assert_eq!(codes.len(), ALL.len());
        for row in ALL {
            assert!((400..600).contains(&row.status), "{row:?}");
            assert_eq!(row.kind == SERVER, row.status == 500, "{row:?}");
        }
    }
}
