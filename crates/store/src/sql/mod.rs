//! What both databases do alike: their SQL is the same, but sqlx gives each database types of its own. So
//! these files are compiled once for each. The module around them says which types are meant, opens
//! transactions ([`SqlStore`]) and sorts errors ([`classify_error`]).
//!
//! Why not generic over [`sqlx::Database`]: every function would have to repeat for each of some fifteen
//! types that the database can encode and decode it, and for each connection that it executes queries; a
//! macro around all of it would hide five hundred lines from the compiler's messages.

mod adapter;
mod bounds;
mod filter;
mod rows;
mod write;

use std::time::Duration;

use super::{SqlArguments, SqlConnection, SqlDatabase, SqlRow, SqlStore, classify_error};
use crate::port::StoreError;

/// Longest that one call may take. A database on the same network answers in milliseconds; one that is frozen
/// never does, and nobody may wait for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// What `call` comes to, if it does so in time. A call that is given up leaves nothing written.
pub(super) async fn within<T>(
    doing: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| {
        let what = format!("no answer within {} s", CALL_TIMEOUT.as_secs());
        Err(StoreError::Unavailable { doing: doing.to_owned(), what })
    })
}

/// A name as both databases can keep it: PostgreSQL's texts hold no zero byte, and who sends one shall stop
/// nobody.
fn storable_text(name: &str) -> String {
    name.replace('\0', "\u{fffd}")
}
