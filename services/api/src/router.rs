//! Which path leads to which handler?

use crate::error::ApiError;
use crate::error_table as table;
use crate::state::{ApiState, Shared};
use crate::{answers, cancel, chat, documents, layers, ops, page, search};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::routing::{get, post, put};
use budgets::Limits;
use std::sync::Arc;

/// Every route of the API with its method; the page's parts are not in it.
pub const ROUTES: &[(&str, &str)] = &[
    ("post", "/v1/answer"),
    ("post", "/v1/search"),
    ("post", "/v1/cancel/{id}"),
    ("get", "/v1/documents"),
    ("post", "/v1/documents"),
    ("put", "/v1/documents/{id}"),
    ("get", "/v1/documents/{id}"),
    ("delete", "/v1/documents/{id}"),
    ("get", "/v1/collections"),
    ("get", "/v1/jobs/{id}"),
    ("post", "/v1/chat/completions"),
    ("get", "/v1/models"),
    ("get", "/v1/models/{id}"),
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
];

/// What a document's JSON may be longer than its text, bytes.
const JSON_ROOM: u64 = 1 << 20;

/// The whole service as a router, for tests and for embedding; [`crate::serve`] adds the listener and the drain.
pub fn router(state: ApiState) -> Router {
    with_shared(Shared::new(state))
}

pub(crate) fn with_shared(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/answer", post(answers::answer))
        .route("/v1/search", post(search::search))
        .route("/v1/cancel/{id}", post(cancel::cancel))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/models", get(ops::models))
        .route("/v1/models/{id}", get(ops::model))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics))
        .route("/openapi.json", get(ops::openapi))
        .merge(document_routes(&shared.api.limits))
        .merge(page::routes())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(shared.api.limits.body_bytes_max))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), layers::around))
        .with_state(shared)
}

/// Those that documents come in by take larger bodies than the rest.
fn document_routes(limits: &Limits) -> Router<Arc<Shared>> {
    let room = |bytes: u64| DefaultBodyLimit::max(usize::try_from(bytes).unwrap_or(usize::MAX));
    let one = put(documents::put).layer(room(limits.document_bytes_max.saturating_add(JSON_ROOM)));
    let many = post(documents::post_many).layer(room(limits.bulk_bytes_max));
    Router::new()
        .route("/v1/documents", many.get(documents::list))
        .route("/v1/documents/{*id}", one.get(documents::get).delete(documents::delete))
        .route("/v1/collections", get(documents::collections))
        .route("/v1/jobs/{id}", get(documents::job))
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::of(table::UNKNOWN_ROUTE, format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::of(table::METHOD_NOT_ALLOWED, format!("{} does not take {method}", uri.path()))
}
