//! Builds a snapshot from recorded answers, without a slurmrestd: for the benchmark of a whole round.

use std::io::Read;

use super::bad_records::MalleableJobs;
use super::json_window::unreadable_answer;
use super::raw_reading::{ExitWatch, RawReading, SchedulerDiag};
use super::record::SharedNames;
use super::record_list::{self, RecordList};
use crate::SlurmError;
use infill_model::{Job, Node, Snapshot};

const DOING: &str = "reading a recorded answer";

/// A parsed answer to `GET /nodes`.
pub struct RecordedNodes {
    nodes: RecordList<Node>,
    shared: SharedNames,
}

/// A parsed answer to `GET /jobs`.
pub struct RecordedJobs(RecordList<Job>);

/// Reads the answer to `GET /nodes`.
///
/// # Errors
/// The same as in the daemon: an error that Slurm reports, or the position where the answer cannot be read.
pub fn read_nodes(source: impl Read) -> Result<RecordedNodes, SlurmError> {
    let mut shared = SharedNames::default();
    let nodes = record_list::read_list(source, &mut shared).map_err(|f| f.into_slurm_error(DOING))?;
    Ok(RecordedNodes { nodes, shared })
}

/// Reads the answer to `GET /jobs`. It shares the names of `nodes`.
///
/// # Errors
/// As for [`read_nodes`].
pub fn read_jobs(source: impl Read, nodes: &mut RecordedNodes) -> Result<RecordedJobs, SlurmError> {
    record_list::read_list(source, &mut nodes.shared).map(RecordedJobs).map_err(|f| f.into_slurm_error(DOING))
}

/// Builds a snapshot, as if `diag` had been the answer both before and after. `partition` is the malleable
/// partition.
///
/// # Errors
/// As for [`read_nodes`], for the answers to `GET /reservations` and `GET /diag`.
pub fn build_snapshot(
    nodes: RecordedNodes,
    jobs: RecordedJobs,
    reservations: impl Read,
    diag: &[u8],
    partition: &str,
) -> Result<Snapshot, SlurmError> {
    let RecordedNodes { nodes, mut shared } = nodes;
    let diag = serde_json::from_slice(diag)
        .map_err(|e| unreadable_answer(&e, e.is_eof()).into_slurm_error(DOING))?;
    let diag = SchedulerDiag::new(&diag);
    let reservations =
        record_list::read_list(reservations, &mut shared).map_err(|f| f.into_slurm_error(DOING))?;
    let backfill = ExitWatch::default().backfill_state(&diag);
    let reading = RawReading { before: diag.clone(), nodes, jobs: jobs.0, reservations, after: diag };
    Ok(reading.into_snapshot(backfill, &mut MalleableJobs::for_partition(partition)))
}
