//! Records in each round what every node is used for, and what malleable jobs use their node-time for.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::timeline::{HourRecorder, NodeHolding, NodeTimeTracker, NodeUse, ObservedUse, UsageHour};
use infill_gaps::{DelayTracker, NodeOccupancy, OccupancyState};
use infill_model::{
    GapRefusal, GapSet, JobActivity, JobId, MainDelay, Node, NodeName, NodeTimeRow, NodeTimeUsage, NodeType,
    Snapshot, UnixTime, lead_of_wing,
};

/// How often the present hour is stored, seconds. At most this much of it is lost when the daemon is killed.
const STORE_INTERVAL_SECS: f64 = 60.0;

/// Records node uses, node-time and delays of main jobs.
#[derive(Debug, Default)]
pub struct UsageRecorder {
    recorder: HourRecorder,
    spending: NodeTimeTracker,
    delays: DelayTracker,
    /// Main jobs that started on nodes of malleable jobs since [`Self::take_delays`] was called.
    started: Vec<MainDelay>,
    /// When the present hour was stored last.
    stored_at: Option<UnixTime>,
    /// The present hour as of the last snapshot, for readers.
    shown: Option<Arc<UsageHour>>,
}

/// Rows for the store: finished hours, and from time to time the present one.
#[derive(Debug, Default, PartialEq)]
pub struct RecordedUsage {
    /// What nodes were used for.
    pub hours: Vec<Arc<UsageHour>>,
    /// What node-time was used for.
    pub spent: Vec<NodeTimeRow>,
    /// Main jobs that started on nodes of malleable jobs.
    pub delays: Vec<MainDelay>,
}

impl UsageRecorder {
    /// Continues the hour of an earlier daemon.
    pub fn resume_hour(&mut self, hour: UsageHour) {
        self.recorder = HourRecorder::resume_from(hour);
    }

    /// Continues the node-time of the present hour.
    pub(crate) fn resume_spending(&mut self, rows: Vec<NodeTimeRow>) {
        self.spending = NodeTimeTracker::resume_from(rows);
    }

    /// Takes the delays of the main jobs that have started since the last call.
    pub(crate) fn take_delays(&mut self) -> Vec<MainDelay> {
        std::mem::take(&mut self.started)
    }

    /// Takes the node-time that malleable jobs held since the last call, by account.
    pub(crate) fn take_node_time(&mut self) -> BTreeMap<String, NodeTimeUsage> {
        self.spending.take_added()
    }

    /// Records a trusted snapshot and its gaps. `activity` returns what a malleable job does. Returns the
    /// rows for the store.
    pub fn record_snapshot(
        &mut self,
        snapshot: &Snapshot,
        partition: &str,
        gaps: &GapSet,
        activity: impl Fn(JobId) -> JobActivity,
        now: UnixTime,
    ) -> RecordedUsage {
        let occupancy = NodeOccupancy::from_snapshot(snapshot, partition);
        let delays = self.delays.observe_snapshot(snapshot, &occupancy, now);
        self.started.extend_from_slice(&delays);
        let ends = last_job_ends(snapshot);
        let mut uses = Vec::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            if !node.partitions.iter().any(|name| name == partition) {
                continue;
            }
            let Some(state) = occupancy.state_at(index) else { continue };
            let last_end = ends.get(&node.name).copied();
            let (used, since) = node_use(snapshot, gaps, node, state, last_end);
            uses.push(ObservedUse { node: node.name.clone(), used, since });
        }
        let hours = self.recorder.record_uses(now, uses.into_iter()).into_iter().map(Arc::new).collect();
        self.shown = Some(Arc::new(self.recorder.current_hour().clone()));
        let spent = self.spending.record_holdings(now, job_holdings(snapshot, partition, activity));
        let mut recorded = RecordedUsage { hours, spent, delays };
        if self.stored_at.is_none_or(|at| now.age_of(at) >= STORE_INTERVAL_SECS) {
            self.stored_at = Some(now);
            let RecordedUsage { hours, spent, .. } = self.current_usage();
            recorded.hours.extend(hours);
            recorded.spent.extend(spent);
        }
        recorded
    }

    /// The rows of the present hour; empty before the first snapshot.
    pub fn current_usage(&self) -> RecordedUsage {
        RecordedUsage {
            hours: self.current_hour().into_iter().collect(),
            spent: self.spending.current_rows(),
            delays: Vec::new(),
        }
    }

    /// What nodes are used for in the present hour; `None` before the first snapshot.
    pub fn current_hour(&self) -> Option<Arc<UsageHour>> {
        self.shown.clone()
    }
}

