//! Authorization: credentials, secrets, administrators.

use std::path::Path;

use infill_api::{AgentHello, AgentRole, BodyProof, CapabilitySet, ControlRequest, PROTOCOL};
use infill_model::{ControlState, Credential, JobId, NodeName, Secret, hello_payload};
use serde_json::{Value, json};

use crate::harness::http::{self, Answer};
use crate::harness::{Site, Train};

/// The whole text of every refusal.
const REFUSED: &str = r#"{"error":"not proved"}"#;

fn munge(site: &Site, user: &str, payload: &str) -> String {
    let output = site.exec_with(user, &["munge"], payload);
    assert!(output.status.success(), "munge: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A credential in the form of older agents and clients.
fn old_proof(credential: String, nonce: String) -> BodyProof {
    BodyProof { credential: Some(Credential::Munge(Secret(credential))), nonce: Some(nonce) }
}

/// A hello for `job` on `node`, with a credential that `user` made, in the form of an older agent's.
fn hello(site: &Site, user: &str, job: u32, node: &str, role: AgentRole) -> AgentHello {
    let nonce = format!("nonce-{user}-{job}");
    let payload = hello_payload("hello", Some(JobId(job)), &nonce);
    AgentHello {
        proof: old_proof(munge(site, user, &payload), nonce),
        job: JobId(job),
        role,
        node: NodeName::from(node),
        port: 29_500,
        running: None,
        spec: None,
        version: "test".to_owned(),
        protocol: PROTOCOL,
        capabilities: CapabilitySet::default(),
    }
}

fn say(site: &Site, hello: &AgentHello) -> Answer {
    let body = serde_json::to_value(hello).expect("a hello is JSON");
    http::post(site.port(), "/v1/agent/hello", &body, None).expect("an answer")
}

#[track_caller]
fn assert_refused(answer: Answer, who: &str) {
    assert_eq!(answer, Answer { status: 401, body: REFUSED.to_owned() }, "{who}");
}

/// A running lead whose script is not an agent.
fn silent_lead(site: &Site) -> (u32, String) {
    let job = site.sbatch("alice", &["-p", "infill", "--nodes=1"], "sleep 600");
    let node =
        site.wait("the silent lead to run", 30.0, || site.queued(job).filter(|j| j.runs())?.nodes.pop());
    (job, node)
}

#[test]
fn a_forged_or_foreign_hello_gets_401_and_no_information() {
    let site = Site::with(|s| s.set("agent.lead_start_secs", 600.0));
    let (job, node) = silent_lead(&site);
    let good = hello(&site, "alice", job, &node, AgentRole::Lead);

    let mut forged = good.clone();
    forged.proof.credential = Some(Credential::Munge(Secret("MUNGE:AwQFAAAAAAAAAAAAAAAAAAAA:".to_owned())));
    assert_refused(say(&site, &forged), "a forged credential");
    forged.proof.credential = Some(Credential::Munge(Secret("x".repeat(100_000))));
    assert_refused(say(&site, &forged), "no credential at all");
    forged.proof.credential = Some(Credential::Jwt(Secret("a.b.c".to_owned())));
    assert_refused(say(&site, &forged), "a forged token");
    assert_refused(say(&site, &hello(&site, "bob", job, &node, AgentRole::Lead)), "another user");
    assert_refused(
        say(&site, &hello(&site, "bob", 999_999, &node, AgentRole::Lead)),
        "a job that does not exist",
    );
    assert_refused(
        say(&site, &hello(&site, "alice", job, "n99", AgentRole::Lead)),
        "a node that is not the job's",
    );
    assert_refused(
        say(&site, &hello(&site, "alice", job, &node, AgentRole::Wing { lead: JobId(1) })),
        "no wing of that lead",
    );
    let main = site.main_job(600, &["--nodes=1"]);
    site.until("the main job to run", 20.0, || site.started_at(main).is_some());
    let main_node = site.queued(main.id).expect("the main job").nodes[0].clone();
    assert_refused(
        say(&site, &hello(&site, "bob", main.id, &main_node, AgentRole::Lead)),
        "a job of another partition",
    );
    let mut other = good.clone();
    other.proof.nonce = Some("another".to_owned());
    assert_refused(say(&site, &other), "a credential for another nonce");
    let mut order = good.clone();
    let nonce = order.proof.nonce.clone().expect("a nonce");
    order.proof = old_proof(munge(&site, "alice", &hello_payload("control", None, &nonce)), nonce);
    assert_refused(say(&site, &order), "a credential for another purpose");

    // The good credential has been decoded above, with another nonce. A fresh one is accepted once, and not a
    // second time.
    let fresh = hello(&site, "alice", job, &node, AgentRole::Lead);
    assert_eq!(say(&site, &fresh).status, 200);
    assert_refused(say(&site, &fresh), "a replayed credential");
}

#[test]
fn no_user_speaks_for_anothers_job() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    let view = site.until_trains_on(job, 4, 30.0);
    let node = view.nodes[0].as_str();
    let (bobs, bobs_node) = {
        let id = site.sbatch("bob", &["-p", "infill", "--nodes=1"], "sleep 600");
        (id, site.wait("bob's lead to run", 30.0, || site.queued(id).filter(|j| j.runs())?.nodes.pop()))
    };
    let welcome = say(&site, &hello(&site, "bob", bobs, &bobs_node, AgentRole::Lead));
    assert_eq!(welcome.status, 200, "{welcome:?}");
    let token = welcome.json()["secret"].as_str().expect("a secret").to_owned();

    let poll = |job: u32, node: &str, token: Option<&str>| {
        let body = json!({ "job": job, "node": node, "seen": 0, "wait_secs": 0 });
        http::post(site.port(), "/v1/agent/poll", &body, token).expect("an answer")
    };
    let report = |job: u32, node: &str, event: Value, token: Option<&str>| {
        let body = json!({ "job": job, "node": node, "events": [event] });
        http::post(site.port(), "/v1/agent/report", &body, token).expect("an answer")
    };
    let stop = json!({ "stopped": {
        "generation": view.generation, "exit": { "code": 1, "asked": false, "killed": false }, "stop_secs": 0.0, "port": 1,
    }});
    assert_eq!(poll(bobs, &bobs_node, Some(&token)).status, 200);
    for token in [Some(token.as_str()), Some("00"), Some(""), None] {
        assert_refused(poll(job, node, token), "a poll for alice's job");
        assert_refused(report(job, node, json!("leaving"), token), "a report of alice's job");
        assert_refused(report(job, node, stop.clone(), token), "a report of alice's job");
    }
    let garbled =
        http::send(site.port(), "POST", "/v1/agent/poll", &[("Authorization", "Basic \u{fffd}")], b"{}");
    assert!(garbled.is_some_and(|a| (400..500).contains(&a.status)));
    // A wing's name gives bob no place in alice's job.
    let wing_name = format!("wing:{job}");
    let node_7 = view.nodes.iter().map(|n| n.as_str()).fold(
        vec!["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"],
        |mut all, n| {
            all.retain(|m| *m != n && *m != bobs_node);
            all
        },
    )[0];
    let list = format!("--nodelist={node_7}");
    let wing = site.sbatch("bob", &["-p", "infill", "--nodes=1", "-J", &wing_name, &list], "sleep 600");
    // Pending, running or cancelled: the wing is refused, and soon gone.
    site.until("bob's wing to be cancelled", 20.0, || {
        let role = AgentRole::Wing { lead: JobId(job) };
        assert_refused(say(&site, &hello(&site, "bob", wing, node_7, role)), "a forged wing");
        site.queued(wing).is_none()
    });
    let after = site.view(job).expect("alice's job");
    assert_eq!((after.generation, after.nodes.len()), (view.generation, 4), "alice's job was disturbed");
    site.until_trains(job, 5, 10.0);
}

#[test]
fn only_administrators_give_orders() {
    let site = Site::with(|s| s.set("daemon.admins", vec!["bob"]));
    let control = |user: &str, by: Option<&str>| {
        let nonce = format!("n-{user}-{by:?}");
        let payload = hello_payload("control", None, &nonce);
        let credential = by.map_or_else(|| munge(&site, user, &payload), str::to_owned);
        let request = ControlRequest { proof: old_proof(credential, nonce), control: ControlState::Paused };
        let body = serde_json::to_value(&request).expect("an order is JSON");
        http::post(site.port(), "/v1/control", &body, None).expect("an answer")
    };
    assert_eq!(control("alice", None).status, 403);
    assert_refused(control("alice", Some("MUNGE:forged:")), "a forged order");
    assert_eq!(site.status().expect("a status").control, ControlState::Normal);
    assert_eq!(site.exec("alice", &["infill", "pause"]).status.code(), Some(4), "denied, by its exit code");
    assert_eq!(site.status().expect("a status").control, ControlState::Normal);
    for user in ["bob", "infill", "root"] {
        assert_eq!(control(user, None).status, 204, "{user}");
        assert_eq!(site.status().expect("a status").control, ControlState::Paused);
        site.must(user, &["infill", "resume"]);
        assert_eq!(site.status().expect("a status").control, ControlState::Normal);
    }
}

/// Values that no reader of the API, the log, `ps` or the file system may find.
const TREASURE: &str = "xyzzy-treasure-of-alice";

#[test]
fn no_environment_command_or_secret_shows_anywhere() {
    let site = Site::with(|s| s.set("agent.lead_start_secs", 600.0));
    let job = Train::on("1-4").before(&format!("export TREASURE={TREASURE}")).submit(&site);
    site.until_trains_on(job, 4, 30.0);
    let (silent, node) = silent_lead(&site);
    let fresh = hello(&site, "alice", silent, &node, AgentRole::Lead);
    let Some(Credential::Munge(Secret(credential))) = fresh.proof.credential.clone() else {
        unreachable!("made by munge")
    };
    let welcome = say(&site, &fresh);
    let secret = welcome.json()["secret"].as_str().expect("a secret").to_owned();
    assert!(secret.len() >= 32, "a secret that can be guessed: {secret}");
    http::post(
        site.port(),
        "/v1/agent/poll",
        &json!({ "job": silent, "node": node, "seen": 0, "wait_secs": 0 }),
        Some(&secret),
    );
    // A refusal must not log the refused text.
    http::post(
        site.port(),
        "/v1/agent/report",
        &json!({ "job": silent, "node": node, "events": [] }),
        Some("wrong"),
    );

    let generations = format!("/v1/jobs/{job}/generations");
    for path in ["/v1/status", "/v1/round", "/v1/plan", "/metrics", "/healthz", &generations] {
        let answer = site.read("root", path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        for word in [TREASURE, "trainee.py", &secret] {
            assert!(!answer.body.contains(word), "{path} shows {word}");
        }
    }
    let log = site.log();
    for word in [TREASURE, "trainee.py", "MUNGE:", &secret, &credential] {
        assert!(!log.contains(word), "the daemon logs {word}");
    }
    for process in site.processes() {
        let line = process.args.join(" ");
        assert!(
            !line.contains("MUNGE:") && !line.contains(&secret),
            "{} shows a secret in {line}",
            process.name
        );
        let env: Vec<&String> = process.env.values().collect();
        assert!(!env.iter().any(|v| v.contains("MUNGE:") || **v == secret), "{} has a secret", process.name);
    }
    for dir in
        ["scratch", "log", "etc", "lib", "run", "upper/tmp", "upper/var/tmp", "upper/home", "upper/var/log"]
    {
        assert_no_secret_below(&site.cluster().dir.join(dir), &[&secret, &credential, "MUNGE:"]);
    }
    let sockets = site.must("root", &["bash", "-c", "find /tmp -name 'infill-*' -printf '%m %u %p\n'"]);
    assert!(!sockets.trim().is_empty(), "agents have private directories");
    let open: Vec<&str> = sockets
        .lines()
        .filter(|l| l.contains("/infill-") && !l.contains("/progress") && !l.starts_with("700 "))
        .collect();
    assert!(open.is_empty(), "an agent's directory is open to others: {open:?}");
}

/// Looks into every file that everyone may read.
fn assert_no_secret_below(dir: &Path, words: &[&str]) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(found) = entry.path().symlink_metadata() else { continue };
        if found.is_dir() {
            assert_no_secret_below(&entry.path(), words);
        } else if found.is_file() && found.mode() & 0o004 != 0 {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let leak = words.iter().find(|w| text.contains(**w));
            assert!(leak.is_none(), "{} is readable for all and holds a secret", entry.path().display());
        }
    }
}
