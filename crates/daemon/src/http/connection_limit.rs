//! Connections: how many there may be, and how long one may stand about. Whoever has a request under way is
//! busy, such as an agent that polls; the others are idle, and so is whose request has not come whole yet.
//! The idle ones make room for newcomers when it gets full: of the address that has most of them the one that
//! was idle longest. So a crowd that only holds connections open, or sends its requests slowly, keeps nobody
//! out: neither those of other addresses, whom it does not displace, nor those of its own. Of users who share
//! a machine nothing more can be known before they prove who they are; there whoever speaks at once stays
//! ahead of whoever does not.

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

/// How long a connection may be idle: before its first request and while it shakes hands, between two, in the
/// middle of a head, or while its answer is not taken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after an accept that failed: there are no descriptors left, perhaps.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// All connections.
#[derive(Debug)]
struct SharedConnections {
    room: ConnectionLimits,
    book: Mutex<ConnectionTable>,
}

impl SharedConnections {
    /// Entries are changed whole: a thread that panicked leaves the book as it was.
    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections for as long as there is room.
pub(crate) struct LimitedListener {
    listener: TcpListener,
    guests: Arc<SharedConnections>,
    tls: Option<Arc<TlsFiles>>,
}

impl LimitedListener {
    /// Behind which there is so much room.
    pub fn new(listener: TcpListener, room: ConnectionLimits, tls: Option<Arc<TlsFiles>>) -> LimitedListener {
        LimitedListener {
            listener,
            guests: Arc::new(SharedConnections { room, book: Mutex::default() }),
            tls,
        }
    }
}

impl Listener for LimitedListener {
    type Io = TrackedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TrackedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // Where one socket serves both versions, addresses of version 4 stand in ones of version
                    // 6.
                    let host = address.ip().to_canonical();
                    let id =
                        self.guests.lock_table().admit_connection(host, self.guests.room, Instant::now());
                    // Without room the connection is closed here: whoever is serious comes again.
                    let Some(id) = id else { continue };
                    let seat = ConnectionHandle { id, host, guests: self.guests.clone() };
                    let stream = Stream::new(stream, self.tls.as_deref());
                    return (TrackedStream { stream, seat, alarm: None }, address);
                }
                Err(e) => {
                    tracing::debug!("a connection could not be accepted: {e}");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection's place in the book.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHandle {
    id: u64,
    host: IpAddr,
    guests: Arc<SharedConnections>,
}

impl ConnectionHandle {
    /// Whether the guest is on this machine.
    pub fn is_local(&self) -> bool {
        self.host.is_loopback()
    }

    /// Waits with the guest: fails once it was sent away or has been idle for too long, and else says until
    /// when it may be.
    fn poll_idle(&self, waker: &Waker) -> io::Result<Instant> {
        let mut book = self.guests.lock_table();
        let away = || io::Error::new(io::ErrorKind::TimedOut, "idle");
        let guest = book.guests.get_mut(&self.id).ok_or_else(away)?;
        let now = Instant::now();
        // Who is busy is looked at again after a while.
        let until = if guest.busy == 0 { guest.since + IDLE_TIMEOUT } else { now + IDLE_TIMEOUT };
        if until <= now {
            return Err(away());
        }
        guest.waker = Some(waker.clone());
        Ok(until)
    }
}

impl Connected<IncomingStream<'_, LimitedListener>> for ConnectionHandle {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> ConnectionHandle {
        stream.io().seat.clone()
    }
}

/// A connection.
pub(crate) struct TrackedStream {
    stream: Stream,
    seat: ConnectionHandle,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl TrackedStream {
    /// After the stream had nothing to say: whether it may be waited for.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let until = match self.seat.poll_idle(context.waker()) {
                Ok(until) => until.into(),
                Err(e) => return Poll::Ready(e),
            };
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if alarm.deadline() < until {
                alarm.as_mut().reset(until);
            }
            if alarm.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        self.seat.guests.lock_table().remove_connection(self.seat.id);
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

/// Notes that a request is under way for as long as it is. One with a body waits in its extensions to be told
/// that this came.
pub(crate) async fn track_request(
    ConnectInfo(seat): ConnectInfo<ConnectionHandle>,
    mut request: Request,
    next: Next,
) -> Response {
    let under_way = Arc::new(RequestGuard::begin_request(seat));
    if request.body().is_end_stream() {
        under_way.mark_received();
    } else {
        request.extensions_mut().insert(under_way.clone());
    }
    let response = next.run(request).await;
    drop(under_way);
    response
}

/// A request under way.
pub(crate) struct RequestGuard {
    seat: ConnectionHandle,
    has_come: AtomicBool,
}

impl RequestGuard {
    fn begin_request(seat: ConnectionHandle) -> RequestGuard {
        let under_way = RequestGuard { seat, has_come: AtomicBool::new(false) };
        under_way.set_stage(RequestStage::Begins);
        under_way
    }

    /// It came whole.
    pub fn mark_received(&self) {
        if !self.has_come.swap(true, Ordering::Relaxed) {
            self.set_stage(RequestStage::Came);
        }
    }

    fn set_stage(&self, turn: RequestStage) {
        self.seat.guests.lock_table().set_stage(self.seat.id, turn, Instant::now());
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let has_come = *self.has_come.get_mut();
        self.set_stage(if has_come { RequestStage::Answered } else { RequestStage::Begins });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: ConnectionLimits = ConnectionLimits { connections: 4, a_host: 2 };
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn who_says_nothing_for_long_goes_and_who_is_busy_stays() {
        let guests = Arc::new(SharedConnections { room: ROOM, book: Mutex::default() });
        let long_ago = Instant::now().checked_sub(IDLE_TIMEOUT).expect("the machine runs for so long");
        let id = guests.lock_table().admit_connection(HERE, ROOM, long_ago).unwrap();
        let seat = ConnectionHandle { id, host: HERE, guests };
        let look = || seat.poll_idle(Waker::noop()).map_err(|e| e.kind());
        assert_eq!(look().unwrap_err(), io::ErrorKind::TimedOut);
        seat.guests.lock_table().set_stage(id, RequestStage::Came, long_ago);
        assert!(look().is_ok(), "a request is under way");
        seat.guests.lock_table().set_stage(id, RequestStage::Answered, Instant::now());
        assert!(
            look().unwrap() <= Instant::now() + IDLE_TIMEOUT,
            "its answer is the beginning of another wait"
        );
        seat.guests.lock_table().set_stage(id, RequestStage::Came, long_ago);
        seat.guests.lock_table().set_stage(id, RequestStage::Answered, long_ago);
        assert!(look().is_err());
    }

    #[tokio::test]
    async fn a_crowd_that_says_nothing_keeps_nobody_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = LimitedListener::new(listener, ConnectionLimits { connections: 20, a_host: 20 }, None);
        let guests = door.guests.clone();
        let router = axum::Router::new()
            .fallback(|| async { "welcome" })
            .layer(axum::middleware::from_fn(track_request))
            .into_make_service_with_connect_info::<ConnectionHandle>();
        tokio::spawn(async move { axum::serve(door, router).await });
        let mut crowd = Vec::new();
        for _ in 0..50 {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        let mut guest = TcpStream::connect(address).await.unwrap();
        guest.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        guest.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("welcome"), "{answer}");
        assert!(guests.lock_table().guests.len() <= 20);
        // The first of the crowd were sent away, and see it.
        let gone = tokio::time::timeout(Duration::from_secs(5), crowd[0].read(&mut [0; 1])).await.unwrap();
        assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
    }
}
