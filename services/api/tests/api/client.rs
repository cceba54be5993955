//! How do the tests speak to the router?

use crate::rig::Rig;
use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use engine::Engine;
use futures::StreamExt;
use serde_json::Value;
use std::time::{Duration, Instant};
use tower::ServiceExt;

/// A response whose body has been read.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A request with a JSON body and more headers.
pub fn post(path: &str, body: impl Into<Body>, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

pub fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// Sends a request and reads the whole response.
pub async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    Reply { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

/// Sends a JSON body and reads the whole response.
pub async fn send_json(router: &Router, path: &str, body: Value) -> Reply {
    send(router, post(path, body.to_string(), &[])).await
}

/// An event stream that is being read.
pub struct Events {
    pub headers: HeaderMap,
    body: BodyDataStream,
    buffer: String,
}

impl Events {
    pub async fn open(router: &Router, request: Request<Body>) -> Events {
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (parts, body) = response.into_parts();
        Events { headers: parts.headers, body: body.into_data_stream(), buffer: String::new() }
    }

    /// Name (empty without one) and data of the next event.
    pub async fn next(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_string);
                let found = (field("event: ").unwrap_or_default(), field("data: ").unwrap_or_default());
                self.buffer = rest.to_string();
                return Some(found);
            }
            let bytes = self.body.next().await?.unwrap();
            self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    pub async fn next_json(&mut self) -> (String, Value) {
        let (name, data) = self.next().await.expect("another event");
        (name, serde_json::from_str(&data).unwrap())
    }

    pub async fn rest(mut self) -> Vec<(String, String)> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// Waits until the engine holds nothing any more.
pub async fn idle(engine: &Engine) {
    until("the engine is idle", || {
        let stats = engine.stats();
        stats.running == 0 && stats.waiting == 0 && stats.blocks_held == 0
    })
    .await;
}

/// Waits until the engine computes something.
pub async fn busy(engine: &Engine) {
    until("the engine is busy", || engine.stats().running > 0).await;
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn router(rig: &Rig) -> Router {
    api::router(rig.state.clone())
}
