//! Connections of a daemon with low limits, as its clients see them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::post;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::TestDaemon;
use super::sealed::hello_body;
use crate::http::{BODY_TIMEOUT, ConnectionLimits, JsonBody, serve_with_tls};
use crate::tls::TlsFiles;
use infill_api::{headers, routes};
use infill_model::{ReadAccess, config::DaemonConfig};
use infill_testkit::certificates::{CertificateAuthority, LOCALHOST_NAMES};

/// A connection from this address of the local host.
async fn from(address: &str, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
    socket.connect(server).await.unwrap()
}

/// The address of a server that allows this number of connections.
async fn serve_limited(connections: usize, tls: Option<Arc<TlsFiles>>) -> SocketAddr {
    let router = axum::Router::new().route("/number", post(answer_number)).fallback(|| async { "welcome" });
    serve_router(router, connections, tls).await
}

/// Answers numbers at once, except for 0, which is never answered.
async fn answer_number(JsonBody(number): JsonBody<u32>) -> &'static str {
    match number {
        0 => std::future::pending().await,
        _ => "welcome",
    }
}

async fn serve_router(router: axum::Router, connections: usize, tls: Option<Arc<TlsFiles>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ConnectionLimits { connections, per_host: connections };
    tokio::spawn(serve_with_tls(listener, router, limits, tls, std::future::pending()));
    address
}

/// Whether a request on this connection, which stays open, is answered.
async fn is_answered(client: &mut TcpStream) -> bool {
    hears_welcome(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await
}

async fn hears_welcome(client: &mut TcpStream, text: &str) -> bool {
    if client.write_all(text.as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let mut bytes = [0; 512];
    while !answer.ends_with(b"welcome") {
        match client.read(&mut bytes).await {
            Ok(count) if count > 0 => answer.extend_from_slice(&bytes[..count]),
            _ => return false,
        }
    }
    true
}

#[tokio::test]
async fn ended_connections_do_not_count() {
    let address = serve_limited(10, None).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    for visit in 0..30 {
        let mut client = TcpStream::connect(address).await.unwrap();
        assert!(is_answered(&mut client).await, "visit {visit}");
    }
    assert!(is_answered(&mut first).await, "its connection was never closed");
}

#[tokio::test]
async fn idle_connections_are_closed_for_new_ones() {
    let address = serve_limited(3, None).await;
    let mut crowd = Vec::new();
    for _ in 0..3 {
        let mut client = TcpStream::connect(address).await.unwrap();
        assert!(is_answered(&mut client).await);
        crowd.push(client);
    }
    let mut newcomer = TcpStream::connect(address).await.unwrap();
    assert!(is_answered(&mut newcomer).await);
    assert!(!is_answered(&mut crowd[0]).await, "the one that was idle longest is closed");
    assert!(is_answered(&mut crowd[1]).await);
}

/// The head of a request whose body has one digit.
const NUMBER: &str =
    "POST /number HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n";

#[tokio::test]
async fn slow_clients_do_not_keep_others_out() {
    const CROWD: usize = 10;
    let server = serve_limited(CROWD, None).await;
    // A connection whose request is being handled stays open.
    let mut patient = from("127.0.0.3", server).await;
    patient.write_all(format!("{NUMBER}0").as_bytes()).await.unwrap();
    let mut alone = from("127.0.0.3", server).await;
    assert!(is_answered(&mut alone).await);
    let mut crowd = Vec::new();
    for _ in 0..3 * CROWD {
        let mut client = from("127.0.0.2", server).await;
        client.write_all(NUMBER.as_bytes()).await.unwrap();
        crowd.push(client);
    }
    // Clients of another address get in repeatedly. So does another client of the crowd's address.
    for address in ["127.0.0.4", "127.0.0.4", "127.0.0.2"] {
        let mut client = from(address, server).await;
        assert!(hears_welcome(&mut client, &format!("{NUMBER}7")).await, "{address}");
    }
    // The crowd has displaced only its own connections.
    assert!(is_answered(&mut alone).await);
    let silence = tokio::time::timeout(Duration::from_millis(50), patient.read(&mut [0; 1])).await;
    assert!(silence.is_err(), "the connection is open, and nothing has come: {silence:?}");
    // The first connection of the crowd was closed, perhaps after a last answer.
    let mut last = Vec::new();
    let ends = crowd[0].read_to_end(&mut last);
    assert!(
        tokio::time::timeout(BODY_TIMEOUT / 2, ends).await.is_ok(),
        "it is still open and waits for its body"
    );
}

/// Connections in an unfinished TLS handshake are idle, so they do not keep other clients out.
#[tokio::test]
async fn unfinished_handshakes_are_closed_for_new_connections() {
    infill_slurm::install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(dir.path());
    let files = authority.issue_certificate("daemon", LOCALHOST_NAMES);
    let config =
        DaemonConfig { tls_cert: Some(files.cert), tls_key: Some(files.key), ..DaemonConfig::default() };
    let address = serve_limited(5, TlsFiles::from_config(&config).unwrap()).await;
    let mut crowd = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The beginning of a TLS hello.
        stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        crowd.push(stream);
    }
    let ca = reqwest::Certificate::from_pem(&std::fs::read(authority.certificate_path()).unwrap()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap();
    let answer = client.get(format!("https://localhost:{}/", address.port())).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "welcome");
    // The first connection was closed.
    let gone = crowd[0].read(&mut [0; 1]).await;
    assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
    // Plain HTTP gets no answer.
    let mut plain = TcpStream::connect(address).await.unwrap();
    assert!(!is_answered(&mut plain).await);
}

/// A complete hello that waits for the check of its credential is busy, so silent connections are closed
/// first.
#[tokio::test]
async fn a_hello_whose_credential_is_checked_keeps_its_connection() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    let hellos = &daemon.context.access.limits.hellos;
    hellos.forget_permits(hellos.available_permits());
    let address = serve_router(crate::http::build_router(daemon.context.clone()), 3, None).await;
    let body = hello_body().to_string();
    let text = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Munge x\r\n{}: n\r\n{}: 127.0.0.1:6810\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        routes::AGENT_HELLO,
        headers::NONCE,
        headers::TO,
        body.len()
    );
    let mut agent = TcpStream::connect(address).await.unwrap();
    agent.write_all(text.as_bytes()).await.unwrap();
    // The daemon reads the hello before it accepts further connections.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut crowd = Vec::new();
    for _ in 0..6 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    let first = tokio::time::timeout(BODY_TIMEOUT / 2, crowd[0].read(&mut [0; 1])).await;
    assert!(matches!(first, Ok(Ok(0) | Err(_))), "the crowd displaces its own connections: {first:?}");
    let silence = tokio::time::timeout(Duration::from_millis(50), agent.read(&mut [0; 1])).await;
    assert!(silence.is_err(), "the agent's connection is still open: {silence:?}");
}
