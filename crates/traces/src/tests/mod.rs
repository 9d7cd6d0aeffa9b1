//! Tests of the readers: formats, compression, garbage, and real logs.

mod ended;
mod formats;
mod garbage;
mod packed;
mod real;

use super::error::TraceError;
use super::line_reader::TraceSource;
use infill_model::ParsedFile;

/// A source of these bytes, with a bound far above them.
fn source(name: &str, bytes: impl AsRef<[u8]>) -> TraceSource {
    TraceSource::from_bytes(name, bytes.as_ref().to_vec(), 1 << 30).expect("bytes open")
}

/// The message of an error with those of its sources.
fn message(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {}", message(source)))
}

/// The value and the malformed lines of a reading, or its error.
fn outcome<T>(reading: Result<ParsedFile<T>, TraceError>, describe: impl Fn(&T) -> String) -> String {
    match reading {
        Ok(reading) => {
            let malformed: String = reading.malformed.iter().map(|line| format!("\n! {line}")).collect();
            describe(&reading.value) + &malformed
        }
        Err(e) => format!("error: {}", message(&e)),
    }
}