/// What a node is used for, and since when if Slurm reports that. `last_end`: when its last job ended.
fn node_use(
    snapshot: &Snapshot,
    gaps: &GapSet,
    node: &Node,
    state: OccupancyState<'_>,
    last_end: Option<UnixTime>,
) -> (NodeUse, Option<UnixTime>) {
    match state {
        OccupancyState::Main(job) if job.state.is_running() => (NodeUse::Main, job.start_time),
        // No job uses the node, but its last one is still being cleaned up.
        OccupancyState::Main(_) | OccupancyState::Leaving(_) => (NodeUse::Refused, last_end),
        OccupancyState::Malleable(job) => {
            let since = snapshot.job(job).and_then(|job| job.start_time);
            (NodeUse::Job(lead_of_job(snapshot, job)), since)
        }
        OccupancyState::Asleep | OccupancyState::Unsound | OccupancyState::Unexplained => {
            (NodeUse::Down, last_end)
        }
        OccupancyState::Free => (idle_use(gaps, &node.name), last_end),
    }
}

/// When the last job of each node ended, of the jobs that Slurm still shows. Jobs that are being cleaned up
/// count.
fn last_job_ends(snapshot: &Snapshot) -> FxHashMap<&NodeName, UnixTime> {
    let mut ends = FxHashMap::default();
    for job in &snapshot.jobs {
        let Some(end) = job.end_time.filter(|_| !job.state.is_running() && !job.state.is_pending()) else {
            continue;
        };
        for node in &job.nodes {
            let last = ends.entry(node).or_insert(end);
            *last = end.max(*last);
        }
    }
    ends
}

/// The nodes that malleable jobs hold, by type.
fn job_holdings(
    snapshot: &Snapshot,
    partition: &str,
    activity: impl Fn(JobId) -> JobActivity,
) -> Vec<NodeHolding> {
    let mut holdings = Vec::new();
    let ours = snapshot.jobs.iter().filter(|job| job.partition == partition && job.state.occupies_nodes());
    for job in ours {
        let doing = activity(lead_of_job(snapshot, job.id));
        let mut held = BTreeMap::<&NodeType, (u32, u32)>::new();
        for node in job.nodes.iter().filter_map(|name| snapshot.node(name)) {
            let (nodes, gpus) = held.entry(&node.node_type).or_default();
            *nodes += 1;
            *gpus += node.has.gpus.total_count();
        }
        for (node_type, (nodes, gpus)) in held {
            holdings.push(NodeHolding {
                account: job.account.clone(),
                user: job.user_name.clone(),
                node_type: node_type.to_string(),
                nodes,
                gpus,
                doing,
            });
        }
    }
    holdings
}

/// The malleable job to which a Slurm job belongs: its lead, or itself.
fn lead_of_job(snapshot: &Snapshot, job: JobId) -> JobId {
    owned_lead(snapshot, job).unwrap_or(job)
}

/// The lead after which a wing is named. A wing that is named after another user's job has no lead.
fn owned_lead(snapshot: &Snapshot, job: JobId) -> Option<JobId> {
    let wing = snapshot.job(job)?;
    let lead = snapshot.job(lead_of_wing(wing)?)?;
    (lead.user_id == wing.user_id).then_some(lead.id)
}

