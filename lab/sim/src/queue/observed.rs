//! A main queue that was observed at a running Slurm, snapshot by snapshot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::backfill::PlannedJob;
use super::{NodeIx, PlannedUse, QueueChange, TakenNodes};
use infill_gaps::{NodeOccupancy, OccupancyState};
use infill_model::{Job, JobId, Node, NodeName, Snapshot};

/// Stands for what keeps a node from being idle and is not a job: a state, a reservation.
pub(crate) const NO_JOB: JobId = JobId(0);

/// Ids of jobs that stand for reservations count down from here.
const LAST_RESERVATION: u32 = u32::MAX;

/// Which nodes are observed.
#[derive(Clone, Debug, Default)]
pub struct ObservedNodes {
    /// The partitions; empty for all.
    pub partitions: BTreeSet<String>,
    /// The names; empty for all.
    pub names: BTreeSet<NodeName>,
}

impl ObservedNodes {
    fn contains(&self, node: &Node) -> bool {
        (self.partitions.is_empty() || node.partitions.iter().any(|p| self.partitions.contains(p)))
            && (self.names.is_empty() || self.names.contains(&node.name))
    }
}

/// Records what the main queue does with chosen nodes.
#[derive(Clone, Debug, Default)]
pub struct QueueObserver {
    chosen: ObservedNodes,
    names: Vec<NodeName>,
    numbers: BTreeMap<NodeName, NodeIx>,
    /// Who uses each node; `None` for an idle one.
    users: Vec<Option<JobId>>,
    plan: Arc<Vec<PlannedJob>>,
    /// What was recorded and not taken yet.
    moments: Vec<ObservedMoment>,
    span: Option<(i64, i64)>,
}

/// What changed from one snapshot to the next.
#[derive(Clone, Debug)]
pub struct ObservedMoment {
    change: QueueChange,
    /// The plan of backfill from then on.
    plan: Arc<Vec<PlannedJob>>,
}

impl QueueObserver {
    /// An observer of these nodes.
    pub fn new(chosen: ObservedNodes) -> QueueObserver {
        QueueObserver { chosen, ..QueueObserver::default() }
    }

    /// The first and the last snapshot, s; `None` before the first.
    pub fn time_span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// The names of the nodes that were seen, by number.
    pub fn node_names(&self) -> &[NodeName] {
        &self.names
    }

    /// Takes what was recorded since the last call.
    pub fn take_moments(&mut self) -> Vec<ObservedMoment> {
        std::mem::take(&mut self.moments)
    }

    /// Forgets everything but the choice of nodes.
    pub fn restart(&mut self) {
        *self = QueueObserver::new(std::mem::take(&mut self.chosen));
    }

    /// Records a snapshot. One that is not newer than the last one is left out.
    pub fn record_snapshot(&mut self, snapshot: &Snapshot) {
        let at = snapshot.taken_at.0;
        if self.span.is_some_and(|(_, end)| at <= end) {
            return;
        }
        self.span = Some((self.span.map_or(at, |(start, _)| start), at));
        let change = self.change_to(snapshot, at);
        let plan = self.plan_of(snapshot);
        if change.freed.is_empty() && change.taken.is_empty() && plan == *self.plan {
            return;
        }
        if plan != *self.plan {
            self.plan = Arc::new(plan);
        }
        self.moments.push(ObservedMoment { change, plan: self.plan.clone() });
    }

