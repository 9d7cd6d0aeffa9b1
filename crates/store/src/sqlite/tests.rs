//! Tests of what only SQLite has: files, modes, crashes, full disks, damaged rows. The conformance suite has
//! the rest.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use super::{SqlStore, open};
use crate::{Measurement, RoundRecord, RoundsFilter, Store, StoreError, conformance, schema, upgrades};
use infill_model::{
    BatchMode, EndedJob, ExecPlan, JobId, LeadRecord, NodeType, Plan, Profile, ProfileFilter, ProfileKey,
    RoundReport, SolveStatus, UnixTime,
};
use infill_testkit::ended_job;

/// The URL of the store in `dir`.
fn url_in(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("state/infill.db").display())
}

async fn open_in(dir: &Path) -> SqlStore {
    open(&url_in(dir)).await.unwrap()
}

fn lead(job: u32, state: serde_json::Value) -> LeadRecord {
    let at = UnixTime(1000);
    LeadRecord { job: JobId(job), submitted_at: at, user_id: None, updated_at: at, ended: false, state }
}

fn key(name: &str) -> ProfileKey {
    ProfileKey {
        user: "alice".to_owned(),
        name: name.to_owned(),
        node_type: NodeType::new("cpu2"),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

fn measurement(name: &str, at: i64) -> Measurement {
    let key = key(name);
    let job = JobId(1);
    let at = UnixTime(at);
    Measurement { key, job, nodes: 1, samples: 1.0, secs: 1.0, probe: false, at }
}

fn ended(job: u32) -> EndedJob {
    ended_job(JobId(job), UnixTime(i64::from(job)))
}

#[tokio::test]
async fn a_file_conforms() {
    let dir = TempDir::new().unwrap();
    conformance::run(Arc::new(open_in(dir.path()).await)).await.unwrap();
}

#[tokio::test]
async fn memory_conforms() {
    conformance::run(crate::open_store("sqlite::memory:", || ()).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_store_of_every_version_opens_with_every_row() {
    for old in upgrades::old_stores(&schema::SQLITE) {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let options = SqliteConnectOptions::from_str(&url_in(dir.path())).unwrap().create_if_missing(true);
        let mut file = options.connect().await.unwrap();
        schema::build_migrator(old.versions()).run(&mut file).await.unwrap();
        for statement in old.statements() {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut file).await.unwrap();
        }
        file.close().await.unwrap();
        old.check(&open_in(dir.path()).await).await;
    }
}

#[tokio::test]
async fn only_the_last_twenty_thousand_rounds_are_kept() {
    let store = open("sqlite::memory:").await.unwrap();
    let add = async |at: i64| {
        let at = UnixTime(at);
        let status = SolveStatus::Trivial;
        let plan = Plan { at, jobs: Vec::new(), status, proof: None, objective: 0.0, steps: Vec::new() };
        store
            .add_round(&RoundRecord { at, plan, report: RoundReport::default(), acted: true })
            .await
            .unwrap();
    };
    let kept = async || {
        let rounds = store.list_rounds(&RoundsFilter { until: None, limit: 9 }).await.unwrap();
        rounds.iter().map(|round| round.at.0).collect::<Vec<i64>>()
    };
    add(101).await;
    add(102).await;
    // The id jumps, as if the rounds between had been added.
    let later = "INSERT INTO rounds SELECT 19999, 103, plan, report, acted FROM rounds WHERE id = 1";
    sqlx::query(later).execute(&store.writer).await.unwrap();
    add(104).await;
    assert_eq!(kept().await, [104, 103, 102, 101], "there is still room for the first");
    add(105).await;
    assert_eq!(kept().await, [105, 104, 103, 102]);
}

#[tokio::test]
async fn only_the_owner_may_read_the_file() {
    let dir = TempDir::new().unwrap();
    let store = open_in(dir.path()).await;
    store.put_setting("a", "b").await.unwrap();
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("state") & 0o007, 0);
    for file in ["infill.db", "infill.db-wal", "infill.db-shm"] {
        assert_eq!(mode(&format!("state/{file}")), 0o600, "{file}");
    }
}

#[tokio::test]
async fn what_was_written_survives_a_crash() {
    let dir = TempDir::new().unwrap();
    let copy = TempDir::new().unwrap();
    let store = open_in(dir.path()).await;
    let order = store.next_wing_numbers(5, 0).await.unwrap();
    store.put_leads(&[lead(1, serde_json::json!({"a": [1, 2]}))]).await.unwrap();
    // A killed process leaves the files as they are, with nothing closed.
    std::fs::create_dir(copy.path().join("state")).unwrap();
    for file in ["infill.db", "infill.db-wal"] {
        let name = format!("state/{file}");
        std::fs::copy(dir.path().join(&name), copy.path().join(&name)).unwrap();
    }
    let revived = open_in(copy.path()).await;
    assert_eq!(revived.open_leads().await.unwrap(), [lead(1, serde_json::json!({"a": [1, 2]}))]);
    assert_eq!(revived.next_wing_numbers(1, 0).await.unwrap(), order + 5);
}

#[tokio::test]
async fn a_second_daemon_is_refused_while_the_first_lives() {
    let dir = TempDir::new().unwrap();
    let first = open_in(dir.path()).await;
    let e = crate::open_store(&url_in(dir.path()), || ()).await.err().unwrap();
    assert!(e.to_string().contains("another daemon uses"), "{e}");
    assert_eq!(first.lead_standing().await.unwrap(), crate::LeadStanding::Alone);
    drop(first);
    open_in(dir.path()).await;
}

#[tokio::test]
async fn a_full_disk_stops_writing_but_not_reading() {
    let dir = TempDir::new().unwrap();
    let store = open_in(dir.path()).await;
    store.put_leads(&[lead(1, serde_json::json!({}))]).await.unwrap();
    let writer = &store.writer;
    // SQLite raises the limit to the present size, so the next new page does not fit.
    sqlx::query("PRAGMA max_page_count = 1").execute(writer).await.unwrap();
    let big = lead(2, serde_json::json!("x".repeat(1_000_000)));
    let e = store.put_leads(std::slice::from_ref(&big)).await.unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    assert!(e.to_string().contains("full"), "{e}");
    assert_eq!(store.open_leads().await.unwrap().len(), 1);
    sqlx::query("PRAGMA max_page_count = 1000000").execute(writer).await.unwrap();
    store.put_leads(&[big]).await.unwrap();
    assert_eq!(store.open_leads().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_locked_file_is_unavailable_and_comes_back() {
    let dir = TempDir::new().unwrap();
    let store = open_in(dir.path()).await;
    let writer = &store.writer;
    sqlx::query("PRAGMA busy_timeout = 50").execute(writer).await.unwrap();
    // Another program has the file open and locked.
    let mut other = sqlx::SqliteConnection::connect(&url_in(dir.path())).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let e = store.put_setting("a", "b").await.unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    assert_eq!(store.get_setting("a").await.unwrap(), None);
    sqlx::query("COMMIT").execute(&mut other).await.unwrap();
    store.put_setting("a", "b").await.unwrap();
}

#[tokio::test]
async fn a_call_that_was_given_up_halfway_does_not_block_the_next() {
    let store = open("sqlite::memory:").await.unwrap();
    let mut given_up = store.begin("testing").await.unwrap();
    let half = "INSERT INTO settings (name, content) VALUES ('a', 'half')";
    sqlx::query(half).execute(&mut *given_up).await.unwrap();
    drop(given_up);
    store.put_setting("b", "whole").await.unwrap();
    assert_eq!(store.get_setting("a").await.unwrap(), None);
    assert_eq!(store.get_setting("b").await.unwrap().as_deref(), Some("whole"));
}

#[tokio::test]
async fn a_damaged_row_is_skipped_and_kept() {
    let dir = TempDir::new().unwrap();
    let store = open_in(dir.path()).await;
    store.put_leads(&[lead(1, serde_json::json!({})), lead(2, serde_json::json!({}))]).await.unwrap();
    store.add_measurements(&[measurement("s", 1), measurement("s", 2)]).await.unwrap();
    let writer = &store.writer;
    sqlx::query("UPDATE leads SET state = '{' WHERE job = 1").execute(writer).await.unwrap();
    sqlx::query("UPDATE measurements SET nodes = -4 WHERE measured_at = 1").execute(writer).await.unwrap();
    store.add_ended_jobs(&[ended(1), ended(2), ended(3)]).await.unwrap();
    sqlx::query("UPDATE ended_jobs SET max_nodes = -4 WHERE job = 1").execute(writer).await.unwrap();
    sqlx::query("UPDATE ended_jobs SET secs = 'long' WHERE job = 3").execute(writer).await.unwrap();
    assert_eq!(store.recent_ended_jobs(10).await.unwrap(), [ended(2)]);
    let leads = store.open_leads().await.unwrap();
    assert_eq!(leads.iter().map(|l| l.job.0).collect::<Vec<_>>(), [2]);
    assert_eq!(store.recent_measurements(&key("s"), 10).await.unwrap(), [measurement("s", 2)]);
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM leads").fetch_one(writer).await.unwrap();
    assert_eq!(kept, 2);
}

#[tokio::test]
async fn files_that_are_not_infills_are_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("x.db");
    std::fs::write(&file, "this is not a database, but a text of some length".repeat(50)).unwrap();
    let e = open(&format!("sqlite:{}", file.display())).await.err().unwrap();
    assert!(matches!(e, StoreError::Corrupt { .. }), "{e}");
    let store = open_in(dir.path()).await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'x', TRUE, x'00', 0)";
    sqlx::query(newer).execute(&store.writer).await.unwrap();
    drop(store);
    let e = open(&url_in(dir.path())).await.err().unwrap();
    assert!(matches!(&e, StoreError::Corrupt { what, .. } if what.contains("newer infill")), "{e}");
    let e = open("sqlite:/proc/no/such/infill.db").await.err().unwrap();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
}

/// SQLite's query plan for a statement.
async fn plan(store: &SqlStore, statement: &'static str) -> Vec<String> {
    let rows: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
            .fetch_all(&store.writer)
            .await
            .unwrap();
    rows.into_iter().map(|(_, _, _, detail)| detail).collect()
}

#[tokio::test]
async fn indexes_find_rounds_ended_jobs_profiles_and_their_measurements() {
    let store = open("sqlite::memory:").await.unwrap();
    let many: Vec<Measurement> = (0..20_000).map(|n| measurement(&format!("s{}", n % 100), n)).collect();
    store.add_measurements(&many).await.unwrap();
    assert_eq!(store.recent_measurements(&key("s7"), 5).await.unwrap().last().unwrap().at, UnixTime(19_907));
    let by_name = ProfileFilter { name: Some("s7".to_owned()), ..ProfileFilter::default() };
    let listed = store.find_profiles(&by_name, 5).await.unwrap();
    assert_eq!(listed, [Profile { updated_at: UnixTime(7), ..Profile::new(key("s7")) }]);
    let newest = "SELECT * FROM measurements WHERE profile = 7 ORDER BY measured_at DESC, id DESC LIMIT 5";
    assert_eq!(
        plan(&store, newest).await,
        ["SEARCH measurements USING INDEX measurements_by_profile (profile=?)"]
    );
    let last = "SELECT * FROM profiles WHERE TRUE ORDER BY updated_at DESC, id DESC LIMIT 5";
    assert_eq!(plan(&store, last).await, ["SCAN profiles USING INDEX profiles_by_time"]);
    let rounds = "SELECT id FROM rounds WHERE planned_at <= 7 ORDER BY planned_at DESC, id DESC LIMIT 5";
    assert_eq!(
        plan(&store, rounds).await,
        ["SEARCH rounds USING COVERING INDEX rounds_by_time (planned_at<?)"]
    );
    let ended = "SELECT * FROM ended_jobs ORDER BY ended_at DESC, job DESC, submitted_at DESC LIMIT 5";
    assert_eq!(plan(&store, ended).await, ["SCAN ended_jobs USING INDEX ended_jobs_by_end"]);
    let by_name = plan(&store, "SELECT * FROM profiles WHERE TRUE AND owner = 'a' AND name = 's7'").await;
    assert!(by_name[0].ends_with("(owner=? AND name=?)"), "{by_name:?}");
}

#[tokio::test]
async fn an_unknown_kind_of_database_is_refused_without_showing_the_password() {
    let e = crate::open_store("mysql://user:geheim@host/db", || ()).await.err().unwrap();
    let text = e.to_string();
    assert!(matches!(e, StoreError::Unsupported { .. }), "{e}");
    assert!(text.contains("mysql") && text.contains("sqlite:") && !text.contains("geheim"), "{text}");
}
