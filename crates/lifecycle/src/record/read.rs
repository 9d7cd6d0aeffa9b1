//! A machine to its record, and a record of any age back to a machine.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::machine::Machine;

use super::current::{FIRST_VERSION, Record, VERSION};
use super::error::RecordError;
use super::unversioned::Unversioned;

impl Machine {
    /// The record from which [`Machine::from_record`] makes the machine again, but for its target.
    pub fn record(&self) -> Value {
        // Plain data with text for keys: it always has a JSON form.
        serde_json::to_value(Record::from(self)).unwrap_or_default()
    }

    /// The machine that a record describes. Call [`Machine::resume`] before it goes on.
    ///
    /// # Errors
    /// When a newer infill wrote it, or it is no record.
    pub(crate) fn from_record(value: Value) -> Result<Machine, RecordError> {
        match value.get("version") {
            None => read::<Unversioned>(value),
            Some(version) if version.as_u64().is_some_and(|v| (FIRST_VERSION..=VERSION).contains(&v)) => {
                read::<Record>(value)
            }
            Some(version) => Err(RecordError::Version { found: version.to_string(), known: VERSION }),
        }
    }
}

fn read<T: DeserializeOwned + Into<Machine>>(value: Value) -> Result<Machine, RecordError> {
    serde_json::from_value::<T>(value).map(Into::into).map_err(RecordError::Garbled)
}
