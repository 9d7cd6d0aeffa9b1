//! The gap finder: from a snapshot to the nodes that the main queue does not use now, and until when.
//!
//! [`find_gaps`] judges every node of the malleable partition: it is a gap with a window, or it is refused
//! with a reason. [`GapTracker`] remembers since when each gap has been open and hands out the ones that
//! ended;
//! [`SurvivalModel`] learns from those how long gaps last when nothing is planned. [`GapStatistics`] are
//! figures for people.

#![warn(clippy::disallowed_types)]

mod bins;
mod duration_forecast;
mod gap_tracker;
mod hazard_fit;
mod idle_reserve;
mod idle_shares;
mod leave_times;
mod lookahead;
mod main_delays;
mod node_index;
mod node_windows;
mod occupancy;
mod preemption_handover;
mod save_crowding;
mod statistics;
mod survival;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use infill_model::config::GapsConfig;
use infill_model::{
    BackfillState, Gap, GapRefusal, GapSet, JobId, LEAST_LIMIT_SECS, NodeName, NodeState, Snapshot, UnixTime,
    WindowEnd,
};

pub use bins::GapSample;
use duration_forecast::DurationForecast;
pub use gap_tracker::GapTracker;
pub use idle_reserve::IdleReserve;
pub use idle_shares::{IdleBesideMain, IdleUnits, idle_beside_main};
pub use leave_times::{CLEANUP_SECS, LeaveTimes, StopTime};
pub use lookahead::ArrivalLookahead;
pub use main_delays::DelayTracker;
use node_windows::NodeWindows;
pub use occupancy::{NodeOccupancy, OccupancyState};
pub use save_crowding::{SaveCrowding, set_leave_times};
pub use statistics::{BlockStatistics, GapStatistics, IdleTime, LengthBin, ShorterShare, WeightedQuantiles};
pub use survival::{SurvivalModel, hour_of_day};

/// What the gap finder needs besides the snapshot.
#[derive(Clone, Copy, Debug)]
pub struct GapContext<'a> {
    /// Settings.
    pub config: &'a GapsConfig,
    /// Nodes that our malleable jobs hold, with the lead's id.
    pub holders: &'a NodeHolders,
    /// Those of them that a job is only on its way to: while another part of ours cleans up there, they stay
    /// its own, unless Slurm took them from that.
    pub promised: &'a FxHashSet<NodeName>,
    /// Knows since when each node has been a gap; one that it does not know became one now. Nodes with the
    /// same moment became free together.
    pub tracker: &'a GapTracker,
    /// Which nodes were left alone so far.
    pub kept: &'a IdleReserve,
    /// How long gaps last when nothing is planned.
    pub survival: &'a SurvivalModel,
    /// Seconds before the end of its window at which a node must be left.
    pub leave: &'a LeaveTimes,
    /// Jobs that have left nodes on which a part of them is still: they are just saving.
    pub saving: &'a [JobId],
    /// Seconds for which nodes without a planned end are counted on at most (see [`ArrivalLookahead`]).
    pub lookahead_secs: f64,
}

/// Nodes that our malleable jobs hold, with the lead's id.
pub type NodeHolders = FxHashMap<NodeName, JobId>;

