//! Sorts SQLite's errors by what can be done about them.

use crate::port::StoreError;

/// SQLite's result codes for a damaged file and for a file that is not a database.
const DAMAGED_CODES: [i64; 2] = [11, 26];

/// Sorts an error into those that may pass and those that do not.
pub(super) fn classify_error(doing: &str, e: &sqlx::Error) -> StoreError {
    let doing = doing.to_owned();
    let what = e.to_string();
    let damaged = match e {
        sqlx::Error::Database(e) => {
            // The low byte is the kind of the error; the rest says more about it.
            let code = e.code().and_then(|c| c.parse::<i64>().ok()).map(|c| c & 0xff);
            code.is_some_and(|c| DAMAGED_CODES.contains(&c))
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => true,
        _ => false,
    };
    if damaged { StoreError::Corrupt { doing, what } } else { StoreError::Unavailable { doing, what } }
}
