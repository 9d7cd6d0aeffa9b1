//! Agents' hellos and reports.

use serde_json::{Value, json};

use super::*;
use infill_api::{AgentWelcome, PROTOCOL, ReportReceipt};
use infill_model::{
    AgentEvent, BatchMode, GpuCounts, JobDeclaration, LendingMode, ModelFacts, Node, NodeType,
    ParallelStrategy, Resources, RunSpec, Snapshot,
};

/// The owner's malleable job.
const MALLEABLE: u32 = 424_201;

/// A job of the main queue, on n3.
const MAIN: u32 = 424_403;

/// A daemon of a site that lends this. The owner's malleable job runs on n1, and their main job on n3.
async fn site(lend: LendingMode) -> TestDaemon {
    let daemon = TestDaemon::configured(|config| config.gaps.lend = lend).await;
    daemon.slurm.launch_job(JobId(MALLEABLE), &NodeName::new("n1"), 10).await.unwrap();
    let owner = uid_of(OWNER).await.unwrap();
    daemon.slurm.edit_snapshot(|snapshot| {
        let main = snapshot.jobs.iter_mut().find(|j| j.id == JobId(MAIN)).unwrap();
        main.user_id = owner;
    });
    daemon
}

/// The answer to a hello of the owner's agent as the lead of this job.
async fn hello(daemon: &TestDaemon, job: u32, node: &str, extends: bool) -> reqwest::Response {
    hello_with(daemon, job, node, extends, |_| {}).await
}

/// The same with a hello that `change` modifies.
async fn hello_with(
    daemon: &TestDaemon,
    job: u32,
    node: &str,
    extends: bool,
    change: impl FnOnce(&mut Value),
) -> reqwest::Response {
    let mut body = posted(paths::AGENT_HELLO, ReaderKind::Owner).unwrap();
    body["job"] = json!(job);
    body["node"] = json!(node);
    body["spec"] = serde_json::to_value(RunSpec { extends, ..RunSpec::default() }).unwrap();
    change(&mut body);
    let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_HELLO)).json(&body);
    request.send().await.unwrap()
}

#[tokio::test]
async fn only_main_jobs_are_extended() {
    for (lend, job, node, extends, expected) in [
        (LendingMode::Nodes, MALLEABLE, "n1", false, 200),
        (LendingMode::Nodes, MALLEABLE, "n1", true, 401),
        (LendingMode::Nodes, MAIN, "n3", false, 401),
        (LendingMode::Nodes, MAIN, "n3", true, 200),
        (LendingMode::Gpus, MALLEABLE, "n1", false, 200),
        (LendingMode::Gpus, MAIN, "n3", true, 422),
    ] {
        let daemon = site(lend).await;
        let answer = hello(&daemon, job, node, extends).await;
        assert_eq!(answer.status().as_u16(), expected, "{lend:?} {job} {extends}: {answer:?}");
        let is_in = daemon
            .context
            .lock_state()
            .fleet
            .job_lifecycle(JobId(job))
            .is_some_and(|m| !m.workers.is_empty());
        assert_eq!(is_in, expected == 200, "{lend:?} {job} {extends}");
    }
}

