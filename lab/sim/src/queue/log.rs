//! A main queue from a job log: replays starts and ends, and plans the starts of pending jobs.
//!
//! If the log does not name a job's nodes, the job gets nodes that no main job uses, as Slurm would choose
//! them: first those that backfill had planned for it, then those that are planned for no job, or latest.
//! Nodes with lower numbers come first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::backfill::{self, FreeTimeline, PlannedJob, WaitingJob};
use super::{NodeIx, PlannedUse, QueueChange, TakenNodes};
use infill_model::{
    NodeName,
    trace::{JobLog, LoggedJob},
};

/// Assumed limit of a job that has none, s: a day.
const NO_LIMIT_SECS: i64 = 86_400;

/// Replays a job log on a cluster that is empty at first.
#[derive(Clone, Debug)]
pub struct LogQueue {
    names: Vec<NodeName>,
    /// The jobs of the log, by start.
    jobs: Vec<LoggedJob>,
    /// The nodes that the log names for each job; empty if it names none.
    named: Vec<Vec<NodeIx>>,
    /// Indices of jobs by submission.
    by_submit: Vec<usize>,
    next_start: usize,
    next_submit: usize,
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    /// Submitted jobs that have not started, by submission.
    waiting: BTreeSet<(i64, usize)>,
    /// Number of jobs on each node. On some clusters several jobs share a node.
    users: Vec<u32>,
    held: BTreeMap<usize, Vec<NodeIx>>,
    plan: Vec<PlannedJob>,
    plan_number: u64,
    first_planned: Vec<Option<PlannedUse>>,
    start: i64,
    /// Number of nodes that jobs should have had but did not get because others had them.
    pub short: u64,
}

impl LogQueue {
    /// A log on a cluster of `nodes` nodes, but at least those that the log names. The default is the log's
    /// total, or else the most nodes that its jobs hold at once. Events before the log is complete are
    /// replayed too, but lie before `time_span`.
    pub fn new(log: &JobLog, nodes: Option<usize>) -> Self {
        let names = all_node_names(log, nodes);
        let numbers: BTreeMap<&NodeName, NodeIx> = names.iter().zip(0..).collect();
        let named = log
            .jobs
            .iter()
            .map(|j| j.node_list.iter().filter_map(|n| numbers.get(n).copied()).collect())
            .collect();
        let mut by_submit: Vec<usize> = (0..log.jobs.len()).collect();
        by_submit.sort_by_key(|i| (log.jobs[*i].submit, *i));
        let count = names.len();
        LogQueue {
            names,
            jobs: log.jobs.clone(),
            named,
            by_submit,
            next_start: 0,
            next_submit: 0,
            ends: BinaryHeap::new(),
            waiting: BTreeSet::new(),
            users: vec![0; count],
            held: BTreeMap::new(),
            plan: Vec::new(),
            plan_number: 0,
            first_planned: vec![None; count],
            start: log.jobs.first().map_or(0, |j| j.start).max(log.complete_from.unwrap_or(i64::MIN)),
            short: 0,
        }
    }

    pub(super) fn node_names(&self) -> &[NodeName] {
        &self.names
    }

    pub(super) fn time_span(&self) -> (i64, i64) {
        // The span ends with the last start: after it, the replayed cluster only empties.
        let end = self.jobs.last().map_or(self.start, |j| j.start);
        (self.start, end.max(self.start))
    }

    pub(super) fn backfill_plan(&self) -> (&[PlannedJob], u64) {
        (&self.plan, self.plan_number)
    }

    pub(super) fn planned_use(&self, node: NodeIx) -> Option<PlannedUse> {
        *self.first_planned.get(node as usize)?
    }

    pub(super) fn next_change(&self) -> Option<i64> {
        let start = self.jobs.get(self.next_start).map(|j| j.start);
        let submit = self.by_submit.get(self.next_submit).map(|i| self.jobs[*i].submit);
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        start.into_iter().chain(submit).chain(end).min()
    }

    pub(super) fn advance(&mut self) -> Option<QueueChange> {
        let at = self.next_change()?;
        let mut moment = QueueChange { at, ..QueueChange::default() };
        while let Some(i) =
            self.by_submit.get(self.next_submit).copied().filter(|i| self.jobs[*i].submit <= at)
        {
            self.waiting.insert((self.jobs[i].submit, i));
            self.next_submit += 1;
        }
        while let Some(Reverse((_, job))) = self.ends.peek().copied().filter(|Reverse((end, _))| *end <= at) {
            self.ends.pop();
            for node in self.held.remove(&job).unwrap_or_default() {
                let users = &mut self.users[node as usize];
                *users -= 1;
                if *users == 0 {
                    moment.freed.push(node);
                }
            }
        }
        while self.jobs.get(self.next_start).is_some_and(|j| j.start <= at) {
            let taken = self.start_job(self.next_start);
            moment.taken.push(taken);
            self.next_start += 1;
        }
        // A node that the next job takes in the same second is not a gap.
        let retaken: BTreeSet<NodeIx> = moment.taken.iter().flat_map(|t| t.nodes.iter().copied()).collect();
        moment.freed.retain(|node| !retaken.contains(node));
        self.plan_ahead(at);
        Some(moment)
    }

