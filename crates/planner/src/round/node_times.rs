//! How long nodes take to start jobs of infill and to become free after them: prolog and epilog, by node
//! type.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use infill_advisor::stops::STOP_PERCENTILE;
use infill_model::{NodeName, NodeType, Snapshot, UnixTime};

/// Number of times of each kind that are remembered for a node type.
const REMEMBERED: usize = 20;

/// The largest number of node types with remembered times.
const MOST_TYPES: usize = 1000;

/// Longest believable prolog or epilog, seconds. Where it takes longer, something else has gone wrong.
const MOST_SECS: f64 = 1800.0;

/// The last times on nodes of one type, seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct TypeTimes {
    /// From the end of a malleable job until its node was idle.
    cleanup: VecDeque<f64>,
    /// From the order of a worker until its agent reported.
    start: VecDeque<f64>,
}

/// A node on which the epilog of a malleable job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NodeCleanup {
    ended_at: UnixTime,
    seen_at: UnixTime,
}

/// The measured times by node type, and the nodes that are being cleaned up. The times outlive the daemon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTimes {
    types: BTreeMap<NodeType, TypeTimes>,
    cleaning: BTreeMap<NodeName, NodeCleanup>,
    last_look: Option<UnixTime>,
    unsaved: bool,
}

impl NodeTimes {
    /// Restores the times that [`NodeTimes::take_unsaved`] returned before. Text that cannot be read is
    /// dropped, and the times are measured again.
    pub fn load(&mut self, text: &str) {
        self.types = serde_json::from_str(text).unwrap_or_default();
    }

    /// The times as text for the store; `None` if they have not changed since the last call.
    pub fn take_unsaved(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        serde_json::to_string(&self.types).ok()
    }

    /// Records that the text could not be stored, so that the next [`NodeTimes::take_unsaved`] returns it
    /// again.
    pub fn mark_unsaved(&mut self) {
        self.unsaved = true;
    }

    /// Seconds from a worker's exit until its node is idle, by type.
    pub fn cleanup_secs(&self) -> BTreeMap<NodeType, f64> {
        self.types.iter().filter_map(|(t, times)| Some((t.clone(), usual_secs(&times.cleanup)?))).collect()
    }

    /// Seconds from an order until the agent reports, on the slowest node type; `None` without measurements.
    pub fn start_secs(&self) -> Option<f64> {
        self.types.values().filter_map(|times| usual_secs(&times.start)).max_by(f64::total_cmp)
    }

    /// Records the seconds from an order until the agent reported.
    pub fn record_start(&mut self, node_type: &NodeType, secs: f64) {
        self.record_time(node_type, secs, |times| &mut times.start);
    }

    /// Takes in what a snapshot shows about nodes that malleable jobs have left. A cleanup that begins and
    /// ends between two snapshots is not measured: it was quick.
    pub fn ingest_snapshot(&mut self, snapshot: &Snapshot, partition: &str, now: UnixTime) {
        let before = std::mem::take(&mut self.cleaning);
        let last_look = self.last_look.replace(now).unwrap_or(now);
        for job in snapshot.jobs.iter().filter(|j| j.partition == partition) {
            if job.state.is_running() || !job.state.occupies_nodes() {
                continue;
            }
            let reported_end = job.end_time.unwrap_or(now);
            for node in job.nodes.iter().filter(|n| cleans_up(snapshot, n) == Some(true)) {
                // The clocks may differ. The job ended between two snapshots.
                let new_end = reported_end.max(last_look).min(now);
                let ended_at = before.get(node).map_or(new_end, |cleanup| cleanup.ended_at);
                self.cleaning.insert(node.clone(), NodeCleanup { ended_at, seen_at: now });
            }
        }
        for (node, cleanup) in before {
            let is_clean = !self.cleaning.contains_key(&node) && cleans_up(snapshot, &node) == Some(false);
            let node_type = snapshot.node(&node).filter(|_| is_clean).map(|n| n.node_type.clone());
            if let Some(node_type) = node_type {
                // It became idle between two snapshots.
                let secs =
                    (now.secs_since(cleanup.ended_at) + cleanup.seen_at.secs_since(cleanup.ended_at)) / 2.0;
                self.record_time(&node_type, secs, |times| &mut times.cleanup);
            }
        }
    }

