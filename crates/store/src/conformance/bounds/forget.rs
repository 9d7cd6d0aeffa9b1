//! A user is forgotten on request, and others are not.

use super::super::samples::ended_job;
use super::super::{key, measurement, ok, profile, same};
use super::spent;
use crate::port::{ForgottenRows, Measurement, Store, UserToForget};
use infill_model::{EndedJob, GenerationRecord, JobId, LeadRecord, ProfileFilter, UnixTime, UserId};

/// Later than all that the earlier tests have left.
const LATE: i64 = 900_000_000;

/// An hour that still runs.
const PRESENT: i64 = LATE + 7200;

const CARA: UserId = UserId(7001);
const DAN: UserId = UserId(7002);

fn lead(job: u32, submitted: i64, user: UserId, ended: bool) -> LeadRecord {
    LeadRecord {
        job: JobId(job),
        submitted_at: UnixTime(submitted),
        user_id: Some(user),
        updated_at: UnixTime(submitted + 10),
        ended,
        state: serde_json::json!({}),
    }
}

fn generation(job: u32, started: i64) -> GenerationRecord {
    let started_at = UnixTime(started);
    GenerationRecord { job: JobId(job), generation: 1, started_at, nodes: Vec::new(), why: String::new() }
}

/// Rows of two users, in every table that names users.
async fn fill(store: &dyn Store) -> Result<(), String> {
    let profiles = ["cara", "dan"].map(|user| profile(key(user, "bert"), 1.0, LATE));
    ok(store.put_profiles(&profiles).await)?;
    let measured = Measurement { key: key("cara", "bert"), ..measurement("", LATE, 2) };
    ok(store.add_measurements(std::slice::from_ref(&measured)).await)?;
    let jobs = [(9001, "cara"), (9002, "cara"), (9003, "dan")]
        .map(|(job, user)| EndedJob { user: user.to_owned(), ..ended_job(job, LATE, LATE + 60) });
    ok(store.add_ended_jobs(&jobs).await)?;
    let rows = [
        spent(LATE, "c", "cara", 1.0),
        spent(LATE, "c", "dan", 2.0),
        spent(LATE, "c", "", 4.0),
        spent(PRESENT, "c", "cara", 8.0),
    ];
    ok(store.put_node_time(&rows).await)?;
    // The number of cara's ended job was used again by dan.
    let leads =
        [lead(9001, LATE, CARA, true), lead(9001, LATE + 1000, DAN, true), lead(9004, LATE, CARA, false)];
    ok(store.put_leads(&leads).await)?;
    let generations = [(9001, LATE + 5), (9001, LATE + 1005), (9004, LATE)];
    let generations = generations.map(|(job, started)| generation(job, started));
    ok(store.add_generations(&generations).await)
}

/// Everything that names the user goes, all sums stay, and so does all that others have.
pub(super) async fn forget_user(store: &dyn Store) -> Result<(), String> {
    fill(store).await?;
    let hours = async || ok(store.node_time_by_hour(UnixTime(LATE), UnixTime(i64::MAX), 9).await);
    let before = hours().await?;
    let cara = UserToForget { name: "cara".to_owned(), uid: Some(CARA), before: UnixTime(PRESENT) };
    let gone = UserToForget { uid: None, ..cara.clone() };
    let expected = ForgottenRows { profiles: 1, ended_jobs: 2, node_time: 1, leads: 0, kept_node_time: 1 };
    same("without an account", &ok(store.forget_user(&gone).await)?, &expected)?;
    let leads = ForgottenRows { leads: 1, kept_node_time: 1, ..ForgottenRows::default() };
    same("the ended lead", &ok(store.forget_user(&cara).await)?, &leads)?;
    same("hours add up as before", &hours().await?, &before)?;
    let node_time = ok(store.sum_node_time(UnixTime(LATE), UnixTime(PRESENT)).await)?;
    let left = vec![spent(LATE, "c", "", 5.0), spent(LATE, "c", "dan", 2.0)];
    same("the name is gone from past hours", &node_time, &left)?;
    let all = ProfileFilter::default();
    let owners: Vec<String> =
        ok(store.find_profiles(&all, 99).await)?.into_iter().map(|p| p.key.user).collect();
    same(
        "dan's profile stays",
        &(owners.contains(&"dan".to_owned()), owners.contains(&"cara".to_owned())),
        &(true, false),
    )?;
    let ended = ok(store.recent_ended_jobs(99).await)?;
    same("cara's ended jobs", &ended.iter().filter(|job| job.user == "cara").count(), &0)?;
    same("dan's ended job", &ended.iter().filter(|job| job.user == "dan").count(), &1)?;
    let starts: Vec<i64> =
        ok(store.list_generations(JobId(9001)).await)?.iter().map(|g| g.started_at.0).collect();
    same("only dan's generation has this number", &starts, &vec![LATE + 1005])?;
    same("a job that runs keeps its record", &ok(store.list_generations(JobId(9004)).await)?.len(), &1)?;
    let open = ok(store.open_leads().await)?;
    same("the open lead", &open.iter().filter(|lead| lead.user_id == Some(CARA)).count(), &1)
}
