//! What every database must do: one suite for all adapters.

use std::sync::Arc;

use super::{GenerationRecord, LeadRecord, Measurement, RoundRecord, Store, StoreError};
use crate::model::{
    Curve, CurvePoint, EndedGap, ExecPlan, JobId, NodeName, NodeType, Plan, Profile, Report, RescaleCosts,
    SolveStatus, UnixTime, WindowCause, WindowEnd,
};

/// Runs the suite on an empty store.
///
/// # Errors
/// The first thing that is not as it must be, in words.
pub async fn run(store: Arc<dyn Store>) -> Result<(), String> {
    let store = store.as_ref();
    leads(store).await?;
    generations(store).await?;
    orders(store).await?;
    rounds(store).await?;
    gaps(store).await?;
    measurements(store).await?;
    profiles(store).await?;
    settings(store).await?;
    prune(store).await
}

fn ok<T>(result: Result<T, StoreError>) -> Result<T, String> {
    result.map_err(|e| format!("unexpected failure: {e}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn lead(job: u32, submitted: i64, ended: bool) -> LeadRecord {
    LeadRecord {
        job: JobId(job),
        submitted_at: UnixTime(submitted),
        updated_at: UnixTime(submitted + 10),
        ended,
        state: serde_json::json!({ "text": "it's \"quoted\" – ünïcode\n", "n": 1.5, "list": [null, true] }),
    }
}

async fn leads(store: &dyn Store) -> Result<(), String> {
    ok(store.put_leads(&[]).await)?;
    same("no lead yet", &ok(store.lead(JobId(7)).await)?, &None)?;
    let (old, new, other) = (lead(7, 100, true), lead(7, 200, false), lead(3, 150, false));
    ok(store.put_leads(&[new.clone(), old.clone(), other.clone()]).await)?;
    same("open leads by job id", &ok(store.open_leads().await)?, &vec![other.clone(), new.clone()])?;
    same("a reused id means its newest job", &ok(store.lead(JobId(7)).await)?, &Some(new.clone()))?;
    let ended = LeadRecord { ended: true, updated_at: UnixTime(300), state: serde_json::json!(1), ..new };
    ok(store.put_leads(std::slice::from_ref(&ended)).await)?;
    same("a lead is replaced", &ok(store.lead(JobId(7)).await)?, &Some(ended))?;
    same("an ended lead is not open", &ok(store.open_leads().await)?, &vec![other])?;
    let highest = lead(u32::MAX, i64::MAX / 2, true);
    ok(store.put_leads(std::slice::from_ref(&highest)).await)?;
    same("large numbers", &ok(store.lead(JobId(u32::MAX)).await)?, &Some(highest))
}

fn generation(number: u64, why: &str) -> GenerationRecord {
    GenerationRecord {
        job: JobId(7),
        generation: number,
        started_at: UnixTime(100 + number as i64),
        nodes: vec![NodeName::new("n2"), NodeName::new("n1")],
        why: why.to_owned(),
    }
}

async fn generations(store: &dyn Store) -> Result<(), String> {
    let (first, second) = (generation(1, "start"), generation(2, "grow"));
    ok(store.add_generations(&[second.clone(), first.clone()]).await)?;
    ok(store.add_generations(&[generation(2, "again")]).await)?;
    same("generations, oldest first", &ok(store.generations(JobId(7)).await)?, &vec![first, second])?;
    same("of another job", &ok(store.generations(JobId(8)).await)?, &vec![])
}

async fn orders(store: &dyn Store) -> Result<(), String> {
    let first = ok(store.next_orders(3).await)?;
    same("orders go on where they ended", &ok(store.next_orders(1).await)?, &(first + 3))?;
    same("one after the other", &ok(store.next_orders(2).await)?, &(first + 4))
}

fn round(at: i64) -> RoundRecord {
    let plan = Plan {
        at: UnixTime(at),
        jobs: Vec::new(),
        status: SolveStatus::TimeLimit { gap: Some(0.25) },
        objective: 1234.5,
        steps: vec![UnixTime(at + 60)],
    };
    let report = Report { at: UnixTime(at), notes: vec!["a note".to_owned()], ..Report::default() };
    RoundRecord { at: UnixTime(at), plan, report, acted: at % 2 == 0 }
}

async fn rounds(store: &dyn Store) -> Result<(), String> {
    for at in [100, 101, 102] {
        ok(store.add_round(&round(at)).await)?;
    }
    same("rounds, newest first", &ok(store.rounds(2).await)?, &vec![round(102), round(101)])?;
    same("no rounds asked for", &ok(store.rounds(0).await)?, &vec![])
}

fn gap(end: i64) -> EndedGap {
    let cause = WindowCause::PlannedJob(JobId(5));
    let known = WindowEnd::Known { at: UnixTime(end), cause };
    EndedGap {
        node: NodeName::new("n1"),
        node_type: NodeType::new("gpu:a100:4/cpu64"),
        start: UnixTime(end - 50),
        end: UnixTime(end),
        taken: end % 2 == 0,
        block: 3,
        planned: if end % 2 == 0 { known } else { WindowEnd::Unknown },
    }
}

async fn gaps(store: &dyn Store) -> Result<(), String> {
    ok(store.add_gaps(&[gap(102), gap(100), gap(101)]).await)?;
    same("newest gaps, oldest first", &ok(store.gaps(2).await)?, &vec![gap(101), gap(102)])
}

fn measurement(signature: &str, at: i64, nodes: u32) -> Measurement {
    Measurement {
        signature: signature.to_owned(),
        node_type: NodeType::new("cpu2"),
        exec_plan: ExecPlan("pp=2".to_owned()),
        nodes,
        samples: 0.1 + 0.2,
        secs: 1e-9,
        at: UnixTime(at),
    }
}

async fn measurements(store: &dyn Store) -> Result<(), String> {
    let all = [("a", 102, 1), ("b", 101, 2), ("a", 100, 3), ("a", 101, 4)];
    let all = all.map(|(signature, at, nodes)| measurement(signature, at, nodes));
    ok(store.add_measurements(&all).await)?;
    let newest = vec![measurement("a", 101, 4), measurement("a", 102, 1)];
    same("newest of a signature, oldest first", &ok(store.measurements("a", 2).await)?, &newest)?;
    let useless = Measurement { samples: f64::NAN, ..measurement("nan", 100, 1) };
    ok(store.add_measurements(&[useless]).await)?;
    same("no number is no measurement", &ok(store.measurements("nan", 9).await)?, &vec![])
}

fn profile(node_type: &str, rate: f64) -> Result<Profile, String> {
    let curve = Curve::new(vec![CurvePoint { nodes: 1, rate }, CurvePoint { nodes: 4, rate: 3.3 * rate }]);
    Ok(Profile {
        signature: "alice/train".to_owned(),
        node_type: NodeType::new(node_type),
        exec_plan: ExecPlan::default(),
        curve: curve.map_err(|e| e.to_string())?,
        costs: RescaleCosts { up_secs: 18.0, down_secs: 12.5, start_secs: 20.0 },
        updated_at: UnixTime(100),
    })
}

async fn profiles(store: &dyn Store) -> Result<(), String> {
    let (slow, fast, faster) = (profile("a", 1.0)?, profile("b", 10.0)?, profile("b", 11.0)?);
    for p in [&fast, &slow, &faster] {
        ok(store.put_profile(p).await)?;
    }
    same("a profile is replaced", &ok(store.profiles("alice/train").await)?, &vec![slow, faster])?;
    same("unknown signature", &ok(store.profiles("bob").await)?, &vec![])
}

async fn settings(store: &dyn Store) -> Result<(), String> {
    same("no setting", &ok(store.setting("control").await)?, &None)?;
    ok(store.put_setting("control", "paused").await)?;
    ok(store.put_setting("control", "normal").await)?;
    same("the last setting", &ok(store.setting("control").await)?, &Some("normal".to_owned()))
}

/// Of what the tests before have left: what is older than 102 goes, open leads and profiles stay.
async fn prune(store: &dyn Store) -> Result<(), String> {
    ok(store.put_leads(&[lead(20, 10, true), lead(21, 10, false)]).await)?;
    let rows = ok(store.prune(UnixTime(102)).await)?;
    same("rows deleted", &rows, &(2 + 1 + 1 + 2 + 3))?;
    same("a round stays", &ok(store.rounds(9).await)?, &vec![round(102)])?;
    same("a gap stays", &ok(store.gaps(9).await)?, &vec![gap(102)])?;
    same("a generation stays", &ok(store.generations(JobId(7)).await)?.len(), &1)?;
    same("an old ended lead goes", &ok(store.lead(JobId(20)).await)?, &None)?;
    same("an old open lead stays", &ok(store.lead(JobId(21)).await)?, &Some(lead(21, 10, false)))?;
    same("a profile stays", &ok(store.profiles("alice/train").await)?.len(), &2)?;
    same("nothing is left to delete", &ok(store.prune(UnixTime(102)).await)?, &0)
}
