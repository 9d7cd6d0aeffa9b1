//! Connections: how many there may be, and how long one may stand about. Whoever has a request under way is
//! busy, such as an agent that polls; the others are idle, and so is whose request has not come whole yet.
//! The idle ones make room for newcomers when it gets full: of the address that has most of them the one that
//! was idle longest. So a crowd that only holds connections open, or sends its requests slowly, keeps nobody
//! out: neither those of other addresses, whom it does not displace, nor those of its own. Of users who share
//! a machine nothing more can be known before they prove who they are; there whoever speaks at once stays
//! ahead of whoever does not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
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

use super::stream::Stream;
use crate::tls::Tls;

/// How long a connection may be idle: before its first request and while it shakes hands, between two, in the
/// middle of a head, or while its answer is not taken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause after an accept that failed: there are no descriptors left, perhaps.
const BREATH: Duration = Duration::from_millis(100);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub connections: usize,
    /// From one other machine. Ours may have them all: a proxy there speaks for everybody.
    pub a_host: usize,
}

/// What is known of one connection.
#[derive(Debug)]
struct Guest {
    host: IpAddr,
    /// Requests under way.
    busy: u32,
    since: Instant,
    /// Of its task, which waits for it to say something.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Book {
    guests: BTreeMap<u64, Guest>,
    hosts: BTreeMap<IpAddr, OfHost>,
    /// The addresses of which any are idle; whoever makes room first is of the last.
    crowds: BTreeSet<Crowd>,
    next: u64,
}

/// How many of an address are idle, since when the oldest is, and the address: more come later, and of as
/// many those whose oldest is older.
type Crowd = (usize, Reverse<Instant>, IpAddr);

/// The guests of one address.
#[derive(Debug, Default)]
struct OfHost {
    all: usize,
    /// The idle ones, the oldest first.
    idle: BTreeSet<(Instant, u64)>,
}

impl OfHost {
    fn crowd(&self, host: IpAddr) -> Option<Crowd> {
        let (oldest, _) = self.idle.first()?;
        Some((self.idle.len(), Reverse(*oldest), host))
    }
}

impl Book {
    /// Takes in a connection, if there is room or somebody idle to make some.
    fn admit(&mut self, host: IpAddr, room: Room, now: Instant) -> Option<u64> {
        let of_host = self.hosts.get(&host);
        if !host.is_loopback() && of_host.is_some_and(|of| of.all >= room.a_host) {
            let (_, oldest) = of_host?.idle.first().copied()?;
            self.send_away(oldest);
        }
        if self.guests.len() >= room.connections {
            let (_, _, host) = self.crowds.last()?;
            let (_, oldest) = self.hosts.get(host)?.idle.first().copied()?;
            self.send_away(oldest);
        }
        self.next += 1;
        let guest = Guest { host, busy: 0, since: now, waker: None };
        self.guests.insert(self.next, guest);
        self.hosts.entry(host).or_default().all += 1;
        let id = self.next;
        self.rest(host, |idle| idle.insert((now, id)));
        Some(id)
    }

    /// Changes who is idle of an address.
    fn rest(&mut self, host: IpAddr, change: impl FnOnce(&mut BTreeSet<(Instant, u64)>) -> bool) {
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        of_host.crowd(host).map(|crowd| self.crowds.remove(&crowd));
        change(&mut of_host.idle);
        self.crowds.extend(of_host.crowd(host));
    }

    /// Its place is free at once; its task hears of it soon.
    fn send_away(&mut self, id: u64) {
        if let Some(waker) = self.leave(id).and_then(|guest| guest.waker) {
            waker.wake();
        }
    }

    fn leave(&mut self, id: u64) -> Option<Guest> {
        let guest = self.guests.remove(&id)?;
        self.rest(guest.host, |idle| idle.remove(&(guest.since, id)));
        if let Some(of_host) = self.hosts.get_mut(&guest.host) {
            of_host.all -= 1;
            if of_host.all == 0 {
                self.hosts.remove(&guest.host);
            }
        }
        Some(guest)
    }

    /// A request has come whole, or only begins or ends to be one: from now on the guest is so busy.
    fn turn(&mut self, id: u64, turn: Turn, now: Instant) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        let was = (guest.since, id);
        guest.busy = match turn {
            Turn::Begins => guest.busy,
            Turn::Came => guest.busy + 1,
            Turn::Answered => guest.busy.saturating_sub(1),
        };
        guest.since = now;
        let (host, is_idle) = (guest.host, guest.busy == 0);
        self.rest(host, |idle| {
            idle.remove(&was);
            is_idle && idle.insert((now, id))
        });
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Its head is here, or it was refused before it came whole.
    Begins,
    /// It came whole.
    Came,
    /// One that came whole is answered.
    Answered,
}

