//! Connections of a daemon with little room, as its guests see them.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::http::{Room, serve};

/// The address of a server with room for this number of connections.
async fn room_for(connections: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(|| async { "welcome" });
    let room = Room { connections, a_host: connections };
    tokio::spawn(serve(listener, router, room, std::future::pending()));
    address
}

/// Whether a request on this connection, which stays open, is answered.
async fn is_answered(guest: &mut TcpStream) -> bool {
    if guest.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.is_err() {
        return false;
    }
    let (mut answer, mut bytes) = (Vec::new(), [0; 512]);
    while !answer.ends_with(b"welcome") {
        match guest.read(&mut bytes).await {
            Ok(count) if count > 0 => answer.extend_from_slice(&bytes[..count]),
            _ => return false,
        }
    }
    true
}

#[tokio::test]
async fn connections_that_have_ended_take_no_room() {
    let address = room_for(10).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    for visit in 0..30 {
        let mut guest = TcpStream::connect(address).await.unwrap();
        assert!(is_answered(&mut guest).await, "visit {visit}");
    }
    assert!(is_answered(&mut first).await, "there was room for it all the time");
}

#[tokio::test]
async fn connections_whose_requests_are_answered_make_room() {
    let address = room_for(3).await;
    let mut crowd = Vec::new();
    for _ in 0..3 {
        let mut guest = TcpStream::connect(address).await.unwrap();
        assert!(is_answered(&mut guest).await);
        crowd.push(guest);
    }
    let mut newcomer = TcpStream::connect(address).await.unwrap();
    assert!(is_answered(&mut newcomer).await);
    assert!(!is_answered(&mut crowd[0]).await, "the one that was idle longest has gone");
    assert!(is_answered(&mut crowd[1]).await);
}