    fn start_job(&mut self, job: usize) -> TakenNodes {
        let logged = &self.jobs[job];
        self.waiting.remove(&(logged.submit, job));
        let nodes = if self.named[job].is_empty() { self.choose_nodes(job) } else { self.named[job].clone() };
        self.short += (logged.nodes as usize).saturating_sub(nodes.len()) as u64;
        let taken: Vec<NodeIx> = nodes.iter().copied().filter(|n| self.is_free(*n as usize)).collect();
        for node in &nodes {
            self.users[*node as usize] += 1;
        }
        let id = self.jobs[job].id;
        self.ends.push(Reverse((self.jobs[job].end, job)));
        self.held.insert(job, nodes);
        TakenNodes { job: id, nodes: taken }
    }

    fn is_free(&self, node: usize) -> bool {
        self.users[node] == 0
    }

    fn choose_nodes(&self, job: usize) -> Vec<NodeIx> {
        let id = self.jobs[job].id;
        let wanted = self.jobs[job].nodes as usize;
        let mut free: Vec<NodeIx> =
            (0..self.users.len()).filter(|n| self.is_free(*n)).map(|n| n as NodeIx).collect();
        let own: BTreeSet<NodeIx> =
            self.plan.iter().filter(|p| p.job == id).flat_map(|p| p.nodes.iter().copied()).collect();
        free.sort_by_key(|node| {
            let planned_at = self.planned_use(*node).map_or(i64::MAX, |planned| planned.at);
            (!own.contains(node), Reverse(planned_at), *node)
        });
        free.truncate(wanted);
        free
    }

    /// When each node is expected to be free, by the limits of the jobs on it.
    pub(super) fn believed_ends(&self, now: i64) -> FreeTimeline {
        let mut free = FreeTimeline::default();
        free.add_nodes(now, (0..self.users.len()).filter(|n| self.is_free(*n)).map(|n| n as NodeIx));
        let mut shared: BTreeMap<NodeIx, i64> = BTreeMap::new();
        for (job, nodes) in &self.held {
            let logged = &self.jobs[*job];
            let end = logged.start.saturating_add(logged.limit_secs.unwrap_or(NO_LIMIT_SECS));
            // A job that has exceeded its limit may end at any moment.
            let end = end.max(now + 1);
            let (on_shared, alone): (Vec<NodeIx>, Vec<NodeIx>) =
                nodes.iter().copied().partition(|node| self.users[*node as usize] > 1);
            free.add_nodes(end, alone);
            for node in on_shared {
                let last = shared.entry(node).or_insert(end);
                *last = end.max(*last);
            }
        }
        for (node, end) in shared {
            free.add_nodes(end, [node]);
        }
        free
    }

    fn plan_ahead(&mut self, now: i64) {
        let free = self.believed_ends(now);
        let waiting = self.waiting.iter().map(|(_, index)| {
            let job = &self.jobs[*index];
            let limit_secs = job.limit_secs.unwrap_or(NO_LIMIT_SECS);
            WaitingJob { job: job.id, nodes: job.nodes as usize, limit_secs }
        });
        let plan = backfill::plan_starts(now, waiting, free);
        if plan != self.plan {
            self.plan = plan;
            self.plan_number += 1;
            self.first_planned.fill(None);
            for planned in &self.plan {
                for node in &planned.nodes {
                    let found = PlannedUse { at: planned.start, job: planned.job };
                    let first = &mut self.first_planned[*node as usize];
                    *first = first.filter(|f| f.at <= found.at).or(Some(found));
                }
            }
        }
    }
}

/// The names of the log's nodes, and generated names for nodes that no job names, in natural order.
fn all_node_names(log: &JobLog, nodes: Option<usize>) -> Vec<NodeName> {
    let mut names: Vec<NodeName> = log.jobs.iter().flat_map(|j| j.node_list.iter().cloned()).collect();
    names.sort_by(NodeName::cmp_natural);
    names.dedup();
    let given = nodes.or(log.nodes_total.map(|n| n as usize));
    let total = given.unwrap_or_else(|| most_at_once(log.jobs.iter().filter(|j| j.node_list.is_empty())));
    let missing = total.saturating_sub(names.len());
    let width = total.to_string().len();
    let prefix = if names.is_empty() { "n" } else { "unnamed" };
    names.extend((1..=missing).map(|n| NodeName::new(format!("{prefix}{n:0width$}"))));
    names.sort_by(NodeName::cmp_natural);
    names
}

/// The most nodes that these jobs hold at a time.
fn most_at_once<'a>(jobs: impl Iterator<Item = &'a LoggedJob>) -> usize {
    let changes = jobs.flat_map(|j| [(j.end, -i64::from(j.nodes)), (j.start, i64::from(j.nodes))]);
    let mut changes: Vec<(i64, i64)> = changes.collect();
    changes.sort_unstable();
    let mut held = 0;
    let most = changes.into_iter().map(|(_, change)| {
        held += change;
        held
    });
    most.max().unwrap_or(0).max(0) as usize
}
