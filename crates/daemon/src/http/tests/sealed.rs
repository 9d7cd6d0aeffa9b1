//! The daemon proves its identity to agents, readers and users who change something. It refuses messages that
//! were forged, altered or repeated.

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::*;
use infill_api::{
    AgentWelcome, headers,
    seal::{OpenSession, SessionKey, SessionSeal, parse_seal_payload, request_digest},
};
use infill_model::{Secret, bound_payload};

/// The owner's malleable job, on n1.
const JOB: u32 = 424_201;

/// The daemon's name in the tests' credentials, from the default [`Config`].
const TO: &str = "127.0.0.1:6810";

async fn site() -> TestDaemon {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.slurm.launch_job(JobId(JOB), &NodeName::new("n1"), 10).await.unwrap();
    daemon
}

/// An answer with its signature and its seal.
struct Answer {
    status: u16,
    body: Vec<u8>,
    mac: Option<String>,
    seal: Option<SessionSeal>,
}

impl Answer {
    async fn of(response: Response) -> Answer {
        let text = |name: &str| response.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
        let mac = text(headers::MAC);
        let seal = text(headers::SEAL).and_then(|s| SessionSeal::from_header(&s));
        let status = response.status().as_u16();
        Answer { status, body: response.bytes().await.unwrap().to_vec(), mac, seal }
    }

    fn is_proved(&self, key: &SessionKey, route: &str, counter: u64) -> bool {
        let Some(mac) = &self.mac else { return false };
        key.verify_answer(mac, route, counter, self.status, &self.body)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The session that is sealed for the owner.
    async fn opened(&self, job: Option<JobId>) -> OpenSession {
        let Some(SessionSeal::Munge(sealed)) = &self.seal else { panic!("{} {:?}", self.status, self.seal) };
        let owner = uid_of(OWNER).await.unwrap();
        let payload = sealed.0.strip_prefix(&format!("for {owner}|")).expect("for the owner alone");
        parse_seal_payload(&Secret(payload.to_owned()), job, "n").unwrap()
    }
}

fn on_session(
    request: RequestBuilder,
    of: &OpenSession,
    route: &str,
    counter: u64,
    body: &[u8],
) -> RequestBuilder {
    request
        .header(headers::SESSION, &of.session)
        .header(headers::COUNTER, counter)
        .header(headers::MAC, of.key.sign_request(route, counter, body))
        .header("content-type", "application/json")
        .body(body.to_vec())
}

/// A hello whose credential binds another one, if there is another.
struct Sent<'a> {
    to: &'a str,
    shown_to: &'a str,
    altered: bool,
}

const HELLO: Sent<'_> = Sent { to: TO, shown_to: TO, altered: false };

pub(super) fn hello_body() -> Value {
    json!({
        "job": JOB, "role": "lead", "node": "n1", "port": 29_500, "version": "test",
        "capabilities": ["sealed_session"],
    })
}

async fn hello(daemon: &TestDaemon, Sent { to, shown_to, altered }: Sent<'_>) -> Answer {
    let body = hello_body().to_string();
    let digest = request_digest(paths::AGENT_HELLO, body.as_bytes());
    let payload = bound_payload("hello", Some(JobId(JOB)), "n", to, Some(&digest));
    let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_HELLO));
    let request = request.header("authorization", format!("Munge owner's|{payload}"));
    let request = request.header(headers::NONCE, "n").header(headers::TO, shown_to);
    let body = if altered { body.replace("29500", "29501") } else { body };
    let request = request.header("content-type", "application/json").body(body);
    Answer::of(request.send().await.unwrap()).await
}

async fn say(daemon: &TestDaemon, of: &OpenSession, route: &str, counter: u64, body: &Value) -> Answer {
    let body = serde_json::to_vec(body).unwrap();
    let request = daemon.http.post(format!("{}{route}", daemon.url));
    Answer::of(on_session(request, of, route, counter, &body).send().await.unwrap()).await
}

#[tokio::test]
async fn an_agents_key_comes_sealed_and_proves_every_message() {
    let daemon = site().await;
    let welcome = hello(&daemon, HELLO).await;
    let session = welcome.opened(Some(JobId(JOB))).await;
    assert_eq!(welcome.status, 200);
    assert!(welcome.is_proved(&session.key, paths::AGENT_HELLO, 0), "the welcome itself is proved");
    let told: AgentWelcome = serde_json::from_slice(&welcome.body).unwrap();
    assert_eq!(told.secret, None, "no secret travels");
    let poll = json!({ "job": JOB, "node": "n1", "seen": 0, "wait_secs": 0 });
    let answer = say(&daemon, &session, paths::AGENT_POLL, 1, &poll).await;
    assert!(answer.status == 200 && answer.is_proved(&session.key, paths::AGENT_POLL, 1));
    let report = json!({ "job": JOB, "node": "n1", "events": [] });
    let answer = say(&daemon, &session, paths::AGENT_REPORT, 1, &report).await;
    assert!(answer.status == 204 && answer.is_proved(&session.key, paths::AGENT_REPORT, 1));
    // A refusal is proved as well.
    let other = json!({ "job": JOB, "node": "n2", "events": [] });
    let answer = say(&daemon, &session, paths::AGENT_REPORT, 2, &other).await;
    assert!(answer.status == 401 && answer.is_proved(&session.key, paths::AGENT_REPORT, 2));
}

