//! The behaviour that every database must show: one suite for all adapters.

mod bounds;
mod generations;
mod samples;

use std::sync::Arc;

use super::port::{LeadStanding, Measurement, RetentionLimits, RoundRecord, RoundsFilter, Store, StoreError};
use infill_model::{
    BatchMode, ChangeCost, EndedGap, EndedJob, ExecPlan, GenerationStop, JobId, LeadRecord, MainDelay,
    MeasuredCosts, NodeName, NodeTimeKey, NodeTimeRow, NodeTimeUsage, NodeType, NodeUsageSecs, PackedHour,
    Plan, Profile, ProfileFilter, ProfileKey, RoundReport, RoundSummary, SizePoint, SolveStatus, StopOutcome,
    UnixTime, UserId, WindowCause, WindowEnd,
};
use samples::ended_job;

/// Runs the suite on an empty store.
///
/// # Errors
/// The first deviation, in words.
pub(crate) async fn run(store: Arc<dyn Store>) -> Result<(), String> {
    let store = store.as_ref();
    leads(store).await?;
    generations::generations(store).await?;
    orders(store).await?;
    rounds(store).await?;
    gaps(store).await?;
    ended(store).await?;
    hours(store).await?;
    spent(store).await?;
    delays(store).await?;
    measurements(store).await?;
    profiles(store).await?;
    settings(store).await?;
    prune(store).await?;
    bounds::imports(store).await?;
    bounds::users(store).await
}