    /// The changes of nodes since the last snapshot.
    fn change_to(&mut self, snapshot: &Snapshot, at: i64) -> QueueChange {
        // No job is malleable here: infill has no partition yet.
        let occupancy = NodeOccupancy::from_snapshot(snapshot, "");
        let reserved = reserved_nodes(snapshot);
        let mut freed = Vec::new();
        let mut taken: BTreeMap<JobId, Vec<NodeIx>> = BTreeMap::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            if !self.chosen.contains(node) {
                continue;
            }
            let user = match occupancy.state_at(index) {
                Some(OccupancyState::Free) if !reserved.contains(&node.name) => None,
                Some(OccupancyState::Main(job)) => Some(job.id),
                _ => Some(NO_JOB),
            };
            let number = self.number_of(&node.name);
            let before = std::mem::replace(&mut self.users[number as usize], user);
            match (before, user) {
                (Some(_), None) => freed.push(number),
                (None, Some(job)) => taken.entry(job).or_default().push(number),
                _ => {}
            }
        }
        let taken = taken.into_iter().map(|(job, nodes)| TakenNodes { job, nodes }).collect();
        QueueChange { at, freed, taken }
    }

    /// The number of a node. New nodes count as used until they are seen idle.
    fn number_of(&mut self, name: &NodeName) -> NodeIx {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as NodeIx;
        self.names.push(name.clone());
        self.users.push(Some(NO_JOB));
        self.numbers.insert(name.clone(), number);
        number
    }

    /// Starts that backfill has planned, and reservations that will begin, by job.
    fn plan_of(&self, snapshot: &Snapshot) -> Vec<PlannedJob> {
        let now = snapshot.taken_at;
        let jobs = snapshot.jobs.iter().filter(|job| job.state.is_pending()).filter_map(|job: &Job| {
            let start = job.start_time.filter(|start| *start > now)?;
            self.planned(job.id, start.0, &job.scheduled_nodes)
        });
        let begins = snapshot.reservations.iter().filter(|r| r.start_time > now);
        let reservations = begins
            .zip(0..)
            .filter_map(|(r, i)| self.planned(JobId(LAST_RESERVATION - i), r.start_time.0, &r.nodes));
        let mut plan: Vec<PlannedJob> = jobs.chain(reservations).collect();
        plan.sort_by_key(|planned| planned.job);
        plan
    }

    fn planned(&self, job: JobId, start: i64, nodes: &[NodeName]) -> Option<PlannedJob> {
        let nodes: Vec<NodeIx> = nodes.iter().filter_map(|node| self.numbers.get(node).copied()).collect();
        (!nodes.is_empty()).then_some(PlannedJob { job, start, nodes })
    }

    /// A queue of these nodes without any moment. [`QueueObserver::take_moments`] gives what follows.
    pub fn empty_queue(&self) -> ObservedQueue {
        ObservedQueue {
            names: self.names.clone(),
            moments: VecDeque::new(),
            plan: Arc::default(),
            first_planned: vec![None; self.names.len()],
            plan_number: 0,
            span: self.span.unwrap_or_default(),
        }
    }
}

/// Nodes that a reservation covers now.
fn reserved_nodes(snapshot: &Snapshot) -> BTreeSet<&NodeName> {
    let now = snapshot.taken_at;
    let ongoing = snapshot.reservations.iter().filter(|r| r.start_time <= now && r.end_time > now);
    ongoing.flat_map(|reservation| &reservation.nodes).collect()
}

/// Replays what a [`QueueObserver`] has recorded, and forgets what it has replayed.
#[derive(Clone, Debug)]
pub struct ObservedQueue {
    names: Vec<NodeName>,
    moments: VecDeque<ObservedMoment>,
    plan: Arc<Vec<PlannedJob>>,
    /// The first planned use of each node.
    first_planned: Vec<Option<PlannedUse>>,
    plan_number: u64,
    span: (i64, i64),
}

impl ObservedQueue {
    /// Adds later moments.
    pub(crate) fn append(&mut self, moments: Vec<ObservedMoment>) {
        self.moments.extend(moments);
    }

    pub(super) fn node_names(&self) -> &[NodeName] {
        &self.names
    }

    pub(super) fn time_span(&self) -> (i64, i64) {
        self.span
    }

    pub(super) fn next_change(&self) -> Option<i64> {
        self.moments.front().map(|moment| moment.change.at)
    }

    pub(super) fn advance(&mut self) -> Option<QueueChange> {
        let moment = self.moments.pop_front()?;
        if !Arc::ptr_eq(&moment.plan, &self.plan) {
            self.plan = moment.plan;
            self.plan_number += 1;
            self.first_planned.fill(None);
            for planned in self.plan.iter() {
                for node in &planned.nodes {
                    let Some(first) = self.first_planned.get_mut(*node as usize) else { continue };
                    if first.is_none_or(|first| planned.start < first.at) {
                        *first = Some(PlannedUse { at: planned.start, job: planned.job });
                    }
                }
            }
        }
        Some(moment.change)
    }

