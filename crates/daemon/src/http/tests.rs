//! The matrix: every route, for every kind of reader, under every `PrivateData`, with open reading and with
//! proof. Routes come from their table. A route without a row in this matrix fails the test.

pub(in crate::http) mod administered;
mod agents;
mod bounds;
mod crowds;
mod doors;
mod figures;
mod maps;
mod page_data;
mod present;
mod sealed;
mod secrets;
mod sessions;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::secrets::{HiddenFact, OTHER, OWNER, also};
pub(in crate::http) use self::secrets::{ReaderKind, told};
use super::openapi::validation::with_checked_answers;
use super::route_access::RouteAccess;
use super::routes::ROUTES;
use crate::context::{DaemonContext, DaemonServices};
use crate::health::HealthProblem;
use crate::rounds;
use crate::state::DaemonState;
use infill_api::routes as paths;
use infill_model::{
    BaseState, GenerationRecord, JobId, JobState, NodeName, NodeTimeKey, NodeTimeRow, NodeTimeUsage,
    PrivateData, ProfileFilter, ReadAccess, Reservation, RoundNote, UnixTime, UserId, clock::now,
    config::Config,
};
use infill_slurm::{
    PrivacyRules, SlurmApi as _,
    fake::{FakeSlurm, pending_job},
    identity::{FakeIdentity, uid_of},
};
use infill_store::{LeadStanding, Measurement, RoundRecord};
use infill_testkit::samples;

/// Two malleable jobs, a running main job, and a reservation.
fn cluster(owner: u32, other: u32) -> FakeSlurm {
    let slurm = FakeSlurm::new(4, "infill");
    slurm.submit_held(424_201, owner, "infill:nodes=1-2");
    slurm.submit_held(424_302, other, "infill:nodes=1-2");
    slurm.edit_snapshot(|snapshot| {
        for (id, user) in [(424_201, OWNER), (424_302, OTHER)] {
            let job = snapshot.jobs.iter_mut().find(|j| j.id == JobId(id)).unwrap();
            job.user_name = user.to_owned();
            job.name = format!("{}-train", if user == OWNER { "secret" } else { "other" });
        }
        let mut busy = pending_job(424_403, 777);
        busy.state = JobState::from_base(BaseState::Running);
        busy.nodes = vec![NodeName::new("n3")];
        busy.start_time = Some(snapshot.taken_at);
        snapshot.jobs.push(busy);
        let at = snapshot.taken_at;
        snapshot.reservations.push(Reservation {
            name: "secret-maintenance".to_owned(),
            start_time: at + 3600,
            end_time: at + 7200,
            nodes: vec![NodeName::new("n2")],
            flags: vec![],
        });
    });
    slurm
}

pub(in crate::http) struct TestDaemon {
    pub(in crate::http) context: Arc<DaemonContext>,
    slurm: Arc<FakeSlurm>,
    url: String,
    http: reqwest::Client,
    tickets: BTreeMap<&'static str, String>,
}

impl TestDaemon {
    pub(in crate::http) async fn start(read: ReadAccess) -> TestDaemon {
        TestDaemon::configured(|config| config.http.read = read).await
    }