fn ok<T>(result: Result<T, StoreError>) -> Result<T, String> {
    result.map_err(|e| format!("unexpected failure: {e}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn lead(job: u32, submitted: i64, ended: bool) -> LeadRecord {
    let text = "it's \"quoted\" – ünïcode\n";
    LeadRecord {
        job: JobId(job),
        submitted_at: UnixTime(submitted),
        user_id: (job != 3).then_some(UserId(job)),
        updated_at: UnixTime(submitted + 10),
        ended,
        state: serde_json::json!({ "text": text, "n": 1.5, "list": [null, true], "promised_at": submitted }),
    }
}

async fn leads(store: &dyn Store) -> Result<(), String> {
    ok(store.put_leads(&[]).await)?;
    same("an empty store has no lead", &ok(store.open_leads().await)?, &vec![])?;
    let old = lead(7, 100, true);
    let new = lead(7, 200, false);
    let other = lead(3, 150, false);
    ok(store.put_leads(&[new.clone(), old.clone(), other.clone()]).await)?;
    same("open leads by job id", &ok(store.open_leads().await)?, &vec![other.clone(), new.clone()])?;
    let ended = LeadRecord { ended: true, updated_at: UnixTime(300), state: serde_json::json!(1), ..new };
    ok(store.put_leads(std::slice::from_ref(&ended)).await)?;
    same("an ended lead is not open", &ok(store.open_leads().await)?, &vec![other.clone()])?;
    let changed = LeadRecord { updated_at: UnixTime(310), state: serde_json::json!([2]), ..other };
    let highest = lead(u32::MAX, i64::MAX / 2, false);
    ok(store.put_leads(&[changed.clone(), highest.clone()]).await)?;
    same(
        "a lead is replaced; large numbers",
        &ok(store.open_leads().await)?,
        &vec![changed, highest.clone()],
    )?;
    let again = lead(3, 500, false);
    ok(store.put_leads(std::slice::from_ref(&again)).await)?;
    same("a reused job number is one open lead", &ok(store.open_leads().await)?, &vec![again, highest])
}

async fn orders(store: &dyn Store) -> Result<(), String> {
    let first = ok(store.next_wing_numbers(3, 0).await)?;
    same("orders continue after the last one", &ok(store.next_wing_numbers(1, 0).await)?, &(first + 3))?;
    same("orders are consecutive", &ok(store.next_wing_numbers(2, first).await)?, &(first + 4))?;
    let (a, b, c) = tokio::join!(
        store.next_wing_numbers(10, 0),
        store.next_wing_numbers(10, 0),
        store.next_wing_numbers(10, 0)
    );
    let mut concurrent = [ok(a)?, ok(b)?, ok(c)?];
    concurrent.sort_unstable();
    same("concurrent calls get different orders", &concurrent, &[first + 6, first + 16, first + 26])?;
    let least = first + 5_000_000_000_000_000;
    same("no order is below the least", &ok(store.next_wing_numbers(10, least).await)?, &least)?;
    same("orders go on from there", &ok(store.next_wing_numbers(1, 0).await)?, &(least + 10))
}

fn round(at: i64) -> RoundRecord {
    let plan = Plan {
        at: UnixTime(at),
        jobs: Vec::new(),
        status: SolveStatus::TimeLimit { gap: Some(0.25) },
        proof: None,
        objective: 1234.5,
        steps: vec![UnixTime(at + 60)],
    };
    let report =
        RoundReport { at: UnixTime(at), notes: vec!["a note".to_owned().into()], ..RoundReport::default() };
    RoundRecord { at: UnixTime(at), plan, report, acted: at % 2 == 0 }
}

async fn rounds(store: &dyn Store) -> Result<(), String> {
    for at in [100, 101, 102] {
        ok(store.add_round(&round(at)).await)?;
    }
    // The clock was set back: rounds are found by their time, and among those of one second the last counts.
    let again = RoundRecord { acted: true, ..round(101) };
    ok(store.add_round(&again).await)?;
    same(
        "rounds, newest first",
        &ok(rounds_until(store, None, 2).await)?,
        &summaries(&[round(102), again.clone()]),
    )?;
    let until = ok(rounds_until(store, Some(101), 9).await)?;
    same("rounds up to a moment, inclusive", &until, &summaries(&[again.clone(), round(101), round(100)]))?;
    same("rounds before the first", &ok(rounds_until(store, Some(99), 9).await)?, &vec![])?;
    same("rounds with a limit of 0", &ok(rounds_until(store, None, 0).await)?, &vec![])?;
    for (at, found) in [(99, None), (100, Some(round(100))), (101, Some(again)), (9999, Some(round(102)))] {
        same("the last round at a moment", &ok(store.round_at(UnixTime(at)).await)?, &found)?;
    }
    Ok(())
}

async fn rounds_until(
    store: &dyn Store,
    until: Option<i64>,
    limit: u32,
) -> Result<Vec<RoundSummary>, StoreError> {
    store.list_rounds(&RoundsFilter { until: until.map(UnixTime), limit }).await
}

fn summaries(rounds: &[RoundRecord]) -> Vec<RoundSummary> {
    rounds.iter().map(RoundRecord::to_summary).collect()
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
    same("newest gaps, oldest first", &ok(store.recent_gaps(2).await)?, &vec![gap(101), gap(102)])
}

async fn ended(store: &dyn Store) -> Result<(), String> {
    same("an empty store has no ended job", &ok(store.recent_ended_jobs(9).await)?, &vec![])?;
    same("adding no job", &ok(store.add_ended_jobs(&[]).await)?, &0)?;
    let unknown = EndedJob { limit_secs: None, said_secs: None, exit_code: None, ..ended_job(7, 50, 101) };
    let unknown = EndedJob { flat_secs: None, ..unknown };
    let first = ended_job(u32::MAX, 50, 100);
    let last = ended_job(7, 60, 102);
    let all = [last.clone(), first.clone(), unknown.clone()];
    same("all are new", &ok(store.add_ended_jobs(&all).await)?, &3)?;
    same(
        "the newest ended jobs, oldest first",
        &ok(store.recent_ended_jobs(2).await)?,
        &vec![unknown.clone(), last.clone()],
    )?;
    same("ended jobs with a limit of 0", &ok(store.recent_ended_jobs(0).await)?, &vec![])?;
    // A known job with another reason, and a new one twice in the same call.
    let again = EndedJob { why: "failed".to_owned(), ..last.clone() };
    let new = ended_job(9, 70, 102);
    let repeated = [again, new.clone(), new.clone()];
    same("existing jobs are not replaced", &ok(store.add_ended_jobs(&repeated).await)?, &1)?;
    let odd = EndedJob { name: "a\0b".to_owned(), ..ended_job(10, 70, 99) };
    let not_a_number = EndedJob { work_secs: f64::NAN, ..ended_job(11, 70, 103) };
    let endless = EndedJob { limit_secs: Some(f64::INFINITY), ..ended_job(12, 70, 98) };
    let unusual = [odd, not_a_number, endless.clone()];
    same("a job with a NaN is skipped", &ok(store.add_ended_jobs(&unusual).await)?, &2)?;
    let listed = ok(store.recent_ended_jobs(9).await)?;
    same("an infinite limit is dropped", &listed[0], &EndedJob { limit_secs: None, ..endless })?;
    same("a name with a zero byte", &listed[1].name, &"a\u{fffd}b".to_owned())?;
    same("jobs in the order of their ends", &listed[2..].to_vec(), &vec![first, unknown, last, new])?;
    // More jobs than one statement can hold.
    let many: Vec<_> = (0..2500).map(|n| ended_job(100 + n, 10, 90)).collect();
    same("many jobs at once", &ok(store.add_ended_jobs(&many).await)?, &2500)?;
    same("many jobs again", &ok(store.add_ended_jobs(&many).await)?, &0)?;
    same("all jobs are kept", &ok(store.recent_ended_jobs(9999).await)?[..2500].to_vec(), &many)
}

async fn hours(store: &dyn Store) -> Result<(), String> {
    let hour = |from, packed: &[u8]| PackedHour { from: UnixTime(from), packed: packed.to_vec() };
    let all: Vec<_> = [3600, 7200, 10_800].map(|from| hour(from, &[0, 255, from as u8])).into();
    let uses = |idle| NodeUsageSecs { idle_secs: idle, down_secs: 0.5, ..NodeUsageSecs::default() };
    for (secs, hour) in all.iter().enumerate().rev() {
        ok(store.put_hour(hour, &uses(secs as f64)).await)?;
    }
    let between = async |from, to, limit| store.hours_between(UnixTime(from), UnixTime(to), limit).await;
    same("all hours", &ok(between(0, i64::MAX, 9).await)?, &all)?;
    same("the end of the range is exclusive", &ok(between(3600, 7200, 9).await)?, &all[..1].to_vec())?;
    same("hours with a limit of 1", &ok(between(3601, i64::MAX, 1).await)?, &all[1..2].to_vec())?;
    let longer = hour(7200, &vec![7; 100_000]);
    ok(store.put_hour(&longer, &uses(7.0)).await)?;
    same("an hour is replaced", &ok(between(7200, 7201, 9).await)?, &vec![longer])?;
    same("no hour is kept twice", &ok(between(0, i64::MAX, 9).await)?.len(), &3)?;
    let sums = async |from, to, limit| store.usage_by_hour(UnixTime(from), UnixTime(to), limit).await;
    let all = [(3600, 0.0), (7200, 7.0), (10_800, 2.0)].map(|(from, idle)| (UnixTime(from), uses(idle)));
    same("sums of all hours", &ok(sums(0, i64::MAX, 9).await)?, &all.to_vec())?;
    same("sums with a limit of 1", &ok(sums(3601, i64::MAX, 1).await)?, &all[1..2].to_vec())
}

async fn spent(store: &dyn Store) -> Result<(), String> {
    let row = |from, user: &str, node_type: &str, useful_secs| {
        let account = "ml".to_owned();
        let user = user.to_owned();
        let node_type = node_type.to_owned();
        let key = NodeTimeKey { from: UnixTime(from), account, user, node_type };
        let spent = NodeTimeUsage {
            useful_secs,
            rescale_secs: 1.5,
            preempted_secs: 0.5,
            probing_secs: 0.25,
            gpu_secs: 4.0 * useful_secs,
        };
        NodeTimeRow { key, spent }
    };
    let rows = [
        row(3600, "alice", "a", 10.0),
        row(3600, "bob", "a", 20.0),
        row(7200, "alice", "a", 30.0),
        row(7200, "alice", "b", 1.0),
    ];
    ok(store.put_node_time(&rows).await)?;
    let between = async |from, to| store.sum_node_time(UnixTime(from), UnixTime(to)).await;
    same("node-time of one hour", &ok(between(3600, 7200).await)?, &rows[..2].to_vec())?;
    let both = NodeTimeRow { spent: rows[0].spent.sum_with(&rows[2].spent), ..rows[0].clone() };
    let all = vec![both, rows[3].clone(), rows[1].clone()];
    same("node-time of all hours together", &ok(between(0, i64::MAX).await)?, &all)?;
    same("node-time after the last hour", &ok(between(7201, i64::MAX).await)?, &Vec::new())?;
    let by_hour = async |from, to, limit| store.node_time_by_hour(UnixTime(from), UnixTime(to), limit).await;
    let hours = vec![
        (UnixTime(3600), rows[0].spent.sum_with(&rows[1].spent)),
        (UnixTime(7200), rows[2].spent.sum_with(&rows[3].spent)),
    ];
    same("node-time hour by hour", &ok(by_hour(0, i64::MAX, 9).await)?, &hours)?;
    same("the first hour", &ok(by_hour(0, i64::MAX, 1).await)?, &hours[..1].to_vec())?;
    same("the second hour", &ok(by_hour(3601, 7201, 9).await)?, &hours[1..].to_vec())?;
    let more = row(7200, "alice", "b", 5.0);
    ok(store.put_node_time(std::slice::from_ref(&more)).await)?;
    same("node-time is replaced", &ok(between(7200, 7201).await)?, &vec![rows[2].clone(), more])
}

async fn delays(store: &dyn Store) -> Result<(), String> {
    let delay = |job, at, secs, planned| MainDelay { job: JobId(job), at: UnixTime(at), secs, planned };
    let all = vec![delay(1, 100, 0.5, false), delay(3, 150, 2.0, true), delay(1, 200, 7.25, false)];
    ok(store.add_delays(&[all[2], all[0], all[1]]).await)?;
    ok(store.add_delays(&[delay(1, 100, 99.0, true)]).await)?;
    let between = async |from, to, limit| store.delays_between(UnixTime(from), UnixTime(to), limit).await;
    same("all delays, none replaced", &ok(between(0, i64::MAX, 9).await)?, &all)?;
    same("some delays", &ok(between(101, 200, 9).await)?, &all[1..2].to_vec())?;
    same("the first delay", &ok(between(0, i64::MAX, 1).await)?, &all[..1].to_vec())
}

fn key(user: &str, name: &str) -> ProfileKey {
    ProfileKey {
        user: user.to_owned(),
        name: name.to_owned(),
        node_type: NodeType::new("cpu2"),
        exec_plan: ExecPlan("pp=2".to_owned()),
        batch: BatchMode::Global,
    }
}

fn measurement(name: &str, at: i64, nodes: u32) -> Measurement {
    Measurement {
        key: key("bob", name),
        job: JobId(u32::MAX),
        nodes,
        samples: 0.1 + 0.2,
        secs: 1e-9,
        probe: nodes.is_multiple_of(2),
        at: UnixTime(at),
    }
}

async fn measurements(store: &dyn Store) -> Result<(), String> {
    ok(store.add_measurements(&[]).await)?;
    let all = [("a", 102, 1), ("b", 101, 2), ("a", 100, 3), ("a", 101, 4)];
    let all = all.map(|(name, at, nodes)| measurement(name, at, nodes));
    ok(store.add_measurements(&all).await)?;
    let a = key("bob", "a");
    let newest = vec![measurement("a", 101, 4), measurement("a", 102, 1)];
    same("a profile's newest, oldest first", &ok(store.recent_measurements(&a, 2).await)?, &newest)?;
    let other_mode = ProfileKey { batch: BatchMode::PerNode, ..a.clone() };
    same("another batch mode", &ok(store.recent_measurements(&other_mode, 9).await)?, &vec![])?;
    let not_a_number = Measurement { samples: f64::NAN, ..measurement("nan", 100, 1) };
    ok(store.add_measurements(&[not_a_number]).await)?;
    same(
        "a measurement with a NaN is skipped",
        &ok(store.recent_measurements(&key("bob", "nan"), 9).await)?,
        &vec![],
    )?;
    // More measurements than one statement can hold, for a profile that exists by now.
    let many: Vec<_> = (0..2500).map(|n| measurement("b", 90, 1 + n)).collect();
    ok(store.add_measurements(&many).await)?;
    let found = ok(store.recent_measurements(&key("bob", "b"), 9999).await)?;
    same("many measurements, in their order", &found[..2500].to_vec(), &many)?;
    same("the newest measurement comes last", &found[2500..].to_vec(), &vec![measurement("b", 101, 2)])
}

/// A profile in which every field differs from the others.
fn profile(key: ProfileKey, rate: f64, at: i64) -> Profile {
    let change = |secs: f64| ChangeCost {
        checkpoint_secs: secs,
        exit_secs: secs / 3.0,
        start_secs: 2.0 * secs,
        warmup_secs: 0.0,
        count: 3,
    };
    let point = |nodes: u32, step_samples| SizePoint {
        nodes,
        rate: rate * f64::from(nodes),
        error: 0.01 / 3.0,
        secs: 60.5,
        step_samples,
        hosts: None,
        spread: infill_model::Spread::Near,
        over_hosts: infill_model::Spread::Near,
        at: UnixTime(at - 1),
    };
    Profile {
        key,
        points: vec![point(1, None), point(4, Some(64.0))],
        costs: MeasuredCosts {
            up: change(18.0),
            down: change(12.5),
            start: change(20.0),
            live_up: change(0.5),
            live_down: change(0.25),
        },
        stops: vec![GenerationStop { job: JobId(7), generation: 3, secs: 2.5, end: StopOutcome::Killed }],
        unfit: vec![1, 2],
        probes: 2,
        probe_secs: 33.3,
        jobs: 5,
        job_name: "train".to_owned(),
        updated_at: UnixTime(at),
    }
}

async fn profiles(store: &dyn Store) -> Result<(), String> {
    let all = |user: &str| ProfileFilter { user: Some(user.to_owned()), ..ProfileFilter::default() };
    ok(store.put_profiles(&[]).await)?;
    same("alice has no profile yet", &ok(store.find_profiles(&all("alice"), 9).await)?, &vec![])?;
    let train = key("alice", "it's \"train\" – ü%_");
    let gpu = ProfileKey { node_type: NodeType::new("gpu:a100:4/cpu64"), ..train.clone() };
    let old = profile(train.clone(), 1.0, 100);
    let new = profile(train.clone(), 1.5, 130);
    let other_type = profile(gpu.clone(), 9.0, 110);
    let other_name = profile(key("alice", "x"), 3.0, 120);
    ok(store.put_profiles(&[old, other_type.clone(), other_name.clone()]).await)?;
    ok(store.put_profiles(std::slice::from_ref(&new)).await)?;
    let newest = vec![new.clone(), other_name.clone(), other_type.clone()];
    same("profiles, the last changed first", &ok(store.find_profiles(&all("alice"), 9).await)?, &newest)?;
    let two = ok(store.find_profiles(&all("alice"), 2).await)?;
    same("profiles with a limit of 2", &two, &newest[..2].to_vec())?;
    same("profiles with a limit of 0", &ok(store.find_profiles(&all("alice"), 0).await)?, &vec![])?;
    let by_name = ProfileFilter { name: Some(train.name.clone()), ..all("alice") };
    let found = ok(store.find_profiles(&by_name, 9).await)?;
    same("profiles by name", &found, &vec![new.clone(), other_type.clone()])?;
    let by_type = ProfileFilter { node_type: Some(gpu.node_type.clone()), ..ProfileFilter::default() };
    same("profiles by node type", &ok(store.find_profiles(&by_type, 9).await)?, &vec![other_type])?;
    let by_plan = ProfileFilter { exec_plan: Some(ExecPlan::default()), ..all("alice") };
    same("profiles by execution plan", &ok(store.find_profiles(&by_plan, 9).await)?, &vec![])?;
    let part = ProfileFilter { name: Some("it".to_owned()), ..ProfileFilter::default() };
    same("a part of a name does not match", &ok(store.find_profiles(&part, 9).await)?, &vec![])?;
    measured_only(store, &all("bob")).await?;
    forgetting(store, &train, &[new, other_name]).await
}

/// Profiles that exist because of their measurements: `measurements` has left two of bob's.
async fn measured_only(store: &dyn Store, bobs: &ProfileFilter) -> Result<(), String> {
    let empty = |name, at| Profile { updated_at: UnixTime(at), ..Profile::new(key("bob", name)) };
    let expected = vec![empty("a", 102), empty("b", 101)];
    same("profiles without points are listed", &ok(store.find_profiles(bobs, 9).await)?, &expected)?;
    let learned = profile(key("bob", "a"), 2.0, 140);
    ok(store.put_profiles(std::slice::from_ref(&learned)).await)?;
    same("a profile gets points", &ok(store.find_profiles(bobs, 1).await)?, &vec![learned.clone()])?;
    same("its measurements stay", &ok(store.recent_measurements(&learned.key, 9).await)?.len(), &3)?;
    ok(store.add_measurements(&[measurement("a", 103, 2)]).await)?;
    same("measurements don't change a profile", &ok(store.find_profiles(bobs, 1).await)?, &vec![learned])
}

async fn forgetting(store: &dyn Store, key: &ProfileKey, left: &[Profile]) -> Result<(), String> {
    let measured = |key: &ProfileKey| Measurement { key: key.clone(), ..measurement("", 150, 1) };
    ok(store.add_measurements(&[measured(key), measured(&left[1].key)]).await)?;
    let one = ProfileFilter {
        user: Some(key.user.clone()),
        name: Some(key.name.clone()),
        node_type: Some(NodeType::new("gpu:a100:4/cpu64")),
        exec_plan: None,
    };
    same("one profile is forgotten", &ok(store.forget_profiles(&one).await)?, &1)?;
    same("a forgotten profile is gone", &ok(store.forget_profiles(&one).await)?, &0)?;
    same("other measurements stay", &ok(store.recent_measurements(key, 9).await)?.len(), &1)?;
    let all = ProfileFilter { user: Some(key.user.clone()), ..ProfileFilter::default() };
    same("other profiles stay", &ok(store.find_profiles(&all, 9).await)?, &left.to_vec())?;
    same("all of a user's profiles are forgotten", &ok(store.forget_profiles(&all).await)?, &2)?;
    for key in [key, &left[1].key] {
        same("measurements are forgotten", &ok(store.recent_measurements(key, 9).await)?, &vec![])?;
    }
    Ok(())
}

async fn settings(store: &dyn Store) -> Result<(), String> {
    same("the store leads alone", &ok(store.lead_standing().await)?, &LeadStanding::Alone)?;
    same("a setting that was never written", &ok(store.get_setting("control").await)?, &None)?;
    ok(store.put_setting("control", "paused").await)?;
    ok(store.put_setting("control", "normal").await)?;
    same("the last setting", &ok(store.get_setting("control").await)?, &Some("normal".to_owned()))?;
    // Agents may send anything in a name. One user's name must not block the records of the others.
    let odd = Measurement { key: key("bob", "a\0b"), ..measurement("", 10, 1) };
    ok(store.add_measurements(std::slice::from_ref(&odd)).await)?;
    same("a name with a zero byte", &ok(store.recent_measurements(&odd.key, 9).await)?.len(), &1)?;
    let by_name = ProfileFilter { name: Some(odd.key.name.clone()), ..ProfileFilter::default() };
    same("a name with a zero byte is forgotten", &ok(store.forget_profiles(&by_name).await)?, &1)
}

/// Prunes what the earlier tests have left. Records older than 102 are deleted. Open leads stay, and so do
/// bob's profile `a`, which was updated at 140, the jobs that ended from 101 on, and all hours but the first.
/// Bob's profile `b` is deleted.
async fn prune(store: &dyn Store) -> Result<(), String> {
    ok(store.put_leads(&[lead(20, 10, true), lead(21, 10, false)]).await)?;
    let rows = ok(prune_before(store, 102, 140, 101).await)?;
    same("rows deleted", &rows, &(3 + 1 + 1 + 2 + 2503 + 1 + 2503 + 1))?;
    same("a round stays", &ok(rounds_until(store, None, 9).await)?, &summaries(&[round(102)]))?;
    same("a gap stays", &ok(store.recent_gaps(9).await)?, &vec![gap(102)])?;
    same("generations stay", &ok(store.list_generations(JobId(7)).await)?.len(), &2)?;
    let old = ok(store.open_leads().await)?.into_iter().find(|l| l.job == JobId(21));
    same("an old open lead stays", &old, &Some(lead(21, 10, false)))?;
    let all = ProfileFilter::default();
    same("a profile stays", &ok(store.find_profiles(&all, 9).await)?.len(), &1)?;
    same("newer measurements stay", &ok(store.recent_measurements(&key("bob", "a"), 9).await)?.len(), &2)?;
    let jobs: Vec<i64> = ok(store.recent_ended_jobs(9).await)?.iter().map(|j| j.ended_at.0).collect();
    same("ended jobs stay", &jobs, &vec![101, 102, 102])?;
    let hours = ok(store.hours_between(UnixTime(0), UnixTime(i64::MAX), 9).await)?;
    let sums = ok(store.usage_by_hour(UnixTime(0), UnixTime(i64::MAX), 9).await)?;
    same("sums of hours are kept", &sums.len(), &3)?;
    same("hours stay", &hours.iter().map(|h| h.from.0).collect::<Vec<_>>(), &vec![7200, 10_800])?;
    same("nothing is left to delete", &ok(prune_before(store, 102, 140, 101).await)?, &0)?;
    ok(store.add_measurements(&[measurement("a", 145, 2)]).await)?;
    same("a profile measured since then stays", &ok(prune_before(store, 102, 141, 101).await)?, &0)?;
    let rows = ok(prune_before(store, 146, 146, 146).await)?;
    same("everything is old", &rows, &(1 + 1 + 1 + 1 + 3 + 1 + 3))?;
    same("no ended job is left", &ok(store.recent_ended_jobs(9).await)?, &vec![])?;
    same("no profile is left", &ok(store.find_profiles(&all, 9).await)?, &vec![])
}

async fn prune_before(store: &dyn Store, rounds: i64, profiles: i64, ended: i64) -> Result<u64, StoreError> {
    let [rounds, profiles, ended, hours] = [rounds, profiles, ended, 3601].map(UnixTime);
    store.prune_history(&RetentionLimits { rounds, profiles, ended, hours, ..RetentionLimits::all() }).await
}
