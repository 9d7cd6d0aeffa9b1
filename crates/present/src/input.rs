//! Files of others that were read: what is wrong with them is told.

use std::path::Path;

use anyhow::Context as _;
use infill_model::trace::ParsedFile;

use crate::exit::{CommandFailure, ProgramExit};

/// What a file says; tells on stderr of the lines that were passed over.
pub fn parsed_with_warnings<T, E>(path: &Path, reading: Result<ParsedFile<T>, E>) -> Result<T, CommandFailure>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let reading = reading.with_context(|| format!("cannot use {}", path.display()));
    let reading = reading.map_err(|e| ProgramExit::Input.caused_by(e))?;
    if reading.malformed_count > 0 {
        eprintln!("infill: {}: {} malformed lines passed over:", path.display(), reading.malformed_count);
        reading.malformed.iter().for_each(|line| eprintln!("  {line}"));
    }
    Ok(reading.value)
}
