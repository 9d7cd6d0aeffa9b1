//! Tests of the readers: formats, compression, garbage, and real logs.

mod ended;
mod formats;
mod garbage;
mod packed;
mod real;

use super::error::TraceError;
use super::line_reader::TraceSource;
use infill_model::ParsedFile;

/// A file of these bytes, bounded far above them.
fn source(name: &str, bytes: impl AsRef<[u8]>) -> TraceSource {
    TraceSource::from_bytes(name, bytes.as_ref().to_vec(), 1 << 30).expect("bytes open")
}

/// The message of an error with those of its sources.
fn message(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {}", message(source)))
}

/// What a reading says, or why there is none.
fn said<T>(reading: Result<ParsedFile<T>, TraceError>, show: impl Fn(&T) -> String) -> String {
    match reading {
        Ok(reading) => {
            let malformed = reading.malformed.iter().map(|m| format!("\n! {m}"));
            show(&reading.value) + malformed.collect::<String>().as_str()
        }
        Err(e) => format!("error: {}", message(&e)),
    }
}
