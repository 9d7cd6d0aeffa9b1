//! Limits the number of connections, and how long one may be idle.
//!
//! A connection with a complete request under way is busy, for example that of an agent that polls. All
//! others are idle, also those whose request has not arrived completely. When the table is full, a new
//! connection replaces an idle one: of the address with the most idle connections, the one that was idle
//! longest.
//!
//! So clients that only hold connections open, or send their requests slowly, keep no one out. They displace
//! no clients of other addresses. Clients of the same address that send at once stay ahead of them. More is
//! not possible before users on a shared host prove their identity.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::HttpBody as _;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::Sleep;

use super::connection_table::{ConnectionLimits, ConnectionTable, RequestStage};
use super::stream::Stream;
use crate::tls::TlsFiles;

/// How long a connection may be idle: in the TLS handshake, before its first request, between two requests,
/// in the middle of a head, or while the client does not read its answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after an accept that failed, perhaps because there are no file descriptors left.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// All connections.
#[derive(Debug)]
struct SharedConnections {
    limits: ConnectionLimits,
    table: Mutex<ConnectionTable>,
}

impl SharedConnections {
    fn new(limits: ConnectionLimits) -> Arc<SharedConnections> {
        Arc::new(SharedConnections { limits, table: Mutex::default() })
    }

    /// Entries are replaced as a whole, so a thread that panicked leaves the table consistent.
    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections within the limits.
pub(crate) struct LimitedListener {
    listener: TcpListener,
    connections: Arc<SharedConnections>,
    tls: Option<Arc<TlsFiles>>,
}

impl LimitedListener {
    /// A listener with these limits, in TLS where there is a certificate.
    pub fn new(
        listener: TcpListener,
        limits: ConnectionLimits,
        tls: Option<Arc<TlsFiles>>,
    ) -> LimitedListener {
        LimitedListener { listener, connections: SharedConnections::new(limits), tls }
    }
}

impl Listener for LimitedListener {
    type Io = TrackedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TrackedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // A socket that serves both IP versions shows IPv4 addresses as mapped IPv6 addresses.
                    let host = address.ip().to_canonical();
                    let limits = self.connections.limits;
                    let id = self.connections.lock_table().admit_connection(host, limits, Instant::now());
                    // Without room the connection is closed here. The client may try again.
                    let Some(id) = id else { continue };
                    let handle = ConnectionHandle { id, host, connections: self.connections.clone() };
                    let stream = Stream::new(stream, self.tls.as_deref());
                    return (TrackedStream { stream, handle, timer: None }, address);
                }
                Err(e) => {
                    tracing::debug!("cannot accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Refers to a connection in the table.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHandle {
    id: u64,
    host: IpAddr,
    connections: Arc<SharedConnections>,
}

impl ConnectionHandle {
    /// Whether the client is on this host.
    pub fn is_local(&self) -> bool {
        self.host.is_loopback()
    }

    /// Registers a waker, and returns when the connection must be checked again.
    ///
    /// # Errors
    /// When the connection was removed from the table, or has been idle for too long.
    fn poll_idle(&self, waker: &Waker) -> io::Result<Instant> {
        let mut table = self.connections.lock_table();
        let connection = table.connections.get_mut(&self.id).ok_or_else(idle_error)?;
        let now = Instant::now();
        // A busy connection is checked again after the same time.
        let until = if connection.busy == 0 { connection.since + IDLE_TIMEOUT } else { now + IDLE_TIMEOUT };
        if until <= now {
            return Err(idle_error());
        }
        connection.waker = Some(waker.clone());
        Ok(until)
    }

    fn set_stage(&self, stage: RequestStage) {
        self.connections.lock_table().set_stage(self.id, stage, Instant::now());
    }
}

fn idle_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "idle")
}

impl Connected<IncomingStream<'_, LimitedListener>> for ConnectionHandle {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> ConnectionHandle {
        stream.io().handle.clone()
    }
}

