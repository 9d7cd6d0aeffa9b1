//! Tests of what only PostgreSQL has: connections, passwords, a server that crashes and comes back, and which
//! daemon leads. The conformance suite has the rest. Each test starts its own server.

#[path = "../../../../tests/it/harness/postgres.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use tempfile::TempDir;

use self::server::Postgres;
use super::{SqlStore, open};
use crate::{LeadStanding, Store, StoreError, conformance, schema, upgrades};

/// Ends the leader's session, as the network or an administrator might.
const END_LEADER: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted";

struct Site {
    dir: TempDir,
    server: Postgres,
}

impl Site {
    fn new() -> Site {
        let dir = TempDir::new().unwrap();
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open_to_all).unwrap();
        let server = Postgres::start(&dir.path().join("pg"));
        Site { dir, server }
    }

    fn url(&self) -> String {
        self.server.url(&self.dir.path().join("pg").display().to_string())
    }

    async fn open(&self) -> SqlStore {
        open(&self.url(), || panic!("another process leads")).await.unwrap()
    }

    /// Opens the store a second time, and returns once that stands by.
    async fn stand_by(&self) -> tokio::task::JoinHandle<SqlStore> {
        let url = self.url();
        let stands_by = Arc::new(AtomicBool::new(false));
        let reported = stands_by.clone();
        let waiting = tokio::spawn(async move {
            open(&url, move || reported.store(true, Ordering::Relaxed)).await.unwrap()
        });
        until("it stands by", async || stands_by.load(Ordering::Relaxed)).await;
        waiting
    }
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition().await {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn postgres_conforms() {
    let site = Site::new();
    let version = crate::postgres_version(&site.url()).await.unwrap();
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    conformance::run(Arc::new(site.open().await)).await.unwrap();
}

#[tokio::test]
async fn a_store_of_every_version_opens_with_every_row() {
    let site = Site::new();
    for (number, old) in (1..).zip(upgrades::old_stores(&schema::POSTGRES)) {
        site.server.ask(&format!("CREATE DATABASE version_{number}"));
        let url = site.url().replace("///postgres?", &format!("///version_{number}?"));
        let mut session = PgConnection::connect(&url).await.unwrap();
        schema::build_migrator(old.versions()).run_direct(None, &mut session, false).await.unwrap();
        for statement in old.statements() {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut session).await.unwrap();
        }
        session.close().await.unwrap();
        old.check(&open(&url, || panic!("another process leads")).await.unwrap()).await;
    }
}

#[tokio::test]
async fn errors_never_show_a_password() {
    for url in
        ["postgres://u:geheim@h:99999/db", "postgres://u:geheim@/db?host=/no/such/dir", "postgres:u:geheim"]
    {
        let e = crate::open_store(url, || ()).await.err().unwrap();
        assert!(!e.to_string().contains("geheim") && !format!("{e:?}").contains("geheim"), "{e:?}");
    }
}

#[tokio::test]
async fn one_leads_and_the_other_takes_over_when_it_is_gone() {
    let site = Site::new();
    let first = site.open().await;
    assert_eq!(first.lead_standing().await.unwrap(), LeadStanding::Alone);
    let order = first.next_wing_numbers(10, 0).await.unwrap();
    let waiting = site.stand_by().await;
    until("the leader sees it", async || first.lead_standing().await.unwrap() == LeadStanding::Watched).await;
    assert!(!waiting.is_finished());
    drop(first);
    let second = tokio::time::timeout(Duration::from_secs(2), waiting).await.unwrap().unwrap();
    assert_eq!(second.next_wing_numbers(1, 0).await.unwrap(), order + 10);
    assert_eq!(second.lead_standing().await.unwrap(), LeadStanding::Alone);
}

#[tokio::test]
async fn a_deposed_leader_writes_nothing_more() {
    let site = Site::new();
    let first = site.open().await;
    let waiting = site.stand_by().await;
    site.server.ask(END_LEADER);
    let second = waiting.await.unwrap();
    second.put_setting("control", "new").await.unwrap();
    let e = first.put_setting("control", "old").await.unwrap_err();
    assert!(matches!(e, StoreError::Deposed { .. }), "{e}");
    assert!(matches!(first.next_wing_numbers(1, 0).await.unwrap_err(), StoreError::Deposed { .. }));
    until("it knows", async || {
        matches!(first.lead_standing().await.unwrap_err(), StoreError::Deposed { .. })
    })
    .await;
    assert_eq!(second.get_setting("control").await.unwrap().as_deref(), Some("new"));
}

#[tokio::test]
async fn a_leader_that_falls_silent_is_deposed() {
    let site = Site::new();
    let first = site.open().await;
    let waiting = site.stand_by().await;
    // The first store makes no more checks, like a process that was stopped.
    let second = tokio::time::timeout(Duration::from_secs(9), waiting).await.unwrap().unwrap();
    second.put_setting("a", "b").await.unwrap();
    assert!(matches!(first.put_setting("a", "c").await.unwrap_err(), StoreError::Deposed { .. }));
}

#[tokio::test]
async fn takeover_waits_for_a_running_transaction() {
    let site = Site::new();
    let first = site.open().await;
    let mut late = first.begin("testing").await.unwrap();
    let waiting = site.stand_by().await;
    site.server.ask(END_LEADER);
    until("the lock has changed hands", async || {
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        site.server.ask(held) == "0"
    })
    .await;
    assert!(!waiting.is_finished(), "it leads while a transaction of the last leader may still be committed");
    let insert = "INSERT INTO settings (name, content) VALUES ('late', 'yes')";
    sqlx::query(insert).execute(&mut *late).await.unwrap();
    first.end(late, Ok(()), "testing").await.unwrap();
    let second = waiting.await.unwrap();
    assert_eq!(second.get_setting("late").await.unwrap().as_deref(), Some("yes"));
}

#[tokio::test]
async fn a_server_that_comes_back_finds_its_leader_again() {
    let mut site = Site::new();
    let store = site.open().await;
    store.put_setting("a", "b").await.unwrap();
    site.server.crash();
    let e = store.lead_standing().await.unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    let e = store.put_setting("a", "c").await.unwrap_err();
    assert!(e.is_transient(), "{e}");
    site.server.revive();
    assert_eq!(store.lead_standing().await.unwrap(), LeadStanding::Alone);
    assert_eq!(store.get_setting("a").await.unwrap().as_deref(), Some("b"));
    store.put_setting("a", "d").await.unwrap();
}

#[tokio::test]
async fn databases_that_are_not_infills_are_refused() {
    let site = Site::new();
    drop(site.open().await);
    site.server.ask(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'x', TRUE, '', 0)",
    );
    let e = open(&site.url(), || ()).await.err().unwrap();
    assert!(matches!(&e, StoreError::Corrupt { what, .. } if what.contains("newer infill")), "{e}");
    site.server.ask("DROP TABLE _sqlx_migrations");
    let e = open(&site.url(), || ()).await.err().unwrap();
    assert!(matches!(&e, StoreError::Corrupt { what, .. } if what.contains("already exists")), "{e}");
}
