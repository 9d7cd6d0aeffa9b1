//! The versions of each database's schema, and the errors of bringing a schema up to date.

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::port::StoreError;

/// One version of a schema: the name of its file in `migrations/`, and the file's text.
pub(super) type SchemaVersion = (&'static str, &'static str);

/// The file `migrations/$name`. (sqlx's macro that reads a whole folder would compile the databases' drivers
/// a second time.)
macro_rules! version {
    ($name:literal) => {
        ($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/", $name)))
    };
}

/// The versions of SQLite's schema, oldest first.
pub(super) const SQLITE: [SchemaVersion; 10] = [
    version!("sqlite/0001_start.sql"),
    version!("sqlite/0002_profiles.sql"),
    version!("sqlite/0003_stops.sql"),
    version!("sqlite/0004_owners.sql"),
    version!("sqlite/0005_generations.sql"),
    version!("sqlite/0006_unfit.sql"),
    version!("sqlite/0007_ended.sql"),
    version!("sqlite/0008_flat.sql"),
    version!("sqlite/0009_hours.sql"),
    version!("sqlite/0010_spent.sql"),
];

/// The versions of PostgreSQL's schema, oldest first.
pub(super) const POSTGRES: [SchemaVersion; 9] = [
    version!("postgres/0001_start.sql"),
    version!("postgres/0002_stops.sql"),
    version!("postgres/0003_owners.sql"),
    version!("postgres/0004_generations.sql"),
    version!("postgres/0005_unfit.sql"),
    version!("postgres/0006_ended.sql"),
    version!("postgres/0007_flat.sql"),
    version!("postgres/0008_hours.sql"),
    version!("postgres/0009_spent.sql"),
];

/// The migrator that brings a schema up to date. Versions have the numbers from 1 on.
pub(super) fn build_migrator(versions: &[SchemaVersion]) -> Migrator {
    let numbered = (1..).zip(versions);
    Migrator::with_migrations(numbered.map(|(number, version)| build_migration(number, version)).collect())
}

/// The migration to one version, whose file is named `…/NUMBER_DESCRIPTION.sql`.
fn build_migration(number: i64, (name, text): &SchemaVersion) -> Migration {
    let description = name.split_once('_').map_or(*name, |(_, rest)| rest);
    let description = description.trim_end_matches(".sql").replace('_', " ");
    Migration::new(number, description.into(), MigrationType::Simple, text.into_sql_str(), false)
}

/// Sorts the error of a migration; `classify_error` sorts the database's own errors.
pub(super) fn migration_error(
    doing: &str,
    e: MigrateError,
    classify_error: fn(&str, &sqlx::Error) -> StoreError,
) -> StoreError {
    let what = e.to_string();
    match e {
        MigrateError::VersionMissing(_) | MigrateError::VersionTooNew(..) => StoreError::Corrupt {
            doing: doing.to_owned(),
            what: format!("a newer infill wrote this database: {what}"),
        },
        MigrateError::VersionMismatch(_) | MigrateError::Dirty(_) => {
            StoreError::Corrupt { doing: doing.to_owned(), what }
        }
        MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _) => classify_error(doing, &e),
        _ => StoreError::Unavailable { doing: doing.to_owned(), what },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_under_its_number() {
        for (folder, versions) in [("sqlite", &SQLITE[..]), ("postgres", &POSTGRES[..])] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(folder);
            let entries = path.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            let mut files: Vec<String> = entries.map(|file| format!("{folder}/{file}")).collect();
            files.sort();
            let listed: Vec<&str> = versions.iter().map(|(name, _)| *name).collect();
            assert_eq!(files, listed);
            for (number, file) in (1..).zip(&files) {
                assert!(file.starts_with(&format!("{folder}/{number:04}_")), "{file} is number {number}");
            }
            let described: Vec<String> =
                build_migrator(versions).iter().map(|m| m.description.to_string()).collect();
            assert_eq!(described[0], "start");
        }
    }
}
