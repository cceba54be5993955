//! What does a failed request look like on the wire?

use crate::error_table::Row;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use budgets::Stage;

/// Seconds that a refused caller is asked to wait.
const RETRY_AFTER_S: &str = "1";

/// A failure, ready to be sent as a response or as an `error` event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) row: Row,
    message: String,
    stage: Option<Stage>,
    param: Option<String>,
}

impl ApiError {
    pub(crate) fn of(row: Row, message: impl Into<String>) -> Self {
        Self { row, message: message.into(), stage: None, param: None }
    }

    /// Names the field or header that is wrong.
    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Calls the field by the name that it has in this request.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        if self.param.as_deref() == Some(from) {
            self.param = Some(to.to_string());
            self.message = self.message.replace(from, to);
        }
        self
    }

    /// Names the stage in which it happened.
    pub(crate) fn stage(mut self, stage: Stage) -> Self {
        self.stage = Some(stage);
        self
    }

    pub(crate) fn stage_name(&self) -> &'static str {
        self.stage.map_or("", Stage::name)
    }

    pub(crate) fn body(&self) -> wire::ErrorBody {
        wire::ErrorBody {
            error: wire::ErrorDetail {
                kind: self.row.kind.to_string(),
                message: self.message.clone(),
                code: self.row.code.to_string(),
                stage: self.stage.map(|stage| stage.name().to_string()),
                param: self.param.clone(),
            },
        }
    }
}

/// Left on the response so that the outer layer can count errors by code and stage.
#[derive(Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) stage: &'static str,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // Every status in the table is a valid code (a test walks them); 500 is what a mistake there deserves.
        let status = StatusCode::from_u16(self.row.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::warn!(code = self.row.code, stage = self.stage_name(), "{}", self.message);
        }
        let mut response = (status, Json(self.body())).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        response.extensions_mut().insert(Failure { code: self.row.code, stage: self.stage_name() });
        response
    }
}
