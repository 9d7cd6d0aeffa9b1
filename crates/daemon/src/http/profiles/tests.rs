//! The routes from the request to the store: permissions, refused requests, and stored profiles.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::context::DaemonServices;
use crate::http::openapi::validation::with_checked_answers;
use crate::state::DaemonState;
use infill_api::BodyProof;
use infill_model::{Credential, Secret, UserId, config::Config};
use infill_slurm::{
    fake::FakeSlurm,
    identity::{FakeIdentity, uid_of},
};
use infill_store::LeadStanding;
use infill_testkit::samples;

/// A user that exists on every system and is not an administrator.
const OWNER: &str = "nobody";

/// A daemon on a free port, with the profiles of the samples and one of [`OWNER`].
struct TestDaemon {
    context: Arc<DaemonContext>,
    url: String,
}

impl TestDaemon {
    async fn start() -> TestDaemon {
        TestDaemon::configured(Config::default()).await
    }

    async fn configured(config: Config) -> TestDaemon {
        infill_slurm::install_crypto();
        let owner = uid_of(OWNER).await.unwrap();
        let users = BTreeMap::from([("root's".to_owned(), UserId(0)), ("owner's".to_owned(), owner)]);
        let services = DaemonServices {
            slurm: Arc::new(FakeSlurm::new(1, "infill")),
            store: infill_store::open_store("sqlite::memory:", || ()).await.unwrap(),
            identity: Arc::new(FakeIdentity { users }),
        };
        let state = DaemonState::new(Arc::new(config), now());
        let (context, _queue) = DaemonContext::new(services, state, LeadStanding::Alone, now());
        let context = Arc::new(context);
        let mut profiles: Vec<Profile> =
            samples::sample_profiles().profiles.into_iter().map(|v| v.profile).collect();
        profiles.push(samples::sample_profile(OWNER, "bert", "cpu"));
        context.store.put_profiles(&profiles).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = with_checked_answers(crate::http::build_router(context.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        TestDaemon { context, url }
    }

    async fn get(&self, query: &str) -> (u16, Value) {
        let request = reqwest::Client::new().get(format!("{}/v1/profiles{query}", self.url));
        let answer = request.header("authorization", "Munge root's").send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn post(&self, what: &str, body: &impl Serialize) -> (u16, Value) {
        let request = reqwest::Client::new().post(format!("{}/v1/profiles/{what}", self.url)).json(body);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.bytes().await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn forget(&self, who: &str, filter: Value) -> (u16, Value) {
        let credential = Credential::Munge(Secret(who.to_owned()));
        self.post("forget", &json!({"credential": credential, "nonce": "n", "filter": filter})).await
    }

    async fn import(&self, who: &str, profiles: Vec<Profile>) -> (u16, Value) {
        let credential = Some(Credential::Munge(Secret(who.to_owned())));
        let proof = BodyProof { credential, nonce: Some("n".to_owned()) };
        self.post("import", &ImportRequest { proof, profiles }).await
    }

    /// The owners of the remaining profiles.
    async fn left(&self) -> Vec<String> {
        let left = self.context.store.find_profiles(&ProfileFilter::default(), 9).await.unwrap();
        let mut users: Vec<String> = left.into_iter().map(|p| p.key.user).collect();
        users.sort_unstable();
        users
    }
}

#[tokio::test]
async fn profiles_are_listed_and_chosen() {
    let daemon = TestDaemon::start().await;
    let users = |(status, body): (u16, Value)| -> Vec<String> {
        assert_eq!(status, 200, "{body}");
        let profiles = body["profiles"].as_array().unwrap().clone();
        profiles.iter().map(|p| p["user"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(users(daemon.get("").await).len(), 3);
    assert_eq!(users(daemon.get("?name=bert&user=alice").await), ["alice"]);
    assert_eq!(users(daemon.get("?node_type=cpu").await), [OWNER]);
    assert_eq!(users(daemon.get("?exec_plan=tp2").await), [""; 0]);
    assert_eq!(daemon.get("?colour=red").await.0, 400);
}

#[tokio::test]
async fn measurements_of_a_profile_are_listed_newest_first() {
    let daemon = TestDaemon::start().await;
    let key = samples::sample_profile(OWNER, "bert", "cpu").key;
    let row = |at: i64, probe| Measurement {
        key: key.clone(),
        job: infill_model::JobId(7),
        nodes: 2,
        samples: 780.0,
        secs: 1.5,
        probe,
        at: infill_model::UnixTime(at),
    };
    daemon.context.store.add_measurements(&[row(100, true), row(160, false)]).await.unwrap();
    let of = format!("/history?user={OWNER}&name=bert&node_type=cpu&exec_plan=default");
    let (status, body) = daemon.get(&format!("{of}&batch=auto")).await;
    assert_eq!((status, &body["profile"]["user"]), (200, &json!(OWNER)), "{body}");
    let row =
        |at, probe| json!({"at": at, "job": 7, "nodes": 2, "samples": 780.0, "secs": 1.5, "probe": probe});
    assert_eq!(body["rows"], json!([row(160, false), row(100, true)]));
    assert_eq!(daemon.get(&format!("{of}&batch=global")).await.1["rows"], json!([]));
    assert_eq!(daemon.get(&of).await.0, 400, "the whole key");
}

#[tokio::test]
async fn a_curve_is_served_with_its_interval_beyond_what_was_measured() {
    let (_, body) = TestDaemon::start().await.get("?user=alice").await;
    let profile = &body["profiles"][0];
    assert_eq!((&body["schema"], &profile["batch_seen"]), (&json!(1), &json!("per-node")));
    let curve = profile["curve"].as_array().unwrap();
    assert_eq!(
        curve.iter().map(|r| r["nodes"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8]
    );
    for row in curve {
        let [low, rate, high] = ["low", "rate", "high"].map(|k| row[k].as_f64().unwrap());
        assert!(0.0 < low && low < rate && rate < high, "{row}");
    }
    assert!(profile["model"].as_str().unwrap().starts_with("n/rate = "));
}

#[tokio::test]
async fn owners_forget_their_own_and_administrators_any() {
    let daemon = TestDaemon::start().await;
    assert_eq!(daemon.forget("nobody knows", json!({"user": OWNER})).await.0, 401);
    assert_eq!(daemon.forget("owner's|infill1 control 0 n", json!({"user": OWNER})).await.0, 401);
    for others in
        [json!({}), json!({"name": "bert"}), json!({"user": "alice"}), json!({"user": "no such user"})]
    {
        assert_eq!(daemon.forget("owner's", others.clone()).await.0, 403, "{others}");
    }
    assert_eq!(daemon.left().await, ["alice", "bob", OWNER]);
    let own = daemon.forget("owner's|infill1 profiles 0 n", json!({"user": OWNER, "name": "bert"})).await;
    assert_eq!(own, (200, json!({"schema": 1, "profiles": 1})));
    assert_eq!(daemon.forget("root's", json!({"user": "alice"})).await.1["profiles"], 1);
    assert_eq!(daemon.left().await, ["bob"]);
    assert_eq!(daemon.forget("root's", json!({})).await.1["profiles"], 1);
    assert_eq!(daemon.forget("root's", json!({"colour": "red"})).await.0, 422);
}

#[tokio::test]
async fn imports_are_of_ones_own_and_sound() {
    let daemon = TestDaemon::start().await;
    let own = || samples::sample_profile(OWNER, "vgg", "cpu");
    let others = || samples::sample_profile("alice", "vgg", "cpu");
    assert_eq!(daemon.import("nobody knows", vec![own()]).await.0, 401);
    assert_eq!(daemon.import("owner's", vec![own(), others()]).await.0, 403);
    let mut bad = own();
    bad.points[1].rate = -1.0;
    let (status, body) = daemon.import("owner's", vec![own(), bad]).await;
    assert_eq!(status, 422, "{body}");
    assert!(body["error"].as_str().unwrap().contains("2 nodes: the rate"), "{body}");
    assert_eq!(daemon.import("root's", vec![own(); MAX_IMPORTED + 1]).await.0, 413);
    assert_eq!(daemon.left().await.len(), 3);
    assert_eq!(daemon.import("owner's", vec![own()]).await, (200, json!({"schema": 1, "profiles": 1})));
    assert_eq!(daemon.import("root's", vec![others()]).await.0, 200);
    let kept = daemon.context.store.find_profiles(&ProfileFilter::default(), 9).await.unwrap();
    assert_eq!(kept.len(), 5);
    assert!(
        kept.iter()
            .any(|p| p.key == own().key && p.points == own().points && p.updated_at > own().updated_at)
    );
}

#[tokio::test]
async fn an_import_may_be_large_but_not_without_end() {
    let daemon = TestDaemon::start().await;
    let mut full = samples::sample_profile(OWNER, "vgg", "cpu");
    let point = full.points[0];
    full.points =
        (1..=validate::MAX_POINTS as u32).map(|nodes| infill_model::SizePoint { nodes, ..point }).collect();
    let many = |n| {
        (0..n).map(|i| {
            let mut profile = full.clone();
            profile.key.name = format!("job-{i}");
            profile
        })
    };
    assert_eq!(daemon.import("owner's", many(MAX_IMPORTED).collect()).await.0, 200);
    assert_eq!(daemon.import("owner's", many(300).collect()).await.0, 413);
}

/// A profile of [`OWNER`] with this name.
fn named(name: usize) -> Profile {
    samples::sample_profile(OWNER, &format!("job-{name}"), "cpu")
}

#[tokio::test]
async fn a_user_may_have_so_many_profiles_and_no_more() {
    let mut config = Config::default();
    // One exists already.
    config.store.max_profiles_a_user = 3;
    let daemon = TestDaemon::configured(config).await;
    assert_eq!(daemon.import("owner's", vec![named(1), named(2)]).await.0, 200);
    let (status, body) = daemon.import("owner's", vec![named(2), named(3)]).await;
    assert_eq!(status, 413, "{body}");
    assert!(body["error"].as_str().unwrap().contains("would have 4 profiles"), "{body}");
    assert_eq!(daemon.import("owner's", vec![named(2)]).await.0, 200, "what is there may change");
    assert_eq!(daemon.left().await, ["alice", "bob", OWNER, OWNER, OWNER]);
    assert_eq!(daemon.forget("owner's", json!({"user": OWNER, "name": "job-1"})).await.0, 200);
    assert_eq!(daemon.import("owner's", vec![named(3)]).await.0, 200);
}

#[tokio::test]
async fn all_profiles_of_a_user_take_so_much_and_no_more() {
    let mut config = Config::default();
    config.store.max_profile_mib_a_user = 1;
    let daemon = TestDaemon::configured(config).await;
    let full = |name| {
        let point = named(name).points[0];
        let sizes = 1..=validate::MAX_POINTS as u32;
        let points = sizes.map(|nodes| infill_model::SizePoint { nodes, ..point }).collect();
        Profile { points, ..named(name) }
    };
    let part = |first| (first..first + 16).map(full).collect::<Vec<_>>();
    assert_eq!(daemon.import("owner's", part(0)).await.0, 200);
    let mut taken = 1;
    while taken < 9 && daemon.import("owner's", part(100 * taken)).await.0 == 200 {
        taken += 1;
    }
    assert!((1..5).contains(&taken), "{taken} times 16 profiles of 256 sizes");
    let kept = daemon.context.store.find_profiles(&ProfileFilter::default(), 999).await.unwrap();
    assert_eq!(kept.len(), 3 + 16 * taken, "all of an import or nothing");
}

#[tokio::test]
async fn who_imports_in_a_loop_is_sent_away_for_a_while() {
    let daemon = TestDaemon::start().await;
    let request = |who: &str| {
        let credential = Some(Credential::Munge(Secret(who.to_owned())));
        let proof = BodyProof { credential, nonce: Some("n".to_owned()) };
        let body = ImportRequest { proof, profiles: vec![named(1)] };
        reqwest::Client::new().post(format!("{}/v1/profiles/import", daemon.url)).json(&body).send()
    };
    let mut taken = 0;
    let refused = loop {
        let answer = request("owner's").await.unwrap();
        if answer.status() != 200 {
            break answer;
        }
        taken += 1;
        assert!(taken < 200, "no limit stops the imports");
    };
    assert_eq!(refused.status(), 429);
    let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=4).contains(&after), "{after} s");
    assert_eq!(daemon.forget("owner's", json!({"user": OWNER})).await.0, 429, "nor does the user delete");
    assert_eq!(request("root's").await.unwrap().status(), 200, "another does as before");
}

#[tokio::test]
async fn generations_are_stored_while_profiles_are_brought_and_the_other_way_round() {
    let daemon = TestDaemon::start().await;
    let learning = daemon.context.save_locks.learned.lock().await;
    assert!(crate::executor::save_changes(&daemon.context).await, "what jobs wait for is stored");
    drop(learning);
    let _saving = daemon.context.save_locks.jobs.lock().await;
    assert_eq!(daemon.import("owner's", vec![named(1)]).await.0, 200);
}
