//! What of the engine shows through the API: probabilities, forms, the prefix cache, and figures that a client can check?

use crate::client::{Events, get, idle, post, router, send, send_json};
use crate::rig::{MODEL, Rig, limits};
use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn chat(text: &str, more: Value) -> Value {
    let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": text }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn probabilities_cover_the_reply_byte_by_byte() {
    let rig = Rig::quick();
    let more = json!({ "logprobs": true, "top_logprobs": 3 });
    let reply = send_json(&router(&rig), "/v1/chat/completions", chat("héllo", more.clone())).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let reply: wire::ChatCompletion = serde_json::from_str(&reply.text).unwrap();
    let of = |logprobs: &wire::ChatLogprobs| -> Vec<u8> {
        logprobs.content.iter().flat_map(|token| token.bytes.clone()).collect()
    };
    let logprobs = reply.choices[0].logprobs.as_ref().unwrap();
    assert_eq!(of(logprobs), "héllo".as_bytes());
    // A token of the scripted model is a byte, and half a letter is spelt out.
    assert_eq!(logprobs.content[1].token, r"\xc3");
    assert_eq!(logprobs.content[1].token_id, 0xc3);
    let mut streamed = more;
    streamed["stream"] = json!(true);
    let request = post("/v1/chat/completions", chat("héllo", streamed).to_string(), &[]);
    let events = Events::open(&router(&rig), request).await.rest().await;
    let chunks = events.iter().filter_map(|(_, data)| serde_json::from_str::<wire::ChatChunk>(data).ok());
    let bytes: Vec<u8> = chunks
        .filter_map(|chunk| chunk.choices.first().and_then(|choice| choice.logprobs.as_ref().map(of)))
        .flatten()
        .collect();
    assert_eq!(bytes, "héllo".as_bytes());
    let plain = send_json(&router(&rig), "/v1/chat/completions", chat("hello", json!({}))).await;
    assert!(plain.json()["choices"][0].get("logprobs").is_none());
}

#[tokio::test]
async fn a_form_is_kept_or_refused_by_the_name_of_its_field() {
    let rig = Rig::quick();
    let ask = async |more: Value| send_json(&router(&rig), "/v1/chat/completions", chat("yes", more)).await;
    let reply = ask(json!({ "structured_outputs": { "regex": "yes" } })).await;
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "yes", "{}", reply.text);
    let refused = [
        (json!({ "structured_outputs": { "regex": "(" } }), "structured_outputs.regex"),
        (json!({ "response_format": { "type": "json_object" } }), "response_format"),
        (json!({ "logit_bias": { "x": 1 } }), "logit_bias"),
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
        (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
        (json!({ "min_tokens": 5, "max_tokens": 4 }), "min_tokens"),
        (json!({ "min_tokens": 2000 }), "min_tokens"),
        (json!({ "logit_bias": { "1": 101 } }), "logit_bias"),
        // The byte codec knows 260 tokens.
        (json!({ "logit_bias": { "260": 1 } }), "logit_bias"),
        (json!({ "structured_outputs": { "grammar": "root ::= x" } }), "structured_outputs.grammar"),
        (json!({ "response_format": { "type": "poem" } }), "response_format.type"),
    ];
    for (more, param) in refused {
        let reply = ask(more).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
        assert_eq!(reply.json()["error"]["param"], json!(param), "{}", reply.text);
    }
}

async fn cached(router: &Router, path: &str, body: &Value, key: Option<&str>) -> (u64, u64) {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<(&str, &str)> = bearer.iter().map(|key| ("authorization", key.as_str())).collect();
    let reply = send(router, post(path, body.to_string(), &headers)).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let usage = &reply.json()["usage"];
    let details = &usage["prompt_tokens_details"]["cached_tokens"];
    let cached = details.as_u64().or(usage["cached_tokens"].as_u64()).unwrap();
    (cached, usage["prompt_tokens"].as_u64().unwrap())
}

#[tokio::test]
async fn only_the_same_key_finds_what_was_computed_for_it() {
    let rig = Rig::quick();
    let router = router(&rig);
    let body = chat("a secret that takes more than a block of sixteen tokens", json!({ "tenant": "one" }));
    let ask = async |key| cached(&router, "/v1/chat/completions", &body, key).await;
    let (first, prompt) = ask(Some("one")).await;
    assert_eq!(first, 0);
    assert_eq!(ask(Some("two")).await.0, 0);
    assert_eq!(ask(None).await.0, 0);
    assert_eq!(ask(Some("one")).await.0, prompt - 1);
    assert_eq!(ask(None).await.0, prompt - 1);
}

