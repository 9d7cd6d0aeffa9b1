//! Who is on a node: the main queue, ourselves, nobody.

use std::collections::BTreeMap;

use crate::model::{Job, JobId, Node, NodeName, NodeState, Snapshot};

/// What a node is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing runs here.
    Free,
    /// Only jobs of the malleable partition are here; this is one of them.
    Ours(JobId),
    /// One of our jobs is cleaning up, and nothing else is here.
    Leaving(JobId),
    /// A job of the main queue is here, even if only to clean up.
    Main {
        /// The job.
        job: JobId,
        /// Its partition.
        partition: String,
    },
    /// Slurm's state forbids new work; the words that say so.
    Unsound(String),
    /// Slurm calls the node allocated, but shows no job on it.
    Unexplained,
}

/// The jobs on every node of a snapshot.
#[derive(Clone, Debug)]
pub struct Occupancy<'a> {
    ours: BTreeMap<&'a NodeName, JobId>,
    main: BTreeMap<&'a NodeName, &'a Job>,
    completing: BTreeMap<&'a NodeName, JobId>,
}

impl<'a> Occupancy<'a> {
    /// Sorts the jobs of `snapshot` that occupy nodes into ours (those of `partition`) and the main queue's.
    pub fn of(snapshot: &'a Snapshot, partition: &str) -> Self {
        let mut found =
            Occupancy { ours: BTreeMap::new(), main: BTreeMap::new(), completing: BTreeMap::new() };
        for job in snapshot.jobs.iter().filter(|j| j.state.occupies_nodes()) {
            for node in &job.nodes {
                if job.partition != partition {
                    found.main.entry(node).or_insert(job);
                } else if job.state.is_running() {
                    found.ours.entry(node).or_insert(job.id);
                } else {
                    found.completing.entry(node).or_insert(job.id);
                }
            }
        }
        found
    }

    /// What `node` is used for.
    pub fn usage(&self, node: &Node) -> Use {
        if let Some(job) = self.main.get(&node.name) {
            return Use::Main { job: job.id, partition: job.partition.clone() };
        }
        let ours = self.ours.get(&node.name).copied();
        let leaving = self.completing.get(&node.name).copied();
        // The flag COMPLETING speaks of that job of ours, and says nothing against the node. And after a restart
        // slurmctld calls a node UNKNOWN until its slurmd has reported: no reason to leave what runs there.
        let harmless =
            |w: &str| (leaving.is_some() && w == "COMPLETING") || (ours.is_some() && w == "UNKNOWN");
        let words = node.state.words.iter().filter(|w| !harmless(w)).cloned().collect();
        let sound = NodeState { words }.is_sound();
        match (ours, leaving) {
            _ if !sound => Use::Unsound(describe(&node.state)),
            (Some(job), _) => Use::Ours(job),
            (None, Some(job)) => Use::Leaving(job),
            (None, None) if node.state.is_idle() => Use::Free,
            (None, None) => Use::Unexplained,
        }
    }
}

/// Slurm's words for a state, `IDLE+DRAIN`.
fn describe(state: &NodeState) -> String {
    state.words.iter().map(String::as_str).collect::<Vec<_>>().join("+")
}
