//! Measures how large the store gets, and how long its frequent questions take: `cargo bench --bench store`.
//!
//! A million measurements of two thousand profiles are written as the daemon writes them. The bench uses
//! SQLite and a PostgreSQL server that it starts. Goals: at most 200 MB, and at most 50 ms for each question.

#[path = "../tests/it/harness/postgres.rs"]
mod postgres;

use std::time::{Duration, Instant};

use infill_model::{
    BatchMode, ChangeCost, ExecPlan, JobId, MeasuredCosts, NodeType, Profile, ProfileFilter, ProfileKey,
    SizePoint, UnixTime,
};
use infill_store as store;
use infill_store::{Measurement, RetentionLimits, Store, StoreError};

const PROFILES: u32 = 2_000;
const MEASUREMENTS: u32 = 1_000_000;

/// Number of measurements in one call, as in some seconds of a busy site.
const BATCH: u32 = 500;

/// Number of times that each question is asked. The median counts.
const ASKED: usize = 21;

fn key(number: u32) -> ProfileKey {
    ProfileKey {
        user: format!("user{:03}", number % 200),
        // As long as the hash of a command.
        name: format!("{number:032x}"),
        node_type: NodeType::new("gpu:a100:4/cpu64/mem512"),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

/// A profile with measurements at eight sizes.
fn profile(number: u32) -> Profile {
    let cost =
        ChangeCost { checkpoint_secs: 3.21, exit_secs: 1.05, start_secs: 14.32, warmup_secs: 2.5, count: 7 };
    let at = UnixTime(1_700_000_000 + i64::from(number));
    let point = |nodes: u32| SizePoint {
        nodes,
        rate: 410.37 * f64::from(nodes).powf(0.9),
        error: 0.0123,
        secs: 613.5,
        step_samples: Some(256.0),
        hosts: None,
        spread: infill_model::Spread::Near,
        over_hosts: infill_model::Spread::Near,
        at,
    };
    Profile {
        points: (0..8).map(|n| point(1 << n)).collect(),
        costs: MeasuredCosts { up: cost, down: cost, start: cost, live_up: cost, live_down: cost },
        probes: 5,
        probe_secs: 212.3,
        jobs: 12,
        updated_at: at,
        ..Profile::new(key(number))
    }
}

fn measurement(number: u32) -> Measurement {
    Measurement {
        // Ten measurements of one job, then ten of the next, as jobs that run at the same time report them.
        key: key((number / 10).wrapping_mul(7919) % PROFILES),
        job: JobId(1_000_000 + number / 500),
        nodes: 1 + number % 64,
        samples: 12_345.678 + f64::from(number),
        secs: 10.037,
        probe: number.is_multiple_of(50),
        at: UnixTime(1_700_000_000 + i64::from(number / 10)),
    }
}

async fn fill(store: &dyn Store) -> Result<(), StoreError> {
    let profiles: Vec<_> = (0..PROFILES).map(profile).collect();
    store.put_profiles(&profiles).await?;
    for first in (0..MEASUREMENTS).step_by(BATCH as usize) {
        let batch: Vec<_> = (first..first + BATCH).map(measurement).collect();
        store.add_measurements(&batch).await?;
    }
    Ok(())
}

/// Asks a question many times and prints the median time.
async fn ask(title: &str, question: impl AsyncFn() -> Result<usize, StoreError>) -> Result<(), StoreError> {
    let mut times = Vec::new();
    let mut rows = 0;
    for _ in 0..ASKED {
        let started = Instant::now();
        rows = question().await?;
        times.push(started.elapsed());
    }
    times.sort();
    println!("  {title}: {} rows in {}", rows, millis(times[ASKED / 2]));
    Ok(())
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

async fn measure(store: &dyn Store) -> Result<(), StoreError> {
    let started = Instant::now();
    fill(store).await?;
    let secs = started.elapsed().as_secs_f64();
    println!("  filled in {secs:.0} s: {} for each {BATCH} measurements", {
        millis(started.elapsed() / (MEASUREMENTS / BATCH))
    });
    let all = ProfileFilter::default();
    ask("the 100 profiles that changed last", async || Ok(store.find_profiles(&all, 100).await?.len()))
        .await?;
    ask("all profiles", async || Ok(store.find_profiles(&all, PROFILES).await?.len())).await?;
    let ProfileKey { user, name, .. } = key(1234);
    let job = ProfileFilter { user: Some(user), name: Some(name), ..ProfileFilter::default() };
    ask("the profiles of a job", async || Ok(store.find_profiles(&job, 100).await?.len())).await?;
    ask("its newest 100 measurements", async || Ok(store.recent_measurements(&key(1234), 100).await?.len()))
        .await?;
    let started = Instant::now();
    let rounds = UnixTime(1_700_000_000 + 5_000);
    let never = UnixTime(0);
    let [profiles, ended, hours, users] = [never; 4];
    let kept = RetentionLimits { rounds, profiles, ended, hours, users, profiles_a_user: u32::MAX };
    let rows = store.prune_history(&kept).await?;
    println!("  {rows} old rows deleted in {}", millis(started.elapsed()));
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

async fn sqlite() -> anyhow::Result<()> {
    println!("SQLite");
    let dir = tempfile::TempDir::new()?;
    let file = dir.path().join("infill.db");
    let store = store::open_store(&format!("sqlite:{}", file.display()), || ()).await?;
    measure(store.as_ref()).await?;
    let log = std::fs::metadata(dir.path().join("infill.db-wal"))?.len();
    println!("  {}, and {} of log", megabytes(std::fs::metadata(&file)?.len()), megabytes(log));
    Ok(())
}

async fn postgresql() -> anyhow::Result<()> {
    println!("PostgreSQL");
    let dir = tempfile::TempDir::new()?;
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let place = dir.path().join("pg");
    let server = postgres::Postgres::start(&place);
    let store = store::open_store(&server.url(&place.display().to_string()), || ()).await?;
    measure(store.as_ref()).await?;
    let bytes = server.ask("SELECT pg_database_size(current_database())").parse()?;
    println!("  {}", megabytes(bytes));
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("{MEASUREMENTS} measurements of {PROFILES} profiles");
    sqlite().await?;
    postgresql().await
}
