//! How long main jobs waited for nodes that ours were on: from the moment when ours were to leave until the
//! main job started there.

use rustc_hash::FxHashMap;

use super::{Occupancy, Use};
use crate::model::{Job, JobId, NodeName, Snapshot, UnixTime};

/// For so long a node that ours were told to leave is remembered: by then another job has started there, or
/// nobody wants it any more.
const REMEMBERED_SECS: f64 = 900.0;

/// A main job has started on a node that ours were on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// The main job.
    pub job: JobId,
    /// Seconds from when ours were to leave until it started; Slurm tells whole ones.
    pub secs: f64,
    /// Whether the moment was one that Slurm had planned, and not a preemption.
    pub planned: bool,
}

/// A node that ours are to leave, or have left.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted {
    since: UnixTime,
    planned: bool,
}

/// See the module's text. A value that lasts from round to round.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    wanted: FxHashMap<NodeName, Wanted>,
    seen_at: Option<UnixTime>,
}

impl Delays {
    /// Takes in a trusted snapshot. Returns the main jobs that have started since the last one where ours
    /// were.
    pub fn look(&mut self, snapshot: &Snapshot, occupancy: &Occupancy<'_>, now: UnixTime) -> Vec<Delay> {
        let partition = occupancy.partition();
        self.wanted.retain(|_, wanted| now.secs_since(wanted.since) < REMEMBERED_SECS);
        for job in snapshot.jobs.iter().filter(|j| j.partition == partition && j.was_told_to_leave()) {
            let told = job.preempt_time.filter(|at| now.secs_since(*at) < REMEMBERED_SECS);
            for (node, since) in job.nodes.iter().zip(std::iter::repeat(told)) {
                self.is_wanted(node, since, false);
            }
        }
        for job in snapshot.jobs.iter().filter(|j| j.waits_in_main_queue(partition)) {
            let due = job.start_time.filter(|at| *at <= now);
            let ours =
                |node: &&NodeName| matches!(occupancy.of_node(node), Some(Use::Ours(_) | Use::Leaving(_)));
            for node in job.scheduled_nodes.iter().filter(ours) {
                self.is_wanted(node, due, true);
            }
        }
        let seen_at = self.seen_at.replace(now);
        let began = |j: &&Job| seen_at.is_some_and(|at| j.start_time.is_some_and(|start| start + 1 >= at));
        let main = snapshot.jobs.iter().filter(|j| j.partition != partition && j.state.is_running());
        main.filter(began).filter_map(|job| self.started(job)).collect()
    }

    fn is_wanted(&mut self, node: &NodeName, since: Option<UnixTime>, planned: bool) {
        if let Some(since) = since {
            self.wanted.entry(node.clone()).or_insert(Wanted { since, planned });
        }
    }

    /// What a main job that has started waited for nodes of ours.
    fn started(&mut self, job: &Job) -> Option<Delay> {
        let start = job.start_time?;
        let wanted: Vec<Wanted> = job.nodes.iter().filter_map(|node| self.wanted.remove(node)).collect();
        let first = wanted.iter().min_by_key(|wanted| wanted.since)?;
        Some(Delay { job: job.id, secs: start.secs_since(first.since).max(0.0), planned: first.planned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BaseState, Node, NodeState, NodeType};

    const NOW: UnixTime = UnixTime(1000);

    fn main_job(id: u32, state: BaseState, nodes: &[&str], start: i64) -> Job {
        let names: Vec<NodeName> = nodes.iter().map(NodeName::new).collect();
        let runs = state == BaseState::Running;
        let (nodes, scheduled_nodes) = if runs { (names, Vec::new()) } else { (Vec::new(), names) };
        let start_time = Some(NOW + start);
        Job { nodes, scheduled_nodes, start_time, ..Job::new(JobId(id), "main", state) }
    }

    fn ours(node: &str, told: Option<i64>) -> Job {
        Job {
            nodes: vec![NodeName::new(node)],
            start_time: Some(NOW + -500),
            preempt_time: told.map(|secs| NOW + secs),
            ..Job::new(JobId(90), "infill", BaseState::Running)
        }
    }

    fn look(delays: &mut Delays, at: i64, jobs: &[Job]) -> Vec<Delay> {
        let node = |name: &str| Node {
            state: NodeState::from_words(["ALLOCATED"]),
            ..Node::new(NodeName::new(name), NodeType::new("a"))
        };
        let nodes = vec![node("n1"), node("n2")];
        let snapshot = Snapshot { nodes, jobs: jobs.to_vec(), ..Snapshot::default() };
        delays.look(&snapshot, &Occupancy::of(&snapshot, "infill"), NOW + at)
    }

    #[test]
    fn a_preemption_lasts_until_the_main_job_starts() {
        let mut delays = Delays::default();
        assert!(look(&mut delays, 0, &[ours("n1", None)]).is_empty());
        assert!(look(&mut delays, 5, &[ours("n1", Some(4))]).is_empty());
        let main = main_job(1, BaseState::Running, &["n1", "n2"], 6);
        assert_eq!(
            look(&mut delays, 10, std::slice::from_ref(&main)),
            [Delay { job: JobId(1), secs: 2.0, planned: false }]
        );
        assert!(look(&mut delays, 15, &[main]).is_empty(), "once");
        let next = main_job(2, BaseState::Running, &["n1"], 17);
        assert!(look(&mut delays, 20, &[next]).is_empty(), "ours were not there before that one");
    }

    #[test]
    fn a_planned_start_is_missed_by_what_passes_until_it_starts() {
        let mut delays = Delays::default();
        let held = || ours("n2", None);
        look(&mut delays, 0, &[held(), main_job(1, BaseState::Pending, &["n2"], 30)]);
        assert!(delays.wanted.is_empty(), "not yet");
        look(&mut delays, 31, &[held(), main_job(1, BaseState::Pending, &["n2"], 30)]);
        let started = look(&mut delays, 40, &[main_job(1, BaseState::Running, &["n2"], 37)]);
        assert_eq!(started, [Delay { job: JobId(1), secs: 7.0, planned: true }]);
        look(&mut delays, 50, &[ours("n1", Some(45))]);
        assert!(
            look(&mut delays, 2000, &[]).is_empty() && delays.wanted.is_empty(),
            "nobody wants it any more"
        );
    }
}
