//! Does the OpenAI shape hold, line by line?

use crate::client::{Events, busy, idle, post, router, send, send_json};
use crate::rig::{MODEL, Rig, limits};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

fn body(text: &str, more: Value) -> Value {
    let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": text }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn chunks(rig: &Rig, more: Value) -> (Vec<Value>, String) {
    let request = post("/v1/chat/completions", body("one two three", more).to_string(), &[]);
    let mut events = Events::open(&router(rig), request).await.rest().await;
    assert!(events.iter().all(|(name, _)| name.is_empty()), "{events:?}");
    let (_, last) = events.pop().unwrap();
    (events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect(), last)
}

#[tokio::test]
async fn a_reply_is_one_document() {
    let rig = Rig::quick();
    let reply = send_json(&router(&rig), "/v1/chat/completions", body("hello there", json!({}))).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let reply: wire::ChatCompletion = serde_json::from_str(&reply.text).unwrap();
    assert_eq!(reply.object, "chat.completion");
    assert_eq!(reply.model, MODEL);
    assert!(reply.created >= 1_700_000_000);
    assert_eq!(reply.choices[0].message.content, "hello there");
    assert_eq!(reply.choices[0].finish_reason, "stop");
    // The scripted tokenizer makes a token of each byte, one before and one behind each message, and one to open.
    assert_eq!(reply.usage.prompt_tokens, 11 + 2 + 1);
    assert_eq!(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
}

#[tokio::test]
async fn a_stream_opens_with_a_role_and_closes_with_done() {
    let rig = Rig::quick();
    let (chunks, last) = chunks(&rig, json!({ "stream": true })).await;
    assert_eq!(last, "[DONE]");
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"])
    );
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "one two three");
    let (closing, before) = chunks.split_last().unwrap();
    assert_eq!(closing["choices"][0]["finish_reason"], "stop");
    assert_eq!(closing["choices"][0]["delta"], json!({}));
    assert!(before.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()));
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[tokio::test]
async fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let rig = Rig::quick();
    let more = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let (chunks, last) = chunks(&rig, more).await;
    assert_eq!(last, "[DONE]");
    let usage = chunks.last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["prompt_tokens"], 13 + 3);
    assert!(usage["usage"]["completion_tokens"].as_u64().unwrap() >= 13);
}

#[tokio::test]
async fn stop_strings_and_token_limits_end_a_reply() {
    let rig = Rig::quick();
    let check = async |more: Value, text: &str, reason: &str| {
        let reply =
            send_json(&router(&rig), "/v1/chat/completions", body("one two three", more)).await.json();
        assert_eq!(reply["choices"][0]["message"]["content"], text, "{reply}");
        assert_eq!(reply["choices"][0]["finish_reason"], reason, "{reply}");
    };
    check(json!({ "stop": " three" }), "one two", "stop").await;
    check(json!({ "stop": ["never", "two"] }), "one ", "stop").await;
    check(json!({ "max_tokens": 3 }), "one", "length").await;
    check(json!({ "max_tokens": 100, "max_completion_tokens": 5 }), "one t", "length").await;
    check(json!({ "logit_bias": {}, "user": "me", "n": 1 }), "one two three", "stop").await;
}

#[tokio::test]
async fn a_deadline_in_a_reply_is_told_beside_length() {
    let rig = Rig::with(Duration::from_millis(100), limits());
    let request = body("one two three, and many more words to come", json!({ "slo": { "total_ms": 600 } }));
    let reply = send_json(&router(&rig), "/v1/chat/completions", request).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");
    assert_eq!(reply["choices"][0]["finish_detail"], "deadline", "{reply}");
}

#[tokio::test]
async fn a_reply_is_cancelled_by_its_own_id() {
    let rig = Rig::with(Duration::from_millis(200), limits());
    let router = router(&rig);
    let request =
        post("/v1/chat/completions", body("one two three", json!({ "stream": true })).to_string(), &[]);
    let mut events = Events::open(&router, request).await;
    let (_, first) = events.next_json().await;
    busy(&rig.state.engine).await;
    let path = format!("/v1/cancel/{}", first["id"].as_str().unwrap());
    assert_eq!(send(&router, post(&path, "", &[])).await.json()["cancelled"], true);
    let rest = events.rest().await;
    let error: wire::ErrorBody = serde_json::from_str(&rest.last().unwrap().1).unwrap();
    assert_eq!(error.error.code, "cancelled");
    idle(&rig.state.engine).await;
}
