//! Reads files that other programs wrote, and warns about the lines that could not be used.

use std::path::Path;

use infill_model::trace::ParsedFile;

use crate::exit::{CommandFailure, ProgramExit};

/// The value of a parsed file. Reports on stderr how many malformed lines were skipped, with samples of them.
///
/// # Errors
/// When the file could not be parsed; the exit code is [`ProgramExit::Input`].
pub fn parsed_with_warnings<T, E>(path: &Path, parsed: Result<ParsedFile<T>, E>) -> Result<T, CommandFailure>
where
    E: std::error::Error + Send + Sync + 'static,
{
    // The error names the file.
    let file = parsed.map_err(|e| ProgramExit::Input.caused_by(e))?;
    if file.malformed_count > 0 {
        eprintln!("infill: {}: skipped {} malformed lines:", path.display(), file.malformed_count);
        for line in &file.malformed {
            eprintln!("  {line}");
        }
    }
    Ok(file.value)
}
