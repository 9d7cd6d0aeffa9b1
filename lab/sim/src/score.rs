//! The results of a simulation.

use serde::Serialize;

use super::queue::NodeIx;
use infill_model::JobId;

/// Most points of a series; with more, neighbours are averaged.
const MAX_SERIES_POINTS: usize = 4096;

/// Most spans of the node timeline; with more, only half of the nodes are shown.
const MAX_TIMELINE_SPANS: usize = 60_000;

/// Why a job makes no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeCause {
    /// Its policy has rescaled it.
    #[default]
    Rescale,
    /// The main queue has taken nodes from it.
    Preemption,
    /// Its policy wants to measure it.
    Probe,
}

/// Weighted samples that were not made, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SampleLoss {
    /// Lost in pauses for changes that the policy decided.
    pub rescale: f64,
    /// Lost in pauses and repeated work because the main queue took nodes.
    pub preemption: f64,
    /// Lost in pauses for changes that measure a size.
    pub probing: f64,
}

impl SampleLoss {
    pub(super) fn amount_mut(&mut self, cause: ChangeCause) -> &mut f64 {
        match cause {
            ChangeCause::Rescale => &mut self.rescale,
            ChangeCause::Preemption => &mut self.preemption,
            ChangeCause::Probe => &mut self.probing,
        }
    }
}

/// Delays of main jobs that found a node still held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MainQueueDelays {
    /// Main jobs that started during the simulation.
    pub jobs: u64,
    /// Main jobs that found a node held although their start there had been planned for longer than leaving
    /// takes.
    pub late: u64,
    /// Main jobs that found a node held because no start, or another time, had been planned.
    pub unforeseen: u64,
    /// Seconds of the longest of these delays.
    pub longest_secs: f64,
    /// Seconds of all these delays.
    pub total_secs: f64,
}

/// A stretch of time, with means over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SeriesPoint {
    /// Its start, s on the log's clock.
    pub at: f64,
    /// Its length, s.
    pub secs: f64,
    /// Nodes that the main queue did not use.
    pub idle: f64,
    /// Nodes that malleable jobs held.
    pub held: f64,
}

/// A span in which a malleable job held a node, or in which the node was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSpan {
    /// The node.
    pub node: NodeIx,
    /// Start of the span, s.
    pub from: i64,
    /// End of the span, s.
    pub to: i64,
    /// The malleable job; `None` if the node was idle.
    pub job: Option<JobId>,
}

/// The results of one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobScore {
    /// Its id, as in [`NodeSpan::job`].
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Its user; `None` if the workload has none.
    pub user: Option<String>,
    /// Samples made.
    pub samples: f64,
    /// Samples made, times what each is worth.
    pub work: f64,
    /// When it was submitted, s.
    pub submitted_at: i64,
    /// When it ended, s; `None` if it did not.
    pub ended_at: Option<f64>,
    /// Rescales after its first start.
    pub rescales: u64,
    /// Seconds for which it was in the queue, with nodes or without: from its submission to its end, or to
    /// the end of the simulation.
    pub present_secs: f64,
    /// Node-seconds held.
    pub node_secs: f64,
    /// How often it began to hold nodes after it had held none. Getting other nodes in the same second in
    /// which it lost its own is not a new turn.
    pub turns: u64,
    /// Seconds from its submission to its first node; `None` if it never had one.
    pub first_wait_secs: Option<f64>,
    /// Seconds of its longest stretch in the queue without nodes. A stretch at the simulation's end counts up
    /// to that end.
    pub longest_wait_secs: f64,
    /// Seconds in the queue without nodes.
    pub waited_secs: f64,
    /// Node-seconds that its changes cost: all its nodes while it paused for a change, and each newcomer
    /// while it warmed up. Where changes are charged at the old rate: their seconds times the nodes before
    /// the change.
    pub changing_secs: f64,
}

/// The results of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyScore {
    /// The policy's name.
    pub policy: String,
    /// Weighted samples of all jobs.
    pub work: f64,
    /// Samples of all jobs.
    pub samples: f64,
    /// Weighted samples that were lost, by cause.
    pub loss: SampleLoss,
    /// Node-seconds that the main queue did not use.
    pub idle_node_secs: f64,
    /// Node-seconds that malleable jobs held.
    pub held_node_secs: f64,
    /// Delays of main jobs.
    pub preempted: MainQueueDelays,
    /// Rescales of all jobs, preemptions included.
    pub rescales: u64,
    /// Number of rounds.
    pub rounds: u64,
    /// Plans that the checker refused. Any number but 0 shows a defect.
    pub refused_plans: u64,
    /// Largest proved gap to the optimum of all rounds' plans.
    pub worst_gap: f64,
    /// Jobs in the order of their submission.
    pub jobs: Vec<JobScore>,
    /// Number of jobs that ended.
    pub finished: usize,
    /// Idle and held nodes over time.
    pub series: Vec<SeriesPoint>,
    /// The jobs on each of the first nodes over time.
    pub timeline: Vec<NodeSpan>,
}

