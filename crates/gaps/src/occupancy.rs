//! Who is on a node: the main queue, ourselves, nobody.

use super::node_index::NodeIndex;
use infill_model::{Job, JobId, NodeName, NodeState, Snapshot};

/// What a node is used for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OccupancyState<'a> {
    /// Nothing runs here.
    Free,
    /// Only jobs of the malleable partition are here; this is one of them.
    Ours(JobId),
    /// One of our jobs is cleaning up, and nothing else is here.
    Leaving(JobId),
    /// This job of the main queue is here, even if only to clean up.
    Main(&'a Job),
    /// Nothing runs here, and Slurm has switched it off to save power.
    Asleep,
    /// Slurm's state forbids new work.
    Unsound,
    /// Slurm calls the node allocated, but shows no job on it.
    Unexplained,
}

impl OccupancyState<'_> {
    /// Whether no job of the main queue is on the node, and nothing else keeps us from watching it.
    pub fn is_gap(&self) -> bool {
        matches!(
            self,
            OccupancyState::Free
                | OccupancyState::Asleep
                | OccupancyState::Ours(_)
                | OccupancyState::Leaving(_)
        )
    }
}

/// The first job of each kind on a node.
#[derive(Clone, Copy, Debug, Default)]
struct JobsOnNode<'a> {
    main: Option<&'a Job>,
    ours: Option<JobId>,
    completing: Option<&'a Job>,
}

/// The jobs on every node of a snapshot.
#[derive(Clone, Debug)]
pub struct NodeOccupancy<'a> {
    snapshot: &'a Snapshot,
    partition: &'a str,
    places: NodeIndex<'a>,
    /// By place of the node.
    here: Vec<JobsOnNode<'a>>,
}

impl<'a> NodeOccupancy<'a> {
    /// Sorts the jobs of `snapshot` that occupy nodes into ours (those of `partition`) and the main queue's.
    pub fn from_snapshot(snapshot: &'a Snapshot, partition: &'a str) -> Self {
        let places = NodeIndex::from_snapshot(snapshot);
        let mut here = vec![JobsOnNode::default(); snapshot.nodes.len()];
        for job in snapshot.jobs.iter().filter(|j| j.state.occupies_nodes()) {
            let is_main = job.partition != partition;
            let runs = job.state.is_running();
            // Names that no node has are left out: there is nothing to judge.
            for node in &job.nodes {
                let Some(here) = places.index_of(node).and_then(|at| here.get_mut(at)) else { continue };
                match (is_main, runs) {
                    (true, _) => drop(here.main.get_or_insert(job)),
                    (false, true) => drop(here.ours.get_or_insert(job.id)),
                    (false, false) => drop(here.completing.get_or_insert(job)),
                }
            }
        }
        NodeOccupancy { snapshot, partition, places, here }
    }

    /// The snapshot.
    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// The malleable partition.
    pub(super) fn partition(&self) -> &'a str {
        self.partition
    }

    /// Whether the node at this place is in the malleable partition.
    pub(super) fn is_in_partition(&self, at: usize) -> bool {
        self.snapshot.nodes.get(at).is_some_and(|n| n.partitions.iter().any(|p| p == self.partition))
    }

    pub(super) fn node_index(&self) -> &NodeIndex<'a> {
        &self.places
    }

    /// What the node of this name is used for; `None` if the snapshot does not show it.
    pub fn use_of(&self, name: &NodeName) -> Option<OccupancyState<'a>> {
        self.use_at(self.places.index_of(name)?)
    }

    /// Whether a job of ours that cleans up on the node at this place was told by Slurm to leave.
    pub(super) fn is_taken_back(&self, at: usize) -> bool {
        self.here.get(at).and_then(|here| here.completing).is_some_and(Job::was_told_to_leave)
    }

    /// What the node at this place of the snapshot's list is used for; `None` if the list is shorter.
    pub fn use_at(&self, at: usize) -> Option<OccupancyState<'a>> {
        let node = self.snapshot.nodes.get(at)?;
        let here = self.here.get(at)?;
        if let Some(job) = here.main {
            return Some(OccupancyState::Main(job));
        }
        let is_sound = node.state.is_sound() || {
            // The flag COMPLETING speaks of that job of ours, and says nothing against the node. And after a
            // restart slurmctld calls a node UNKNOWN until its slurmd has reported: no reason to leave what
            // runs there.
            let mut state = node.state.clone();
            if here.completing.is_some() {
                state.remove("COMPLETING");
            }
            if here.ours.is_some() {
                state.remove("UNKNOWN");
                // It wakes up for the job.
                for word in ["POWER_UP", "POWERING_UP"] {
                    state.remove(word);
                }
            }
            state.is_sound()
        };
        Some(match (here.ours, here.completing) {
            (None, None) if is_asleep(&node.state) => OccupancyState::Asleep,
            _ if !is_sound => OccupancyState::Unsound,
            (Some(job), _) => OccupancyState::Ours(job),
            (None, Some(job)) => OccupancyState::Leaving(job.id),
            (None, None) if node.state.is_idle() => OccupancyState::Free,
            (None, None) => OccupancyState::Unexplained,
        })
    }
}

/// Whether the node is switched off, and nothing but that is to be said against it. While it is being
/// switched on or off it is neither asleep nor of use.
fn is_asleep(state: &NodeState) -> bool {
    state.has_word("POWERED_DOWN") && {
        let mut awake = state.clone();
        awake.remove("POWERED_DOWN");
        awake.is_idle()
    }
}
