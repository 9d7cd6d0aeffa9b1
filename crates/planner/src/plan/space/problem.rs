//! What a round has to decide, as plain values: the input of the planner.

use rustc_hash::FxHashMap;

use super::site_limits::SiteLimits;
use infill_model::config::PlannerConfig;
use infill_model::{Gap, GapSet, MalleableJob, NodeName, SchedulingState, Topology, UnixTime};

/// The whole input of the planner. The same problem always gets the same plan.
#[derive(Clone, Debug)]
pub struct PlanningProblem<'a> {
    /// The moment of the round.
    pub now: UnixTime,
    /// Nodes and places that may be used, and until when.
    pub gaps: &'a GapSet,
    /// Malleable jobs, in any order, each id once.
    pub jobs: &'a [MalleableJob],
    /// Settings of the planner.
    pub config: &'a PlannerConfig,
    /// Shortest window to start in, seconds. A job may stay on a node for less.
    pub min_window_secs: f64,
    /// `false` while paused: no job starts or grows. Leaving and shrinking go on.
    pub may_grow: bool,
    /// Whether all jobs must be parked.
    pub drain: bool,
    /// How switches connect the nodes, where that is known.
    pub topology: Option<&'a Topology>,
    /// The administrator's limits; `None` for none. Only the checker reads them.
    pub limits: Option<&'a SiteLimits>,
    /// The index of each node's gap, because gaps are looked up often.
    gap_index_by_node: FxHashMap<&'a NodeName, usize>,
}

impl<'a> PlanningProblem<'a> {
    /// A problem in which jobs may start and grow, and nothing is drained.
    pub fn new(
        now: UnixTime,
        gaps: &'a GapSet,
        jobs: &'a [MalleableJob],
        config: &'a PlannerConfig,
        min_window_secs: f64,
    ) -> Self {
        let gap_index_by_node = gaps.gaps.iter().enumerate().map(|(at, gap)| (&gap.node, at)).collect();
        let may_grow = true;
        let drain = false;
        let topology = None;
        let limits = None;
        PlanningProblem {
            now,
            gaps,
            jobs,
            config,
            min_window_secs,
            may_grow,
            drain,
            topology,
            limits,
            gap_index_by_node,
        }
    }

    /// The gap of this node. For a block it is the gap that ends first; `None` unless each place is a gap.
    pub fn gap_at(&self, node: &NodeName) -> Option<&'a Gap> {
        match self.gap_index(node) {
            None if node.is_block() => self.first_to_end(&self.gaps_of(node)?),
            place => self.gaps.gaps.get(place?),
        }
    }

    /// The gap of each place of a node; `None` unless each place is a gap.
    pub(crate) fn gaps_of(&self, node: &NodeName) -> Option<Vec<&'a Gap>> {
        node.single_places().iter().map(|place| self.gaps.gaps.get(self.gap_index(place)?)).collect()
    }

    fn first_to_end(&self, gaps: &[&'a Gap]) -> Option<&'a Gap> {
        gaps.iter().copied().min_by_key(|gap| gap.usable_until)
    }

    /// The index of this node's gap.
    pub fn gap_index(&self, node: &NodeName) -> Option<usize> {
        self.gap_index_by_node.get(node).copied()
    }

    /// The gap of a node that the job holds; `None` where the node is not a gap any more, or another job
    /// holds it.
    pub(crate) fn held_gap(&self, job: &MalleableJob, node: &NodeName) -> Option<&'a Gap> {
        self.gap_held_by(job, node).filter(|_| job.held.binary_search_by(|h| h.node.cmp(node)).is_ok())
    }

    /// The gap of a node; `None` unless each of its gaps names this job as its holder.
    fn gap_held_by(&self, job: &MalleableJob, node: &NodeName) -> Option<&'a Gap> {
        if node.is_block() {
            let gaps = self.gaps_of(node)?;
            return self.first_to_end(&gaps).filter(|_| gaps.iter().all(|gap| gap.holder == Some(job.id)));
        }
        self.gap_at(node).filter(|gap| gap.holder == Some(job.id))
    }

    /// The gap of each node in the job's list of held nodes, by node name; `None` where that node is not a
    /// gap of this job any more.
    pub(crate) fn held_gaps(&self, job: &MalleableJob) -> impl Iterator<Item = Option<&'a Gap>> {
        job.held.iter().map(move |held| self.gap_held_by(job, &held.node))
    }

    /// Whether the job is in the middle of a change and must be left as it is.
    pub fn is_busy(&self, job: &MalleableJob) -> bool {
        job.scheduling_state == SchedulingState::Busy
    }

    /// Whether the job may not start now.
    pub(crate) fn is_barred(&self, job: &MalleableJob) -> bool {
        matches!(job.scheduling_state, SchedulingState::Blocked(_)) || self.backs_off_until(job).is_some()
    }

    /// The moment until which the job may not start; `None` if that moment has passed or there is none.
    pub(crate) fn backs_off_until(&self, job: &MalleableJob) -> Option<UnixTime> {
        match job.scheduling_state {
            SchedulingState::BackOff(until) if until > self.now => Some(until),
            _ => None,
        }
    }

    /// Seconds for which the job must still stay as it is after its last rescale; `None` if it may change.
    pub(crate) fn stays_secs(&self, job: &MalleableJob) -> Option<f64> {
        let stays_secs = self.config.min_stay_secs * job.hysteresis_share + job.stay_secs;
        let left = stays_secs - self.now.secs_since(job.last_change?);
        (left > 0.0 && !job.held.is_empty()).then_some(left)
    }
}
