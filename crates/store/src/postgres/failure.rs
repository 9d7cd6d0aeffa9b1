//! Sorts PostgreSQL's errors by what can be done about them.

use crate::port::StoreError;

/// Classes of SQLSTATE that waiting does not resolve: data that the database cannot take (22), a broken
/// constraint (23), a wrong statement or schema (42), a damaged index or file (XX).
const LASTING_CLASSES: [&str; 4] = ["22", "23", "42", "XX"];

/// Sorts an error into those that may pass and those that do not. PostgreSQL's messages hold no password, but
/// sqlx's messages about a configuration may.
pub(super) fn classify_error(doing: &str, e: &sqlx::Error) -> StoreError {
    let doing = doing.to_owned();
    match e {
        sqlx::Error::Database(e)
            if e.code().is_some_and(|c| LASTING_CLASSES.iter().any(|l| c.starts_with(l))) =>
        {
            StoreError::Corrupt { doing, what: e.to_string() }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            StoreError::Corrupt { doing, what: e.to_string() }
        }
        sqlx::Error::Configuration(_) => {
            let what =
                "expected postgres://user:password@host/database, or postgres:///database?host=/directory";
            StoreError::Unsupported { doing, what: what.to_owned() }
        }
        e => StoreError::Unavailable { doing, what: e.to_string() },
    }
}
