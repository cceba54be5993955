//! How do bytes come from a source to this machine? The two ways, behind a trait so that tests need no network.

use crate::error::FetchError;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file of a Hugging Face repository.
#[derive(Clone, Copy, Debug)]
pub struct HubFile<'a> {
    /// `owner/name`.
    pub repo: &'a str,
    /// The commit.
    pub revision: &'a str,
    /// The path in it.
    pub file: &'a str,
}

/// A Python wheel.
#[derive(Clone, Copy, Debug)]
pub struct Wheel<'a> {
    /// The package.
    pub package: &'a str,
    /// Its exact version.
    pub version: &'a str,
}

/// Brings files. `tick` is called now and then with the bytes that have come so far.
pub trait Fetch: Send + Sync {
    /// Downloads `file` to somewhere under `dir`, which may hold what an earlier try left, and returns where.
    ///
    /// # Errors
    /// See [`FetchError`].
    fn hub_file(&self, file: HubFile, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError>;

    /// Downloads `wheel` into the empty folder `dir` and returns where. Nothing in it is run or installed.
    ///
    /// # Errors
    /// See [`FetchError`].
    fn wheel(&self, wheel: Wheel, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError>;
}

/// The real network.
#[derive(Debug)]
pub struct Network {
    /// Why the hub cannot be used, once that is known; it is asked once, not for every file.
    hub_down: OnceLock<String>,
    /// The hub's address; `None` is the public one, or what `HF_ENDPOINT` says.
    hub_endpoint: Option<String>,
    /// Commands to run pip with; the first that exists is taken.
    pythons: Vec<PathBuf>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            hub_down: OnceLock::new(),
            hub_endpoint: None,
            pythons: vec!["python3".into(), "python".into()],
        }
    }
}

impl Fetch for Network {
    fn hub_file(&self, file: HubFile, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError> {
        if let Some(reason) = self.hub_down.get() {
            return Err(FetchError::Unreachable(reason.clone()));
        }
        let fetched = crate::hub::download(self.hub_endpoint.as_deref(), file, dir, tick);
        if let Err(FetchError::Unreachable(reason)) = &fetched {
            self.hub_down.get_or_init(|| reason.clone());
        }
        fetched
    }

    fn wheel(&self, wheel: Wheel, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<PathBuf, FetchError> {
        crate::pip::download(&self.pythons, wheel, dir, tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    const FILE: HubFile = HubFile { repo: "o/n", revision: "abc", file: "hello.gguf" };

    /// A hub on this machine that answers each request by `answer`, and counts them.
    fn hub(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> (Network, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut request = vec![0; 8_192];
                let read = stream.read(&mut request).unwrap();
                answer(&mut stream, &String::from_utf8_lossy(&request[..read]));
            }
        });
        (Network { hub_endpoint: endpoint, ..Network::default() }, count)
    }

    fn serve(stream: &mut TcpStream, request: &str) {
        let body: &[u8] = b"hello world";
        assert!(request.starts_with("GET /o/n/resolve/abc/hello.gguf "), "{request}");
        assert!(!request.to_lowercase().contains("authorization"), "no token is sent");
        let probe = request.to_lowercase().contains("range: bytes=0-0");
        let part = if probe { &body[..1] } else { body };
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nx-repo-commit: abc\r\netag: \"e\"\r\nconnection: close\r\n\
             content-range: bytes 0-{}/{}\r\ncontent-length: {}\r\n\r\n",
            part.len() - 1,
            body.len(),
            part.len()
        );
        stream.write_all(&[head.as_bytes(), part].concat()).unwrap();
    }

    #[test]
    fn a_hub_that_answers_gives_the_file() {
        let (network, _) = hub(serve);
        let dir = tempfile::tempdir().unwrap();
        let mut seen = 0;
        let path = network.hub_file(FILE, dir.path(), &mut |bytes| seen = bytes).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"hello world");
        assert_eq!(seen, 11);
    }

    #[test]
    fn a_silent_hub_is_left_after_three_seconds_and_not_asked_again() {
        // The connection is held open without a word.
        let (network, asked) = hub(|stream, _| std::mem::forget(stream.try_clone().unwrap()));
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let start = Instant::now();
            let error = network.hub_file(FILE, dir.path(), &mut |_| {}).unwrap_err();
            assert!(matches!(error, FetchError::Unreachable(_)), "{error}");
            assert!(start.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
