//! Does a real connection behave? Disconnects of both kinds, and the drain.

use crate::client::{busy, idle};
use crate::rig::{Rig, limits};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<Result<(), api::ServeError>>,
}

async fn serve(rig: &Rig) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let state = rig.state.clone();
    let done = tokio::spawn(api::serve(listener, state, async {
        let _ = stopped.await;
    }));
    Server { address, stop, done }
}

async fn request(server: &Server, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = String::new();
    let mut buffer = [0u8; 4096];
    while !read.contains(text) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed before {text:?}: {read}");
        read.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    read
}

const QUESTION: &str = r#"{"question": "What does the KV cache keep?"}"#;

#[tokio::test]
async fn a_closed_connection_cancels_a_stream() {
    let rig = Rig::with(Duration::from_millis(200), limits());
    let server = serve(&rig).await;
    let mut stream = request(&server, "POST /v1/answer", QUESTION).await;
    read_until(&mut stream, "event: delta").await;
    busy(&rig.state.engine).await;
    drop(stream);
    idle(&rig.state.engine).await;
    assert_eq!(rig.state.engine.stats().finished.cancelled, 1);
}

#[tokio::test]
async fn a_closed_connection_cancels_a_request_without_streaming() {
    let rig = Rig::with(Duration::from_millis(200), limits());
    let server = serve(&rig).await;
    for (head, body) in [
        ("POST /v1/answer", r#"{"question": "What does the KV cache keep?", "stream": false}"#),
        (
            "POST /v1/chat/completions",
            r#"{"messages": [{"role": "user", "content": "a long tale to tell"}]}"#,
        ),
    ] {
        let stream = request(&server, head, body).await;
        busy(&rig.state.engine).await;
        drop(stream);
        idle(&rig.state.engine).await;
    }
    assert_eq!(rig.state.engine.stats().finished.cancelled, 2);
}

#[tokio::test]
async fn a_drain_lets_streams_end_and_refuses_new_work() {
    let rig = Rig::with(Duration::from_millis(10), limits());
    let server = serve(&rig).await;
    let mut stream = request(&server, "POST /v1/answer", QUESTION).await;
    let mut other = request(&server, "GET /readyz", "").await;
    read_until(&mut other, "200 OK").await;
    read_until(&mut stream, "event: delta").await;
    server.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut probe = TcpStream::connect(server.address).await.unwrap();
    probe.write_all(b"GET /readyz HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let ready = read_until(&mut probe, "draining").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let late = TcpStream::connect(server.address).await.unwrap();
    drop(late);
    read_until(&mut stream, "event: final").await;
    drop((stream, other, probe));
    tokio::time::timeout(Duration::from_secs(10), server.done).await.expect("it stops").unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_drain_ends_at_its_deadline() {
    let mut rig = Rig::with(Duration::from_millis(200), limits());
    rig.state.drain = Duration::from_millis(300);
    let server = serve(&rig).await;
    let mut stream = request(&server, "POST /v1/answer", QUESTION).await;
    read_until(&mut stream, "event: delta").await;
    server.stop.send(()).unwrap();
    let rest = read_until(&mut stream, "event: error").await;
    assert!(!rest.contains("event: final"), "{rest}");
    drop(stream);
    tokio::time::timeout(Duration::from_secs(10), server.done).await.expect("it stops").unwrap().unwrap();
}
