//! Opens the file: who may read it, how it is written, and which schema it has.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::SqlStore;
use super::failure::classify_error;
use super::lock::FileLock;
use crate::port::StoreError;
use crate::schema;

/// Longest wait for a lock that another process holds (a backup, a curious administrator).
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for a free connection. After that the disk counts as hung, and the round goes on without the
/// store.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Readers for the API and the round. More would only cost memory.
const MAX_READERS: u32 = 3;

/// Opens or creates the database of a `sqlite:` URL, keeps other daemons off it, and brings its schema up to
/// date.
pub(crate) async fn open(url: &str) -> Result<SqlStore, StoreError> {
    let doing = format!("opening the store {url}");
    let options = SqliteConnectOptions::from_str(url).map_err(|e| classify_error(&doing, &e))?;
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    let lock = if in_memory { None } else { Some(lock_database(options.get_filename(), &doing)?) };
    // Full synchronisation costs one flush for each transaction, a few every round. With less, a power cut
    // could undo wing numbers that sbatch has already used, or a decision that was already carried out.
    let options = options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT);
    let writer =
        pool_options(1).connect_with(options.clone()).await.map_err(|e| classify_error(&doing, &e))?;
    schema::build_migrator(&schema::SQLITE)
        .run(&writer)
        .await
        .map_err(|e| schema::migration_error(&doing, e, classify_error))?;
    // A database in memory belongs to its connection.
    let readers = if in_memory {
        writer.clone()
    } else {
        pool_options(MAX_READERS)
            .connect_with(options.read_only(true))
            .await
            .map_err(|e| classify_error(&doing, &e))?
    };
    Ok(SqlStore { writer, readers, _lock: lock })
}

fn pool_options(connections: u32) -> SqlitePoolOptions {
    // Connections to a file do not age, and a connection to memory must not end.
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
}

/// Creates the file if it does not exist, and takes its lock.
///
/// # Errors
/// `Unavailable` if another daemon holds the lock or the file cannot be created.
fn lock_database(path: &Path, doing: &str) -> Result<FileLock, StoreError> {
    let lock = create_file(path).and_then(|()| FileLock::try_acquire(path));
    let what = match lock {
        Ok(Some(lock)) => return Ok(lock),
        Ok(None) => {
            format!("another daemon uses {}; a second daemon that stands by needs PostgreSQL", path.display())
        }
        Err(e) => format!("{}: {e}", path.display()),
    };
    Err(StoreError::Unavailable { doing: doing.to_owned(), what })
}

/// Creates the file with its directory before SQLite does, so that other users can never read it. SQLite
/// gives the write-ahead log the mode of the file.
fn create_file(path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}