/// Finds the gaps of a snapshot at the moment `now`. Takes about 0.1 µs a busy node and 0.3 µs a gap.
///
/// A held node stays a gap however short its window is: the planner decides when to leave it. `usable_until`
/// may then lie in the past, which means that the main queue wants the node now.
pub fn find_gaps(occupancy: &NodeOccupancy<'_>, context: &GapContext<'_>, now: UnixTime) -> GapSet {
    let mut finder = GapFinder::new(occupancy, *context, now);
    let mut found = GapSet::default();
    let snapshot = occupancy.snapshot();
    for at in (0..snapshot.nodes.len()).filter(|at| occupancy.is_in_partition(*at)) {
        match finder.gap_at(at) {
            Ok(gap) => found.gaps.push(gap),
            Err(why) => found.refused.push((snapshot.nodes[at].name.clone(), why)),
        }
    }
    set_leave_times(&mut found.gaps, context.leave, context.saving, now);
    found.refuse_gaps(|gap| worth_starting(gap, context.config, &snapshot.backfill, now).err());
    let ours = found.gaps.len() + found.refused.len();
    context.kept.reserve_nodes(
        &mut found,
        &finder.asleep,
        finder.off,
        context.config.keep_idle.node_count(ours),
    );
    found.gaps.sort_by(|a, b| a.node.cmp(&b.node));
    found.refused.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Gaps of a snapshot that is `secs` old, for a round without a newer one: what is planned stays planned, and
/// a node without a planned end is counted on for as long from now on as it was then. So doubt alone makes no
/// job leave.
pub fn carry_over(gaps: &mut GapSet, secs: f64) {
    for gap in gaps.gaps.iter_mut().filter(|g| g.vacate_by.is_none()) {
        gap.usable_until = gap.usable_until.plus_secs(secs.max(0.0));
    }
}

/// What makes this snapshot's windows less sure than usual, in words for the round's report.
pub fn window_notes(snapshot: &Snapshot, config: &GapsConfig) -> Vec<String> {
    if snapshot.backfill.complete {
        return Vec::new();
    }
    let exit = if snapshot.backfill.exit.is_empty() { "it has not run yet" } else { &snapshot.backfill.exit };
    vec![format!(
        "backfill did not look at the whole queue ({exit}): nodes without a planned end are counted on at a \
         confidence of {:.2} instead of {:.2}",
        trusted_confidence(snapshot, config),
        config.confidence,
    )]
}

/// One look at a snapshot.
struct GapFinder<'a> {
    snapshot: &'a Snapshot,
    context: GapContext<'a>,
    now: UnixTime,
    occupancy: &'a NodeOccupancy<'a>,
    windows: NodeWindows<'a>,
    outlook: DurationForecast<'a>,
    /// Nodes that Slurm has switched off and that are gaps.
    asleep: FxHashSet<NodeName>,
    /// How many are no gaps because they are switched off, or are being switched off.
    off: usize,
    /// Names of the main queue's partitions: thousands of refusals share them.
    partitions: Vec<Arc<str>>,
}

impl<'a> GapFinder<'a> {
    fn new(occupancy: &'a NodeOccupancy<'a>, context: GapContext<'a>, now: UnixTime) -> Self {
        let snapshot = occupancy.snapshot();
        let windows = NodeWindows::from_snapshot(occupancy, now);
        let confidence = trusted_confidence(snapshot, context.config);
        // Where less is trusted, less far ahead.
        let trust = (1.0 - confidence) / (1.0 - context.config.confidence);
        let most = context.lookahead_secs;
        let least = context.config.min_window_secs;
        let lookahead_secs = (most * trust).max(most.min(least));
        let outlook =
            DurationForecast::new(context.survival, context.tracker, confidence, lookahead_secs, now);
        let asleep = FxHashSet::default();
        let partitions = Vec::new();
        GapFinder { snapshot, context, now, occupancy, windows, outlook, asleep, off: 0, partitions }
    }

    /// The gap of the node at this place; or why it is none.
    fn gap_at(&mut self, at: usize) -> Result<Gap, GapRefusal> {
        self.check_usable(at).map(|()| self.measure_gap(at))
    }

