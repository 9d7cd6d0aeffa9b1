//! What agents say: which of them have a place in a job, and what they report.

use serde_json::{Value, json};

use super::*;
use infill_api::Welcome;
use infill_model::{AgentEvent, Lend, RunSpec};

/// The owner's malleable job.
const MALLEABLE: u32 = 424_201;

/// A job of the main queue, on n3.
const MAIN: u32 = 424_403;

/// A daemon of a site that lends this, and the owner's jobs: the malleable one runs on n1.
async fn site(lend: Lend) -> Daemon {
    let daemon = Daemon::configured(|config| config.gaps.lend = lend).await;
    daemon.slurm.launch(JobId(MALLEABLE), &NodeName::new("n1"), 10).await.unwrap();
    let owner = uid_of(OWNER).await.unwrap();
    daemon.slurm.edit(|world| {
        let main = world.jobs.iter_mut().find(|j| j.id == JobId(MAIN)).unwrap();
        main.user_id = owner;
    });
    daemon
}

/// The answer to a hello of the owner's agent, which speaks as the lead of this job.
async fn hello(daemon: &Daemon, job: u32, node: &str, extends: bool) -> reqwest::Response {
    let mut body = posted(paths::AGENT_HELLO, ReaderKind::Owner).unwrap();
    body["job"] = json!(job);
    body["node"] = json!(node);
    body["spec"] = serde_json::to_value(RunSpec { extends, ..RunSpec::default() }).unwrap();
    let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_HELLO)).json(&body);
    request.send().await.unwrap()
}

#[tokio::test]
async fn main_jobs_alone_are_extended_and_only_where_whole_nodes_are_lent() {
    for (lend, job, node, extends, expected) in [
        (Lend::Nodes, MALLEABLE, "n1", false, 200),
        (Lend::Nodes, MALLEABLE, "n1", true, 401),
        (Lend::Nodes, MAIN, "n3", false, 401),
        (Lend::Nodes, MAIN, "n3", true, 200),
        (Lend::Gpus, MALLEABLE, "n1", false, 200),
        (Lend::Gpus, MAIN, "n3", true, 422),
    ] {
        let daemon = site(lend).await;
        let answer = hello(&daemon, job, node, extends).await;
        assert_eq!(answer.status().as_u16(), expected, "{lend:?} {job} {extends}: {answer:?}");
        let is_in = daemon.context.state().fleet.machine(JobId(job)).is_some_and(|m| !m.workers.is_empty());
        assert_eq!(is_in, expected == 200, "{lend:?} {job} {extends}");
    }
}

#[tokio::test]
async fn an_agent_is_given_its_place_where_it_shares_its_node() {
    for (node, place) in [("n1", Value::Null), ("n1:2", json!("n1:2"))] {
        let daemon = site(Lend::Nodes).await;
        daemon.slurm.edit(|world| {
            let job = world.jobs.iter_mut().find(|j| j.id == JobId(MALLEABLE)).unwrap();
            job.nodes = vec![NodeName::new(node)];
        });
        let answer: Value = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
        assert_eq!(answer["place"], place, "{answer}");
    }
}

#[tokio::test]
async fn an_agent_reports_with_its_own_secret_and_at_most_256_events_at_a_time() {
    let daemon = site(Lend::Nodes).await;
    let welcome: Welcome = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
    let report = async |secret: &str, count: usize| {
        let events = vec![AgentEvent::Started { generation: 0 }; count];
        let body = json!({ "job": MALLEABLE, "node": "n1", "events": events });
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_REPORT)).json(&body);
        request.bearer_auth(secret).send().await.unwrap().status().as_u16()
    };
    let (secret, other) = (welcome.secret.0, "0".repeat(64));
    assert_eq!(report(&secret, 256).await, 204);
    assert_eq!(report(&secret, 257).await, 413);
    assert_eq!(report(&other, 1).await, 401);
}

#[tokio::test]
async fn an_agent_that_reports_in_a_loop_is_sent_away_and_others_are_heard() {
    let daemon = site(Lend::Nodes).await;
    let looping: Welcome = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
    let other: Welcome = hello(&daemon, MAIN, "n3", true).await.json().await.unwrap();
    let report = async |job: u32, node: &str, secret: &str| {
        let events = vec![AgentEvent::Started { generation: 0 }; 256];
        let body = json!({ "job": job, "node": node, "events": events });
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_REPORT)).json(&body);
        request.bearer_auth(secret).send().await.unwrap()
    };
    let mut heard = 0;
    let refused = loop {
        let answer = report(MALLEABLE, "n1", &looping.secret.0).await;
        if answer.status() != 204 {
            break answer;
        }
        heard += 1;
        assert!(heard < 2000, "nobody sends it away");
    };
    assert!(
        (refused.status(), refused.headers()["retry-after"].to_str().unwrap())
            == (429.try_into().unwrap(), "1")
    );
    assert!(heard >= 100, "{heard} reports are no loop");
    assert_eq!(report(MAIN, "n3", &other.secret.0).await.status(), 204);
    assert_eq!(report(MALLEABLE, "n1", &"0".repeat(64)).await.status(), 401);
}
