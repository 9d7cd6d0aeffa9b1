//! A machine to its record, and a record of any age back to a machine.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::job_lifecycle::JobLifecycle;

use super::current::{FIRST_VERSION, LifecycleRecord, VERSION};
use super::error::RecordError;
use super::unversioned::UnversionedRecord;

impl JobLifecycle {
    /// The record from which [`JobLifecycle::from_record`] makes the machine again, but for its target.
    pub fn to_record(&self) -> Value {
        // Plain data with text for keys: it always has a JSON form.
        serde_json::to_value(LifecycleRecord::from(self)).unwrap_or_default()
    }

    /// The machine that a record describes. Call [`JobLifecycle::resume`] before it goes on.
    ///
    /// # Errors
    /// When a newer infill wrote it, or it is no record.
    pub(crate) fn from_record(value: Value) -> Result<JobLifecycle, RecordError> {
        match value.get("version") {
            None => read_record::<UnversionedRecord>(value),
            Some(version) if version.as_u64().is_some_and(|v| (FIRST_VERSION..=VERSION).contains(&v)) => {
                read_record::<LifecycleRecord>(value)
            }
            Some(version) => Err(RecordError::Version { found: version.to_string(), known: VERSION }),
        }
    }
}

fn read_record<T: DeserializeOwned + Into<JobLifecycle>>(value: Value) -> Result<JobLifecycle, RecordError> {
    serde_json::from_value::<T>(value).map(Into::into).map_err(RecordError::Garbled)
}