    /// Whether the node is sound and used by nobody but us; if not, why.
    fn check_usable(&mut self, at: usize) -> Result<(), GapRefusal> {
        let node = &self.snapshot.nodes[at];
        match self.occupancy.use_at(at).unwrap_or(OccupancyState::Unexplained) {
            OccupancyState::Main(job) => {
                return Err(GapRefusal::Busy { job: job.id, partition: self.shared_name(&job.partition) });
            }
            OccupancyState::Asleep if !self.context.config.wake => {
                self.off += 1;
                return Err(GapRefusal::Asleep);
            }
            OccupancyState::Asleep => {
                self.asleep.insert(node.name.clone());
            }
            OccupancyState::Unsound if node.state.has_word(NodeState::CAPPED) => {
                return Err(GapRefusal::Capped);
            }
            OccupancyState::Unsound => {
                self.off += usize::from(node.state.has_word("POWERING_DOWN"));
                return Err(GapRefusal::Unsound(node.state.clone()));
            }
            OccupancyState::Unexplained => return Err(GapRefusal::Unexplained),
            OccupancyState::Leaving(job)
                if !self.context.promised.contains(&node.name) || self.occupancy.is_taken_back(at) =>
            {
                return Err(GapRefusal::Leaving(job));
            }
            OccupancyState::Ours(job) if !self.context.holders.contains_key(&node.name) => {
                return Err(GapRefusal::NotOurs(job));
            }
            OccupancyState::Ours(_) | OccupancyState::Leaving(_) | OccupancyState::Free => {}
        }
        match self.windows.ongoing_reservation(at) {
            Some(reservation) => Err(GapRefusal::Reserved(reservation.name.as_str().into())),
            None => Ok(()),
        }
    }

    fn shared_name(&mut self, partition: &str) -> Arc<str> {
        if let Some(known) = self.partitions.iter().find(|p| ***p == *partition) {
            return known.clone();
        }
        let name: Arc<str> = partition.into();
        self.partitions.push(name.clone());
        name
    }

    /// Builds the gap of a usable node; by when it must be left depends on the others.
    fn measure_gap(&mut self, at: usize) -> Gap {
        let node = &self.snapshot.nodes[at];
        let now = self.now;
        let since = self.context.tracker.gap_start(&node.name).unwrap_or(now).min(now);
        let end = self.windows.window_end(at);
        let (usable_until, expected_secs) = match &end {
            WindowEnd::Known { at, .. } => (*at, 0.0),
            WindowEnd::Unknown => self.outlook.forecast_for(since),
        };
        let holder = self.context.holders.get(&node.name).copied();
        let (node, node_type, share) = (node.name.clone(), node.node_type.clone(), node.share);
        Gap { node, node_type, since, end, vacate_by: None, usable_until, expected_secs, holder, share }
    }
}

/// Whether a node that nobody holds is worth starting on; if not, why.
fn worth_starting(
    gap: &Gap,
    config: &GapsConfig,
    backfill: &BackfillState,
    now: UnixTime,
) -> Result<(), GapRefusal> {
    if gap.holder.is_some() {
        return Ok(());
    }
    let free_secs = now.secs_since(gap.since);
    if free_secs < config.settle_secs {
        return Err(GapRefusal::Young { free_secs, settle_secs: config.settle_secs });
    }
    let window_secs = gap.usable_until.secs_since(now);
    // Where Slurm starts nothing any more, a window is too short however much of it is left.
    let too_late_secs = backfill.startable_secs(&gap.end, now).map_or(0.0, |secs| LEAST_LIMIT_SECS - secs);
    let worth_secs = if too_late_secs > 0.0 {
        config.min_window_secs.max(window_secs + too_late_secs)
    } else {
        config.min_window_secs
    };
    if window_secs >= worth_secs {
        return Ok(());
    }
    let cause = match &gap.end {
        WindowEnd::Known { cause, .. } => Some(cause.clone()),
        WindowEnd::Unknown => None,
    };
    Err(GapRefusal::Short { window_secs, cause, worth_secs })
}

/// The confidence to ask of the survival model: halfway to certainty when backfill's plan was cut short,
/// because a job that backfill did not reach may take the node at any moment.
fn trusted_confidence(snapshot: &Snapshot, config: &GapsConfig) -> f64 {
    if snapshot.backfill.complete { config.confidence } else { (1.0 + config.confidence) / 2.0 }
}

#[cfg(test)]
mod tests;
