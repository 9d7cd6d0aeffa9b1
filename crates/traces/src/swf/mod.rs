//! Job logs in the standard workload format (SWF) of the Parallel Workloads Archive.
//!
//! A line has 18 columns divided by blanks, with -1 for unknown values
//! (<https://www.cs.huji.ac.il/labs/parallel/workload/swf.html>): 1 job, 2 submit, 3 wait, 4 run, 5 allocated
//! processors, 6 average CPU time, 7 memory, 8 requested processors, 9 requested time, 10 requested memory,
//! 11 status, 12 user, 13 group, 14 program, 15 queue, 16 partition, 17 preceding job, 18 think time. Lines
//! that begin with `;` are comments; some of them are the header.

mod entry;
mod header;

use std::num::NonZeroU32;
use std::path::Path;

use entry::SwfEntry;
use header::SwfHeader;

use super::error::TraceError;
use super::jobs::number_and_sort;
use super::line_reader::{LineReader, TraceSource};
use super::line_tally::LineTally;
use infill_model::{JobLog, LoggedJob, ParsedFile};

/// The meaning of the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwfLayout {
    /// [`SwfLayout::Six`] if two conditions hold, else [`SwfLayout::Standard`]. First, every line has fewer
    /// than 9 columns or nothing positive in columns 8 and 9 (the requests). Second, column 6 exceeds column
    /// 4 in at least half of the jobs: a requested time can exceed the run time, but an average CPU time
    /// cannot.
    #[default]
    Auto,
    /// The standard's 18 columns.
    Standard,
    /// Only the first six columns matter: 1 job, 2 submit, 3 wait, 4 run, 5 nodes, 6 requested time. Column
    /// 12 is still the user. Logs of ALCF's machines, converted for studies of schedulers, have this layout.
    Six,
}

/// Options for reading a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwfOptions {
    /// The meaning of the columns.
    pub layout: SwfLayout,
    /// Processors per node, to convert processors to nodes, rounded up. `None` in the standard layout:
    /// MaxProcs ÷ MaxNodes of the header, rounded up so that a job on all processors fits. `None` if the
    /// header lacks one of them, or with six columns: 1.
    pub procs_per_node: Option<NonZeroU32>,
}

/// Reads a job log in the standard workload format, or in its variant with six columns.
///
/// Processors are the allocated ones, else the requested ones. [`JobLog::left_out`] counts lines that are
/// left out: jobs that never ran (without run time or wait time), and parts of a job (status 2 to 4). Times
/// are rounded to whole seconds.
///
/// # Errors
/// If the file cannot be read, has too many malformed lines, or has no job that ran.
pub fn read_swf(path: &Path, options: SwfOptions) -> Result<ParsedFile<JobLog>, TraceError> {
    parse(TraceSource::open(path)?, options)
}

pub(super) fn parse(source: TraceSource, options: SwfOptions) -> Result<ParsedFile<JobLog>, TraceError> {
    let mut header = SwfHeader::default();
    let mut entries = Vec::new();
    let mut tally = LineReader::new(source).for_each_line(|line, text| {
        match text.trim_start().strip_prefix(';') {
            Some(comment) => header.add_comment(comment),
            None => entries.push(SwfEntry::parse(line, text)?),
        }
        Ok(())
    })?;
    let is_six = match options.layout {
        SwfLayout::Standard => false,
        SwfLayout::Six => true,
        SwfLayout::Auto => entry::look_like_six(&entries),
    };
    let per_node = options.procs_per_node.unwrap_or_else(|| header.procs_per_node(is_six));
    let (jobs, left_out) = jobs_that_ran(entries, is_six, per_node, &mut tally)?;
    let log = JobLog {
        jobs: number_and_sort(jobs),
        nodes_total: header.nodes_total(per_node),
        epoch: header.epoch,
        time_zone: header.time_zone(),
        complete_from: None,
        left_out,
    };
    let has_jobs = !log.jobs.is_empty();
    tally.finish(log, has_jobs, "job that ran")
}

/// The jobs that ran, in the order of their lines, and the number of lines that were left out.
fn jobs_that_ran(
    entries: Vec<SwfEntry>,
    is_six: bool,
    per_node: NonZeroU32,
    tally: &mut LineTally,
) -> Result<(Vec<LoggedJob>, usize), TraceError> {
    let mut jobs = Vec::with_capacity(entries.len());
    let mut left_out = 0;
    for entry in entries {
        let line = entry.line;
        match entry.job(is_six, per_node) {
            Ok(Some(job)) => jobs.push(job),
            Ok(None) => left_out += 1,
            Err(what) => tally.record_malformed(line, what)?,
        }
    }
    Ok((jobs, left_out))
}
