//! How many callers may be connected? A listener that takes no more until one has gone.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A TCP listener that holds at most a given number of connections; further ones wait in the system's backlog, where
/// they cost this process nothing.
pub(crate) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection and its place.
pub(crate) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        Self { listener, places }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = loop {
            match Arc::clone(&self.places).acquire_owned().await {
                Ok(place) => break place,
                // Nobody closes the semaphore.
                Err(_) => std::future::pending::<()>().await,
            }
        };
        // Errors of single connections are waited out by axum's own listener.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Events are small and must not wait for each other.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        (Connection { stream, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn a_further_caller_waits_until_one_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut bounded = Bounded::new(listener, 1);
        let address = bounded.local_addr().unwrap();
        let first = TcpStream::connect(address).await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        let (mut held, _) = bounded.accept().await;
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, bounded.accept()).await.is_err(), "two connections in one place");
        drop(first);
        assert_eq!(held.read(&mut [0; 8]).await.unwrap(), 0, "the first caller has gone");
        drop(held);
        assert!(tokio::time::timeout(Duration::from_secs(5), bounded.accept()).await.is_ok());
    }
}
