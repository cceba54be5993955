//! Is the server alive and ready, what does it serve, and what are its figures?

use crate::chat;
use crate::error::ApiError;
use crate::extract::PathId;
use crate::state::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// The process is alive.
#[utoipa::path(
    get, path = "/healthz", tag = "operations",
    responses((status = 200, description = "Alive", body = wire::Readiness)),
)]
pub(crate) async fn healthz() -> Json<wire::Readiness> {
    Json(wire::Readiness { status: "ok".to_string() })
}

/// New questions are taken: model and index are loaded and the server is not shutting down.
#[utoipa::path(
    get, path = "/readyz", tag = "operations",
    responses(
        (status = 200, description = "Ready", body = wire::Readiness),
        (status = 503, description = "Not ready", body = wire::Readiness),
    ),
)]
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>) -> (StatusCode, Json<wire::Readiness>) {
    // Model and index are loaded before the first connection is accepted, so draining is the one way not to be ready.
    let (code, status) = if shared.draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ok")
    };
    (code, Json(wire::Readiness { status: status.to_string() }))
}

/// Figures in Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "Figures", body = String, content_type = "text/plain; version=0.0.4")),
)]
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = shared.metrics.scrape(&shared.api.engine, &shared.api.index);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn served(shared: &Shared) -> wire::Model {
    let info = shared.api.engine.info();
    wire::Model {
        id: info.model_id,
        object: "model".to_string(),
        created: shared.api.started_unix_s,
        owned_by: "riposte".to_string(),
        max_model_len: Some(info.context_tokens_max),
    }
}

/// Lists the served models.
#[utoipa::path(
    get, path = "/v1/models", tag = "openai",
    responses((status = 200, description = "The models", body = wire::ModelList)),
)]
pub(crate) async fn models(State(shared): State<Arc<Shared>>) -> Json<wire::ModelList> {
    Json(wire::ModelList { object: "list".to_string(), data: vec![served(&shared)] })
}

/// Describes one served model.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "openai",
    params(("id" = String, Path, description = "Id of the model")),
    responses(
        (status = 200, description = "The model", body = wire::Model),
        (status = 400, description = "The id is not UTF-8", body = wire::ErrorBody),
        (status = 404, description = "Not served here", body = wire::ErrorBody),
    ),
)]
pub(crate) async fn model(
    State(shared): State<Arc<Shared>>,
    PathId(id): PathId,
) -> Result<Json<wire::Model>, ApiError> {
    chat::served_model(&shared, Some(&id))?;
    Ok(Json(served(&shared)))
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "operations",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")),
)]
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::openapi::document())
}
