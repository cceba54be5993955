//! How many callers may be connected, and for how long without a word? A listener that takes no more until one has gone,
//! and connections that end when nothing happens on them, or a few silent callers would keep everyone else out.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// How often a connection is looked at: when no byte moved since the last look and no handler works for it, it is
/// closed. So silence is borne for 30 to 60 seconds; an event stream sends a comment more often than that.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A TCP listener that holds at most a given number of connections; further ones wait in the system's backlog, where
/// they cost this process nothing.
pub(crate) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// How many handlers work for a connection now; while one does, silence is no idleness.
#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<AtomicUsize>);

impl Activity {
    /// A handler works until the guard is dropped.
    pub(crate) fn begin(&self) -> Working {
        self.0.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(&self.0))
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Connected<IncomingStream<'_, Bounded>> for Activity {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        stream.io().activity.clone()
    }
}

/// One handler at work.
pub(crate) struct Working(Arc<AtomicUsize>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection and its place.
pub(crate) struct Connection {
    stream: TcpStream,
    activity: Activity,
    /// Did a byte move since the last look?
    moved: bool,
    /// The next look.
    alarm: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        let alarm = Box::pin(tokio::time::sleep(LOOK_EVERY));
        Self { stream, activity: Activity::default(), moved: true, alarm, _place: place }
    }

    /// Ready when the connection has been idle for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            if !self.moved && !self.activity.any() {
                return Poll::Ready(());
            }
            self.moved = false;
            let next = self.alarm.deadline() + LOOK_EVERY;
            self.alarm.as_mut().reset(next);
        }
    }
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
        (Connection::new(stream, place), address)
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
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => {
                ready!(self.poll_idle(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            done => {
                if buf.filled().len() > before {
                    self.moved = true;
                }
                done
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.moved = true;
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.moved = true;
        Poll::Ready(Ok(written))
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

    #[tokio::test]
    async fn a_silent_caller_is_let_go_but_not_one_that_a_handler_works_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut bounded = Bounded::new(listener, 1);
        let _caller = TcpStream::connect(bounded.local_addr().unwrap()).await.unwrap();
        let (mut held, _) = bounded.accept().await;
        tokio::time::pause();
        let working = held.activity.begin();
        let patience = LOOK_EVERY * 6;
        let mut buffer = [0; 8];
        assert!(
            tokio::time::timeout(patience, held.read(&mut buffer)).await.is_err(),
            "closed under a handler"
        );
        drop(working);
        let read = tokio::time::timeout(patience, held.read(&mut buffer)).await.expect("never let go");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
