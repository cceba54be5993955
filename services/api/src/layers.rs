//! What happens to every request, whatever its route? A name, the arrival time, a net for panics, headers and counts.

use crate::connections::Activity;
use crate::context::unknown_key;
use crate::error::{ApiError, Failure};
use crate::error_table as table;
use crate::state::Shared;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The page may load its own parts and talk to its own server, and nothing else: a passage or an answer that smuggles
/// in markup can then neither run nor call home.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SECURITY_HEADERS: [(header::HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
];

/// Wraps every request.
pub(crate) async fn around(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let context = shared.ids.context(shared.api.clock.now(), request.headers(), &shared.api.access);
    let method = request.method().clone();
    // The route's pattern, never the path itself: labels must not grow with what callers think up.
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_string();
    request.extensions_mut().insert(context.clone());
    // Until the response begins; from then on its bytes keep the connection from being idle.
    let working = request.extensions().get::<ConnectInfo<Activity>>().map(|activity| activity.0.begin());
    // Probes, figures and the page's parts tell nothing of documents and cost next to nothing.
    let refused = route.starts_with("/v1/") && context.caller.is_none();
    let work = async { if refused { unknown_key().into_response() } else { next.run(request).await } };
    let mut response = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!(route, id = context.id, "a handler panicked");
            ApiError::of(table::INTERNAL, "the server made a mistake").into_response()
        }
    };
    drop(working);
    decorate(response.headers_mut(), &context.id);
    let took = shared.api.clock.now().since(context.arrived);
    shared.metrics.http(&route, method.as_str(), response.status().as_u16(), took);
    if let Some(failure) = response.extensions().get::<Failure>() {
        shared.metrics.error(failure.code, failure.stage);
    }
    tracing::debug!(id = context.id, %method, route, status = response.status().as_u16(), ?took, "request");
    response
}

fn decorate(headers: &mut HeaderMap, id: &str) {
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(value) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", value);
    }
    // Answers are for one caller at one time.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