#[tokio::test]
async fn a_message_that_was_made_up_altered_or_sent_before_is_refused() {
    let daemon = site().await;
    let session = hello(&daemon, HELLO).await.opened(Some(JobId(JOB))).await;
    let report = json!({ "job": JOB, "node": "n1", "events": [] });
    let bytes = serde_json::to_vec(&report).unwrap();
    let post = |route: &str| daemon.http.post(format!("{}{route}", daemon.url));
    let send = async |request: RequestBuilder| request.send().await.unwrap().status().as_u16();
    let route = paths::AGENT_REPORT;
    assert_eq!(send(on_session(post(route), &session, route, 5, &bytes)).await, 204);
    assert_eq!(send(on_session(post(route), &session, route, 5, &bytes)).await, 401, "sent again");
    assert_eq!(send(on_session(post(route), &session, route, 4, &bytes)).await, 401, "an older one");
    assert_eq!(send(on_session(post(route), &session, paths::AGENT_POLL, 6, &bytes)).await, 401, "elsewhere");
    let altered = on_session(post(route), &session, route, 6, &bytes).body(format!("{report} "));
    assert_eq!(send(altered).await, 401, "altered");
    let guessed = OpenSession { key: SessionKey::new([0; 32]), ..session.clone() };
    assert_eq!(send(on_session(post(route), &guessed, route, 6, &bytes)).await, 401, "without the key");
    assert_eq!(send(post(route).bearer_auth(&session.session).json(&report)).await, 401, "the name alone");
    // The key of another session of the same user.
    let another = hello(&daemon, HELLO).await.opened(Some(JobId(JOB))).await;
    assert_eq!(send(on_session(post(route), &session, route, 6, &bytes)).await, 401, "a newer hello came");
    assert_eq!(send(on_session(post(route), &another, route, 1, &bytes)).await, 204);
}

#[tokio::test]
async fn a_hello_for_another_daemon_is_refused_by_one_that_proves_itself() {
    let daemon = site().await;
    let answer = hello(&daemon, Sent { to: "elsewhere:6810", shown_to: "elsewhere:6810", ..HELLO }).await;
    let session = answer.opened(Some(JobId(JOB))).await;
    assert!(answer.status == 421 && answer.is_proved(&session.key, paths::AGENT_HELLO, 0));
    assert!(answer.json()["error"].as_str().unwrap().contains("daemon.names"), "{}", answer.json());
    let poll = json!({ "job": JOB, "node": "n1", "seen": 0, "wait_secs": 0 });
    assert_eq!(say(&daemon, &session, paths::AGENT_POLL, 1, &poll).await.status, 401);
    // What is for another cannot be passed on under this one's name, and nothing of it altered.
    assert_eq!(hello(&daemon, Sent { to: "elsewhere:6810", ..HELLO }).await.status, 401);
    assert_eq!(hello(&daemon, Sent { altered: true, ..HELLO }).await.status, 401);
}

#[tokio::test]
async fn an_old_agent_has_its_secret_and_cannot_be_played_by_a_new_ones_proof() {
    let daemon = site().await;
    let digest = request_digest(paths::AGENT_HELLO, b"");
    let bound = bound_payload("hello", Some(JobId(JOB)), "n", TO, Some(&digest));
    for (payload, expected) in [(format!("infill1 hello {JOB} n"), 200), (bound, 401)] {
        let mut body = hello_body();
        body["credential"] = json!({ "munge": format!("owner's|{payload}") });
        body["nonce"] = json!("n");
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_HELLO)).json(&body);
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert!(answer.status == expected && answer.seal.is_none() && answer.mac.is_none());
        assert!(expected != 200 || answer.json()["secret"].as_str().unwrap().len() == 64);
    }
}

fn reads(daemon: &TestDaemon, path: &str, to: &str) -> RequestBuilder {
    let payload = bound_payload("read", None, "n", to, None);
    let request = daemon.http.get(format!("{}{path}", daemon.url));
    let request = request.header("authorization", format!("Munge owner's|{payload}"));
    request.header(headers::NONCE, "n").header(headers::TO, to)
}

