//! Requests of foreign pages, and of web servers that do not name exactly one user, are refused. Also: who
//! may read metrics.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use super::*;
use crate::access_control::AccessControl;
use crate::daemon_names::DaemonNames;
use crate::http::{ConnectionLimits, proxy, serve_plain, standby_router};
use crate::session_store::{AuthenticatedUser, SESSIONS_SETTING};
use infill_api::WebSession;
use infill_model::{MetricsAccess, Secret, config::WebConfig};

/// A foreign host name that resolves to the daemon (DNS rebinding). Over plain HTTP the browser sends no
/// other header that would reveal it.
const REBOUND: &str = "evil.example";

#[tokio::test]
async fn an_anonymous_reader_with_a_foreign_host_name_is_refused() {
    let daemon = TestDaemon::start(ReadAccess::Open).await;
    let get = async |host: &str| {
        let request = daemon.http.get(format!("{}{}", daemon.url, paths::STATUS)).header("host", host);
        request.send().await.unwrap().status().as_u16()
    };
    for host in ["localhost", "[::1]", "[fd00::7]", "[fd00::7]:6810", "fd00::7", "[fd00::7:a]"] {
        assert_eq!(get(host).await, 200, "{host}");
    }
    assert_eq!(get(REBOUND).await, 421);
}

#[tokio::test]
async fn a_foreign_host_name_opens_no_session() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    let person = AuthenticatedUser { uid: uid_of(OWNER).await.unwrap(), name: Some(OWNER.to_owned()) };
    daemon.context.access.links.add_session(&Secret("a link's".to_owned()), person, Instant::now());
    let open = async |host: &str| {
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::WEB_SESSIONS)).header("host", host);
        request.json(&serde_json::json!({ "ticket": "a link's" })).send().await.unwrap().status().as_u16()
    };
    assert_eq!(open(REBOUND).await, 421);
    assert_eq!(open("localhost").await, 200, "the link is not used up");
}

#[tokio::test]
async fn the_next_daemon_on_the_store_knows_the_sessions_of_browsers() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    let person = AuthenticatedUser { uid: uid_of(OWNER).await.unwrap(), name: Some(OWNER.to_owned()) };
    daemon.context.access.links.add_session(&Secret("a link's".to_owned()), person.clone(), Instant::now());
    // Saving sessions does not wait for the lock of the jobs' records.
    let _saving = daemon.context.save_locks.jobs.lock().await;
    let request = daemon.http.post(format!("{}{}", daemon.url, paths::WEB_SESSIONS));
    let request = request.header("host", "localhost").json(&serde_json::json!({ "ticket": "a link's" }));
    let session: WebSession = request.send().await.unwrap().json().await.unwrap();
    let kept = daemon.context.store.get_setting(SESSIONS_SETTING).await.unwrap().unwrap();
    let next = AccessControl::new(DaemonNames::new(&Config::default()));
    next.sessions.load(&kept, Instant::now(), now());
    assert_eq!(next.sessions.find_user(&session.secret, Instant::now()), Some(person));
}

#[tokio::test]
async fn the_configuration_names_administrators() {
    let daemon = TestDaemon::configured(|config| config.daemon.admins = vec!["bin".to_owned()]).await;
    let mut answers = Vec::new();
    for who in [ReaderKind::Other, ReaderKind::Operator, ReaderKind::Admin] {
        let body = posted(paths::CONTROL, who).unwrap();
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::CONTROL)).json(&body);
        answers.push(request.send().await.unwrap().status().as_u16());
    }
    assert_eq!(answers, [403, 204, 204], "`bin` is the operator");
}