impl PolicyScore {
    /// Mean seconds from a job's submission to its end, or to the end of the simulation; `None` if no job
    /// ended.
    pub fn jct_mean_secs(&self) -> Option<f64> {
        let until = self.series.last().map_or(0.0, |last| last.at + last.secs);
        let sum: f64 =
            self.jobs.iter().map(|job| job.ended_at.unwrap_or(until) - job.submitted_at as f64).sum();
        (self.finished > 0).then(|| sum / self.jobs.len() as f64)
    }
}

/// Means over time, with a bound on their number.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeCountSeries {
    samples: Vec<SeriesPoint>,
    /// Seconds that each sample covers at least.
    least_secs: f64,
}

impl NodeCountSeries {
    pub fn add_stretch(&mut self, at: f64, secs: f64, idle: usize, held: usize) {
        let new = SeriesPoint { at, secs, idle: idle as f64, held: held as f64 };
        match self.samples.last_mut().filter(|last| last.secs < self.least_secs) {
            Some(last) => *last = merge_points(last, &new),
            None => self.samples.push(new),
        }
        if self.samples.len() > MAX_SERIES_POINTS {
            let span = self.samples.iter().map(|s| s.secs).sum::<f64>();
            self.least_secs = 2.0 * span / MAX_SERIES_POINTS as f64;
            let mut kept: Vec<SeriesPoint> = Vec::with_capacity(MAX_SERIES_POINTS);
            for sample in self.samples.drain(..) {
                match kept.last_mut().filter(|last| last.secs < self.least_secs) {
                    Some(last) => *last = merge_points(last, &sample),
                    None => kept.push(sample),
                }
            }
            self.samples = kept;
        }
    }

    pub fn into_points(self) -> Vec<SeriesPoint> {
        self.samples
    }
}

fn merge_points(a: &SeriesPoint, b: &SeriesPoint) -> SeriesPoint {
    let secs = a.secs + b.secs;
    let divisor = secs.max(f64::MIN_POSITIVE);
    let idle = (a.idle * a.secs + b.idle * b.secs) / divisor;
    let held = (a.held * a.secs + b.held * b.secs) / divisor;
    SeriesPoint { at: a.at, secs, idle, held }
}

/// Records the owners of the nodes that the timeline shows.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeTimeline {
    nodes: NodeIx,
    open: std::collections::BTreeMap<NodeIx, (i64, Option<JobId>)>,
    spans: Vec<NodeSpan>,
}

impl NodeTimeline {
    /// Shows the first `nodes` nodes.
    pub fn new(nodes: NodeIx) -> Self {
        NodeTimeline { nodes, ..NodeTimeline::default() }
    }

    /// Records the owner of a node: `None` for the main queue, `Some(None)` for an idle node.
    pub fn note_owner(&mut self, node: NodeIx, now: i64, who: Option<Option<JobId>>) {
        if node >= self.nodes || self.open.get(&node).map(|(_, job)| *job) == who {
            return;
        }
        if let Some((from, job)) = self.open.remove(&node)
            && from < now
        {
            self.spans.push(NodeSpan { node, from, to: now, job });
        }
        if self.spans.len() > MAX_TIMELINE_SPANS && self.nodes > 1 {
            self.nodes = self.nodes.div_ceil(2);
            let nodes = self.nodes;
            self.spans.retain(|span| span.node < nodes);
            self.open.retain(|node, _| *node < nodes);
        }
        if let Some(job) = who.filter(|_| node < self.nodes) {
            self.open.insert(node, (now, job));
        }
    }

    /// All spans, by node and time.
    pub fn into_spans(mut self, now: i64) -> Vec<NodeSpan> {
        for node in 0..self.nodes {
            self.note_owner(node, now, None);
        }
        self.spans.sort_by_key(|s| (s.node, s.from));
        self.spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_log_shows_fewer_nodes_to_its_end() {
        let mut timeline = NodeTimeline::new(8);
        let most = MAX_TIMELINE_SPANS as i64;
        for now in 0..most {
            for node in 0..8 {
                timeline.note_owner(node, now, Some((now % 2 == 0).then_some(JobId(1))));
            }
        }
        let spans = timeline.into_spans(most);
        assert!(spans.len() <= MAX_TIMELINE_SPANS && spans.iter().all(|s| s.node == 0), "{}", spans.len());
        // The spans of the remaining node have no hole.
        assert!(spans.windows(2).all(|w| w[0].to == w[1].from));
        assert_eq!((spans.first().map(|s| s.from), spans.last().map(|s| s.to)), (Some(0), Some(most)));
    }
}