#[tokio::test]
async fn a_reader_has_a_session_instead_of_a_ticket() {
    let daemon = site().await;
    let path = "/v1/status?nodes=false";
    let answer = reads(&daemon, path, TO).send().await.unwrap();
    assert!(answer.headers().get(headers::TICKET).is_none());
    let answer = Answer::of(answer).await;
    let session = answer.opened(None).await;
    assert!(answer.status == 200 && answer.is_proved(&session.key, path, 0));
    let next = async |route: &str, counter| {
        let request =
            on_session(daemon.http.get(format!("{}{path}", daemon.url)), &session, route, counter, b"");
        Answer::of(request.send().await.unwrap()).await
    };
    let answer = next(path, 1).await;
    assert!(answer.status == 200 && answer.is_proved(&session.key, path, 1));
    assert_eq!(next(path, 1).await.status, 401, "sent again");
    assert_eq!(next("/v1/status", 2).await.status, 401, "another question");
    let bearer = daemon.http.get(format!("{}{path}", daemon.url)).bearer_auth(&session.session);
    assert_eq!(bearer.send().await.unwrap().status(), 401, "the name of a session opens nothing");
    assert_eq!(reads(&daemon, path, "elsewhere:6810").send().await.unwrap().status(), 421);
}

#[tokio::test]
async fn a_token_brings_a_key_that_is_not_sealed() {
    let daemon = site().await;
    let request = daemon.http.get(format!("{}{}", daemon.url, paths::ROUND));
    let request = request.header("authorization", "Slurm-JWT root's").header(headers::NONCE, "n");
    let answer = Answer::of(request.header(headers::TO, TO).send().await.unwrap()).await;
    let Some(SessionSeal::Open(payload)) = &answer.seal else { panic!("{:?}", answer.seal) };
    let session = parse_seal_payload(payload, None, "n").unwrap();
    assert!(answer.is_proved(&session.key, paths::ROUND, 0));
}

#[tokio::test]
async fn a_credential_is_good_for_one_order_only() {
    let daemon = TestDaemon::configured(|config| config.daemon.admins = vec![OWNER.to_owned()]).await;
    let order = async |bound: &str, sent: &str, to: &str| {
        let digest = request_digest(paths::CONTROL, bound.as_bytes());
        let payload = bound_payload("control", None, "n", to, Some(&digest));
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::CONTROL));
        let request = request.header("authorization", format!("Munge owner's|{payload}"));
        let request = request.header(headers::NONCE, "n").header(headers::TO, to);
        let request = request.header("content-type", "application/json").body(sent.to_owned());
        Answer::of(request.send().await.unwrap()).await
    };
    let [pause, drain] = ["paused", "draining"].map(|word| json!({ "control": word }).to_string());
    let answer = order(&pause, &pause, TO).await;
    let session = answer.opened(None).await;
    assert!(answer.status == 204 && answer.is_proved(&session.key, paths::CONTROL, 0));
    assert_eq!(order(&pause, &drain, TO).await.status, 401, "a captured credential for another order");
    assert_eq!(order(&pause, &pause, "elsewhere:6810").await.status, 421);
    let control = daemon.context.lock_state().control.clone();
    assert_eq!(control.state, infill_model::ControlState::Paused);
    assert!(control.origin.is_some_and(|origin| origin.by.is_some() && !origin.automatic));
    // Nor without the name of the daemon, as an old client's in a header.
    let request = daemon.http.post(format!("{}{}", daemon.url, paths::CONTROL));
    let request =
        request.header("authorization", "Munge owner's|infill1 control 0 n").header(headers::NONCE, "n");
    let sent = request.header("content-type", "application/json").body(drain).send().await.unwrap();
    assert_eq!(sent.status(), 401);
}

#[tokio::test]
async fn whoever_wants_to_know_learns_from_whom_that_all_is_well() {
    let daemon = site().await;
    daemon.context.lock_state().round.as_mut().unwrap().report.at = now();
    let payload = bound_payload(headers::HEALTH_PURPOSE, None, "n", TO, None);
    let request = daemon.http.get(format!("{}{}", daemon.url, paths::HEALTHZ));
    let request = request.header("authorization", format!("Munge owner's|{payload}"));
    let request = request.header(headers::NONCE, "n").header(headers::TO, TO);
    let answer = Answer::of(request.send().await.unwrap()).await;
    let session = answer.opened(None).await;
    assert!(answer.body == b"ok\n" && answer.is_proved(&session.key, paths::HEALTHZ, 0));
    let plain = daemon.http.get(format!("{}{}", daemon.url, paths::HEALTHZ)).send().await.unwrap();
    assert_eq!(plain.text().await.unwrap(), "ok\n", "nobody has to");
}