#[tokio::test]
async fn only_the_daemons_user_and_one_group_open_the_web_servers_socket() {
    let dir = TempDir::new().unwrap();
    let mut config = WebConfig { socket: dir.path().join("web.sock"), ..WebConfig::default() };
    let _listener = proxy::open_socket(&config).await.unwrap();
    let mode = std::fs::metadata(&config.socket).unwrap().permissions().mode();
    assert_eq!(format!("{:o}", mode & 0o7777), "660");
    config.group = "no-such-group-here".to_owned();
    let e = proxy::open_socket(&config).await.unwrap_err();
    assert!(format!("{e:#}").contains("there is no group \"no-such-group-here\""), "{e:#}");
}

/// The socket of a site's web server.
struct Socket {
    dir: TempDir,
    _daemon: TestDaemon,
}

impl Socket {
    async fn open() -> Socket {
        let dir = TempDir::new().unwrap();
        let daemon = TestDaemon::start(ReadAccess::Proof).await;
        daemon.keep_private(PrivateData::parse("jobs"));
        let config = WebConfig { socket: dir.path().join("web.sock"), ..WebConfig::default() };
        let listener = proxy::open_socket(&config).await.unwrap();
        let context = daemon.context.clone();
        tokio::spawn(async move { proxy::serve_proxy(listener, context, std::future::pending()).await });
        Socket { dir, _daemon: daemon }
    }

    /// The answer to a request for the status with these headers.
    async fn ask(&self, headers: &[&str]) -> (u16, String) {
        let mut stream = UnixStream::connect(self.dir.path().join("web.sock")).await.unwrap();
        let lines: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let request =
            format!("GET {} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{lines}\r\n", paths::STATUS);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

#[tokio::test]
async fn a_web_server_must_name_exactly_one_user() {
    let socket = Socket::open().await;
    let owner = format!("X-Remote-User: {OWNER}");
    let other = format!("X-Remote-User: {OTHER}");
    for (headers, status, sees) in [
        (vec![], 401, false),
        (vec![owner.as_str()], 200, true),
        (vec![other.as_str()], 200, false),
        (vec![owner.as_str(), other.as_str()], 401, false),
        (vec![other.as_str(), owner.as_str()], 401, false),
        (vec![owner.as_str(), owner.as_str()], 401, false),
        (vec!["X-Remote-User: root"], 401, false),
    ] {
        let (found, answer) = socket.ask(&headers).await;
        assert_eq!(found, status, "{headers:?}: {answer}");
        assert_eq!(answer.contains(HiddenFact::Job.word()), sees, "{headers:?}: {answer}");
    }
}

#[tokio::test]
async fn foreign_pages_are_refused_behind_a_web_server() {
    let socket = Socket::open().await;
    let owner = format!("X-Remote-User: {OWNER}");
    for (site, status) in [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)] {
        let (found, answer) = socket.ask(&[&owner, &format!("Sec-Fetch-Site: {site}")]).await;
        assert_eq!(found, status, "{site}: {answer}");
        assert_eq!(answer.contains(HiddenFact::Job.word()), status == 200, "{site}: {answer}");
    }
}

#[tokio::test]
async fn the_configuration_decides_who_may_read_metrics() {
    let room = ConnectionLimits { connections: 20, per_host: 20 };
    for (readers, here, by_web_server) in [
        (MetricsAccess::Open, 200, 200),
        (MetricsAccess::Loopback, 200, 403),
        (MetricsAccess::Closed, 404, 404),
    ] {
        // This server does not know its clients' addresses, like the web server's socket.
        let daemon = TestDaemon::configured(|config| config.http.metrics = readers).await;
        let get = async |port: u16| {
            let answer = daemon.http.get(format!("http://127.0.0.1:{port}{}", paths::METRICS)).send().await;
            let answer = answer.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap().contains("infill_rounds"))
        };
        let port = daemon.url.rsplit_once(':').unwrap().1.parse().unwrap();
        assert_eq!(get(port).await, (by_web_server, by_web_server == 200), "{readers:?}");
        for router in [crate::http::build_router(daemon.context.clone()), standby_router(readers)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(serve_plain(listener, router, room, std::future::pending()));
            assert_eq!(get(port).await, (here, here == 200), "{readers:?}");
        }
    }
}
