//! Do documents come in, show themselves and go over HTTP, for those who may and for nobody else?

use crate::client::{Reply, get, post, router, send, send_json};
use crate::rig::Rig;
use api::{Access, Caller, Writes};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use budgets::Limits;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

fn live() -> (Rig, Router) {
    let rig = Rig::live(Access::Open(Writes::Shared));
    let router = router(&rig);
    (rig, router)
}

fn request(method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

async fn put(router: &Router, path: &str, kind: &str, body: impl Into<Body>) -> Reply {
    send(router, request(Method::PUT, path, &[("content-type", kind)], body)).await
}

async fn delete(router: &Router, path: &str) -> Reply {
    send(router, request(Method::DELETE, path, &[], "")).await
}

async fn found(router: &Router, body: Value) -> Vec<String> {
    let reply = send_json(router, "/v1/search", body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let hits = reply.json()["hits"].as_array().unwrap().clone();
    hits.iter().map(|hit| hit["document_id"].as_str().unwrap().to_string()).collect()
}

fn code(reply: &Reply) -> (u16, String) {
    (reply.status.as_u16(), reply.json()["error"]["code"].as_str().unwrap_or_default().to_string())
}

fn ids(reply: &Reply) -> Vec<String> {
    let listed = reply.json()["data"].as_array().unwrap().clone();
    listed.iter().map(|one| one["id"].as_str().unwrap().to_string()).collect()
}

#[tokio::test]
async fn a_document_is_found_once_put_and_never_again_once_deleted() {
    let (_rig, router) = live();
    let text = "# Owls\n\nOwls hunt at night, and pelicans fish by day.\n";
    let reply = put(&router, "/v1/documents/birds/owls.md?tags=birds,night&date=2026-05-01", "", text).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
    let made = reply.json();
    assert_eq!(made["outcome"], "created");
    let document = &made["document"];
    assert_eq!((&document["id"], &document["title"]), (&json!("birds/owls.md"), &json!("Owls")));
    assert_eq!((&document["format"], &document["source"]), (&json!("markdown"), &json!("birds/owls.md")));
    assert_eq!(document["tags"], json!(["birds", "night"]));
    // As sha256sum has it.
    let sha256 = "a1fdf878415a930ac02cf75376a51717054b1071e7b6e435968918c663dd931b";
    assert_eq!(document["sha256"], sha256);
    assert_eq!(found(&router, json!({"query": "pelicans"})).await[0], "birds/owls.md");

    let again = put(&router, "/v1/documents/birds/owls.md?tags=birds,night&date=2026-05-01", "", text).await;
    assert_eq!((again.status, &again.json()["outcome"]), (StatusCode::OK, &json!("unchanged")));
    let other =
        put(&router, "/v1/documents/birds/owls.md", "", "# Owls\n\nOwls sleep through the day.\n").await;
    assert_eq!((other.status, &other.json()["outcome"]), (StatusCode::OK, &json!("replaced")));
    let shown = send(&router, get("/v1/documents/birds/owls.md?passages=true")).await.json();
    assert_eq!(shown["passages"][0]["text"], "Owls sleep through the day.");
    let span = &shown["passages"][0]["span"];
    assert_eq!((&span["start_line"], &span["end_line"]), (&json!(3), &json!(3)));

    let deleted = delete(&router, "/v1/documents/birds/owls.md").await;
    assert_eq!(deleted.json(), json!({"id": "birds/owls.md", "deleted": true}));
    assert!(!found(&router, json!({"query": "owls sleep"})).await.contains(&"birds/owls.md".to_string()));
    for reply in [
        delete(&router, "/v1/documents/birds/owls.md").await,
        send(&router, get("/v1/documents/birds/owls.md")).await,
    ] {
        assert_eq!(code(&reply), (404, "document_not_found".into()));
    }
}

#[tokio::test]
async fn texts_in_json_carry_what_is_said_about_them() {
    let (_rig, router) = live();
    let body = json!({"text": "Herons stand in shallow water.", "title": "Herons of the delta", "collection": "birds",
        "source": "https://example.org/herons", "tags": ["water"], "date": "2025-02-03"});
    let reply = put(&router, "/v1/documents/herons", "application/json", body.to_string()).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
    let shown = send(&router, get("/v1/documents/herons")).await.json()["document"].clone();
    for (field, value) in body.as_object().unwrap().iter().filter(|(field, _)| *field != "text") {
        assert_eq!(&shown[field], value, "{field}");
    }
    let all = |filter: Value| json!({"query": "herons water cache", "filter": filter});
    assert_eq!(found(&router, all(json!({"collections": ["birds"]}))).await, ["herons"]);
    assert_eq!(found(&router, all(json!({"tags": ["water"], "from": "2025-01-01"}))).await, ["herons"]);
    assert_eq!(found(&router, all(json!({"source": "https://example.org/"}))).await, ["herons"]);
    assert!(found(&router, all(json!({"to": "2025-02-02"}))).await.is_empty());
    assert!(!found(&router, all(json!({"collections": ["default"]}))).await.contains(&"herons".to_string()));
    let collections = send(&router, get("/v1/collections")).await.json()["data"].clone();
    assert_eq!(
        collections,
        json!([{"name": "birds", "documents": 1, "passages": 1}, {"name": "default", "documents": 3, "passages": 3}])
    );
    // The answer draws on what the filter leaves, and on nothing else.
    let question =
        json!({"question": "Where do herons stand?", "stream": false, "filter": {"collections": ["birds"]}});
    let answer = send_json(&router, "/v1/answer", question).await.json();
    let sources = answer["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 1, "{answer}");
    assert_eq!(
        (&sources[0]["document_id"], &sources[0]["title"]),
        (&json!("herons"), &json!("Herons of the delta"))
    );
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let (_rig, router) = live();
    let first = send(&router, get("/v1/documents?limit=2")).await;
    assert_eq!(ids(&first), ["batching.md", "cache.md"]);
    let next = first.json()["next"].as_str().unwrap().to_string();
    let rest = send(&router, get(&format!("/v1/documents?limit=2&after={next}"))).await;
    assert_eq!(ids(&rest), ["speculation.md"]);
    assert!(rest.json().get("next").is_none());
    assert_eq!(rest.json()["data"][0]["from_folder"], true);
    for path in [
        "/v1/documents?limit=0",
        "/v1/documents?limit=x",
        "/v1/documents?from=soon",
        "/v1/documents?colour=red",
    ] {
        assert_eq!(code(&send(&router, get(path)).await), (400, "invalid_value".into()), "{path}");
    }
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_with_a_reason() {
    let (_rig, router) = live();
    let json = "application/json";
    let refused = [
        ("no kind", put(&router, "/v1/documents/owls", "", "text").await, 400, "invalid_document"),
        (
            "a picture",
            put(&router, "/v1/documents/owls", "image/png", "x").await,
            415,
            "unsupported_media_type",
        ),
        ("no text", put(&router, "/v1/documents/a.txt", "", " \n").await, 400, "invalid_document"),
        ("no PDF", put(&router, "/v1/documents/a.pdf", "", "hello").await, 400, "invalid_document"),
        (
            "a long id",
            put(&router, &format!("/v1/documents/{}", "x".repeat(600)), "", "x").await,
            400,
            "invalid_document",
        ),
        (
            "another's name",
            put(&router, "/v1/documents/%1Facme%1Fa.txt", "", "x").await,
            400,
            "invalid_document",
        ),
        ("bad date", put(&router, "/v1/documents/a.txt?date=soon", "", "x").await, 400, "invalid_value"),
        ("bad label", put(&router, "/v1/documents/a.txt?colour=red", "", "x").await, 400, "invalid_value"),
        ("not JSON", put(&router, "/v1/documents/a", json, "{").await, 400, "malformed_json"),
        (
            "an id inside",
            put(&router, "/v1/documents/a", json, r#"{"id":"b","text":"x"}"#).await,
            400,
            "invalid_value",
        ),
        (
            "two places",
            put(&router, "/v1/documents/a?tags=x", json, r#"{"text":"x"}"#).await,
            400,
            "invalid_value",
        ),
        (
            "too many tags",
            put(&router, "/v1/documents/a.txt?tags=".to_string().as_str(), "", "").await,
            400,
            "invalid_document",
        ),
    ];
    for (name, reply, status, want) in refused {
        assert_eq!(code(&reply), (status, want.to_string()), "{name}: {}", reply.text);
    }
    let listed = send(&router, get("/v1/documents")).await;
    assert_eq!(ids(&listed).len(), 3, "{}", listed.text);
}

#[tokio::test]
async fn an_index_that_takes_no_documents_says_so() {
    let rig = Rig::quick();
    let router = router(&rig);
    let bulk = request(Method::POST, "/v1/documents", &[("content-type", "application/x-ndjson")], "{}");
    for reply in [
        put(&router, "/v1/documents/a.txt", "", "text").await,
        delete(&router, "/v1/documents/cache.md").await,
        send(&router, bulk).await,
    ] {
        assert_eq!(code(&reply), (403, "read_only".into()));
    }
    assert_eq!(ids(&send(&router, get("/v1/documents")).await).len(), 3);
}

#[tokio::test]
async fn many_documents_come_as_a_job() {
    let (_rig, router) = live();
    let lines = "{\"id\": \"a\", \"text\": \"Alpacas hum.\"}\n\n{\"id\": \"b\", \"text\": \" \"}\nnonsense\n\
                 {\"text\": \"nameless\"}\n{\"id\": \"a\", \"text\": \"Alpacas spit.\", \"tags\": [\"wool\"]}";
    let bulk = |path: &str| request(Method::POST, path, &[("content-type", "application/jsonl")], lines);
    let reply = send(&router, bulk("/v1/documents?wait=true")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let job = reply.json();
    assert_eq!((&job["status"], &job["total"], &job["done"]), (&json!("done"), &json!(5), &json!(5)));
    assert_eq!((&job["created"], &job["replaced"], &job["failed"]), (&json!(1), &json!(1), &json!(3)));
    let failures: Vec<(u64, &str)> = job["failures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["place"].as_u64().unwrap(), one["error"]["code"].as_str().unwrap()))
        .collect();
    let mut failures = failures;
    failures.sort_unstable();
    assert_eq!(failures, [(3, "invalid_document"), (4, "malformed_json"), (5, "invalid_body")]);
    assert_eq!(found(&router, json!({"query": "alpacas spit"})).await[0], "a");

    let reply = send(&router, bulk("/v1/documents")).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text);
    let path = format!("/v1/jobs/{}", reply.json()["id"].as_str().unwrap());
    let mut job = reply.json();
    for _ in 0..1_000 {
        if job["status"] != "running" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        job = send(&router, get(&path)).await.json();
    }
    assert_eq!((&job["status"], &job["done"]), (&json!("done"), &json!(5)), "{job}");
    assert_eq!(code(&send(&router, get("/v1/jobs/none")).await), (404, "job_not_found".into()));
}

#[tokio::test]
async fn files_come_as_a_form_but_not_from_a_foreign_page() {
    let (_rig, router) = live();
    let form = "--xx\r\nContent-Disposition: form-data; name=\"collection\"\r\n\r\nbirds\r\n\
                --xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"owls.md\"\r\n\
                Content-Type: application/octet-stream\r\n\r\n# Owls\n\nOwls hoot.\n\r\n\
                --xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cat.png\"\r\n\
                Content-Type: image/png\r\n\r\nx\r\n--xx--\r\n";
    let kind = ("content-type", "multipart/form-data; boundary=xx");
    let send_form = |headers: &[(&str, &str)]| {
        let headers = [&[kind], headers].concat();
        request(Method::POST, "/v1/documents?wait=true", &headers, form)
    };
    let foreign = send(&router, send_form(&[("host", "here:1"), ("origin", "http://there")])).await;
    assert_eq!(code(&foreign), (403, "cross_origin".into()));
    let job = send(&router, send_form(&[("host", "here:1"), ("origin", "http://here:1")])).await.json();
    assert_eq!((&job["created"], &job["failed"]), (&json!(1), &json!(1)), "{job}");
    assert_eq!(job["failures"][0]["id"], "cat.png");
    assert_eq!(ids(&send(&router, get("/v1/documents?collection=birds")).await), ["owls.md"]);
    let cut = request(Method::POST, "/v1/documents", &[kind], "--xx\r\nContent-Dispo");
    assert_eq!(code(&send(&router, cut).await), (400, "invalid_body".into()));
    let other = request(Method::POST, "/v1/documents", &[("content-type", "text/csv")], "a,b");
    assert_eq!(code(&send(&router, other).await), (415, "unsupported_media_type".into()));
    let none = request(Method::POST, "/v1/documents", &[("content-type", "application/x-ndjson")], "\n");
    assert_eq!(code(&send(&router, none).await), (400, "invalid_value".into()));
}

fn keyed(callers: &[(&str, &str, Writes)]) -> Access {
    Access::keys(callers.iter().map(|(key, tenant, writes)| {
        (Sha256::digest(key).into(), Caller { tenant: Some((*tenant).into()), writes: *writes })
    }))
}

#[tokio::test]
async fn a_tenant_sees_its_own_and_the_shared_documents() {
    let rig = Rig::live(keyed(&[
        ("ka", "acme", Writes::Own),
        ("kz", "zeta", Writes::Own),
        ("kp", "press", Writes::Shared),
        ("kr", "reader", Writes::None),
    ]));
    let router = router(&rig);
    let call = async |key: &str, method: Method, path: &str, body: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        send(&router, request(method, path, &headers, body.to_string())).await
    };
    let note = |who: &str| format!(r#"{{"text": "Penguins swim, writes {who}."}}"#);
    for (key, who) in [("ka", "acme"), ("kz", "zeta"), ("kp", "press")] {
        let reply = call(key, Method::PUT, "/v1/documents/note", &note(who)).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
        assert_eq!(reply.json()["document"]["shared"], who == "press");
    }
    assert_eq!(
        code(&call("kr", Method::PUT, "/v1/documents/note", &note("r")).await),
        (403, "read_only".into())
    );
    let texts = async |key: &str| {
        let query = r#"{"query": "penguins swim", "limit": 20}"#;
        let reply = call(key, Method::POST, "/v1/search", query).await.json();
        let hits = reply["hits"].as_array().unwrap().clone();
        let mut texts: Vec<String> = hits
            .iter()
            .map(|hit| hit["text"].as_str().unwrap().to_string())
            .filter(|text| text.starts_with("Penguins"))
            .collect();
        texts.sort();
        texts
    };
    let says = |who: &str| format!("Penguins swim, writes {who}.");
    assert_eq!(texts("ka").await, [says("acme"), says("press")]);
    assert_eq!(texts("kz").await, [says("press"), says("zeta")]);
    assert_eq!(texts("kr").await, [says("press")]);
    // The own document stands before the shared one of the same name.
    let shown = async |key: &str| {
        call(key, Method::GET, "/v1/documents/note?passages=true", "").await.json()["passages"][0]["text"]
            .clone()
    };
    assert_eq!((shown("ka").await, shown("kr").await), (json!(says("acme")), json!(says("press"))));
    for path in ["/v1/documents/%1Fzeta%1Fnote", "/v1/documents/%1Facme%1Fnote"] {
        assert_eq!(code(&call("ka", Method::GET, path, "").await), (404, "document_not_found".into()));
        assert_eq!(code(&call("ka", Method::DELETE, path, "").await), (404, "document_not_found".into()));
    }
    let listed = call("ka", Method::GET, "/v1/documents", "").await;
    assert_eq!(ids(&listed), ["note", "batching.md", "cache.md", "note", "speculation.md"]);
    // A tenant deletes its own, and then sees the shared one.
    assert_eq!(call("ka", Method::DELETE, "/v1/documents/note", "").await.status, StatusCode::OK);
    assert_eq!(
        code(&call("ka", Method::DELETE, "/v1/documents/note", "").await),
        (404, "document_not_found".into())
    );
    assert_eq!((texts("ka").await, texts("kz").await.len()), (vec![says("press")], 2));
    assert_eq!(shown("ka").await, json!(says("press")));
}

#[tokio::test]
async fn without_a_known_key_nothing_below_v1_is_served() {
    let rig = Rig::live(keyed(&[("ka", "acme", Writes::Own)]));
    let router = router(&rig);
    for (method, path) in api::ROUTES {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let path = path.replace("{id}", "x");
        for key in [None, Some("Bearer wrong")] {
            let headers: Vec<_> = key.iter().map(|key| ("authorization", *key)).collect();
            let reply = send(&router, request(method.clone(), &path, &headers, "{}")).await;
            if path.starts_with("/v1/") {
                assert_eq!(code(&reply), (401, "unknown_key".into()), "{method} {path}");
            } else {
                assert_eq!(reply.status, StatusCode::OK, "{method} {path}");
            }
        }
    }
    let own = post("/v1/search", r#"{"query": "cache"}"#, &[("authorization", "Bearer ka")]);
    assert_eq!(send(&router, own).await.status, StatusCode::OK);
}

#[tokio::test]
async fn bounds_hold() {
    let mut rig = Rig::live(Access::Open(Writes::Shared));
    rig.state.limits =
        Limits { document_bytes_max: 64, bulk_bytes_max: 100, bulk_documents_max: 1, ..rig.state.limits };
    let router = router(&rig);
    let line = |id: &str| format!("{{\"id\":\"{id}\",\"text\":\"x\"}}\n");
    let bulk =
        |body: String| request(Method::POST, "/v1/documents", &[("content-type", "application/jsonl")], body);
    assert_eq!(code(&send(&router, bulk(line("a") + &line("b"))).await), (400, "invalid_value".into()));
    assert_eq!(code(&send(&router, bulk("x".repeat(101))).await), (413, "body_too_large".into()));
    let large = put(&router, "/v1/documents/a.txt", "", "x".repeat((1 << 20) + 65)).await;
    assert_eq!(code(&large), (413, "body_too_large".into()));
    let tags =
        format!("/v1/documents/a.txt?tags={}", (0..33).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    assert_eq!(code(&put(&router, &tags, "", "text").await), (400, "invalid_document".into()));
    let names: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let search = send_json(&router, "/v1/search", json!({"query": "a", "filter": {"tags": names}})).await;
    assert_eq!(code(&search), (400, "invalid_value".into()));
}
