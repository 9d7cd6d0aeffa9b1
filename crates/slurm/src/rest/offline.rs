//! A snapshot from answers that somebody has, without a slurmrestd: for the bench of a whole round.

use std::io::Read;

use super::bad_records::MalleableJobs;
use super::failure::RequestFailure;
use super::json_window::unreadable_answer;
use super::raw_reading::{ExitWatch, RawReading, SchedulerDiag};
use super::record::SharedNames;
use super::record_list::{self, RecordList};
use crate::SlurmError;
use infill_model::{Job, Node, Snapshot};

const DOING: &str = "reading a recorded answer";

/// What `GET /nodes` said.
pub struct RecordedNodes {
    nodes: RecordList<Node>,
    shared: SharedNames,
}

/// What `GET /jobs` said.
pub struct RecordedJobs(RecordList<Job>);

/// Reads the answer to `GET /nodes`.
///
/// # Errors
/// As the daemon has them: Slurm's own, or where the answer cannot be read.
pub fn read_nodes(source: impl Read) -> Result<RecordedNodes, SlurmError> {
    let mut shared = SharedNames::default();
    let nodes = record_list::read_list(source, &mut shared).map_err(|f| f.into_slurm_error(DOING))?;
    Ok(RecordedNodes { nodes, shared })
}

/// Reads the answer to `GET /jobs`. It shares the names of `nodes`.
///
/// # Errors
/// As for [`nodes`].
pub fn read_jobs(source: impl Read, nodes: &mut RecordedNodes) -> Result<RecordedJobs, SlurmError> {
    record_list::read_list(source, &mut nodes.shared).map(RecordedJobs).map_err(|f| f.into_slurm_error(DOING))
}

/// Puts a snapshot together, as if `diag` had been answered before and after. Jobs of `partition` are ours.
///
/// # Errors
/// As for [`nodes`], of the answers to `GET /reservations` and `GET /diag`.
pub fn build_snapshot(
    nodes: RecordedNodes,
    jobs: RecordedJobs,
    reservations: impl Read,
    diag: &[u8],
    partition: &str,
) -> Result<Snapshot, SlurmError> {
    let RecordedNodes { nodes, mut shared } = nodes;
    let rest = || -> Result<_, RequestFailure> {
        let diag = serde_json::from_slice(diag).map_err(|e| unreadable_answer(&e, e.is_eof()))?;
        Ok((SchedulerDiag::new(&diag), record_list::read_list(reservations, &mut shared)?))
    };
    let (pulse, reservations) = rest().map_err(|f| f.into_slurm_error(DOING))?;
    let backfill = ExitWatch::default().backfill_state(&pulse);
    let reading = RawReading { before: pulse.clone(), nodes, jobs: jobs.0, reservations, after: pulse };
    Ok(reading.into_snapshot(backfill, &mut MalleableJobs::for_partition(partition)))
}