#[tokio::test]
async fn every_key_shares_the_service_s_own_instructions() {
    let rig = Rig::quick();
    let router = router(&rig);
    let body = json!({ "question": "What does the KV cache keep?", "stream": false });
    let ask = async |key| cached(&router, "/v1/answer", &body, key).await;
    let (first, prompt) = ask(Some("one")).await;
    let (shared, _) = ask(Some("two")).await;
    let (own, _) = ask(Some("two")).await;
    assert_eq!((first, own), (0, prompt - 1));
    // Whole blocks of sixteen, and nothing of passages or question.
    assert!(shared > 100 && shared % 16 == 0 && shared < prompt / 2, "{shared} of {prompt}");
}

/// One series of the metrics.
async fn figure(router: &Router, name: &str) -> f64 {
    let text = send(router, get("/metrics")).await.text;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn the_figures_agree_with_what_a_client_measures() {
    const PACE: Duration = Duration::from_millis(5);
    let rig = Rig::with(PACE, limits());
    let router = router(&rig);
    let (mut first, mut whole, mut pieces, mut prompt, mut made) = (0.0, 0.0, 0, 0, 0);
    let requests = 6;
    for nth in 0..requests {
        let more = json!({ "stream": true, "stream_options": { "include_usage": true } });
        let request = chat(&format!("say these {nth} words again"), more).to_string();
        let began = Instant::now();
        let mut events = Events::open(&router, post("/v1/chat/completions", request, &[])).await;
        let mut texts = 0;
        while let Some((_, data)) = events.next().await {
            let Ok(chunk) = serde_json::from_str::<Value>(&data) else { break };
            let text = chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if !text.is_empty() {
                texts += 1;
                if texts == 1 {
                    first += began.elapsed().as_secs_f64();
                }
            }
            if let Some(usage) = chunk.get("usage") {
                prompt += usage["prompt_tokens"].as_u64().unwrap();
                made += usage["completion_tokens"].as_u64().unwrap();
            }
        }
        whole += began.elapsed().as_secs_f64();
        pieces += texts - 1;
    }
    let of = async |name: &str| figure(&router, name).await;
    assert_eq!(of("vllm:prompt_tokens_total").await, prompt as f64);
    assert_eq!(of("vllm:generation_tokens_total").await, made as f64);
    assert_eq!(
        of("vllm:request_success_total{model_name=\"scripted\",finished_reason=\"stop\"}").await,
        f64::from(requests)
    );
    assert_eq!(
        of("vllm:iteration_tokens_total_sum").await as u64,
        prompt - of("vllm:prefix_cache_hits_total").await as u64 + made - requests as u64
    );
    assert_eq!(of("riposte_text_gap_seconds_count{kind=\"chat\"}").await, f64::from(pieces));
    assert_eq!(of("vllm:inter_token_latency_seconds_count").await as u64, made - requests as u64);
    // What the server times lies within what the client times, and each first token took its pace.
    let (server_first, server_whole) =
        (of("vllm:time_to_first_token_seconds_sum").await, of("vllm:e2e_request_latency_seconds_sum").await);
    let paces = PACE.as_secs_f64() * f64::from(requests);
    assert!(paces <= server_first && server_first <= first, "{paces} {server_first} {first}");
    assert!(PACE.as_secs_f64() * made as f64 <= server_whole && server_whole <= whole);
    // The client's extra time is the router's and the test's own: small beside the whole.
    assert!(whole - server_whole < whole * 0.5, "{server_whole} of {whole}");
    assert!(of("riposte_engine_step_seconds_count").await >= made as f64 - 1.0);
    // From the first token on, a request is all gaps: their sum and the first tokens' times are the whole.
    let gaps = of("vllm:inter_token_latency_seconds_sum").await;
    assert!(
        (server_first + gaps - server_whole).abs() < 1e-6,
        "{server_first} + {gaps} is not {server_whole}"
    );
}

#[tokio::test]
async fn a_caller_who_leaves_is_in_the_figures_of_those_who_were_served() {
    let rig = Rig::with(Duration::from_millis(50), limits());
    let router = router(&rig);
    let request = chat("many words to say again", json!({ "stream": true })).to_string();
    let mut events = Events::open(&router, post("/v1/chat/completions", request, &[])).await;
    // The engine publishes its counts when a step is over, and the first text may come before that. Text of the second
    // step comes after it.
    while !events.next().await.unwrap().1.contains(r#""content":"a""#) {}
    assert_eq!(figure(&router, "vllm:time_to_first_token_seconds_count").await, 1.0);
    drop(events);
    idle(&rig.state.engine).await;
    assert_eq!(figure(&router, "vllm:e2e_request_latency_seconds_count").await, 1.0);
    assert_eq!(
        figure(&router, "vllm:request_success_total{model_name=\"scripted\",finished_reason=\"abort\"}")
            .await,
        1.0
    );
}
