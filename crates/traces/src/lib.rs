//! Readers of files from other programs: logs of idle nodes and of jobs, scaling curves, workloads.
//!
//! A file may be plain or compressed (gzip, xz, zstd, bzip2), whatever its name. Each function reads one file
//! to its end, within bounds, into values of [`infill_model`]. Real logs have a few broken lines: these are
//! skipped and listed in the [`ParsedFile`](infill_model::ParsedFile). A file with many broken lines is
//! refused, because it probably has another format.

mod closed_tables;
mod collectives;
mod curves;
mod ended;
mod error;
mod estimates;
mod history;
mod idle;
mod jobs;
mod line_reader;
mod line_tally;
mod node_name_table;
mod parse_field;
mod plans;
mod runs;
mod sacct;
mod swf;
mod table;
#[cfg(test)]
mod tests;
mod throughputs;
mod workload;

pub use closed_tables::{read_closed_jobs, read_speeds};
pub use collectives::read_collectives;
pub use curves::read_curves;
pub use ended::{SACCT_FORMAT, read_ended, read_ended_from};
pub use error::TraceError;
pub use estimates::read_estimates;
pub use history::read_history;
pub use idle::read_idle;
pub use plans::{read_model_facts, read_plans, read_programs};
pub use runs::{RUNS_FORMAT, read_runs};
pub use sacct::read_sacct;
pub use swf::{SwfLayout, SwfOptions, read_swf};
pub use throughputs::{MeasuredThroughputs, read_throughputs};
pub use workload::read_workload;

/// The first line of a file that is not blank, decompressed. Empty if there is none.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn first_line(path: &std::path::Path) -> Result<String, TraceError> {
    let mut lines = line_reader::LineReader::new(line_reader::TraceSource::open(path)?);
    while let Some((_, line)) = lines.next_line()? {
        if let Some(line) = line.ok().filter(|line| !line.trim().is_empty()) {
            return Ok(line.into_owned());
        }
    }
    Ok(String::new())
}
