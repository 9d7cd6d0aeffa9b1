//! The conformance suite on SQLite, and what only a file can suffer.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn url(dir: &tempfile::TempDir) -> String {
    format!("sqlite:{}", dir.path().join("deep/infill.db").display())
}

#[tokio::test]
async fn sqlite_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(open(&url(&dir)).await.unwrap().as_ref()).await;
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_crash_and_nobody_else_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&url(&dir)).await.unwrap();
    store.put_setting("control", "paused").await.unwrap();
    let first = store.next_orders(5).await.unwrap();
    // A killed daemon closes nothing.
    std::mem::forget(store);
    let again = open(&url(&dir)).await.unwrap();
    assert_eq!(again.setting("control").await.unwrap().as_deref(), Some("paused"));
    assert_eq!(again.next_orders(1).await.unwrap(), first + 5);
    let mode = std::fs::metadata(dir.path().join("deep/infill.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_reading_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = sqlite::SqliteStore::open(&url(&dir)).await.unwrap();
    store.put_setting("small", "x").await.unwrap();
    store.limit_pages().await;
    let big = "x".repeat(1 << 20);
    let e = store.put_setting("big", &big).await.unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    assert_eq!(store.setting("small").await.unwrap().as_deref(), Some("x"));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_left_out_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = sqlite::SqliteStore::open(&url(&dir)).await.unwrap();
    store
        .spoil("INSERT INTO lead VALUES (1, 1, 1, 0, 'no JSON'), (2, 1, 1, 0, '{}'), (-3, 1, 1, 0, '{}')")
        .await;
    let jobs: Vec<u32> = store.open_leads().await.unwrap().iter().map(|l| l.job.0).collect();
    assert_eq!(jobs, [2]);
}

#[tokio::test]
async fn an_unknown_database_is_refused_with_what_was_expected() {
    let e = open("mysql://x").await.err().unwrap().to_string();
    assert!(e.contains("mysql://x") && e.contains("sqlite:"), "{e}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db");
    std::fs::write(&path, "this is no database, and long enough that nobody could take it for one").unwrap();
    assert!(open(&format!("sqlite:{}", path.display())).await.is_err());
}