    fn record_time(
        &mut self,
        node_type: &NodeType,
        secs: f64,
        kind: fn(&mut TypeTimes) -> &mut VecDeque<f64>,
    ) {
        let is_known_type = self.types.contains_key(node_type);
        if !(0.0..=MOST_SECS).contains(&secs) || (!is_known_type && self.types.len() >= MOST_TYPES) {
            return;
        }
        let times = kind(self.types.entry(node_type.clone()).or_default());
        times.push_back(secs);
        if times.len() > REMEMBERED {
            times.pop_front();
        }
        self.unsaved = true;
    }
}

/// Whether Slurm still cleans this node up; `None` where that is unknown because the node is gone or unsound.
fn cleans_up(snapshot: &Snapshot, node: &NodeName) -> Option<bool> {
    let mut state = snapshot.node(node)?.state.clone();
    let cleans_up = state.remove("COMPLETING");
    (cleans_up || state.is_sound()).then_some(cleans_up)
}

/// The time within which nearly all measured ones lie, by [`STOP_PERCENTILE`].
fn usual_secs(secs: &VecDeque<f64>) -> Option<f64> {
    let mut secs: Vec<f64> = secs.iter().copied().collect();
    secs.sort_by(f64::total_cmp);
    secs.get((secs.len() * STOP_PERCENTILE).div_ceil(100).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, Job, JobId, NodeState};
    use infill_slurm::fake::FakeSlurm;

    const NOW: UnixTime = UnixTime(1000);

    /// n1 while its last job ends at second 0 and is cleaned up until `until`, seen every `every` seconds.
    fn after(until: i64, every: usize, times: &mut NodeTimes) {
        for at in (0..60).step_by(every) {
            let snapshot = FakeSlurm::new(2, "infill").edit_snapshot(|world| {
                if at < until {
                    world.nodes[0].state = NodeState::from_words(["IDLE", "COMPLETING"]);
                    let mut job = Job::new(JobId(1), "infill", BaseState::Cancelled);
                    job.state.flags.insert("COMPLETING".to_owned());
                    job.nodes = vec![world.nodes[0].name.clone(), world.nodes[1].name.clone()];
                    job.end_time = Some(NOW);
                    world.jobs.push(job);
                }
                world.clone()
            });
            times.ingest_snapshot(&snapshot, "infill", NOW + at);
        }
    }

    fn cleanup(times: &NodeTimes) -> Vec<f64> {
        times.cleanup_secs().into_values().collect()
    }

    #[test]
    fn an_epilog_is_measured_from_the_end_of_the_job_to_the_idle_node() {
        let mut times = NodeTimes::default();
        after(20, 1, &mut times);
        // n2 was clean at once, so it adds no time.
        assert_eq!(cleanup(&times), [19.5]);
        let mut seldom = NodeTimes::default();
        after(20, 5, &mut seldom);
        assert_eq!(cleanup(&seldom), [17.5]);
        let mut quick = NodeTimes::default();
        after(0, 1, &mut quick);
        assert!(cleanup(&quick).is_empty());
        assert_eq!(quick.take_unsaved(), None);
    }

    #[test]
    fn measured_times_outlive_the_daemon() {
        let mut times = NodeTimes::default();
        after(20, 1, &mut times);
        let node_type = times.types.keys().next().cloned().unwrap();
        times.record_start(&node_type, 55.0);
        times.record_start(&node_type, f64::NAN);
        let text = times.take_unsaved().unwrap();
        assert_eq!(times.take_unsaved(), None);
        let mut next = NodeTimes::default();
        next.load(&text);
        assert_eq!((next.cleanup_secs(), next.start_secs()), (times.cleanup_secs(), Some(55.0)));
        next.load("nonsense");
        assert_eq!(next, NodeTimes::default());
    }
}
