//! The use of each node: by the main queue, by malleable jobs, or by none.

use super::node_index::NodeIndex;
use infill_model::{Job, JobId, NodeName, NodeState, Snapshot};

/// What a node is used for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OccupancyState<'a> {
    /// No job is on the node.
    Free,
    /// Only malleable jobs are on the node. This is one of them.
    Malleable(JobId),
    /// This malleable job is cleaning up, and no other job is on the node.
    Leaving(JobId),
    /// This main job is on the node, even if only to clean up.
    Main(&'a Job),
    /// No job is on the node, and Slurm has switched it off to save power.
    Asleep,
    /// Slurm's state forbids new work.
    Unsound,
    /// Slurm calls the node allocated, but shows no job on it.
    Unexplained,
}

impl OccupancyState<'_> {
    /// Whether no main job is on the node, and no state keeps us from watching it.
    pub fn is_gap(&self) -> bool {
        matches!(
            self,
            OccupancyState::Free
                | OccupancyState::Asleep
                | OccupancyState::Malleable(_)
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
    index: NodeIndex<'a>,
    /// The jobs on each node, by the node's index.
    jobs: Vec<JobsOnNode<'a>>,
}

impl<'a> NodeOccupancy<'a> {
    /// Sorts the jobs of `snapshot` that occupy nodes into malleable ones (those of `partition`) and main
    /// ones.
    pub fn from_snapshot(snapshot: &'a Snapshot, partition: &'a str) -> Self {
        let index = NodeIndex::from_snapshot(snapshot);
        let mut jobs = vec![JobsOnNode::default(); snapshot.nodes.len()];
        for job in snapshot.jobs.iter().filter(|j| j.state.occupies_nodes()) {
            let is_main = job.partition != partition;
            let runs = job.state.is_running();
            // Names without a node in the snapshot are left out.
            for node in &job.nodes {
                let Some(on_node) = index.index_of(node).and_then(|index| jobs.get_mut(index)) else {
                    continue;
                };
                match (is_main, runs) {
                    (true, _) => drop(on_node.main.get_or_insert(job)),
                    (false, true) => drop(on_node.ours.get_or_insert(job.id)),
                    (false, false) => drop(on_node.completing.get_or_insert(job)),
                }
            }
        }
        NodeOccupancy { snapshot, partition, index, jobs }
    }

    /// The snapshot whose jobs are sorted.
    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// The name of the malleable partition.
    pub(super) fn partition(&self) -> &'a str {
        self.partition
    }

    /// Whether the node with this index is in the malleable partition.
    pub(super) fn is_in_partition(&self, index: usize) -> bool {
        self.snapshot.nodes.get(index).is_some_and(|n| n.partitions.iter().any(|p| p == self.partition))
    }

    pub(super) fn node_index(&self) -> &NodeIndex<'a> {
        &self.index
    }

    /// What the node with this name is used for; `None` if the snapshot does not show it.
    pub fn state_of(&self, name: &NodeName) -> Option<OccupancyState<'a>> {
        self.state_at(self.index.index_of(name)?)
    }

    /// Whether Slurm has preempted the malleable job that is cleaning up on the node with this index.
    pub(super) fn is_taken_back(&self, index: usize) -> bool {
        self.jobs.get(index).and_then(|jobs| jobs.completing).is_some_and(Job::was_preempted)
    }

    /// What the node with this index in the snapshot's list is used for; `None` if the list is shorter.
    pub fn state_at(&self, index: usize) -> Option<OccupancyState<'a>> {
        let node = self.snapshot.nodes.get(index)?;
        let jobs = self.jobs.get(index)?;
        if let Some(job) = jobs.main {
            return Some(OccupancyState::Main(job));
        }
        let is_sound = node.state.is_sound() || {
            // The flag COMPLETING comes from the malleable job, and says nothing against the node. After a
            // restart slurmctld calls a node UNKNOWN until its slurmd has reported. This is not a reason to
            // leave it.
            let mut state = node.state.clone();
            if jobs.completing.is_some() {
                state.remove("COMPLETING");
            }
            if jobs.ours.is_some() {
                state.remove("UNKNOWN");
                // The node wakes up for the job.
                for word in ["POWER_UP", "POWERING_UP"] {
                    state.remove(word);
                }
            }
            state.is_sound()
        };
        Some(match (jobs.ours, jobs.completing) {
            (None, None) if is_asleep(&node.state) => OccupancyState::Asleep,
            _ if !is_sound => OccupancyState::Unsound,
            (Some(job), _) => OccupancyState::Malleable(job),
            (None, Some(job)) => OccupancyState::Leaving(job.id),
            (None, None) if node.state.is_idle() => OccupancyState::Free,
            (None, None) => OccupancyState::Unexplained,
        })
    }
}

/// Whether the node is switched off, and no other state speaks against it. While it is being switched on or
/// off it is neither asleep nor usable.
fn is_asleep(state: &NodeState) -> bool {
    state.has_word("POWERED_DOWN") && {
        let mut awake = state.clone();
        awake.remove("POWERED_DOWN");
        awake.is_idle()
    }
}
