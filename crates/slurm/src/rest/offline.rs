//! A snapshot from answers that somebody has, without a slurmrestd: for the bench of a whole round.

use std::io::Read;

use super::failure::Failure;
use super::listing::{self, Listed};
use super::ours::Ours;
use super::reading::{ExitWatch, Pulse, Reading};
use super::record::Shared;
use super::window::unreadable;
use crate::SlurmError;
use infill_model::{Job, Node, Snapshot};

const DOING: &str = "reading a recorded answer";

/// What `GET /nodes` said.
pub struct Nodes {
    nodes: Listed<Node>,
    shared: Shared,
}

/// What `GET /jobs` said.
pub struct Jobs(Listed<Job>);

/// Reads the answer to `GET /nodes`.
///
/// # Errors
/// As the daemon has them: Slurm's own, or where the answer cannot be read.
pub fn nodes(source: impl Read) -> Result<Nodes, SlurmError> {
    let mut shared = Shared::default();
    let nodes = listing::read(source, &mut shared).map_err(|f| f.doing(DOING))?;
    Ok(Nodes { nodes, shared })
}

/// Reads the answer to `GET /jobs`. It shares the names of `nodes`.
///
/// # Errors
/// As for [`nodes`].
pub fn jobs(source: impl Read, nodes: &mut Nodes) -> Result<Jobs, SlurmError> {
    listing::read(source, &mut nodes.shared).map(Jobs).map_err(|f| f.doing(DOING))
}

/// Puts a snapshot together, as if `diag` had been answered before and after. Jobs of `partition` are ours.
///
/// # Errors
/// As for [`nodes`], of the answers to `GET /reservations` and `GET /diag`.
pub fn snapshot(
    nodes: Nodes,
    jobs: Jobs,
    reservations: impl Read,
    diag: &[u8],
    partition: &str,
) -> Result<Snapshot, SlurmError> {
    let Nodes { nodes, mut shared } = nodes;
    let rest = || -> Result<_, Failure> {
        let diag = serde_json::from_slice(diag).map_err(|e| unreadable(&e, e.is_eof()))?;
        Ok((Pulse::new(&diag), listing::read(reservations, &mut shared)?))
    };
    let (pulse, reservations) = rest().map_err(|f| f.doing(DOING))?;
    let backfill = ExitWatch::default().backfill(&pulse);
    let reading = Reading { before: pulse.clone(), nodes, jobs: jobs.0, reservations, after: pulse };
    Ok(reading.snapshot(backfill, &mut Ours::of(partition)))
}
