//! The code that both databases share. They use the same SQL, but sqlx gives each its own types. So
//! these files are compiled once for each database. The surrounding module names the types, opens
//! transactions ([`SqlStore`]) and sorts errors ([`classify_error`]).
//!
//! The code is not generic over [`sqlx::Database`]: every function would have to repeat that the database can
//! encode and decode each of some fifteen types, and that each connection executes queries. A macro around
//! all of it would hide five hundred lines from the compiler's messages.

mod adapter;
mod bounds;
mod filter;
mod forget;
mod rows;
mod write;

use std::time::Duration;

use super::{SqlArguments, SqlConnection, SqlDatabase, SqlRow, SqlStore, classify_error};
use crate::port::StoreError;

/// Longest time for one call. A database on the same network answers in milliseconds. A frozen one never
/// answers, and the daemon must not wait for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Awaits `call`, but fails with `Unavailable` after [`CALL_TIMEOUT`]. A call that is given up writes
/// nothing.
pub(super) async fn within<T>(
    doing: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| {
        let what = format!("no answer within {} s", CALL_TIMEOUT.as_secs());
        Err(StoreError::Unavailable { doing: doing.to_owned(), what })
    })
}

/// A text as both databases can keep it. PostgreSQL's texts cannot hold a zero byte, and a name with one must
/// not block the records of other users.
fn storable_text(name: &str) -> String {
    name.replace('\0', "\u{fffd}")
}
