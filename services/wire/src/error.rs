//! How is a failure told? The shape that OpenAI clients read, with the stage added.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// Family: `invalid_request_error`, `authentication_error`, `permission_error`, `not_found_error`, `overloaded_error`, `timeout_error`, `cancelled_error` or
    /// `server_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub message: String,
    /// For programs; stable.
    pub code: String,
    /// Stage of the answer path in which it happened, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Field or header that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
}

/// Body of every response that is not a success, and data of every `error` event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}
