//! Does a failure reach the caller as what it is? A status before there is text, a typed line after it, and a request that
//! waited too long is not computed.

use crate::client::{Events, busy, get, idle, post, router, send};
use crate::rig::{Rig, limits};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

fn chat(text: &str, more: Value) -> Request<Body> {
    let mut body = json!({ "messages": [{ "role": "user", "content": text }], "stream": true });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post("/v1/chat/completions", body.to_string(), &[])
}

#[tokio::test]
async fn an_error_before_the_first_token_has_a_status_of_its_own() {
    let rig = Rig::failing_at(0);
    let router = router(&rig);
    let reply = send(&router, chat("never said", json!({}))).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", reply.text);
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.json()["error"]["code"], "generation_failed");
    assert!(!reply.text.contains("[DONE]"));
    idle(&rig.state.engine).await;
    // The device is back, and so is the service.
    let rest = Events::open(&router, chat("said", json!({}))).await.rest().await;
    assert_eq!(rest.last().unwrap().1, "[DONE]");
}

#[tokio::test]
async fn an_error_within_a_stream_is_its_last_line_and_typed() {
    let rig = Rig::failing_at(4);
    let router = router(&rig);
    let events = Events::open(&router, chat("half of this is said", json!({}))).await.rest().await;
    let (last, before) = events.split_last().unwrap();
    let text: String = before
        .iter()
        .filter_map(|(_, data)| {
            serde_json::from_str::<Value>(data).unwrap()["choices"][0]["delta"]["content"]
                .as_str()
                .map(str::to_string)
        })
        .collect();
    assert_eq!(text, "half");
    let error: wire::ErrorBody = serde_json::from_str(&last.1).unwrap();
    assert_eq!((error.error.kind.as_str(), error.error.code.as_str()), ("server_error", "generation_failed"));
    let figures = send(&router, get("/metrics")).await.text;
    assert!(figures.contains("riposte_errors_total{code=\"generation_failed\",stage=\"\"} 1"), "{figures}");
    assert!(
        figures.contains("vllm:request_success_total{model_name=\"scripted\",finished_reason=\"error\"} 1")
    );
    idle(&rig.state.engine).await;
}

#[tokio::test]
async fn who_waits_too_long_is_told_so_and_never_computed() {
    // A step outlasts what the second caller has, so there is no time at which it could preempt the first one.
    let rig = Rig::with(Duration::from_millis(500), limits());
    let router = router(&rig);
    let running = Events::open(&router, chat("a reply of many words that takes its time", json!({}))).await;
    busy(&rig.state.engine).await;
    let late = chat("too late", json!({ "slo": { "ttft_ms": 100 } }));
    let reply = send(&router, late).await;
    assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT, "{}", reply.text);
    let error = &reply.json()["error"];
    assert_eq!((&error["code"], &error["stage"]), (&json!("deadline_exceeded"), &json!("queue")));
    let stats = rig.state.engine.stats();
    assert_eq!((stats.finished.expired_in_queue, stats.finished.total()), (1, 1));
    drop(running);
    idle(&rig.state.engine).await;
    // Only the first prompt was computed: its words, one token before and one behind them, and one that opens.
    let first = "a reply of many words that takes its time".len() as u64 + 3;
    assert_eq!(rig.state.engine.stats().prefill_tokens, first);
}

#[tokio::test]
async fn a_form_that_the_model_breaks_fails_that_reply() {
    let rig = Rig::quick();
    let router = router(&rig);
    // The scripted model repeats the message whatever is allowed.
    let broken = chat("no", json!({ "structured_outputs": { "regex": "yes" } }));
    let (_, last) = Events::open(&router, broken).await.rest().await.pop().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["error"]["code"], "generation_failed");
    let cut = chat("yes", json!({ "structured_outputs": { "regex": "yes" }, "max_tokens": 2 }));
    let events = Events::open(&router, cut).await.rest().await;
    assert!(events.iter().any(|(_, data)| data.contains(r#""finish_reason":"length""#)), "{events:?}");
}
