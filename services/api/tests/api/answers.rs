//! Does an answer come in order, end when it should, and stop when nobody listens?

use crate::client::{Events, busy, idle, post, router, send, send_json};
use crate::rig::{Rig, limits};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

const QUESTION: &str = "What does the KV cache keep?";

fn ask() -> axum::http::Request<axum::body::Body> {
    post("/v1/answer", json!({ "question": QUESTION }).to_string(), &[])
}

/// A model that would write for about a minute.
fn slow() -> Rig {
    Rig::with(Duration::from_millis(200), limits())
}

#[tokio::test]
async fn sources_come_first_then_text_then_one_final() {
    let rig = Rig::quick();
    let events = Events::open(&router(&rig), ask()).await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    assert_eq!(events.headers["cache-control"], "no-cache, no-transform");
    assert_eq!(events.headers["x-accel-buffering"], "no");
    let id = events.headers["x-request-id"].to_str().unwrap().to_string();
    let events = events.rest().await;
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let (first, last) = (names[0], names[names.len() - 1]);
    assert_eq!((first, last), ("sources", "final"));
    assert!(names.len() > 2 && names[1..names.len() - 1].iter().all(|name| *name == "delta"), "{names:?}");

    let data: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    let (sources, last) = (&data[0], &data[data.len() - 1]);
    assert_eq!(sources["id"], id);
    assert_eq!(sources["sources"][0]["number"], 1);
    assert_eq!(sources["sources"][0]["title"], "The KV cache");
    let streamed: String =
        data[1..data.len() - 1].iter().map(|delta| delta["text"].as_str().unwrap()).collect();
    assert_eq!(last["text"], streamed);
    assert!(streamed.starts_with("The KV cache keeps the keys and values of earlier tokens"), "{streamed}");
    assert!(streamed.contains("[1]") && !streamed.contains("[9]"), "{streamed}");
    assert_eq!(last["citations"]["removed"], 1);
    assert_eq!(last["finish_reason"], "stop");
    assert_eq!(last["sentences"][0]["citations"][0]["number"], 1);
    assert_eq!(last["degraded"], json!([]));
    let usage = &last["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
    let timing = &last["timing"];
    let ms = |name: &str| timing[name].as_f64().unwrap();
    assert!(ms("time_to_sources_ms") <= ms("ttft_ms") && ms("ttft_ms") <= ms("total_ms"), "{timing}");
    assert!(timing["stages_ms"]["prefill"].is_number(), "{timing}");
    idle(&rig.state.engine).await;
}

#[tokio::test]
async fn without_streaming_it_is_one_document_with_its_timing_in_the_head() {
    let rig = Rig::quick();
    let reply =
        send_json(&router(&rig), "/v1/answer", json!({ "question": QUESTION, "stream": false })).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let answer: wire::AnswerResponse = serde_json::from_str(&reply.text).unwrap();
    assert!(answer.answer.text.contains("[1]"), "{}", answer.answer.text);
    assert_eq!(answer.sources[0].number, 1);
    assert_eq!(answer.answer.id, reply.header("x-request-id"));
    assert!(reply.header("server-timing").contains("ttft;dur="), "{}", reply.header("server-timing"));
    assert_eq!(answer.answer.slo, None);
}

#[tokio::test]
async fn a_question_that_the_documents_do_not_know_is_answered_plainly() {
    let rig = Rig::quick();
    let body = json!({ "question": "zzyzx qwxv", "stream": false });
    let reply = send_json(&router(&rig), "/v1/answer", body).await;
    let answer: wire::AnswerResponse = serde_json::from_str(&reply.text).unwrap();
    assert!(!answer.answer.grounded);
    assert!(answer.sources.is_empty());
}

#[tokio::test]
async fn a_stream_that_nobody_reads_any_more_frees_everything() {
    let rig = slow();
    let router = router(&rig);
    let mut events = Events::open(&router, ask()).await;
    assert_eq!(events.next().await.unwrap().0, "sources");
    assert_eq!(events.next().await.unwrap().0, "delta");
    busy(&rig.state.engine).await;
    drop(events);
    idle(&rig.state.engine).await;
    assert_eq!(rig.state.engine.stats().finished.cancelled, 1);
    let metrics = send(&router, crate::client::get("/metrics")).await.text;
    assert!(metrics.contains("riposte_requests_in_flight 0\n"), "{metrics}");
    assert!(metrics.contains("riposte_answers_total{finish=\"cancelled\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_cancel_call_ends_the_stream_with_a_typed_error() {
    let rig = slow();
    let router = router(&rig);
    let mut events = Events::open(&router, ask()).await;
    let (_, sources) = events.next_json().await;
    events.next().await.unwrap();
    let path = format!("/v1/cancel/{}", sources["id"].as_str().unwrap());
    let reply = send(&router, post(&path, "", &[])).await;
    assert_eq!((reply.status, &reply.json()["cancelled"]), (StatusCode::OK, &json!(true)));
    let rest = events.rest().await;
    let (name, data) = rest.last().unwrap();
    let error: wire::ErrorBody = serde_json::from_str(data).unwrap();
    assert_eq!((name.as_str(), error.error.code.as_str()), ("error", "cancelled"));
    idle(&rig.state.engine).await;
    assert_eq!(send(&router, post(&path, "", &[])).await.json()["cancelled"], false);
}

#[tokio::test]
async fn a_deadline_cuts_an_answer_and_keeps_its_text() {
    let rig = Rig::with(Duration::from_millis(20), limits());
    let headers = [("x-slo-total-ms", "700")];
    let body = json!({ "question": QUESTION, "stream": false, "slo": { "total_ms": 60_000 } });
    let reply = send(&router(&rig), post("/v1/answer", body.to_string(), &headers)).await;
    let answer = reply.json();
    assert_eq!(reply.status, StatusCode::OK, "{answer}");
    assert_eq!(answer["finish_reason"], "deadline");
    assert!(!answer["text"].as_str().unwrap().is_empty());
    assert!(answer["timing"]["total_ms"].as_f64().unwrap() < 5_000.0, "{answer}");
    assert!(answer["slo"]["total_met"].is_boolean(), "{answer}");
    idle(&rig.state.engine).await;
}

#[tokio::test]
async fn a_deadline_that_passes_before_the_first_token_is_an_error_with_its_stage() {
    let rig = Rig::with(Duration::from_secs(1), limits());
    let body = json!({ "question": QUESTION, "slo": { "ttft_ms": 300 } });
    let rest = Events::open(&router(&rig), post("/v1/answer", body.to_string(), &[])).await.rest().await;
    let (name, data) = rest.last().unwrap();
    let error: wire::ErrorBody = serde_json::from_str(data).unwrap();
    assert_eq!(name, "error", "{data}");
    assert_eq!(
        (error.error.code.as_str(), error.error.kind.as_str()),
        ("deadline_exceeded", "timeout_error")
    );
    assert!(error.error.stage.is_some(), "{data}");
    idle(&rig.state.engine).await;
}

#[tokio::test]
async fn a_defect_before_the_first_event_has_a_status_and_is_counted() {
    let rig = Rig::quick();
    let router = router(&rig);
    let reply =
        send_json(&router, "/v1/answer", json!({ "question": "What does the KV cache keep, tripwire?" }))
            .await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", reply.text);
    assert_eq!(reply.json()["error"]["code"], "internal_error");
    let metrics = send(&router, crate::client::get("/metrics")).await.text;
    assert!(metrics.contains("riposte_errors_total{code=\"internal_error\",stage=\"\"} 1\n"), "{metrics}");
    assert!(metrics.contains("riposte_answers_total{finish=\"failed\"} 1\n"), "{metrics}");
    assert!(metrics.contains("riposte_requests_in_flight 0\n"), "{metrics}");
}

#[tokio::test]
async fn a_follow_up_takes_the_conversation_along() {
    let rig = Rig::quick();
    let conversation = json!([
        { "role": "user", "content": QUESTION },
        { "role": "assistant", "content": "Keys and values." },
    ]);
    let follow_up = json!({ "question": "How does it grow?", "conversation": conversation, "stream": false });
    let alone = json!({ "question": "How does it grow?", "stream": false });
    let tokens = |reply: &crate::client::Reply| reply.json()["usage"]["prompt_tokens"].as_u64().unwrap();
    let router = router(&rig);
    let (long, short) =
        (send_json(&router, "/v1/answer", follow_up).await, send_json(&router, "/v1/answer", alone).await);
    assert_eq!(long.status, StatusCode::OK);
    assert!(tokens(&long) > tokens(&short), "{} {}", long.text, short.text);
}

#[tokio::test]
async fn a_search_gives_passages_with_both_ranks() {
    let rig = Rig::quick();
    let body = json!({ "query": "continuous batching requests", "limit": 2 });
    let reply = send_json(&router(&rig), "/v1/search", body).await;
    let found: wire::SearchResponse = serde_json::from_str(&reply.text).unwrap();
    assert_eq!(found.hits[0].title, "Continuous batching");
    assert!(found.hits.len() <= 2);
    assert_eq!(found.hits[0].lexical.as_ref().unwrap().rank, 1);
    assert_eq!(found.hits[0].vector.as_ref().unwrap().rank, 1);
    assert_eq!(found.coverage, wire::Coverage { lexical: 1.0, vector: 1.0 });
}
