//! Are the probes, the figures, the document and the page what they claim to be?

use crate::client::{get, router, send, send_json};
use crate::rig::{MODEL, Rig};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[tokio::test]
async fn probes_and_models() {
    let rig = Rig::quick();
    let router = router(&rig);
    for path in ["/healthz", "/readyz"] {
        let reply = send(&router, get(path)).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::OK, json!({ "status": "ok" })), "{path}");
    }
    let models: wire::ModelList = serde_json::from_str(&send(&router, get("/v1/models")).await.text).unwrap();
    assert_eq!(models.data[0].id, MODEL);
    let model = send(&router, get(&format!("/v1/models/{MODEL}"))).await;
    assert_eq!(model.json()["object"], "model");
}

/// Reads Prometheus' text format: series to value. Panics on a line that does not follow it.
fn series(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_string(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        })
        .collect()
}

#[tokio::test]
async fn figures_follow_what_happened() {
    let rig = Rig::quick();
    let router = router(&rig);
    let before = series(&send(&router, get("/metrics")).await.text);
    assert_eq!(before["riposte_citations_removed_total"], 0.0);
    let question = json!({ "question": "What does the KV cache keep?", "stream": false });
    assert_eq!(send_json(&router, "/v1/answer", question).await.status, StatusCode::OK);
    send_json(&router, "/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "hi" }] }))
        .await;
    send_json(&router, "/v1/answer", json!({ "question": "" })).await;
    send(&router, get("/no/such/path")).await;
    let reply = send(&router, get("/metrics")).await;
    assert!(reply.header("content-type").starts_with("text/plain"));
    let after = series(&reply.text);
    let expected = [
        ("riposte_answers_total{finish=\"end_of_text\"}", 1.0),
        ("riposte_citations_removed_total", 1.0),
        ("riposte_requests_in_flight", 0.0),
        ("riposte_time_to_sources_seconds_count", 1.0),
        ("riposte_time_to_first_token_seconds_count{kind=\"answer\"}", 1.0),
        ("riposte_time_to_first_token_seconds_count{kind=\"chat\"}", 1.0),
        ("riposte_stage_seconds_count{stage=\"decode\"}", 1.0),
        ("riposte_errors_total{code=\"empty_query\",stage=\"\"}", 1.0),
        ("riposte_http_requests_total{route=\"/v1/answer\",method=\"POST\",status=\"200\"}", 1.0),
        ("riposte_http_requests_total{route=\"/v1/answer\",method=\"POST\",status=\"400\"}", 1.0),
        ("riposte_http_requests_total{route=\"unknown\",method=\"GET\",status=\"404\"}", 1.0),
        ("vllm:num_requests_running{model_name=\"scripted\"}", 0.0),
        ("vllm:num_requests_waiting{model_name=\"scripted\"}", 0.0),
        ("vllm:kv_cache_usage_perc{model_name=\"scripted\"}", 0.0),
        ("vllm:request_success_total{model_name=\"scripted\",finished_reason=\"stop\"}", 2.0),
        ("vllm:time_to_first_token_seconds_count{model_name=\"scripted\"}", 2.0),
        ("vllm:e2e_request_latency_seconds_count{model_name=\"scripted\"}", 2.0),
        ("riposte_index_documents", 3.0),
    ];
    for (name, value) in expected {
        assert_eq!(after.get(name), Some(&value), "{name} in\n{}", reply.text);
    }
    assert!(after["vllm:prompt_tokens_total{model_name=\"scripted\"}"] > 100.0);
    assert!(reply.text.contains("# TYPE riposte_time_to_sources_seconds histogram"), "{}", reply.text);
}

#[tokio::test]
async fn the_document_has_every_route_and_no_other() {
    let rig = Rig::quick();
    let router = router(&rig);
    let document = send(&router, get("/openapi.json")).await.json();
    let documented: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods
                .as_object()
                .unwrap()
                .keys()
                .map(|method| (method.clone(), path.clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    let routes =
        api::ROUTES.iter().map(|(method, path)| ((*method).to_string(), (*path).to_string())).collect();
    assert_eq!(documented, routes);
    for (_, path) in api::ROUTES {
        let path = path.replace("{id}", "x");
        let request = Request::builder().method("PATCH").uri(&path).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in [
        "AnswerRequest",
        "AnswerResponse",
        "SourcesEvent",
        "DeltaEvent",
        "FinalEvent",
        "ErrorBody",
        "ChatChunk",
    ] {
        assert!(schemas.contains_key(name), "{name}");
    }
    references(&document, &mut |reference| {
        let name = reference.strip_prefix("#/components/schemas/").unwrap_or_else(|| panic!("{reference}"));
        assert!(schemas.contains_key(name), "{reference} leads nowhere");
    });
}

fn references(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(reference) if name == "$ref" => see(reference),
                    value => references(value, see),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, see)),
        _ => {}
    }
}

#[tokio::test]
async fn the_page_has_all_its_parts_and_may_load_nothing_else() {
    let rig = Rig::quick();
    let router = router(&rig);
    let page = send(&router, get("/")).await;
    assert!(page.header("content-type").starts_with("text/html"));
    let policy = page.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("access-control-allow-origin"), "");
    let mut wanted = vec!["/page/samples.json".to_string()];
    let mut seen = BTreeSet::new();
    wanted.extend(linked(&page.text));
    while let Some(path) = wanted.pop() {
        if !seen.insert(path.clone()) || path == "/" {
            continue;
        }
        let part = send(&router, get(&path)).await;
        assert_eq!(part.status, StatusCode::OK, "{path}");
        if path.ends_with(".js") {
            assert!(part.header("content-type").starts_with("text/javascript"), "{path}");
            assert!(!part.text.contains("innerHTML"), "{path} builds nodes, not markup");
            wanted.extend(linked(&part.text));
        }
    }
    assert!(seen.iter().filter(|path| path.ends_with(".js")).count() >= 6, "{seen:?}");
    assert!(
        !page.text.contains("https://") && !page.text.contains("style=") && !page.text.contains("onclick")
    );
}

/// Paths in `href`, `src` and `import`.
fn linked(text: &str) -> Vec<String> {
    ["href=\"", "src=\"", "from \"."]
        .iter()
        .flat_map(|mark| text.split(mark).skip(1).filter_map(|rest| rest.split('"').next()))
        .filter(|path| path.starts_with('/'))
        .map(|path| {
            if path.starts_with("/page")
                || path.len() == 1
                || path.ends_with(".svg")
                || path.ends_with(".json")
            {
                path.to_string()
            } else {
                format!("/page{path}")
            }
        })
        .collect()
}
