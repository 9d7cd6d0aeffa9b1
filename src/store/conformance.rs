//! What every store must do. Run against each adapter.

use super::{GapRecord, GenerationRecord, LeadRecord, Measurement, RoundRecord, Store};
use crate::model::{
    Curve, ExecPlan, JobId, NodeName, NodeType, Plan, Profile, Report, RescaleCosts, SolveStatus, UnixTime,
    WindowEnd,
};

/// Runs the whole suite against an empty store.
///
/// # Panics
/// When the store breaks the contract: this is test code.
pub async fn run(store: &dyn Store) {
    leads(store).await;
    generations(store).await;
    orders(store).await;
    rounds(store).await;
    gaps(store).await;
    measurements(store).await;
    profiles(store).await;
    settings(store).await;
    prune(store).await;
}

fn lead(job: u32, updated_at: i64, ended: bool) -> LeadRecord {
    LeadRecord {
        job: JobId(job),
        submitted_at: UnixTime(5),
        updated_at: UnixTime(updated_at),
        ended,
        state: serde_json::json!({"phase": "running", "text": "ü \" \u{0}"}),
    }
}

async fn leads(store: &dyn Store) {
    assert!(store.open_leads().await.unwrap().is_empty());
    store.put_leads(&[]).await.unwrap();
    store.put_leads(&[lead(9, 1, false), lead(3, 1, false)]).await.unwrap();
    store.put_leads(&[lead(9, 2, false)]).await.unwrap();
    assert_eq!(store.open_leads().await.unwrap(), [lead(3, 1, false), lead(9, 2, false)]);
    store.put_leads(&[lead(9, 3, true)]).await.unwrap();
    assert_eq!(store.open_leads().await.unwrap(), [lead(3, 1, false)]);
    assert_eq!(store.lead(JobId(9)).await.unwrap(), Some(lead(9, 3, true)));
    assert_eq!(store.lead(JobId(10)).await.unwrap(), None);
    let largest = lead(u32::MAX, 4, true);
    store.put_leads(std::slice::from_ref(&largest)).await.unwrap();
    assert_eq!(store.lead(JobId(u32::MAX)).await.unwrap(), Some(largest));
}

async fn generations(store: &dyn Store) {
    let g = |n: u64, why: &str| GenerationRecord {
        job: JobId(3),
        generation: n,
        started_at: UnixTime(100 + n as i64),
        nodes: vec![NodeName::from("n2"), NodeName::from("n1")],
        why: why.to_owned(),
    };
    store.add_generations(&[g(2, "grown"), g(1, "first")]).await.unwrap();
    store.add_generations(&[g(2, "again")]).await.unwrap();
    assert_eq!(store.generations(JobId(3)).await.unwrap(), [g(1, "first"), g(2, "grown")]);
    assert!(store.generations(JobId(4)).await.unwrap().is_empty());
}

async fn orders(store: &dyn Store) {
    let first = store.next_orders(10).await.unwrap();
    let second = store.next_orders(1).await.unwrap();
    assert_eq!(second, first + 10, "no number is handed out twice");
}

async fn rounds(store: &dyn Store) {
    let round = |at: i64| RoundRecord {
        at: UnixTime(at),
        plan: Plan {
            at: UnixTime(at),
            jobs: vec![],
            status: SolveStatus::TimeLimit { gap: Some(0.25) },
            objective: 1.5,
            steps: vec![UnixTime(at + 60)],
        },
        report: Report { at: UnixTime(at), notes: vec!["note".to_owned()], ..Report::default() },
        acted: at % 2 == 0,
    };
    for at in [10, 11, 12] {
        store.add_round(&round(at)).await.unwrap();
    }
    assert_eq!(store.rounds(2).await.unwrap(), [round(12), round(11)]);
}

async fn gaps(store: &dyn Store) {
    let gap = |start: i64| GapRecord {
        node: NodeName::from("n1"),
        node_type: NodeType::from("cpu2"),
        start: UnixTime(start),
        end: UnixTime(start + 30),
        taken: true,
        block: 4,
        planned: WindowEnd::Unknown,
    };
    store.add_gaps(&[gap(1), gap(2), gap(3)]).await.unwrap();
    assert_eq!(store.gaps(2).await.unwrap(), [gap(2), gap(3)]);
}

async fn measurements(store: &dyn Store) {
    let m = |signature: &str, at: i64| Measurement {
        signature: signature.to_owned(),
        node_type: NodeType::from("cpu2"),
        exec_plan: ExecPlan::default(),
        nodes: 4,
        samples: 12.5,
        secs: 1.0,
        at: UnixTime(at),
    };
    store.add_measurements(&[m("a", 1), m("b", 2), m("a", 3), m("a", 4)]).await.unwrap();
    assert_eq!(store.measurements("a", 2).await.unwrap(), [m("a", 3), m("a", 4)]);
    assert!(store.measurements("'; DROP TABLE measurement; --", 9).await.unwrap().is_empty());
}

async fn profiles(store: &dyn Store) {
    let profile = |rate: &str| Profile {
        signature: "a".to_owned(),
        node_type: NodeType::from("cpu2"),
        exec_plan: ExecPlan::default(),
        curve: Curve::parse(rate).unwrap(),
        costs: RescaleCosts { up_secs: 1.0, down_secs: 2.0, start_secs: 3.0 },
        updated_at: UnixTime(1),
    };
    store.put_profile(&profile("1:10")).await.unwrap();
    store.put_profile(&profile("1:10,2:19")).await.unwrap();
    assert_eq!(store.profiles("a").await.unwrap(), [profile("1:10,2:19")]);
}

async fn settings(store: &dyn Store) {
    assert_eq!(store.setting("control").await.unwrap(), None);
    store.put_setting("control", "paused").await.unwrap();
    store.put_setting("control", "normal").await.unwrap();
    assert_eq!(store.setting("control").await.unwrap().as_deref(), Some("normal"));
}

async fn prune(store: &dyn Store) {
    let rows = store.prune(UnixTime(1_000_000)).await.unwrap();
    assert!(rows >= 10, "{rows}");
    assert!(store.rounds(9).await.unwrap().is_empty() && store.gaps(9).await.unwrap().is_empty());
    assert_eq!(store.open_leads().await.unwrap().len(), 1, "a job that has not ended is never deleted");
    assert_eq!(store.profiles("a").await.unwrap().len(), 1, "profiles stay");
}
