//! Conversions between a lifecycle and its record, in any supported format.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::job_lifecycle::JobLifecycle;

use super::current::{FIRST_VERSION, LifecycleRecord, VERSION};
use super::error::RecordError;
use super::unversioned::UnversionedRecord;

impl JobLifecycle {
    /// The lifecycle as a record, without the target. [`JobLifecycle::from_record`] is the inverse.
    pub fn to_record(&self) -> Value {
        // The conversion cannot fail: a record is plain data whose map keys are text.
        serde_json::to_value(LifecycleRecord::from(self)).unwrap_or_default()
    }

    /// Reads a lifecycle from its record. Call [`JobLifecycle::resume_after_restart`] before its next step.
    ///
    /// # Errors
    ///
    /// If a newer infill wrote the value, or if it is not a record.
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
