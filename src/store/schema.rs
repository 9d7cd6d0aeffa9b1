//! Why a schema could not be brought up to date.

use sqlx::migrate::MigrateError;

use super::port::StoreError;

/// Sorts what a migration failed of; `failed` sorts the database's own errors.
pub(super) fn failure(
    doing: &str,
    e: MigrateError,
    failed: fn(&str, &sqlx::Error) -> StoreError,
) -> StoreError {
    let what = e.to_string();
    match e {
        MigrateError::VersionMissing(_) | MigrateError::VersionTooNew(..) => StoreError::Corrupt {
            doing: doing.to_owned(),
            what: format!("a newer infill has written it: {what}"),
        },
        MigrateError::VersionMismatch(_) | MigrateError::Dirty(_) => {
            StoreError::Corrupt { doing: doing.to_owned(), what }
        }
        MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _) => failed(doing, &e),
        _ => StoreError::Unavailable { doing: doing.to_owned(), what },
    }
}