/// Where GPUs are lent, a main job's GPUs of its only node are one worker. Other jobs are refused with a
/// reason.
#[tokio::test]
async fn a_main_job_with_gpus_of_one_node_is_extended_where_gpus_are_lent() {
    for (nodes, batch, expected, said) in [
        ("n3:1 n3:2", "n3:1+2", 200, json!("n3:1+2")),
        ("n3:0", "n3:0", 200, json!("n3:0")),
        ("n3:0 n4:0", "n3:0", 422, json!("has several nodes (n3, n4)")),
        ("n3", "n3", 422, json!("whose GPUs are not lent")),
        ("", "n3", 503, json!("no snapshot shows its node yet; try again")),
    ] {
        let daemon = site(LendingMode::Gpus).await;
        daemon.slurm.edit_snapshot(|snapshot| {
            let main = snapshot.jobs.iter_mut().find(|j| j.id == JobId(MAIN)).unwrap();
            main.nodes = nodes.split_whitespace().map(NodeName::from).collect();
            main.batch_host = Some(NodeName::new(batch));
        });
        let snapshot = Snapshot {
            nodes: (0..4)
                .map(|number: usize| Node {
                    has: Resources {
                        cpus: 4,
                        memory_mib: 4000,
                        gpus: GpuCounts::from_counts([("a100".to_owned(), 1)]),
                    },
                    ..Node::new(NodeName::new("n3").place_name(number), NodeType::new("gpu:a100:1/cpu4"))
                })
                .collect(),
            ..Snapshot::default()
        };
        daemon.context.lock_state().snapshot = Some(Arc::new(snapshot));
        let answer = hello(&daemon, MAIN, "n3", true).await;
        assert_eq!(answer.status().as_u16(), expected, "{nodes}: {answer:?}");
        let answer: Value = answer.json().await.unwrap();
        let state = daemon.context.lock_state();
        let lifecycle = state.fleet.job_lifecycle(JobId(MAIN));
        if expected == 200 {
            assert_eq!(answer["place"], said, "{answer}");
            let submitted = &lifecycle.unwrap().submitted;
            let own = vec![NodeName::new(batch)];
            let count = nodes.split_whitespace().count();
            assert_eq!((&submitted.own_nodes, submitted.places_per_worker as usize), (&own, count));
        } else {
            assert!(answer["error"].as_str().unwrap().contains(said.as_str().unwrap()), "{answer}");
            assert!(lifecycle.is_none());
        }
    }
}

#[tokio::test]
async fn an_agent_is_given_its_place_where_it_shares_its_node() {
    for (node, place) in [("n1", Value::Null), ("n1:2", json!("n1:2"))] {
        let daemon = site(LendingMode::Nodes).await;
        daemon.slurm.edit_snapshot(|snapshot| {
            let job = snapshot.jobs.iter_mut().find(|j| j.id == JobId(MALLEABLE)).unwrap();
            job.nodes = vec![NodeName::new(node)];
        });
        let answer: Value = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
        assert_eq!(answer["place"], place, "{answer}");
    }
}

#[tokio::test]
async fn an_agent_reports_with_its_own_secret_and_at_most_256_events_at_a_time() {
    let daemon = site(LendingMode::Nodes).await;
    let welcome: AgentWelcome = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
    let report = async |secret: &str, count: usize| {
        let events = vec![AgentEvent::Started { generation: 0 }; count];
        let body = json!({ "job": MALLEABLE, "node": "n1", "events": events });
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_REPORT)).json(&body);
        request.bearer_auth(secret).send().await.unwrap().status().as_u16()
    };
    let secret = welcome.secret.unwrap().0;
    let other = "0".repeat(64);
    assert_eq!(report(&secret, 256).await, 204);
    assert_eq!(report(&secret, 257).await, 413);
    assert_eq!(report(&other, 1).await, 401);
}

#[tokio::test]
async fn an_agent_that_reports_in_a_loop_is_sent_away_and_others_are_heard() {
    let daemon = site(LendingMode::Nodes).await;
    let looping: AgentWelcome = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
    let other: AgentWelcome = hello(&daemon, MAIN, "n3", true).await.json().await.unwrap();
    let report = async |job: u32, node: &str, secret: &str| {
        let events = vec![AgentEvent::Started { generation: 0 }; 256];
        let body = json!({ "job": job, "node": node, "events": events });
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_REPORT)).json(&body);
        request.bearer_auth(secret).send().await.unwrap()
    };
    let mut heard = 0;
    let refused = loop {
        let answer = report(MALLEABLE, "n1", &looping.secret.as_ref().unwrap().0).await;
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
    assert_eq!(report(MAIN, "n3", &other.secret.as_ref().unwrap().0).await.status(), 204);
    assert_eq!(report(MALLEABLE, "n1", &"0".repeat(64)).await.status(), 401);
}

