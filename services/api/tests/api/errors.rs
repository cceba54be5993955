//! Does every kind of bad request get its status and a typed body?

use crate::client::{busy, get, post, router, send};
use crate::rig::{Rig, limits};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use budgets::Limits;
use std::fmt::Write;
use std::time::Duration;

/// Sends each request and writes down status and body.
async fn transcript(rig: &Rig, requests: Vec<(&str, Request<Body>)>) -> String {
    let router = router(rig);
    let mut text = String::new();
    for (name, request) in requests {
        let reply = send(&router, request).await;
        let _ = writeln!(text, "{name}\n  {} {}", reply.status.as_u16(), reply.text);
        assert_eq!(reply.header("content-type"), "application/json", "{name}");
        let body: wire::ErrorBody = serde_json::from_str(&reply.text).expect(name);
        assert!(!body.error.code.is_empty() && !body.error.message.is_empty(), "{name}");
        assert_eq!(reply.header("x-request-id").len(), 32, "{name}");
    }
    text
}

#[tokio::test]
async fn bad_bodies() {
    let rig = Rig::quick();
    let answer = |body: &str| post("/v1/answer", body.to_string(), &[]);
    let plain = Request::post("/v1/answer").header("content-type", "text/plain");
    let huge = format!(r#"{{"question":"{}"}}"#, "word ".repeat(900));
    let oversized = format!(r#"{{"question":"{}"}}"#, "x".repeat(1 << 20));
    let turns = vec![r#"{"role":"user","content":"a"}"#; 33].join(",");
    let requests = vec![
        ("not JSON", answer("hello")),
        ("nothing", answer("")),
        ("cut off", answer(r#"{"question": "why"#)),
        ("not UTF-8", post("/v1/answer", vec![b'"', 0xff, b'"'], &[])),
        ("not declared as JSON", plain.body(Body::from(r#"{"question":"why"}"#)).unwrap()),
        ("a list", answer("[]")),
        ("no question", answer("{}")),
        ("a number for a question", answer(r#"{"question": 7}"#)),
        ("a misspelt field", answer(r#"{"question": "why", "max_token": 5}"#)),
        ("text for a number", answer(r#"{"question": "why", "max_tokens": "5"}"#)),
        ("empty question", answer(r#"{"question": "  \n "}"#)),
        ("huge question", answer(&huge)),
        ("oversized body", answer(&oversized)),
        ("too many passages", answer(r#"{"question": "why", "passages_max": 1000}"#)),
        ("no tokens", answer(r#"{"question": "why", "max_tokens": 0}"#)),
        ("too hot", answer(r#"{"question": "why", "temperature": 9}"#)),
        (
            "a system turn",
            answer(r#"{"question": "why", "conversation": [{"role": "system", "content": "a"}]}"#),
        ),
        ("too many turns", answer(&format!(r#"{{"question": "why", "conversation": [{turns}]}}"#))),
        ("empty search", post("/v1/search", r#"{"query": ""}"#, &[])),
        ("too many hits", post("/v1/search", r#"{"query": "why", "limit": 101}"#, &[])),
    ];
    insta::assert_snapshot!(transcript(&rig, requests).await);
}

#[tokio::test]
async fn bad_limits() {
    let rig = Rig::quick();
    let with = |header: &str| post("/v1/answer", r#"{"question": "why"}"#, &[("x-slo-total-ms", header)]);
    let slo = |slo: &str| post("/v1/answer", format!(r#"{{"question": "why", "slo": {slo}}}"#), &[]);
    let requests = vec![
        ("zero", with("0")),
        ("negative", with("-5")),
        ("words", with("soon")),
        ("zero in the body", slo(r#"{"total_ms": 0}"#)),
        ("negative in the body", slo(r#"{"total_ms": -1}"#)),
        ("words in the body", slo(r#"{"total_ms": "soon"}"#)),
        ("unknown in the body", slo(r#"{"total": 5}"#)),
        ("first token", post("/v1/answer", r#"{"question": "why"}"#, &[("x-slo-ttft-ms", "0.5")])),
    ];
    insta::assert_snapshot!(transcript(&rig, requests).await);
}

#[tokio::test]
async fn bad_chats() {
    let rig = Rig::quick();
    let chat = |more: &str| {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "hi"}}]{more}}}"#);
        post("/v1/chat/completions", body, &[])
    };
    let raw = |body: &str| post("/v1/chat/completions", body.to_string(), &[]);
    let requests = vec![
        ("unknown model", chat(r#", "model": "gpt-9""#)),
        ("unknown model, looked up", get("/v1/models/gpt-9")),
        ("no messages", raw(r#"{"messages": []}"#)),
        ("messages left out", raw("{}")),
        ("a tool's turn", raw(r#"{"messages": [{"role": "tool", "content": "x"}]}"#)),
        ("a picture", raw(r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#)),
        ("two replies", chat(r#", "n": 2"#)),
        ("empty stop string", chat(r#", "stop": """#)),
        ("too many stop strings", chat(r#", "stop": ["1","2","3","4","5","6","7","8","9"]"#)),
        ("too many tokens", chat(r#", "max_tokens": 100000"#)),
        ("top_p of zero", chat(r#", "top_p": 0"#)),
        (
            "too long",
            raw(&format!(r#"{{"messages": [{{"role": "user", "content": "{}"}}]}}"#, "a".repeat(30_000))),
        ),
    ];
    insta::assert_snapshot!(transcript(&rig, requests).await);
}

#[tokio::test]
async fn bad_routes() {
    let rig = Rig::quick();
    let delete = Request::builder().method(Method::DELETE).uri("/v1/answer").body(Body::empty()).unwrap();
    let requests = vec![
        ("unknown route", get("/v2/answer")),
        ("wrong method", get("/v1/answer")),
        ("delete", delete),
        ("an id that is no text, to cancel", post("/v1/cancel/%ff", "", &[])),
        ("an id that is no text, to look up", get("/v1/models/%ff")),
    ];
    insta::assert_snapshot!(transcript(&rig, requests).await);
    assert_eq!(send(&router(&rig), get("/v1/answer")).await.header("allow"), "POST");
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let limits = Limits { queue_requests_max: 1, running_sequences_max: 1, ..limits() };
    let rig = Rig::with(Duration::from_millis(300), limits);
    let router = router(&rig);
    let chat = || {
        let body =
            r#"{"messages": [{"role": "user", "content": "many words to say again"}], "stream": true}"#;
        post("/v1/chat/completions", body, &[])
    };
    let running = crate::client::Events::open(&router, chat()).await;
    busy(&rig.state.engine).await;
    let waiting = tokio::spawn({
        let router = router.clone();
        async move { send(&router, chat()).await }
    });
    while rig.state.engine.stats().waiting == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = send(&router, chat()).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    assert_eq!(refused.json()["error"]["stage"], "queue");
    assert_eq!(refused.header("retry-after"), "1");
    waiting.abort();
    drop(running);
}

#[tokio::test]
async fn an_expired_request_names_its_stage() {
    let rig = Rig::with(Duration::from_millis(500), limits());
    let body = r#"{"messages": [{"role": "user", "content": "hi"}], "slo": {"ttft_ms": 50}}"#;
    let reply = send(&router(&rig), post("/v1/chat/completions", body, &[])).await;
    assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT, "{}", reply.text);
    assert_eq!(reply.json()["error"]["code"], "deadline_exceeded");
    assert!(
        ["queue", "prefill"].contains(&reply.json()["error"]["stage"].as_str().unwrap()),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn a_defect_is_an_error_and_the_server_goes_on() {
    let rig = Rig::quick();
    let router = router(&rig);
    let body = r#"{"messages": [{"role": "user", "content": "tripwire"}]}"#;
    let reply = send(&router, post("/v1/chat/completions", body, &[])).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json()["error"]["type"], "server_error");
    let body = r#"{"question": "What does the KV cache keep, tripwire?", "stream": false}"#;
    assert_eq!(send(&router, post("/v1/answer", body, &[])).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(send(&router, get("/readyz")).await.status, StatusCode::OK);
}