/// A connection that ends when it is idle for too long.
pub(crate) struct TrackedStream {
    stream: Stream,
    handle: ConnectionHandle,
    timer: Option<Pin<Box<Sleep>>>,
}

impl TrackedStream {
    /// Called when the stream is not ready. Is ready itself once the connection must end.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let until = match self.handle.poll_idle(context.waker()) {
                Ok(until) => until.into(),
                Err(e) => return Poll::Ready(e),
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if timer.deadline() < until {
                timer.as_mut().reset(until);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        self.handle.connections.lock_table().remove_connection(self.handle.id);
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.poll_timeout(context).map(Err),
            ready => ready,
        }
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.poll_timeout(context).map(Err),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.poll_timeout(context).map(Err),
            ready => ready,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.poll_timeout(context).map(Err),
            ready => ready,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(context, slices) {
            Poll::Pending => self.poll_timeout(context).map(Err),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Records the stages of a request in the table. The guard of a request with a body is in its extensions, so
/// that the reader of the body can mark it as received.
pub(crate) async fn track_request(
    ConnectInfo(handle): ConnectInfo<ConnectionHandle>,
    mut request: Request,
    next: Next,
) -> Response {
    let guard = Arc::new(RequestGuard::begin_request(handle));
    if request.body().is_end_stream() {
        guard.mark_received();
    } else {
        request.extensions_mut().insert(guard.clone());
    }
    let response = next.run(request).await;
    drop(guard);
    response
}

/// A request under way. The request counts as answered when the guard is dropped.
pub(crate) struct RequestGuard {
    handle: ConnectionHandle,
    is_received: AtomicBool,
}

impl RequestGuard {
    fn begin_request(handle: ConnectionHandle) -> RequestGuard {
        handle.set_stage(RequestStage::Begins);
        RequestGuard { handle, is_received: AtomicBool::new(false) }
    }

    /// Records that the request has arrived completely.
    pub fn mark_received(&self) {
        if !self.is_received.swap(true, Ordering::Relaxed) {
            self.handle.set_stage(RequestStage::Received);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let is_received = *self.is_received.get_mut();
        self.handle.set_stage(if is_received { RequestStage::Answered } else { RequestStage::Begins });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { connections: 4, per_host: 2 };
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_connection_that_is_idle_for_long_ends_and_a_busy_one_stays() {
        let connections = SharedConnections::new(LIMITS);
        let long_ago = Instant::now().checked_sub(IDLE_TIMEOUT).expect("the host runs longer than that");
        let id = connections.lock_table().admit_connection(HERE, LIMITS, long_ago).unwrap();
        let handle = ConnectionHandle { id, host: HERE, connections: connections.clone() };
        let error = handle.poll_idle(Waker::noop()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        connections.lock_table().set_stage(id, RequestStage::Received, long_ago);
        assert!(handle.poll_idle(Waker::noop()).is_ok(), "a request is under way");
        connections.lock_table().set_stage(id, RequestStage::Answered, Instant::now());
        let until = handle.poll_idle(Waker::noop()).unwrap();
        assert!(until <= Instant::now() + IDLE_TIMEOUT, "the idle time begins at the answer");
        connections.lock_table().set_stage(id, RequestStage::Received, long_ago);
        connections.lock_table().set_stage(id, RequestStage::Answered, long_ago);
        assert!(handle.poll_idle(Waker::noop()).is_err());
    }

    #[tokio::test]
    async fn silent_connections_do_not_keep_a_client_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = ConnectionLimits { connections: 20, per_host: 20 };
        let listener = LimitedListener::new(listener, limits, None);
        let connections = listener.connections.clone();
        let router = axum::Router::new()
            .fallback(|| async { "welcome" })
            .layer(axum::middleware::from_fn(track_request))
            .into_make_service_with_connect_info::<ConnectionHandle>();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut silent = Vec::new();
        for _ in 0..50 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("welcome"), "{answer}");
        assert!(connections.lock_table().connections.len() <= 20);
        // The first silent connections were closed.
        let read = tokio::time::timeout(Duration::from_secs(5), silent[0].read(&mut [0; 1])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}