#[tokio::test]
async fn what_an_agent_says_of_its_plans_and_model_is_known_of_the_job_as_far_as_it_can_be() {
    let daemon = site(LendingMode::Nodes).await;
    let plan = |name: &str, tp: u32| json!({ "name": name, "strategy": { "tp": tp, "pp": 2 }, "needs": { "cpus": tp } });
    let answer = hello_with(&daemon, MALLEABLE, "n1", false, |body| {
        body["spec"]["plans"] = json!([plan("sound", 4), plan("odd", 0), { "name": "old" }]);
        body["spec"]["model"] = json!({ "params_mi": 1500, "layers": 48, "hidden": 0 });
        body["spec"]["gpus_per_node"] = json!(8);
    });
    assert_eq!(answer.await.status(), 200);
    let facts = daemon.context.lock_state().fleet.facts_for_job(JobId(MALLEABLE), now()).unwrap();
    let JobDeclaration { plans, model, gpus_per_node, .. } = facts.declaration;
    let model_kept = ModelFacts { layers: Some(48), ..ModelFacts::from_params(1500.0) };
    assert_eq!((model, gpus_per_node), (Some(model_kept), Some(8)));
    let told: Vec<_> = plans.iter().map(|p| (p.name.0.as_str(), p.strategy, p.needs.cpus)).collect();
    let sound = ParallelStrategy { tp: 4, pp: 2, ..ParallelStrategy::default() };
    assert_eq!(told, [("sound", Some(sound), Some(4)), ("odd", None, None), ("old", None, None)]);
}

/// What a newer agent may say that this daemon does not know.
#[tokio::test]
async fn a_hello_with_an_unknown_word_is_taken_or_told_which_words_are_known() {
    let daemon = site(LendingMode::Nodes).await;
    let answer = async |change: fn(&mut Value)| {
        let answer = hello_with(&daemon, MALLEABLE, "n1", false, change).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let spec = || daemon.context.lock_state().fleet.job_lifecycle(JobId(MALLEABLE)).map(|m| m.spec.batch);
    let (status, _) = answer(|hello| hello["spec"]["batch"] = json!("per-switch")).await;
    assert_eq!((status, spec()), (200, Some(BatchMode::Auto)), "it only tells how the job is learned from");
    let (status, _) = answer(|hello| hello["capabilities"] = json!(["telepathy", {"of": "mine"}])).await;
    assert_eq!(status, 200);
    let (status, text) = answer(|hello| hello["role"] = json!({"spare": {"lead": 7}})).await;
    assert_eq!(status, 422);
    assert!(text.contains("role: unknown variant `spare`, expected `lead` or `wing`"), "{text}");
    let (status, text) = answer(|hello| hello["credential"] = json!({"passkey": "x"})).await;
    assert!(status == 422 && text.contains("unknown variant `passkey`, expected `munge` or `jwt`"), "{text}");
}

#[tokio::test]
async fn events_of_a_newer_agent_are_dropped_singly_and_named() {
    let daemon = site(LendingMode::Nodes).await;
    let welcome: AgentWelcome = hello(&daemon, MALLEABLE, "n1", false).await.json().await.unwrap();
    let report = async |events: Value| {
        let body = json!({ "job": MALLEABLE, "node": "n1", "events": events });
        let request = daemon.http.post(format!("{}{}", daemon.url, paths::AGENT_REPORT)).json(&body);
        let answer = request.bearer_auth(&welcome.secret.as_ref().unwrap().0).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let leaving = || {
        let state = daemon.context.lock_state();
        state.fleet.job_lifecycle(JobId(MALLEABLE)).unwrap().workers[&NodeName::new("n1")].leaving
    };
    assert_eq!(report(json!([{"started": {"generation": 0}}])).await, (204, String::new()));
    assert!(!leaving());
    let (status, text) = report(json!([{"levitated": {"by": 2}}, "leaving", "telepathy", "telepathy"])).await;
    assert_eq!(status, 200, "{text}");
    let receipt: ReportReceipt = serde_json::from_str(&text).unwrap();
    assert_eq!(receipt.not_understood, ["levitated", "telepathy"]);
    assert!(leaving(), "what it knows was taken in");
    assert_eq!(report(Value::Array(vec![json!("telepathy"); 257])).await.0, 413);
}

#[tokio::test]
async fn an_agent_that_names_no_protocol_is_told_of_to_its_owner() {
    let daemon = site(LendingMode::Nodes).await;
    assert_eq!(hello(&daemon, MALLEABLE, "n1", false).await.status().as_u16(), 200);
    let shortage =
        || daemon.context.lock_state().fleet.job_lifecycle(JobId(MALLEABLE)).unwrap().shortage_reason(now());
    assert!(shortage().is_some_and(|why| why.contains("older than the daemon")));
    let present = hello_with(&daemon, MALLEABLE, "n1", false, |hello| hello["protocol"] = json!(PROTOCOL));
    assert_eq!(present.await.status().as_u16(), 200);
    assert_eq!(shortage(), None);
}