/// All connections.
#[derive(Debug)]
struct Guests {
    room: Room,
    book: Mutex<Book>,
}

impl Guests {
    /// Entries are changed whole: a thread that panicked leaves the book as it was.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections for as long as there is room.
pub(crate) struct Door {
    listener: TcpListener,
    guests: Arc<Guests>,
    tls: Option<Arc<Tls>>,
}

impl Door {
    /// Behind which there is so much room.
    pub fn new(listener: TcpListener, room: Room, tls: Option<Arc<Tls>>) -> Door {
        Door { listener, guests: Arc::new(Guests { room, book: Mutex::default() }), tls }
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // Where one socket serves both versions, addresses of version 4 stand in ones of version
                    // 6.
                    let host = address.ip().to_canonical();
                    let id = self.guests.book().admit(host, self.guests.room, Instant::now());
                    // Without room the connection is closed here: whoever is serious comes again.
                    let Some(id) = id else { continue };
                    let seat = Seat { id, host, guests: self.guests.clone() };
                    let stream = Stream::new(stream, self.tls.as_deref());
                    return (Visit { stream, seat, alarm: None }, address);
                }
                Err(e) => {
                    tracing::debug!("a connection could not be accepted: {e}");
                    tokio::time::sleep(BREATH).await;
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
pub(crate) struct Seat {
    id: u64,
    host: IpAddr,
    guests: Arc<Guests>,
}

impl Seat {
    /// Whether the guest is on this machine.
    pub fn is_here(&self) -> bool {
        self.host.is_loopback()
    }

    /// Waits with the guest: fails once it was sent away or has been idle for too long, and else says until
    /// when it may be.
    fn look(&self, waker: &Waker) -> io::Result<Instant> {
        let mut book = self.guests.book();
        let away = || io::Error::new(io::ErrorKind::TimedOut, "idle");
        let guest = book.guests.get_mut(&self.id).ok_or_else(away)?;
        let now = Instant::now();
        // Who is busy is looked at again after a while.
        let until = if guest.busy == 0 { guest.since + PATIENCE } else { now + PATIENCE };
        if until <= now {
            return Err(away());
        }
        guest.waker = Some(waker.clone());
        Ok(until)
    }
}

impl Connected<IncomingStream<'_, Door>> for Seat {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Seat {
        stream.io().seat.clone()
    }
}

/// A connection.
pub(crate) struct Visit {
    stream: Stream,
    seat: Seat,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Visit {
    /// After the stream had nothing to say: whether it may be waited for.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let until = match self.seat.look(context.waker()) {
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

impl Drop for Visit {
    fn drop(&mut self) {
        self.seat.guests.book().leave(self.seat.id);
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.wait(context).map(Err),
            ready => ready,
        }
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.wait(context).map(Err),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.wait(context).map(Err),
            ready => ready,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.wait(context).map(Err),
            ready => ready,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(context, slices) {
            Poll::Pending => self.wait(context).map(Err),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Notes that a request is under way for as long as it is. One with a body waits in its extensions to be told
/// that this came.
pub(crate) async fn busy(ConnectInfo(seat): ConnectInfo<Seat>, mut request: Request, next: Next) -> Response {
    let under_way = Arc::new(UnderWay::begin(seat));
    if request.body().is_end_stream() {
        under_way.came();
    } else {
        request.extensions_mut().insert(under_way.clone());
    }
    let response = next.run(request).await;
    drop(under_way);
    response
}

/// A request under way.
pub(crate) struct UnderWay {
    seat: Seat,
    has_come: AtomicBool,
}

impl UnderWay {
    fn begin(seat: Seat) -> UnderWay {
        let under_way = UnderWay { seat, has_come: AtomicBool::new(false) };
        under_way.turn(Turn::Begins);
        under_way
    }

    /// It came whole.
    pub fn came(&self) {
        if !self.has_come.swap(true, Ordering::Relaxed) {
            self.turn(Turn::Came);
        }
    }

    fn turn(&self, turn: Turn) {
        self.seat.guests.book().turn(self.seat.id, turn, Instant::now());
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let has_come = *self.has_come.get_mut();
        self.turn(if has_come { Turn::Answered } else { Turn::Begins });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { connections: 4, a_host: 2 };
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn host(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn newcomers_take_the_place_of_who_was_idle_longest() {
        let (mut book, now) = (Book::default(), Instant::now());
        let mut admit = |at: u64| book.admit(HERE, ROOM, now + Duration::from_secs(at));
        let ids: Vec<u64> = (0..4).filter_map(&mut admit).collect();
        assert_eq!(ids.len(), 4, "our own host may have all");
        book.turn(ids[0], Turn::Came, now + Duration::from_secs(5));
        let fifth = book.admit(HERE, ROOM, now + Duration::from_secs(6)).unwrap();
        assert_eq!(book.guests.keys().copied().collect::<Vec<_>>(), [ids[0], ids[2], ids[3], fifth]);
        // A request that is answered leaves its connection the youngest.
        book.turn(ids[0], Turn::Answered, now + Duration::from_secs(7));
        book.turn(ids[2], Turn::Came, now + Duration::from_secs(7));
        book.admit(HERE, ROOM, now + Duration::from_secs(8)).unwrap();
        assert!(!book.guests.contains_key(&ids[3]) && book.guests.contains_key(&ids[0]));
        assert_eq!(book.guests.len(), ROOM.connections);
    }

    #[test]
    fn who_is_busy_is_never_sent_away() {
        let (mut book, now) = (Book::default(), Instant::now());
        for n in 0..4 {
            let id = book.admit(host(n), ROOM, now).unwrap();
            book.turn(id, Turn::Came, now);
        }
        assert_eq!(book.admit(host(9), ROOM, now), None);
        assert_eq!(book.guests.len(), 4);
    }

    #[test]
    fn a_crowd_makes_room_before_those_who_came_alone() {
        let (mut book, now) = (Book::default(), Instant::now());
        let room = Room { connections: 4, a_host: 4 };
        let alone = book.admit(host(1), room, now).unwrap();
        let mut later = (1..10).map(|at| now + Duration::from_secs(at));
        let crowd: Vec<u64> =
            later.by_ref().take(3).map(|at| book.admit(host(2), room, at).unwrap()).collect();
        // One more of the crowd, and one who comes alone: neither costs those who did their place.
        let fourth = book.admit(host(2), room, later.next().unwrap()).unwrap();
        let other = book.admit(host(3), room, later.next().unwrap()).unwrap();
        assert_eq!(book.guests.keys().copied().collect::<Vec<_>>(), [alone, crowd[2], fourth, other]);
        // A request that has begun and does not come makes its guest no busier, one that came does.
        book.turn(crowd[2], Turn::Begins, later.next().unwrap());
        book.turn(fourth, Turn::Came, later.next().unwrap());
        book.admit(host(4), room, later.next().unwrap()).unwrap();
        assert!(book.guests.contains_key(&fourth), "{book:?}");
        assert!(!book.guests.contains_key(&alone), "of crowds of one the oldest goes: {book:?}");
    }

    #[test]
    fn one_host_has_its_share() {
        let (mut book, now) = (Book::default(), Instant::now());
        let first = book.admit(host(1), ROOM, now).unwrap();
        let second = book.admit(host(1), ROOM, now).unwrap();
        let other = book.admit(host(2), ROOM, now).unwrap();
        let third = book.admit(host(1), ROOM, now).unwrap();
        assert_eq!(book.guests.keys().copied().collect::<Vec<_>>(), [second, other, third]);
        book.turn(second, Turn::Came, now);
        book.turn(third, Turn::Came, now);
        assert_eq!(book.admit(host(1), ROOM, now), None, "and no more");
        for id in [first, second, other, third] {
            book.leave(id);
        }
        assert!(book.guests.is_empty() && book.crowds.is_empty() && book.hosts.is_empty(), "{book:?}");
    }

    #[test]
    fn who_says_nothing_for_long_goes_and_who_is_busy_stays() {
        let guests = Arc::new(Guests { room: ROOM, book: Mutex::default() });
        let long_ago = Instant::now().checked_sub(PATIENCE).expect("the machine runs for so long");
        let id = guests.book().admit(HERE, ROOM, long_ago).unwrap();
        let seat = Seat { id, host: HERE, guests };
        let look = || seat.look(Waker::noop()).map_err(|e| e.kind());
        assert_eq!(look().unwrap_err(), io::ErrorKind::TimedOut);
        seat.guests.book().turn(id, Turn::Came, long_ago);
        assert!(look().is_ok(), "a request is under way");
        seat.guests.book().turn(id, Turn::Answered, Instant::now());
        assert!(look().unwrap() <= Instant::now() + PATIENCE, "its answer is the beginning of another wait");
        seat.guests.book().turn(id, Turn::Came, long_ago);
        seat.guests.book().turn(id, Turn::Answered, long_ago);
        assert!(look().is_err());
    }

    #[tokio::test]
    async fn a_crowd_that_says_nothing_keeps_nobody_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Door::new(listener, Room { connections: 20, a_host: 20 }, None);
        let guests = door.guests.clone();
        let router = axum::Router::new()
            .fallback(|| async { "welcome" })
            .layer(axum::middleware::from_fn(busy))
            .into_make_service_with_connect_info::<Seat>();
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
        assert!(guests.book().guests.len() <= 20);
        // The first of the crowd were sent away, and see it.
        let gone = tokio::time::timeout(Duration::from_secs(5), crowd[0].read(&mut [0; 1])).await.unwrap();
        assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
    }
}
