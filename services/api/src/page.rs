//! What does a browser get? The page and its parts, compiled in.

use crate::state::Shared;
use axum::extract::State;
use axum::http::header;
use axum::routing::get;
use axum::{Json, Router};
use std::sync::Arc;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, content type and text of each part.
const PARTS: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page/theme.js", SCRIPT, include_str!("../page/theme.js")),
    ("/page/app.js", SCRIPT, include_str!("../page/app.js")),
    ("/page/turn.js", SCRIPT, include_str!("../page/turn.js")),
    ("/page/sources.js", SCRIPT, include_str!("../page/sources.js")),
    ("/page/markdown.js", SCRIPT, include_str!("../page/markdown.js")),
    ("/page/stream.js", SCRIPT, include_str!("../page/stream.js")),
    ("/page/key.js", SCRIPT, include_str!("../page/key.js")),
    ("/favicon.svg", "image/svg+xml", include_str!("../page/favicon.svg")),
];

/// Routes of the page.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    let start = Router::new().route("/page/samples.json", get(samples));
    PARTS.iter().fold(start, |router, (path, kind, text)| {
        // A new binary brings a new page under the same paths, so a browser must ask again each time.
        let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "no-cache")];
        router.route(path, get(move || async move { (headers, *text) }))
    })
}

async fn samples(State(shared): State<Arc<Shared>>) -> Json<Vec<String>> {
    Json(shared.api.sample_questions.clone())
}
