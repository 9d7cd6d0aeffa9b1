//! Why a record cannot be read.

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// Another infill wrote it in a form that this one does not know.
    #[error("it is of version {found}, written by a newer infill; this one reads up to {known}")]
    Version {
        /// The version that it names.
        found: String,
        /// The newest version that we read.
        known: u64,
    },
    /// A field is missing, or holds what it cannot hold.
    #[error("it is no record of a malleable job: {0}")]
    Garbled(#[source] serde_json::Error),
}
