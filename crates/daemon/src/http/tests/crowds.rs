//! Connections of a daemon with little room, as its guests see them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::post;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::Daemon;
use super::sealed::hello_body;
use crate::http::{BODY_TIMEOUT, ConnectionLimits, JsonBody, serve_with_tls};
use crate::tls::TlsFiles;
use infill_api::{headers, routes};
use infill_model::{ReadAccess, config::DaemonConfig};
use infill_testkit::certificates::{CertificateAuthority, LOCALHOST_NAMES};

/// A connection from this address of this machine.
async fn from(address: &str, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
    socket.connect(server).await.unwrap()
}

/// The address of a server with room for this number of connections.
async fn room_for(connections: usize) -> SocketAddr {
    room_behind(connections, None).await
}

async fn room_behind(connections: usize, tls: Option<Arc<TlsFiles>>) -> SocketAddr {
    // Numbers are answered at once, but for 0, which is worked on for ever.
    let numbers = async |JsonBody(number): JsonBody<u32>| match number {
        0 => std::future::pending().await,
        _ => "welcome",
    };
    let router = axum::Router::new().route("/number", post(numbers)).fallback(|| async { "welcome" });
    served(router, connections, tls).await
}

async fn served(router: axum::Router, connections: usize, tls: Option<Arc<TlsFiles>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let room = ConnectionLimits { connections, a_host: connections };
    tokio::spawn(serve_with_tls(listener, router, (room, tls), std::future::pending()));
    address
}

/// Whether a request on this connection, which stays open, is answered.
async fn is_answered(guest: &mut TcpStream) -> bool {
    hears_welcome(guest, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await
}

async fn hears_welcome(guest: &mut TcpStream, text: &str) -> bool {
    if guest.write_all(text.as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let mut bytes = [0; 512];
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

/// The head of a request whose body has one digit.
const NUMBER: &str =
    "POST /number HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n";

#[tokio::test]
async fn who_sends_slowly_keeps_nobody_out() {
    const CROWD: usize = 10;
    let server = room_for(CROWD).await;
    // Those who are worked for keep their place: as many as leave some.
    let mut patient = from("127.0.0.3", server).await;
    patient.write_all(format!("{NUMBER}0").as_bytes()).await.unwrap();
    let mut alone = from("127.0.0.3", server).await;
    assert!(is_answered(&mut alone).await);
    let mut crowd = Vec::new();
    for _ in 0..3 * CROWD {
        let mut guest = from("127.0.0.2", server).await;
        guest.write_all(NUMBER.as_bytes()).await.unwrap();
        crowd.push(guest);
    }
    // Another address gets in, again and again, and so does another user of the crowd's.
    for address in ["127.0.0.4", "127.0.0.4", "127.0.0.2"] {
        let mut guest = from(address, server).await;
        assert!(hears_welcome(&mut guest, &format!("{NUMBER}7")).await, "{address}");
    }
    // The crowd has displaced its own: who came alone is still there, and so is who is worked for.
    assert!(is_answered(&mut alone).await);
    let silence = tokio::time::timeout(Duration::from_millis(50), patient.read(&mut [0; 1])).await;
    assert!(silence.is_err(), "the connection is open, and nothing has come: {silence:?}");
    // The first of the crowd made room: its connection ends, whatever was said last.
    let mut last = Vec::new();
    let ends = crowd[0].read_to_end(&mut last);
    assert!(tokio::time::timeout(BODY_TIMEOUT / 2, ends).await.is_ok(), "it waits for its body");
}

/// A crowd that connects and does not shake hands is idle: it keeps nobody out who does.
#[tokio::test]
async fn handshakes_that_do_not_come_make_room() {
    infill_slurm::install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(dir.path());
    let files = authority.issue_certificate("daemon", LOCALHOST_NAMES);
    let tls_cert = Some(files.cert);
    let tls_key = Some(files.key);
    let config = DaemonConfig { tls_cert, tls_key, ..DaemonConfig::default() };
    let address = room_behind(5, TlsFiles::from_config(&config).unwrap()).await;
    let mut crowd = Vec::new();
    for _ in 0..20 {
        let mut guest = TcpStream::connect(address).await.unwrap();
        // The beginning of a hello.
        guest.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        crowd.push(guest);
    }
    let ca = reqwest::Certificate::from_pem(&std::fs::read(authority.certificate_path()).unwrap()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap();
    let answer = client.get(format!("https://localhost:{}/", address.port())).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "welcome");
    // The first was sent away.
    let gone = crowd[0].read(&mut [0; 1]).await;
    assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
    // Plain HTTP gets nothing.
    let mut plain = TcpStream::connect(address).await.unwrap();
    assert!(!is_answered(&mut plain).await);
}

/// A hello that came whole waits for its turn at the gate, and not for its sender: those who send nothing go
/// before it.
#[tokio::test]
async fn a_hello_whose_credential_is_looked_at_keeps_its_connection() {
    let daemon = Daemon::start(ReadAccess::Proof).await;
    let hellos = &daemon.context.doors.gates.hellos;
    hellos.forget_permits(hellos.available_permits());
    let address = served(crate::http::build_router(daemon.context.clone()), 3, None).await;
    let body = hello_body().to_string();
    let route = routes::AGENT_HELLO;
    let nonce = headers::NONCE;
    let to = headers::TO;
    let length = body.len();
    let text = format!(
        "POST {route} HTTP/1.1\r\nHost: x\r\nAuthorization: Munge x\r\n{nonce}: n\r\n{to}: 127.0.0.1:6810\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut agent = TcpStream::connect(address).await.unwrap();
    agent.write_all(text.as_bytes()).await.unwrap();
    // It is read before those after it are let in.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut crowd = Vec::new();
    for _ in 0..6 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    let first = tokio::time::timeout(BODY_TIMEOUT / 2, crowd[0].read(&mut [0; 1])).await;
    assert!(matches!(first, Ok(Ok(0) | Err(_))), "the crowd displaces its own: {first:?}");
    let silence = tokio::time::timeout(Duration::from_millis(50), agent.read(&mut [0; 1])).await;
    assert!(silence.is_err(), "the agent is still waited for: {silence:?}");
}
