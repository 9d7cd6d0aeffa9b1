//! Errors of reading a record.

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// A newer infill wrote the record in a format that this one does not know.
    #[error("it has version {found}, which a newer infill wrote; this infill reads versions up to {known}")]
    Version {
        /// The record's version, as JSON.
        found: String,
        /// The newest version that this infill reads.
        known: u64,
    },
    /// A field is missing or has an invalid value.
    #[error("it is not a record of a malleable job: {0}")]
    Garbled(#[source] serde_json::Error),
}