    pub(super) fn planned_use(&self, node: NodeIx) -> Option<PlannedUse> {
        *self.first_planned.get(node as usize)?
    }

    pub(super) fn backfill_plan(&self) -> (&[PlannedJob], u64) {
        (&self.plan, self.plan_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Foresight, MainQueue};
    use infill_model::{BaseState, NodeState, NodeType, UnixTime};

    /// A snapshot of three nodes of `main` and one of `other`. Each job has an id, nodes, and a planned start
    /// if it waits.
    fn snapshot(at: i64, jobs: &[(u32, &str, Option<i64>)]) -> Snapshot {
        let node = |name: &str| {
            let used =
                jobs.iter().any(|(_, nodes, start)| start.is_none() && nodes.split(',').any(|n| n == name));
            Node {
                state: NodeState::from_words([if used { "ALLOCATED" } else { "IDLE" }]),
                partitions: vec![if name == "x1" { "other" } else { "main" }.to_owned()],
                ..Node::new(NodeName::new(name), NodeType::new("a"))
            }
        };
        let jobs = jobs.iter().map(|(id, nodes, start)| {
            let nodes: Vec<NodeName> = nodes.split(',').map(NodeName::new).collect();
            let base = if start.is_some() { BaseState::Pending } else { BaseState::Running };
            let mut job = Job::new(JobId(*id), "main", base);
            job.start_time = start.map(UnixTime);
            if start.is_some() {
                job.scheduled_nodes = nodes
            } else {
                job.nodes = nodes
            }
            job
        });
        let nodes = ["n1", "n2", "n3", "x1"].map(node).into();
        Snapshot { taken_at: UnixTime(at), nodes, jobs: jobs.collect(), ..Snapshot::default() }
    }

    #[test]
    fn changes_and_plans_are_replayed_as_they_were_seen() {
        let partitions = BTreeSet::from(["main".to_owned()]);
        let mut observer = QueueObserver::new(ObservedNodes { partitions, ..ObservedNodes::default() });
        observer.record_snapshot(&snapshot(100, &[(1, "n1,n2", None)]));
        observer.record_snapshot(&snapshot(110, &[(1, "n1,n2", None)]));
        observer.record_snapshot(&snapshot(120, &[(1, "n1,n2", None), (2, "n3", Some(150))]));
        observer.record_snapshot(&snapshot(120, &[]));
        observer.record_snapshot(&snapshot(150, &[(2, "n3", None)]));
        let mut recorded = observer.empty_queue();
        let moments = observer.take_moments();
        assert_eq!((observer.time_span(), moments.len()), (Some((100, 150)), 3));
        assert!(observer.take_moments().is_empty(), "each moment is taken once");
        recorded.append(moments);
        let mut queue = MainQueue::Observed(recorded);
        assert_eq!((queue.time_span(), queue.node_names().len()), ((100, 150), 3), "x1 is not observed");
        let first = queue.advance().unwrap();
        assert_eq!((first.at, first.freed, first.taken), (100, vec![2], vec![]));
        assert_eq!(queue.window_end(2, Foresight::Backfill), None);
        assert_eq!(queue.advance().unwrap().at, 120);
        let planned = queue.window_end(2, Foresight::Backfill);
        assert_eq!(planned, Some(PlannedUse { at: 150, job: JobId(2) }));
        let last = queue.advance().unwrap();
        assert_eq!((last.at, last.freed), (150, vec![0, 1]));
        assert_eq!(last.taken, [TakenNodes { job: JobId(2), nodes: vec![2] }]);
        assert_eq!((queue.next_change(), queue.window_end(2, Foresight::Backfill)), (None, None));
    }

    #[test]
    fn nodes_are_chosen_by_name_too() {
        let names = BTreeSet::from(["n2", "x1"].map(NodeName::new));
        let mut observer = QueueObserver::new(ObservedNodes { names, ..ObservedNodes::default() });
        observer.record_snapshot(&snapshot(100, &[]));
        assert_eq!(observer.node_names(), ["n2", "x1"].map(NodeName::new));
    }
}
