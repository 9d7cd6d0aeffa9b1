//! The gap finder: from a snapshot to the nodes that the main queue does not use now, and until when.
//!
//! [`find_gaps`] judges every node of the malleable partition: it is a gap with a window, or it is refused
//! with a reason. [`GapTracker`] remembers since when each gap has been open, and returns the ones that
//! ended. From those, [`SurvivalModel`] learns how long gaps last when nothing is planned. [`GapStatistics`]
//! are figures for people.

#![warn(clippy::disallowed_types)]

mod array_claims;
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
mod safety_limits;
mod save_crowding;
mod statistics;
mod survival;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use infill_model::config::GapsConfig;
use infill_model::{
    BackfillState, Gap, GapRefusal, GapSet, JobId, MIN_TIME_LIMIT_SECS, NodeName, NodeState, Snapshot,
    UnixTime, WindowEnd,
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
pub use safety_limits::SafetyLimits;
pub use save_crowding::{SaveCrowding, set_leave_times};
pub use statistics::{BlockStatistics, GapStatistics, IdleTime, LengthBin, ShorterShare, WeightedQuantiles};
pub use survival::{SurvivalModel, hour_of_day};

/// The inputs of the gap finder besides the snapshot.
#[derive(Clone, Copy, Debug)]
pub struct GapContext<'a> {
    /// The settings of the gap finder.
    pub config: &'a GapsConfig,
    /// The administrator's limits.
    pub safety: &'a SafetyLimits,
    /// The nodes that malleable jobs hold, with the lead's id.
    pub holders: &'a NodeHolders,
    /// The held nodes that a job has not reached yet, because another part of our jobs is still cleaning up
    /// there. They stay the job's own, unless Slurm takes them back from that part.
    pub promised_nodes: &'a FxHashSet<NodeName>,
    /// Knows since when each node has been a gap. A node that it does not know became one now. Nodes with the
    /// same moment became free together.
    pub tracker: &'a GapTracker,
    /// The idle nodes that were left alone so far.
    pub idle_reserve: &'a IdleReserve,
    /// How long gaps last when nothing is planned.
    pub survival: &'a SurvivalModel,
    /// How long before the end of its window a node must be left.
    pub leave_times: &'a LeaveTimes,
    /// Jobs that save now: they have left nodes, and a part of them is still there.
    pub saving_jobs: &'a [JobId],
    /// Most seconds for which nodes without a planned end count as free (see [`ArrivalLookahead`]).
    pub lookahead_secs: f64,
}

/// The nodes that malleable jobs hold, with the lead's id.
pub type NodeHolders = FxHashMap<NodeName, JobId>;

/// Finds the gaps of a snapshot at the moment `now`. Takes about 0.1 µs a busy node and 0.3 µs a gap.
///
/// A held node stays a gap even if its window is short: the planner decides when to leave it. `usable_until`
/// may then lie in the past, which means that the main queue wants the node now.
pub fn find_gaps(occupancy: &NodeOccupancy<'_>, context: &GapContext<'_>, now: UnixTime) -> GapSet {
    let mut finder = GapFinder::new(occupancy, *context, now);
    let mut found = GapSet::default();
    let snapshot = occupancy.snapshot();
    for index in (0..snapshot.nodes.len()).filter(|index| occupancy.is_in_partition(*index)) {
        match finder.gap_at(index) {
            Ok(gap) => found.gaps.push(gap),
            Err(refusal) => found.refused.push((snapshot.nodes[index].name.clone(), refusal)),
        }
    }
    context.safety.shorten_windows(&mut found, now);
    set_leave_times(&mut found.gaps, context.leave_times, context.saving_jobs, now);
    found.refuse_gaps(|gap| check_worth_starting(gap, context.config, &snapshot.backfill, now).err());
    let partition_nodes = found.gaps.len() + found.refused.len();
    let reserved = context.config.keep_idle.node_count(partition_nodes);
    context.idle_reserve.reserve_nodes(&mut found, &finder.asleep, finder.off, reserved);
    context.safety.keep_maximum(&mut found, now);
    found.gaps.sort_by(|a, b| a.node.cmp(&b.node));
    found.refused.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Carries over the gaps of a snapshot that is `secs` old, for a round without a newer one. Planned ends
/// stay. A node without a planned end counts as free for as long from now on as it did then, so that an old
/// snapshot alone makes no job leave.
pub fn carry_over(gaps: &mut GapSet, secs: f64) {
    for gap in gaps.gaps.iter_mut().filter(|g| g.vacate_by.is_none()) {
        gap.usable_until = gap.usable_until.plus_secs(secs.max(0.0));
    }
}

/// Reasons why this snapshot's windows are less certain than usual, for the round's report.
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

/// The state of one search for gaps.
struct GapFinder<'a> {
    snapshot: &'a Snapshot,
    context: GapContext<'a>,
    now: UnixTime,
    occupancy: &'a NodeOccupancy<'a>,
    windows: NodeWindows<'a>,
    forecast: DurationForecast<'a>,
    /// Gaps on nodes that Slurm has switched off.
    asleep: FxHashSet<NodeName>,
    /// The number of nodes that are not gaps because they are switched off, or are being switched off.
    off: usize,
    /// Names of the main queue's partitions, which thousands of refusals share.
    partitions: Vec<Arc<str>>,
}

