//! How long main jobs waited for nodes that malleable jobs held: from the moment when the malleable jobs had
//! to leave until the main job started there.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{NodeOccupancy, OccupancyState};
use infill_model::{Job, JobId, MainDelay, NodeName, Snapshot, UnixTime};

/// A node that malleable jobs had to leave is remembered for this time, seconds. By then another job has
/// started there, or no job wants it any more.
const REMEMBERED_SECS: f64 = 900.0;

/// A main job that takes a node within this time after malleable jobs left it has waited for it, seconds.
const HANDOVER_SECS: f64 = 10.0;

/// A node that malleable jobs have to leave, or have left.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WantedNode {
    since: UnixTime,
    /// Whether a planned start wants it; otherwise a preemption does.
    planned: bool,
    /// When it was first seen free after `since`.
    free_since: Option<UnixTime>,
}

/// Measures main jobs' delays. A value that is kept between rounds.
#[derive(Clone, Debug, Default)]
pub struct DelayTracker {
    wanted: FxHashMap<NodeName, WantedNode>,
    /// The preemptions that have been recorded, by job. Slurm shows them for minutes after their end.
    preemptions: FxHashMap<JobId, UnixTime>,
    seen_at: Option<UnixTime>,
}

impl DelayTracker {
    /// Takes in a trusted snapshot. Returns the delays of the main jobs that have started since the last one
    /// where malleable jobs were.
    pub fn observe_snapshot(
        &mut self,
        snapshot: &Snapshot,
        occupancy: &NodeOccupancy<'_>,
        now: UnixTime,
    ) -> Vec<MainDelay> {
        let partition = occupancy.partition();
        self.record_preemptions(snapshot, partition, now);
        let planned = self.record_planned_starts(snapshot, occupancy, now);
        let seen_at = self.seen_at.replace(now);
        let main = snapshot.jobs.iter().filter(|j| j.partition != partition && j.state.is_running());
        let started = main
            .filter(|j| seen_at.is_some_and(|at| j.start_time.is_some_and(|start| start + 1 >= at)))
            .filter_map(|job| self.take_delay(job))
            .collect();
        self.wanted.retain(|node, wanted| {
            let is_backed = !wanted.planned || planned.contains(node);
            is_backed && wanted.is_still_wanted(snapshot, occupancy.state_of(node), now)
        });
        started
    }

    /// Records each preemption once. At the first snapshot, only those of jobs that still occupy nodes count.
    /// Where a planned start is due already, that came first.
    fn record_preemptions(&mut self, snapshot: &Snapshot, partition: &str, now: UnixTime) {
        self.preemptions.retain(|_, at| is_recent(*at, now));
        for job in snapshot.jobs.iter().filter(|j| j.partition == partition && j.was_preempted()) {
            let Some(at) = job.preempt_time.filter(|at| is_recent(*at, now)) else { continue };
            let is_new = self.preemptions.insert(job.id, at) != Some(at);
            if is_new && (self.seen_at.is_some() || job.state.occupies_nodes()) {
                let wanted = WantedNode { since: at, planned: false, free_since: None };
                for node in &job.nodes {
                    if !self.wanted.get(node).is_some_and(|w| w.planned) {
                        self.wanted.insert(node.clone(), wanted);
                    }
                }
            }
        }
    }

    /// Records planned starts that are due where malleable jobs still are. Returns all nodes with a planned
    /// start.
    fn record_planned_starts<'s>(
        &mut self,
        snapshot: &'s Snapshot,
        occupancy: &NodeOccupancy<'_>,
        now: UnixTime,
    ) -> FxHashSet<&'s NodeName> {
        let mut planned = FxHashSet::default();
        for job in snapshot.jobs.iter().filter(|j| j.waits_in_main_queue(occupancy.partition())) {
            planned.extend(&job.scheduled_nodes);
            let Some(since) = job.start_time.filter(|at| *at <= now) else { continue };
            let held = job.scheduled_nodes.iter().filter(|node| {
                matches!(
                    occupancy.state_of(node),
                    Some(OccupancyState::Malleable(_) | OccupancyState::Leaving(_))
                )
            });
            for node in held {
                let wanted = WantedNode { since, planned: true, free_since: None };
                self.wanted.entry(node.clone()).or_insert(wanted);
            }
        }
        planned
    }

    /// The delay of a main job that has started, if malleable jobs held one of its nodes.
    fn take_delay(&mut self, job: &Job) -> Option<MainDelay> {
        let start = job.start_time?;
        let wanted: Vec<WantedNode> = job.nodes.iter().filter_map(|node| self.wanted.remove(node)).collect();
        let first = wanted.iter().min_by_key(|wanted| wanted.since)?;
        let secs = start.secs_since(first.since).max(0.0);
        Some(MainDelay { job: job.id, at: start, secs, planned: first.planned })
    }
}

fn is_recent(at: UnixTime, now: UnixTime) -> bool {
    now.secs_since(at) < REMEMBERED_SECS
}

