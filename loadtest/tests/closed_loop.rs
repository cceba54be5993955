//! Does a run against a scripted server see what the server sent? A plain socket, no server crate.

#![allow(clippy::unwrap_used)] // A test that cannot go on should stop.

use loadtest::{LoadError, Outcome, Plan, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

const FINAL: &str = r#"{"id":"a","model":"m","text":"Yes [1].","sentences":[],"citations":{"removed":0,"added":0},"grounded":true,"finish_reason":"stop","usage":{"prompt_tokens":9,"cached_tokens":0,"completion_tokens":7,"total_tokens":16},"timing":{"time_to_sources_ms":1.0,"total_ms":2.0,"stages_ms":{}},"degraded":[],"generation":1}"#;

/// Answers every request: ready, then an answer, except that a question with "busy" is refused and one with "broken"
/// gets half a stream.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    url
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    while reader.read_line(&mut head).unwrap() > 2 {
        let last = head.lines().last().unwrap().to_ascii_lowercase();
        if let Some(value) = last.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let (status, kind, reply) = if head.starts_with("GET /readyz") {
        ("200 OK", "application/json", "{}".to_string())
    } else if body.contains("busy") {
        let error = r#"{"error":{"type":"overloaded_error","message":"full","code":"queue_full"}}"#;
        ("503 Service Unavailable", "application/json", error.to_string())
    } else {
        let mut events = "event: sources\ndata: {}\n\nevent: delta\ndata: {\"text\":\"Yes\"}\n\n".to_string();
        if !body.contains("broken") {
            events += &format!("event: final\ndata: {FINAL}\n\n");
        }
        ("200 OK", "text/event-stream", events)
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    stream.write_all((head + &reply).as_bytes()).unwrap();
}

fn plan(url: String, questions: &[&str]) -> Plan {
    let questions = questions.iter().map(|text| (*text).to_string()).collect();
    Plan { url, concurrency: 2, requests: 6, questions, total_ms: Some(1_000) }
}

#[tokio::test]
async fn every_kind_of_end_is_told_apart() {
    let report = run(plan(serve(), &["fine", "busy", "broken"]), |_| {}).await.unwrap();
    assert_eq!(report.samples.len(), 6);
    assert_eq!(report.answered, 2);
    assert_eq!(report.others["HTTP 503 queue_full"], 2);
    assert_eq!(report.others["the stream ended without a final event"], 2);
    for sample in report.samples.iter().filter(|sample| sample.outcome == Outcome::Answered) {
        assert_eq!(sample.completion_tokens, 7);
        assert!(sample.sources_ms <= sample.first_token_ms && sample.first_token_ms <= Some(sample.total_ms));
    }
}

#[tokio::test]
async fn no_server_is_one_clear_error() {
    // Bound and dropped: nobody listens there now.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = run(plan(format!("http://127.0.0.1:{port}"), &["fine"]), |_| {}).await.unwrap_err();
    assert!(matches!(error, LoadError::NotReady { .. }), "{error}");
}

#[tokio::test]
async fn a_plan_without_questions_is_refused() {
    let error = run(plan(serve(), &[]), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("questions"), "{error}");
}
