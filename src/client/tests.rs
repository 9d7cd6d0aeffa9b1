//! Tests of the client with answers of a daemon, and of impostors at its port.

use super::*;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use infill_api::{
    headers,
    seal::{SessionKey, SessionSeal, seal_payload},
};
use infill_model::Secret;
use infill_testkit::write_script;

#[test]
fn a_status_becomes_an_exit_code() {
    let exit = |status: u16| refusal_error(StatusCode::from_u16(status).unwrap(), "/v1/x", b"").exit_code();
    assert_eq!(
        [401, 403, 404, 500].map(exit),
        [ProgramExit::Denied, ProgramExit::Denied, ProgramExit::NotFound, ProgramExit::Failed]
    );
}

#[test]
fn the_daemons_message_is_kept() {
    let error = refusal_error(StatusCode::FORBIDDEN, routes::CONTROL, br#"{"error":"bob is no admin"}"#);
    assert_eq!(error.to_string(), "the daemon refused: bob is no admin");
}

#[test]
fn a_wrong_url_is_wrong_usage() {
    for url in ["", ",", "localhost:6810", "ftp://x", "http://a,ftp://x"] {
        assert_eq!(
            DaemonClient::new(url, SlurmIdentity::default(), None).err().map(|e| e.exit_code()),
            Some(ProgramExit::Usage),
            "{url}"
        );
    }
}

/// Answers every request with this status and body.
async fn daemon(status: u16, body: &'static str) -> String {
    let answer = (StatusCode::from_u16(status).unwrap(), body);
    let app = axum::Router::new().fallback(move || async move { answer });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

#[tokio::test]
async fn the_leader_of_several_daemons_answers() {
    let away = "http://127.0.0.1:1";
    let standby = daemon(503, r#"{"error":"on standby"}"#).await;
    let leader = daemon(200, "7").await;
    let ask = async |urls: String| {
        DaemonClient::new(&urls, SlurmIdentity::default(), None).unwrap().get::<u32>("/v1/x").await
    };
    assert_eq!(ask(format!("{away}, {standby}/,{leader}")).await.unwrap(), 7);
    let error = ask(format!("{away},{standby},{away}")).await.unwrap_err();
    assert!(error.to_string().contains("on standby"), "{error}");
    let denied = daemon(403, "").await;
    assert_eq!(ask(format!("{denied},{leader}")).await.unwrap_err().exit_code(), ProgramExit::Denied);
}

/// An answer without proof may make the client ask again, but its text is not shown.
#[tokio::test]
async fn text_without_proof_is_not_shown_and_no_text_controls_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    for status in [401, 503] {
        let url = daemon(status, r#"{"error":"all is done \u001b]0;x\u0007"}"#).await;
        let client = DaemonClient::new(&url, munged(dir.path(), 0), None).unwrap();
        let text = client.get::<u32>("/v1/x").await.unwrap_err().to_string();
        assert!(!text.contains("all is done"), "{text}");
    }
    let error = refusal_error(StatusCode::FORBIDDEN, routes::CONTROL, br#"{"error":"no \u001b[31madmin"}"#);
    assert_eq!(error.to_string(), "the daemon refused: no [31madmin");
    let long = serde_json::to_vec(&serde_json::json!({ "error": "x".repeat(100_000) })).unwrap();
    assert!(refusal_error(StatusCode::FORBIDDEN, routes::CONTROL, &long).to_string().len() < 1000);
}

#[tokio::test]
async fn an_absent_daemon_is_named_with_what_to_do() {
    // No one listens on a port that was bound and is free again.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client =
        DaemonClient::new(&format!("http://127.0.0.1:{port}/"), SlurmIdentity::default(), None).unwrap();
    let error = client.get::<serde_json::Value>(routes::STATUS).await.unwrap_err();
    assert_eq!(error.exit_code(), ProgramExit::Unreachable);
    let text = error.to_string();
    assert!(text.contains(&format!("http://127.0.0.1:{port}: ")) && text.contains("INFILL_URL"), "{text}");
}

/// Fake MUNGE programs, whose credentials are readable and belong to `uid`.
fn munged(dir: &std::path::Path, uid: u32) -> SlurmIdentity {
    let body = format!(
        "printf 'STATUS: Success (0)\\nUID: who ({uid})\\nGID: g (1)\\n'
        carries=$(cut -d: -f2 | base64 -d); printf 'LENGTH: %s\\n\\n%s' ${{#carries}} \"$carries\""
    );
    let munge = write_script(dir.join("munge"), "base64 -w0");
    let unmunge = write_script(dir.join("unmunge"), &body);
    SlurmIdentity {
        munge,
        unmunge,
        scontrol: dir.join("none"),
        daemon_user: "no-such-user".to_owned(),
        ..SlurmIdentity::default()
    }
}

/// The fault of a daemon that tries to prove itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It is too old to seal its answers.
    Old,
    /// Its answers are altered on their way.
    Altered,
    /// It answers to another proof.
    Other,
}

/// A daemon that proves itself, unless `fault` says otherwise. It answers with the number of requests so far,
/// and keeps what it was sent.
async fn proving(fault: Fault) -> (String, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    type Asked = std::sync::Arc<std::sync::Mutex<Vec<String>>>;
    let answer = move |State(asked): State<Asked>, uri: Uri, sent: HeaderMap, body: Bytes| async move {
        let text = |name: &str| sent.get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
        let credential = text("authorization").split(' ').nth(1).unwrap_or_default().to_owned();
        let shown = base64::engine::general_purpose::STANDARD.decode(credential).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let number = {
            let mut asked = asked.lock().unwrap();
            asked.push(format!("{shown}|{}|{body}", text(headers::SESSION)));
            asked.len().to_string()
        };
        let key = SessionKey::new([7; 32]);
        let route = uri.path_and_query().unwrap().as_str().to_owned();
        let counter = text(headers::COUNTER).parse().unwrap_or(0);
        let mac = key.sign_answer(&route, counter, 200, number.as_bytes());
        let sent_number = if fault == Fault::Altered { format!("{number}0") } else { number };
        let mut answer: Response = sent_number.into_response();
        if fault == Fault::Old {
            answer.headers_mut().insert(headers::TICKET, "t".parse().unwrap());
            return answer;
        }
        let nonce = if fault == Fault::Other { "n".to_owned() } else { text(headers::NONCE) };
        let Secret(payload) = seal_payload(None, &nonce, "s1", &key);
        let sealed = base64::engine::general_purpose::STANDARD.encode(payload);
        let seal = SessionSeal::Munge(Secret(format!("MUNGE:{sealed}:"))).to_header();
        answer.headers_mut().insert(headers::SEAL, seal.parse().unwrap());
        answer.headers_mut().insert(headers::MAC, mac.parse().unwrap());
        answer
    };
    let app = axum::Router::new().fallback(answer).with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, asked)
}

#[tokio::test]
async fn one_proof_opens_a_session_with_a_daemon_that_proves_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (url, asked) = proving(Fault::None).await;
    let client = DaemonClient::new(&url, munged(dir.path(), 0), None).unwrap();
    assert_eq!(client.get::<u32>("/v1/x").await.unwrap(), 1);
    assert_eq!(client.get_with::<u32>("/v1/x", &[("a", "b c")]).await.unwrap(), 2);
    let asked = asked.lock().unwrap().clone();
    let to = url.strip_prefix("http://").unwrap();
    assert!(
        asked[0].starts_with("infill2 read 0 ") && asked[0].ends_with(&format!(" {to} -||")),
        "{asked:?}"
    );
    assert_eq!(asked[1], "|s1|", "the session alone");
}

#[tokio::test]
async fn answers_without_proof_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let faults = [Fault::Old, Fault::Altered, Fault::Other];
    for (fault, uid) in faults.map(|fault| (fault, 0)).into_iter().chain([(Fault::None, 6102)]) {
        let (url, asked) = proving(fault).await;
        let client = DaemonClient::new(&url, munged(dir.path(), uid), None).unwrap();
        let read = client.get::<u32>("/v1/x").await.unwrap_err();
        let order = client.send_order_for_answer::<u32>("control", routes::CONTROL, &7).await.unwrap_err();
        for error in [read, order] {
            assert_eq!(error.exit_code(), ProgramExit::Denied, "{fault:?} {uid}");
            let text = error.to_string();
            assert!(text.contains("does not prove that it comes from infill's daemon"), "{text}");
            assert!(text.contains("may be older than this command"), "{text}");
            assert_eq!(text.contains("user 6102 made it"), uid == 6102, "{text}");
        }
        assert!(asked.lock().unwrap().iter().all(|sent| sent.ends_with("||")), "the order was sent");
    }
}

#[tokio::test]
async fn an_order_is_bound_to_its_proof() {
    let dir = tempfile::tempdir().unwrap();
    let (url, asked) = proving(Fault::None).await;
    let client = DaemonClient::new(&format!("{url}/"), munged(dir.path(), 0), None).unwrap();
    assert_eq!(client.send_order_for_answer::<u32>("control", routes::CONTROL, &7).await.unwrap(), 2);
    let asked = asked.lock().unwrap().clone();
    assert!(asked[0].starts_with("infill2 health 0 ") && asked[0].ends_with(" -||"), "{asked:?}");
    let digest = request_digest(routes::CONTROL, b"7");
    assert!(
        asked[1].starts_with("infill2 control 0 ") && asked[1].ends_with(&format!(" {digest}||7")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn without_munge_reading_works_and_orders_need_a_private_channel() {
    let dir = tempfile::tempdir().unwrap();
    let scontrol = write_script(dir.path().join("scontrol"), "echo SLURM_JWT=abc");
    let by = SlurmIdentity { munge: dir.path().join("none"), scontrol, ..SlurmIdentity::default() };
    let open = daemon(200, "7").await;
    assert_eq!(DaemonClient::new(&open, by.clone(), None).unwrap().get::<u32>("/v1/x").await.unwrap(), 7);
    let order = async |url: &str| {
        let client = DaemonClient::new(url, by.clone(), None).unwrap();
        client.send_order("control", routes::CONTROL, &7).await.unwrap_err()
    };
    let elsewhere = order("http://192.0.2.1:6810").await;
    assert!(
        matches!(&elsewhere, ClientError::NoOrder(IdentityError::PlainTextToken { .. }))
            && elsewhere.exit_code() == ProgramExit::Denied,
        "{elsewhere}"
    );
    // On this machine the order is sent, but the answer must still bring a session.
    assert!(matches!(order(&open).await, ClientError::Impostor { .. }));
}