impl WantedNode {
    /// Whether a main job still waits for the node: malleable jobs have not come back to it, and it is not
    /// left free.
    fn is_still_wanted(
        &mut self,
        snapshot: &Snapshot,
        used: Option<OccupancyState<'_>>,
        now: UnixTime,
    ) -> bool {
        if let Some(OccupancyState::Free) = used {
            self.free_since = self.free_since.or(Some(now));
        }
        let is_over = match used {
            Some(OccupancyState::Malleable(job)) => {
                let job = snapshot.job(job).filter(|job| !job.was_preempted());
                job.and_then(|job| job.start_time).is_some_and(|start| start > self.since)
            }
            _ => self.free_since.is_some_and(|since| now.secs_since(since) > HANDOVER_SECS),
        };
        !is_over && is_recent(self.since, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobState, Node, NodeState, NodeType};

    const NOW: UnixTime = UnixTime(1000);

    fn main_job(id: u32, state: BaseState, nodes: &[&str], start: i64) -> Job {
        let names: Vec<NodeName> = nodes.iter().map(NodeName::new).collect();
        let (nodes, scheduled_nodes) =
            if state == BaseState::Running { (names, Vec::new()) } else { (Vec::new(), names) };
        let start_time = Some(NOW + start);
        Job { nodes, scheduled_nodes, start_time, ..Job::new(JobId(id), "main", state) }
    }

    fn ours(node: &str, preempted_at: Option<i64>) -> Job {
        Job {
            nodes: vec![NodeName::new(node)],
            start_time: Some(NOW + -500),
            preempt_time: preempted_at.map(|secs| NOW + secs),
            ..Job::new(JobId(90), "infill", BaseState::Running)
        }
    }

    fn look(delays: &mut DelayTracker, at: i64, jobs: &[Job]) -> Vec<MainDelay> {
        let node = |name: &str| {
            let name = NodeName::new(name);
            let used = jobs.iter().any(|job| job.state.occupies_nodes() && job.nodes.contains(&name));
            let state = NodeState::from_words([if used { "ALLOCATED" } else { "IDLE" }]);
            Node { state, ..Node::new(name, NodeType::new("a")) }
        };
        let nodes = vec![node("n1"), node("n2")];
        let snapshot = Snapshot { nodes, jobs: jobs.to_vec(), ..Snapshot::default() };
        delays.observe_snapshot(&snapshot, &NodeOccupancy::from_snapshot(&snapshot, "infill"), NOW + at)
    }

    #[test]
    fn a_preemption_lasts_until_the_main_job_starts() {
        let mut delays = DelayTracker::default();
        assert!(look(&mut delays, 0, &[ours("n1", None)]).is_empty());
        assert!(look(&mut delays, 5, &[ours("n1", Some(4))]).is_empty());
        // Slurm still shows the job that it preempted.
        let gone = || Job { state: JobState::from_base(BaseState::Preempted), ..ours("n1", Some(4)) };
        let main = || main_job(1, BaseState::Running, &["n1", "n2"], 6);
        let delay = MainDelay { job: JobId(1), at: NOW + 6, secs: 2.0, planned: false };
        assert_eq!(look(&mut delays, 10, &[gone(), main()]), [delay]);
        assert!(look(&mut delays, 15, &[gone(), main()]).is_empty(), "once");
        let next = main_job(2, BaseState::Running, &["n1"], 17);
        assert!(look(&mut delays, 20, &[gone(), next]).is_empty(), "no malleable job was there before it");
        let mut next_daemon = DelayTracker::default();
        assert!(look(&mut next_daemon, 8, &[gone()]).is_empty());
        assert!(look(&mut next_daemon, 10, &[gone(), main()]).is_empty(), "an unknown cause");
    }

    #[test]
    fn a_node_that_no_job_takes_is_no_longer_wanted() {
        let other = |start: i64| Job { id: JobId(91), start_time: Some(NOW + start), ..ours("n1", None) };
        let after = |looks: &[(i64, Vec<Job>)]| {
            let mut delays = DelayTracker::default();
            look(&mut delays, 0, &[ours("n1", None)]);
            look(&mut delays, 5, &[ours("n1", Some(4))]);
            looks.iter().for_each(|(at, jobs)| drop(look(&mut delays, *at, jobs)));
            look(&mut delays, 300, &[main_job(2, BaseState::Running, &["n1"], 299)]).len()
        };
        assert_eq!(after(&[(299, vec![ours("n1", Some(4))])]), 1, "the malleable job stays for long");
        assert_eq!(after(&[(10, vec![]), (30, vec![])]), 0, "it is left free");
        assert_eq!(after(&[(10, vec![other(8)])]), 0, "malleable jobs have it again");
    }

    #[test]
    fn a_plan_that_moves_elsewhere_makes_no_delay() {
        let mut delays = DelayTracker::default();
        let held = || ours("n2", None);
        look(&mut delays, 31, &[held(), main_job(1, BaseState::Pending, &["n2"], 30)]);
        look(&mut delays, 36, &[held(), main_job(1, BaseState::Pending, &["n1"], 90)]);
        assert!(look(&mut delays, 200, &[main_job(1, BaseState::Running, &["n2"], 199)]).is_empty());
    }

    #[test]
    fn a_planned_start_is_delayed_until_it_happens() {
        let mut delays = DelayTracker::default();
        let held = || ours("n2", None);
        look(&mut delays, 0, &[held(), main_job(1, BaseState::Pending, &["n2"], 30)]);
        assert!(delays.wanted.is_empty(), "not yet");
        look(&mut delays, 31, &[held(), main_job(1, BaseState::Pending, &["n2"], 30)]);
        let started = look(&mut delays, 40, &[main_job(1, BaseState::Running, &["n2"], 37)]);
        let delay = MainDelay { job: JobId(1), at: NOW + 37, secs: 7.0, planned: true };
        assert_eq!(started, [delay]);
        let mut delays = DelayTracker::default();
        look(&mut delays, 31, &[held(), main_job(1, BaseState::Pending, &["n2"], 30)]);
        look(&mut delays, 36, &[ours("n2", Some(35)), main_job(1, BaseState::Pending, &["n2"], 30)]);
        let started = look(&mut delays, 40, &[main_job(1, BaseState::Running, &["n2"], 37)]);
        assert_eq!(started, [delay], "preempted for it");
        look(&mut delays, 50, &[ours("n1", Some(45))]);
        assert!(
            look(&mut delays, 2000, &[]).is_empty() && delays.wanted.is_empty(),
            "no job wants it any more"
        );
    }
}
