//! From the request to the rounds in the store.

use serde_json::{Value, json};

use super::*;
use crate::context::DaemonServices;
use crate::http::openapi::validation::with_checked_answers;
use crate::state;
use infill_model::{UserId, clock::now, config::Config};
use infill_slurm::{fake::FakeSlurm, identity::FakeIdentity};
use infill_store::LeadStanding;
use infill_testkit::samples::{self, NOW};

/// A round of the samples this many seconds after [`NOW`].
fn round(after: i64) -> RoundRecord {
    let RoundView { mut plan, mut report, acting: acted, .. } = samples::sample_round();
    let at = NOW + after;
    (plan.at, report.at) = (at, at);
    RoundRecord { at, plan, report, acted }
}

/// A daemon on a free port that has stored these rounds. Returns its URL.
async fn daemon(rounds: &[RoundRecord]) -> String {
    infill_slurm::install_crypto();
    let services = DaemonServices {
        slurm: Arc::new(FakeSlurm::new(1, "infill")),
        store: infill_store::open_store("sqlite::memory:", || ()).await.unwrap(),
        identity: Arc::new(FakeIdentity { users: BTreeMap::from([("root's".to_owned(), UserId(0))]) }),
    };
    for round in rounds {
        services.store.add_round(round).await.unwrap();
    }
    let state = state::DaemonState::new(Arc::new(Config::default()), now());
    let (context, _queue) = DaemonContext::new(services, state, LeadStanding::Alone, now());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = with_checked_answers(crate::http::build_router(Arc::new(context)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn get(url: &str, path: &str) -> (u16, Value) {
    let request = reqwest::Client::new().get(format!("{url}{path}"));
    let answer = request.header("authorization", "Munge root's").send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn rounds_are_listed_a_line_each() {
    let url = daemon(&[0, 5, 10].map(round)).await;
    let ages = async |query: &str| -> Vec<i64> {
        let (status, body) = get(&url, &format!("/v1/rounds{query}")).await;
        assert_eq!((status, &body["schema"]), (200, &json!(1)), "{query}: {body}");
        let rounds: RoundsView = serde_json::from_value(body).unwrap();
        rounds.rounds.iter().map(|r| r.at.0 - NOW.0).collect()
    };
    assert_eq!(ages("").await, [10, 5, 0]);
    assert_eq!(ages("?limit=2").await, [10, 5]);
    assert_eq!(ages(&format!("?limit={MAX_ROUNDS}&before={}", NOW.0 + 10)).await, [5, 0]);
    assert_eq!(ages(&format!("?before={}", i64::MIN)).await, [0; 0]);
    let (_, body) = get(&url, "/v1/rounds?limit=1").await;
    let line = json!({
        "at": NOW.0 + 10, "acted": true, "status": "optimal", "objective": 1_450_134.0, "gap": null,
        "jobs": 2, "nodes": 2, "changes": 0, "notes": ["backfill's plan was cut short"],
    });
    assert_eq!(body["rounds"], json!([line]));
}

#[tokio::test]
async fn the_round_of_a_moment_is_returned_whole() {
    let url = daemon(&[round(0), round(5)]).await;
    for (after, expected) in [(0, 0), (4, 0), (5, 5), (9999, 5)] {
        let (status, body) = get(&url, &infill_api::routes::round_path(NOW + after)).await;
        assert_eq!(status, 200, "{body}");
        let found: RoundView = serde_json::from_value(body).unwrap();
        let answer =
            RoundRecord { at: found.plan.at, plan: found.plan, report: found.report, acted: found.acting };
        assert_eq!(answer, round(expected));
    }
}

#[tokio::test]
async fn what_cannot_be_told_is_refused() {
    let url = daemon(&[round(0)]).await;
    for (path, expected) in [
        ("/v1/rounds?limit=1001", 400),
        ("/v1/rounds?limit=-1", 400),
        ("/v1/rounds?colour=red", 400),
        ("/v1/rounds/soon", 400),
        ("/v1/rounds/5", 404),
    ] {
        let (status, body) = get(&url, path).await;
        assert_eq!(status, expected, "{path}: {body}");
        assert!(body["error"].is_string(), "{path}: {body}");
    }
}
