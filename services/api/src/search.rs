//! How does `POST /v1/search` run?

use crate::context::Context;
use crate::convert;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::openapi::SearchFailures;
use crate::slo;
use crate::state::Shared;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use std::sync::Arc;

/// Hits when the caller names no number.
const HITS: usize = 10;

/// Finds passages by words and by meaning, fused.
///
/// A search that does not finish in time gives what it has and says so in `coverage`; with nothing at all it is an
/// error.
#[utoipa::path(
    post, path = "/v1/search", tag = "answers",
    params(("x-slo-total-ms" = Option<u64>, Header, description = "Limit on the search; the tighter of header and body applies")),
    request_body = wire::SearchRequest,
    responses((status = 200, description = "What was found", body = wire::SearchResponse), SearchFailures),
)]
pub(crate) async fn search(
    State(shared): State<Arc<Shared>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<wire::SearchRequest>,
) -> Result<Json<wire::SearchResponse>, ApiError> {
    shared.check_open()?;
    let limits = &shared.api.limits;
    let times = slo::times(request.slo, &headers, context.arrived, limits)?;
    let limit =
        convert::count("limit", request.limit, HITS.min(limits.search_hits_max), limits.search_hits_max)?;
    let filter = context.filter(request.filter)?;
    let result = shared.api.answerer.search(&request.query, &filter, limit, times.total).await;
    // The answer path calls the text a question; here its field has another name.
    let result = result.map_err(|error| ApiError::from(error).renamed("question", "query"))?;
    let took = shared.api.clock.now().since(context.arrived);
    shared.metrics.search(took);
    Ok(Json(convert::search_response(&result, &context.id, took)))
}