    async fn configured(configure: impl FnOnce(&mut Config)) -> TestDaemon {
        infill_slurm::install_crypto();
        let [owner, other] = [uid_of(OWNER).await.unwrap(), uid_of(OTHER).await.unwrap()];
        let slurm = Arc::new(cluster(owner.0, other.0));
        let mut config = Config::default();
        configure(&mut config);
        // `bin` is one of Slurm's operators, root is the daemon's administrator.
        let operator = uid_of("bin").await.unwrap();
        let users = [("owner's", owner), ("other's", other), ("operator's", operator), ("root's", UserId(0))];
        let users = users.map(|(text, uid)| (text.to_owned(), uid)).into();
        let services = DaemonServices {
            slurm: slurm.clone(),
            store: infill_store::open_store("sqlite::memory:", || ()).await.unwrap(),
            identity: Arc::new(FakeIdentity { users }),
        };
        let state = DaemonState::new(Arc::new(config), now());
        let (context, _queue) = DaemonContext::new(services, state, LeadStanding::Alone, now());
        let context = Arc::new(context);
        look(&context).await;
        // Uses of nodes count from one snapshot to the next.
        slurm.edit_snapshot(|snapshot| snapshot.taken_at = snapshot.taken_at + 30);
        look(&context).await;
        remember(&context).await;
        learn(&mut context.lock_state());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = with_checked_answers(crate::http::build_router(context.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        TestDaemon { context, slurm, url, http: reqwest::Client::new(), tickets: BTreeMap::new() }
    }

    /// Sends a request. Each reader proves their identity once, and sends the ticket afterwards.
    pub(in crate::http) async fn get(&mut self, who: ReaderKind, path: &str) -> (u16, String) {
        let mut request = self.http.get(format!("{}{path}", self.url));
        if let Some(credential) = who.credential() {
            let shown = self.tickets.get(credential).cloned().unwrap_or_else(|| credential.to_owned());
            request = request.header("authorization", shown);
        }
        let answer = request.send().await.unwrap();
        if let Some((credential, ticket)) = who.credential().zip(answer.headers().get("infill-ticket")) {
            self.tickets.insert(credential, format!("Bearer {}", ticket.to_str().unwrap()));
        }
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    fn keep_private(&self, private: PrivateData) {
        let operators = ["bin".to_owned()].into();
        self.context.access.set_privacy(PrivacyRules { private, operators });
    }
}

/// Reads a snapshot and plans a round.
async fn look(context: &DaemonContext) {
    let snapshot = context.slurm.read_snapshot().await.unwrap();
    let at = snapshot.taken_at;
    let input = {
        let mut state = context.lock_state();
        let actions = state.update_fleet(&snapshot, at, at);
        context.run_actions(actions);
        let actions = state.update_rounds(snapshot, at);
        context.run_actions(actions);
        state.round_input(true, at).unwrap()
    };
    let mut view = rounds::plan_round(&context.access.planner, context.config.clone(), input).await.unwrap();
    let mut state = context.lock_state();
    view.report.owners = state.job_owners(&view.report);
    state.round = Some(view);
}

/// Fills the store with a profile, its measurement, generations, node-time and a round.
async fn remember(context: &DaemonContext) {
    let mut profile = samples::sample_profile(OWNER, "secret-profile", "cpu");
    profile.job_name = String::new();
    let key = profile.key.clone();
    context.store.put_profiles(&[profile]).await.unwrap();
    let job = JobId(424_201);
    let at = UnixTime(1_000_000);
    let row = Measurement { key, job, nodes: 2, samples: 780.0, secs: 1.5, probe: false, at };
    context.store.add_measurements(&[row]).await.unwrap();
    let generation = |generation, started_at, why: &str| {
        let nodes = vec![NodeName::new("n1")];
        GenerationRecord { job, generation, started_at, nodes, why: why.to_owned() }
    };
    // The job's first generation was lost. Only its time distinguishes the former job's generation.
    let former = generation(1, at + -1000, "former-reason");
    context.store.add_generations(&[former, generation(2, at, "secret-reason")]).await.unwrap();
    let key =
        NodeTimeKey { from: at, account: String::new(), user: OWNER.to_owned(), node_type: "cpu".to_owned() };
    context.store.put_node_time(&[NodeTimeRow { key, spent: NodeTimeUsage::default() }]).await.unwrap();
    let view = context.lock_state().round.clone().unwrap();
    let mut report = view.report;
    report.notes.push(RoundNote::Said("job 424999 is in the way".to_owned()));
    let round = RoundRecord { at: view.plan.at, plan: view.plan, report, acted: false };
    context.store.add_round(&round).await.unwrap();
}

/// Gives the daemon a profile and usage of the owner, and a problem with a node.
fn learn(state: &mut DaemonState) {
    let at = UnixTime(1_000_030);
    let mut profile = samples::sample_profile(OWNER, "secret-subject", "cpu2");
    profile.job_name = "secret-train".to_owned();
    state.load_profiles(ProfileFilter::default(), vec![profile], at);
    // 7.7 hours of a node.
    state
        .round_state
        .priorities_mut()
        .usage
        .load(&format!("{{\"used_secs\":{{\"{OWNER}\":27720.0}},\"at\":{}}}", at.0));
    state.health.raise_problem(HealthProblem::Records("node broken-node has no state".to_owned()));
}

/// `PrivateData` with nothing, each kind alone, some kinds together, and everything.
fn settings() -> Vec<PrivateData> {
    let lists = [
        "none",
        "jobs",
        "users",
        "nodes",
        "usage",
        "accounts",
        "reservations",
        "jobs,users",
        "nodes,usage",
        "all",
    ];
    lists.map(PrivateData::parse).to_vec()
}

async fn check_readers(daemon: &mut TestDaemon, open: bool) {
    let readers = ROUTES.iter().filter(|r| matches!(r.access, RouteAccess::Reads | RouteAccess::Computes));
    for route in readers {
        let (asked, secrets) =
            told(route.path).unwrap_or_else(|| panic!("{} has no row in the matrix", route.path));
        let ways: Vec<String> = std::iter::once(asked).chain(also(route.path)).collect();
        for (private, asked) in settings().iter().flat_map(|p| ways.iter().map(move |asked| (*p, asked))) {
            daemon.keep_private(private);
            for who in ReaderKind::ALL {
                let (status, body) = daemon.get(who, asked).await;
                let place = format!("{asked} for {who:?} with {private:?}, open: {open}");
                if who == ReaderKind::Nobody && !(open && route.access == RouteAccess::Reads) {
                    assert_eq!(status, 401, "{place}");
                    let leak = HiddenFact::ALL.iter().find(|s| body.contains(s.word()));
                    assert!(leak.is_none(), "{place}: {leak:?}");
                    continue;
                }
                // A hidden subject looks like a missing one.
                let is_hidden = route.path == paths::EXPLAIN && status == 404;
                assert!(status == 200 || is_hidden, "{place}: {status}: {body}");
                // The answer repeats the requested key, so only its rows are checked.
                let told = body.split_once("\"rows\"").map_or(body.as_str(), |(_, rows)| rows);
                for secret in HiddenFact::ALL {
                    let expected =
                        secrets.contains(&secret) && secret.may_be_seen_by(who, route.path, private);
                    assert_eq!(told.contains(secret.word()), expected, "{place}: {secret:?}: {body}");
                }
            }
        }
    }
}

#[tokio::test]
async fn readers_see_what_private_data_leaves_them() {
    for (read, open) in [(ReadAccess::Proof, false), (ReadAccess::Open, true)] {
        let mut daemon = TestDaemon::start(read).await;
        check_readers(&mut daemon, open).await;
        assert_eq!(daemon.tickets.len(), 4, "one proof each");
    }
}

#[tokio::test]
async fn all_other_routes_name_no_user_to_anonymous_clients() {
    let mut daemon = TestDaemon::start(ReadAccess::Open).await;
    daemon.keep_private(PrivateData::default());
    for route in ROUTES {
        let answer = match route.access {
            RouteAccess::Reads | RouteAccess::Computes => continue,
            RouteAccess::Open => {
                let (status, body) = daemon.get(ReaderKind::Nobody, route.path).await;
                assert!(status == 200 || status == 503, "{}: {status}", route.path);
                body
            }
            RouteAccess::Agents | RouteAccess::Changes => {
                let request = daemon.http.post(format!("{}{}", daemon.url, route.path));
                let body = serde_json::json!({});
                let answer = request.json(&body).send().await.unwrap();
                assert!((400..500).contains(&answer.status().as_u16()), "{}: {answer:?}", route.path);
                answer.text().await.unwrap()
            }
        };
        for secret in HiddenFact::ALL {
            assert!(!answer.contains(secret.word()), "{} tells of {secret:?}: {answer}", route.path);
        }
    }
}

/// The body of a request that changes something of the owner. `None` for routes that need an agent's secret.
pub(in crate::http) fn posted(path: &str, who: ReaderKind) -> Option<serde_json::Value> {
    let credential = match who {
        ReaderKind::Nobody => serde_json::Value::Null,
        ReaderKind::Admin => serde_json::json!({ "jwt": "root's" }),
        other => serde_json::json!({ "munge": other.credential()?.strip_prefix("Munge ")? }),
    };
    let mut body = match path {
        paths::CONTROL => serde_json::json!({ "control": "paused" }),
        paths::WEB_LINKS => serde_json::json!({}),
        paths::WEB_SESSIONS => serde_json::json!({ "ticket": "guessed" }),
        paths::WEB_REVOKE => serde_json::json!({ "user": OWNER }),
        paths::FORGET_PROFILES => serde_json::json!({ "filter": { "user": OWNER } }),
        paths::IMPORT_PROFILES => {
            serde_json::json!({ "profiles": [samples::sample_profile(OWNER, "secret-profile", "cpu")] })
        }
        paths::IMPORT_HISTORY => serde_json::json!({ "jobs": [samples::sample_ended_job(424_201)] }),
        paths::FORGET_USER => serde_json::json!({ "user": "no-such-user-here" }),
        paths::IMPORT_COLLECTIVES => serde_json::json!({
            "node_type": "a100",
            "rows": [{ "op": "all_reduce", "bytes": 1024, "ranks": 2, "nodes": 1, "secs": 0.001 }],
        }),
        paths::AGENT_HELLO => serde_json::json!({
            "job": 424_201, "role": "lead", "node": "n1", "port": 29_500, "version": "test",
        }),
        _ => return None,
    };
    let fields = body.as_object_mut()?;
    fields.insert("credential".to_owned(), credential);
    fields.insert("nonce".to_owned(), "n".into());
    Some(body)
}

#[tokio::test]
async fn only_owners_and_administrators_change_anything() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.slurm.launch_job(JobId(424_201), &NodeName::new("n1"), 10).await.unwrap();
    let mut tables = Vec::new();
    for private in settings() {
        daemon.keep_private(private);
        let mut table = String::new();
        for route in ROUTES.iter().filter(|r| matches!(r.access, RouteAccess::Agents | RouteAccess::Changes))
        {
            table += route.path;
            for who in ReaderKind::ALL {
                let body = posted(route.path, who).unwrap_or_else(
                    || serde_json::json!({ "job": 424_201, "node": "n1", "seen": 0, "wait_secs": 0, "events": [] }),
                );
                let request = daemon.http.post(format!("{}{}", daemon.url, route.path)).json(&body);
                let answer = request.send().await.unwrap();
                table += &format!(" {}", answer.status().as_u16());
                let told = answer.text().await.unwrap();
                let secrets = HiddenFact::ALL.iter().filter(|s| told.contains(s.word()));
                let leak: Vec<&HiddenFact> =
                    secrets.filter(|s| !s.may_be_seen_by(who, route.path, private)).collect();
                assert!(leak.is_empty(), "{} for {who:?} tells of {leak:?}: {told}", route.path);
            }
            table.push('\n');
        }
        tables.push(table);
    }
    tables.dedup();
    assert_eq!(tables.len(), 1, "`PrivateData` does not change these answers: {tables:?}");
    // No user, other, owner, operator, administrator.
    insta::assert_snapshot!(tables[0], @r"
    /v1/web/links 401 200 200 200 200
    /v1/web/sessions 401 401 401 401 401
    /v1/web/logout 401 401 401 401 401
    /v1/web/revoke 401 403 200 200 200
    /v1/profiles/forget 401 403 200 403 200
    /v1/profiles/import 401 403 200 403 200
    /v1/history/import 401 403 403 403 200
    /v1/history/forget 401 403 403 403 200
    /v1/collectives/import 401 403 403 403 200
    /v1/control 401 403 403 403 204
    /v1/agent/hello 401 401 200 401 401
    /v1/agent/poll 401 401 401 401 401
    /v1/agent/report 401 401 401 401 401
    ");
}

#[tokio::test]
async fn hidden_jobs_and_nodes_are_counted() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.keep_private(PrivateData::parse("jobs,nodes"));
    let hidden = |body: &str| serde_json::from_str::<serde_json::Value>(body).unwrap()["hidden"].clone();
    let (_, status) = daemon.get(ReaderKind::Other, paths::STATUS).await;
    assert_eq!(hidden(&status)["jobs"], 1, "{status}");
    let nodes =
        hidden(&status)["nodes"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!(nodes, 4, "{status}");
    let (_, round) = daemon.get(ReaderKind::Other, paths::ROUND).await;
    assert_eq!(hidden(&round)["jobs"], 1, "{round}");
    let (_, all) = daemon.get(ReaderKind::Admin, paths::STATUS).await;
    assert!(hidden(&all).is_null(), "{all}");
}

#[tokio::test]
async fn a_proof_for_reading_is_accepted_only_for_reading() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.keep_private(PrivateData::default());
    let get = async |headers: &[(&str, &str)]| {
        let request = daemon.http.get(format!("{}{}", daemon.url, paths::STATUS));
        let request = headers.iter().fold(request, |r, (k, v)| r.header(*k, *v));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(get(&[("authorization", "Munge owner's|infill1 read 0 n"), ("infill-nonce", "n")]).await, 200);
    for wrong in ["Munge owner's|infill1 control 0 n", "Munge owner's|infill1 read 0 m", "Munge forged"] {
        assert_eq!(get(&[("authorization", wrong), ("infill-nonce", "n")]).await, 401, "{wrong}");
    }
    for wrong in ["Bearer 0000", "Bearer ", "Basic eA==", "Munge", ""] {
        assert_eq!(get(&[("authorization", wrong)]).await, 401, "{wrong:?}");
    }
}

#[tokio::test]
async fn until_slurm_answers_everything_is_private() {
    let mut daemon = TestDaemon::start(ReadAccess::Open).await;
    let (_, before) = daemon.get(ReaderKind::Other, paths::STATUS).await;
    assert!(!before.contains(HiddenFact::Job.word()), "{before}");
    daemon.slurm.set_privacy(PrivacyRules::default());
    assert!(crate::privacy_watch::refresh_privacy(&daemon.context).await);
    let (_, after) = daemon.get(ReaderKind::Other, paths::STATUS).await;
    assert!(after.contains(HiddenFact::Job.word()), "{after}");
}