impl<'a> GapFinder<'a> {
    fn new(occupancy: &'a NodeOccupancy<'a>, context: GapContext<'a>, now: UnixTime) -> Self {
        let snapshot = occupancy.snapshot();
        let windows = NodeWindows::from_snapshot(occupancy, now);
        let confidence = trusted_confidence(snapshot, context.config);
        // With less confidence, the forecast also looks less far ahead.
        let trust = (1.0 - confidence) / (1.0 - context.config.confidence);
        let most = context.lookahead_secs;
        let least = context.config.min_window_secs;
        let lookahead_secs = (most * trust).max(most.min(least));
        let forecast =
            DurationForecast::new(context.survival, context.tracker, confidence, lookahead_secs, now);
        let asleep = FxHashSet::default();
        let partitions = Vec::new();
        GapFinder { snapshot, context, now, occupancy, windows, forecast, asleep, off: 0, partitions }
    }

    /// The gap of the node with this index, or why it is not a gap.
    fn gap_at(&mut self, index: usize) -> Result<Gap, GapRefusal> {
        self.check_usable(index).map(|()| self.measure_gap(index))
    }

    /// Checks that the node is sound and that only malleable jobs use it.
    ///
    /// # Errors
    /// The reason why the node is refused.
    fn check_usable(&mut self, index: usize) -> Result<(), GapRefusal> {
        let node = &self.snapshot.nodes[index];
        match self.occupancy.state_at(index).unwrap_or(OccupancyState::Unexplained) {
            OccupancyState::Main(job) => {
                return Err(GapRefusal::Busy { job: job.id, partition: self.shared_name(&job.partition) });
            }
            OccupancyState::Asleep if !self.context.config.wake => {
                self.off += 1;
                return Err(GapRefusal::PoweredOff);
            }
            OccupancyState::Asleep => {
                self.asleep.insert(node.name.clone());
            }
            OccupancyState::Unsound if node.state.has_word(NodeState::CAPPED) => {
                return Err(GapRefusal::Capped);
            }
            OccupancyState::Unsound => {
                self.off += usize::from(node.state.has_word("POWERING_DOWN"));
                return Err(GapRefusal::BadState(node.state.clone()));
            }
            OccupancyState::Unexplained => return Err(GapRefusal::Unexplained),
            OccupancyState::Leaving(job)
                if !self.context.promised_nodes.contains(&node.name)
                    || self.occupancy.is_taken_back(index) =>
            {
                return Err(GapRefusal::Leaving(job));
            }
            OccupancyState::Malleable(job) if !self.context.holders.contains_key(&node.name) => {
                return Err(GapRefusal::NotOurs(job));
            }
            OccupancyState::Malleable(_) | OccupancyState::Leaving(_) | OccupancyState::Free => {}
        }
        match self.windows.ongoing_reservation(index) {
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

    /// Builds the gap of a usable node. When it must be left depends on the other gaps, and is set later.
    fn measure_gap(&mut self, index: usize) -> Gap {
        let node = &self.snapshot.nodes[index];
        let now = self.now;
        let since = self.context.tracker.gap_start(&node.name).unwrap_or(now).min(now);
        let end = self.windows.window_end(index);
        let (usable_until, expected_secs) = match &end {
            WindowEnd::Known { at, .. } => (*at, 0.0),
            WindowEnd::Unknown => self.forecast.forecast_for(since),
        };
        let holder = self.context.holders.get(&node.name).copied();
        Gap {
            node: node.name.clone(),
            node_type: node.node_type.clone(),
            since,
            end,
            vacate_by: None,
            usable_until,
            expected_secs,
            holder,
            share: node.share,
        }
    }
}

/// Checks that a node without a holder is worth starting on.
///
/// # Errors
/// The reason why it is not.
fn check_worth_starting(
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
        return Err(GapRefusal::TooNew { free_secs, settle_secs: config.settle_secs });
    }
    let window_secs = gap.usable_until.secs_since(now);
    // Where backfill can start no job before the window's end, the window is too short whatever its length.
    let too_late_secs = backfill.startable_secs(&gap.end, now).map_or(0.0, |secs| MIN_TIME_LIMIT_SECS - secs);
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
    Err(GapRefusal::WindowTooShort { window_secs, cause, worth_secs })
}

/// The confidence to ask of the survival model. It is halfway to certainty when backfill's plan was cut
/// short, because a job that backfill did not reach may take the node at any moment.
fn trusted_confidence(snapshot: &Snapshot, config: &GapsConfig) -> f64 {
    if snapshot.backfill.complete { config.confidence } else { (1.0 + config.confidence) / 2.0 }
}

#[cfg(test)]
mod tests;
