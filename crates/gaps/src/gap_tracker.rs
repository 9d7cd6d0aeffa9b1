//! Remembers since when each gap has been open, and reports which ones ended.
//!
//! Here a gap is a time for which the main queue leaves a node alone. A [`Gap`](infill_model::Gap) is more: a
//! node that infill can use now. Whether malleable jobs use the node, and whether its window is worth
//! starting in, does not affect how long such times last.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{GapSample, NodeOccupancy, OccupancyState, hour_of_day};
use infill_model::{EndedGap, GapSet, Node, NodeName, NodeType, UnixTime, WindowEnd};

/// Longest pause between two trusted snapshots, seconds, over which a gap counts as watched. In a longer
/// pause a short job may have come and gone.
pub(crate) const MAX_PAUSE_SECS: f64 = 300.0;

/// The sample for the survival model from a gap that has ended.
impl From<&EndedGap> for GapSample {
    fn from(gap: &EndedGap) -> Self {
        GapSample {
            duration_secs: gap.end.secs_since(gap.start),
            taken: gap.taken,
            block: gap.block,
            hour: hour_of_day(gap.start),
        }
    }
}

/// An open gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OpenGap {
    node_type: NodeType,
    since: UnixTime,
    block: u32,
    planned: WindowEnd,
    /// Whether we saw it begin. The age of a gap that was already open at the first look is unknown: the
    /// survival model does not learn from it.
    saw_start: bool,
}

/// All open gaps. A value that the daemon keeps between rounds, and may store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GapTracker {
    open: FxHashMap<NodeName, OpenGap>,
    last_seen: Option<UnixTime>,
}

impl GapTracker {
    /// Since when this node has been without a main job; `None` where it is not, or where that is unknown.
    pub fn gap_start(&self, node: &NodeName) -> Option<UnixTime> {
        Some(self.open.get(node)?.since)
    }

    /// The starts of all open gaps, in no order.
    pub(super) fn gap_starts(&self) -> impl Iterator<Item = UnixTime> {
        self.open.values().map(|gap| gap.since)
    }

    /// Takes in one round and returns the gaps that ended, sorted by node. A snapshot that is not trusted
    /// changes nothing.
    ///
    /// Call it before [`super::find_gaps`], so that new gaps have their start, with the gaps of the previous
    /// round (or empty ones). Never call it again with the same snapshot.
    pub fn observe_round(
        &mut self,
        occupancy: &NodeOccupancy<'_>,
        gaps: &GapSet,
        now: UnixTime,
    ) -> Vec<EndedGap> {
        if !occupancy.snapshot().is_trusted() {
            return Vec::new();
        }
        let mut ended = self.forget_after_pause(now);
        let first_look = self.last_seen.is_none();
        let uses: Vec<Option<OccupancyState<'_>>> = (0..occupancy.snapshot().nodes.len())
            .map(|index| occupancy.state_at(index).filter(|_| occupancy.is_in_partition(index)))
            .collect();
        let watched = self.close_ended(occupancy, &uses, now, &mut ended);
        self.open_started(occupancy, &uses, &watched, !first_look, now);
        self.remember_plans(gaps);
        self.last_seen = Some(now);
        ended.sort_by(|a, b| a.node.cmp(&b.node));
        ended
    }

    /// After too long a pause, ends all gaps at the last moment that was seen.
    fn forget_after_pause(&mut self, now: UnixTime) -> Vec<EndedGap> {
        let Some(last) = self.last_seen else { return Vec::new() };
        if now.secs_since(last) <= MAX_PAUSE_SECS {
            return Vec::new();
        }
        self.last_seen = None;
        let open = std::mem::take(&mut self.open);
        open.into_iter().filter_map(|(node, gap)| gap.into_ended(node, last, false)).collect()
    }

    /// Ends the gaps of nodes that are no longer gaps. Returns, by index, which nodes have an open gap.
    fn close_ended(
        &mut self,
        occupancy: &NodeOccupancy<'_>,
        uses: &[Option<OccupancyState<'_>>],
        now: UnixTime,
        ended: &mut Vec<EndedGap>,
    ) -> Vec<bool> {
        let mut watched = vec![false; uses.len()];
        let mut over = Vec::new();
        for node in self.open.keys() {
            let index = occupancy.node_index().index_of(node);
            let usage = index.and_then(|index| uses.get(index).copied().flatten());
            match (usage, index.and_then(|index| watched.get_mut(index))) {
                (Some(usage), Some(watched)) if usage.is_gap() => *watched = true,
                _ => over.push((node.clone(), matches!(usage, Some(OccupancyState::Main(_))))),
            }
        }
        for (node, taken) in over {
            let gap = self.open.remove(&node);
            ended.extend(gap.and_then(|gap| gap.into_ended(node, now, taken)));
        }
        watched
    }

    /// Opens the gaps of nodes that are not watched yet. They form one block.
    fn open_started(
        &mut self,
        occupancy: &NodeOccupancy<'_>,
        uses: &[Option<OccupancyState<'_>>],
        watched: &[bool],
        saw_start: bool,
        now: UnixTime,
    ) {
        let mut new: Vec<&Node> = Vec::new();
        for ((node, usage), watched) in occupancy.snapshot().nodes.iter().zip(uses).zip(watched) {
            if !watched && usage.is_some_and(|usage| usage.is_gap()) {
                new.push(node);
            }
        }
        let block = u32::try_from(new.len()).unwrap_or(u32::MAX);
        for node in new {
            let node_type = node.node_type.clone();
            let gap = OpenGap { node_type, since: now, block, planned: WindowEnd::Unknown, saw_start };
            self.open.insert(node.name.clone(), gap);
        }
    }

    /// Records the planned end of each open gap.
    fn remember_plans(&mut self, gaps: &GapSet) {
        for gap in &gaps.gaps {
            if let Some(open) = self.open.get_mut(&gap.node) {
                open.planned.clone_from(&gap.end);
            }
        }
    }
}

impl OpenGap {
    fn into_ended(self, node: NodeName, end: UnixTime, taken: bool) -> Option<EndedGap> {
        let OpenGap { node_type, since, block, planned, saw_start } = self;
        saw_start.then_some(EndedGap { node, node_type, start: since, end, taken, block, planned })
    }
}