/// Why an idle node is idle.
fn idle_use(gaps: &GapSet, node: &NodeName) -> NodeUse {
    match gaps.refusal_for(node) {
        None => NodeUse::Idle,
        Some(GapRefusal::Reserved(_) | GapRefusal::WindowTooShort { .. }) => NodeUse::Wanted,
        Some(_) => NodeUse::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, Job, JobState, NodeState, NodeType, UserId, wing_name};

    fn snapshot() -> Snapshot {
        let node = |name: &str, state: &str| Node {
            partitions: vec!["infill".to_owned()],
            state: NodeState::from_words([state]),
            ..Node::new(NodeName::new(name), NodeType::new("a"))
        };
        let job = |id, partition: &str, node: &str, name: &str| Job {
            nodes: vec![NodeName::new(node)],
            name: name.to_owned(),
            user_name: "alice".to_owned(),
            ..Job::new(JobId(id), partition, BaseState::Running)
        };
        let wing = job(8, "infill", "n2", &wing_name(JobId(7)));
        let theirs = Job { user_id: UserId(5), ..job(9, "infill", "n7", &wing_name(JobId(7))) };
        let elsewhere = Node { partitions: vec!["main".to_owned()], ..node("n0", "IDLE") };
        let states = [
            ("n1", "ALLOCATED"),
            ("n2", "ALLOCATED"),
            ("n3", "IDLE"),
            ("n4", "IDLE"),
            ("n5", "IDLE"),
            ("n6", "DOWN"),
            ("n7", "ALLOCATED"),
        ];
        let nodes = states.map(|(name, state)| node(name, state));
        Snapshot {
            nodes: std::iter::once(elsewhere).chain(nodes).collect(),
            jobs: vec![job(1, "main", "n1", ""), job(7, "infill", "", ""), wing, theirs],
            ..Snapshot::default()
        }
    }

    fn look(recorder: &mut UsageRecorder, at: i64) -> Vec<Arc<UsageHour>> {
        let short = GapRefusal::WindowTooShort { window_secs: 5.0, cause: None, worth_secs: 60.0 };
        let refused =
            vec![(NodeName::new("n4"), short), (NodeName::new("n5"), GapRefusal::KeptIdle { nodes: 1 })];
        let gaps = GapSet { gaps: Vec::new(), refused };
        recorder
            .record_snapshot(
                &snapshot(),
                "infill",
                &gaps,
                |job| if job == JobId(7) { JobActivity::Steps } else { JobActivity::Changing },
                UnixTime(at),
            )
            .hours
    }

    #[test]
    fn each_node_of_the_partition_is_used_for_something() {
        let mut recorder = UsageRecorder::default();
        look(&mut recorder, 3600);
        let hour = look(&mut recorder, 3660).remove(0);
        let spans = hour.use_spans();
        let said: Vec<String> = spans
            .iter()
            .map(|(node, from, to, used)| format!("{} {from}-{to} {used:?}", hour.names[*node as usize]))
            .collect();
        let expected = [
            "n1 0-60 Main",
            "n2 0-60 Job(JobId(7))",
            "n3 0-60 Idle",
            "n4 0-60 Wanted",
            "n5 0-60 Refused",
            "n6 0-60 Down",
            "n7 0-60 Job(JobId(9))",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn what_changes_does_so_when_slurm_says() {
        let mut recorder = UsageRecorder::default();
        let look = |recorder: &mut UsageRecorder, at: i64, state: JobState, end: Option<i64>| {
            let mut snapshot = snapshot();
            let main = &mut snapshot.jobs[0];
            (main.start_time, main.end_time, main.state) = (Some(UnixTime(3607)), end.map(UnixTime), state);
            let gaps = GapSet { gaps: Vec::new(), refused: Vec::new() };
            recorder.record_snapshot(&snapshot, "infill", &gaps, |_| JobActivity::Steps, UnixTime(at));
            let hour = recorder.current_hour().unwrap();
            let of_first = hour.use_spans().into_iter().filter(|(node, ..)| *node == 0);
            of_first.map(|(_, from, to, used)| format!("{from}-{to} {used:?}")).collect::<Vec<_>>().join(", ")
        };
        let running = || JobState::from_base(BaseState::Running);
        look(&mut recorder, 3600, running(), Some(9000));
        assert_eq!(look(&mut recorder, 3630, running(), Some(9000)), "0-30 Main");
        let completing =
            JobState { flags: ["COMPLETING".to_owned()].into(), ..JobState::from_base(BaseState::Completed) };
        let found = look(&mut recorder, 3660, completing, Some(3641));
        assert_eq!(found, "0-41 Main, 41-60 Refused", "it is cleaned up after");
    }

    #[test]
    fn the_hour_that_is_under_way_is_stored_once_a_minute() {
        let mut recorder = UsageRecorder::default();
        let mut stored = |at| -> Vec<(i64, u32)> {
            look(&mut recorder, at).iter().map(|hour| (hour.from.0, hour.secs)).collect()
        };
        assert_eq!(stored(7100), [(3600, 3500)]);
        assert!(stored(7130).is_empty());
        assert_eq!(stored(7160), [(3600, 3560)]);
        assert_eq!(stored(7205), [(3600, 3600)]);
        assert_eq!(stored(7220), [(7200, 20)]);
    }

    #[test]
    fn what_became_of_node_time_follows_from_what_jobs_do() {
        let mut recorder = UsageRecorder::default();
        look(&mut recorder, 3600);
        look(&mut recorder, 3650);
        let spent = recorder.current_usage().spent;
        let said: Vec<_> = spent.iter().map(|row| (row.spent.useful_secs, row.spent.rescale_secs)).collect();
        assert_eq!(said, [(50.0, 50.0)], "n2 makes steps, and n7 does not yet: {spent:?}");
    }
}
