//! How does a stream of events leave the server so that no proxy holds it back?

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;

/// A comment goes out when nothing else has for this long, so that idle timeouts on the way do not cut the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The response whose body is `events`.
pub(crate) fn response(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// An event with a name.
pub(crate) fn named<T: Serialize>(name: &'static str, data: &T) -> Event {
    Event::default().event(name).data(json(data))
}

/// An event without a name, as OpenAI clients expect.
pub(crate) fn bare<T: Serialize>(data: &T) -> Event {
    Event::default().data(json(data))
}

fn json<T: Serialize>(data: &T) -> String {
    // Wire types have string keys and no fallible serializers; null is only what a mistake there would send.
    serde_json::to_string(data).unwrap_or_else(|_| "null".to_string())
}
