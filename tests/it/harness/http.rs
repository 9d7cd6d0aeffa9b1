//! A plain HTTP/1.1 client, because the tests send requests that a proper client would not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longest time for one answer. Long polls last up to 30 s.
const TIMEOUT: Duration = Duration::from_secs(40);

/// A status and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {}", self.body))
    }
}

/// `GET path`.
pub fn get(port: u16, path: &str) -> Option<Answer> {
    send(port, "GET", path, &[], b"")
}

/// `POST path` with a JSON body, and a bearer token if there is one.
pub fn post(port: u16, path: &str, body: &Value, token: Option<&str>) -> Option<Answer> {
    let bearer = token.map(|t| format!("Bearer {t}"));
    let mut headers = vec![("Content-Type", "application/json")];
    headers.extend(bearer.as_deref().map(|b| ("Authorization", b)));
    send(port, "POST", path, &headers, body.to_string().as_bytes())
}

/// Sends any bytes. `None` when the server does not answer.
pub fn send(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
    let text = whole(port, method, path, headers, body)?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

/// Sends any bytes. Returns the whole answer, with its headers.
pub fn whole(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: localhost\r\n");
    }
    head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    // A server that has seen enough closes the connection in the middle of a huge body. Its answer may still
    // be readable.
    let _ = stream.write_all(body);
    let mut bytes = Vec::new();
    // After an early answer the unread rest of the request turns the end of the stream into a reset.
    let _ = stream.read_to_end(&mut bytes);
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| !text.is_empty())
}

/// Sends bytes as they are and returns the answer.
pub fn raw(port: u16, bytes: &[u8]) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
