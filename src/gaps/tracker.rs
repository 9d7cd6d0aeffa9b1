//! Remembers since when each gap has been open, and tells which ones ended.
//!
//! A gap here is any time in which no job of the main queue is on a node: whether we use it, and whether its window is
//! worth starting in, does not matter to how long such times last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{GapSample, Occupancy, Use, hour_of};
use crate::model::{EndedGap, Gaps, NodeName, NodeType, Snapshot, UnixTime, WindowEnd};

/// Longest pause between two trusted snapshots, seconds, over which a gap counts as watched: in a longer one a short
/// job may have come and gone.
pub const LONGEST_PAUSE_SECS: f64 = 300.0;

impl EndedGap {
    /// What the survival model learns from it.
    pub fn sample(&self) -> GapSample {
        GapSample {
            duration_secs: self.end.secs_since(self.start),
            taken: self.taken,
            block: self.block,
            hour: hour_of(self.start),
        }
    }
}

/// A gap that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OpenGap {
    node_type: NodeType,
    since: UnixTime,
    block: u32,
    planned: WindowEnd,
    /// Whether we saw it begin. The age of a gap that was open when we first looked is unknown: it teaches nothing.
    saw_start: bool,
}

/// All open gaps. A value: the daemon keeps it between rounds, and may store it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracker {
    open: BTreeMap<NodeName, OpenGap>,
    last_seen: Option<UnixTime>,
}

impl Tracker {
    /// Since when each node has been without a main job.
    pub fn since(&self) -> BTreeMap<NodeName, UnixTime> {
        self.open.iter().map(|(node, gap)| (node.clone(), gap.since)).collect()
    }

    /// Takes in one round and returns the gaps that ended, sorted by node. A snapshot that cannot be trusted changes
    /// nothing. Call it before [`super::find`] so that new gaps have their start, with the gaps of the round before
    /// (or empty ones), and again never with the same snapshot.
    pub fn observe(
        &mut self,
        snapshot: &Snapshot,
        partition: &str,
        gaps: &Gaps,
        now: UnixTime,
    ) -> Vec<EndedGap> {
        if !snapshot.is_trusted() {
            return Vec::new();
        }
        let mut ended = self.forget_after_pause(now);
        let first_look = self.last_seen.is_none();
        let occupancy = Occupancy::of(snapshot, partition);
        let mut free = BTreeMap::new();
        for node in snapshot.nodes.iter().filter(|n| n.partitions.iter().any(|p| p == partition)) {
            free.insert(node.name.clone(), (node.node_type.clone(), occupancy.usage(node)));
        }
        self.close(&free, now, &mut ended);
        self.open_new(&free, !first_look, now);
        for gap in &gaps.gaps {
            if let Some(open) = self.open.get_mut(&gap.node) {
                open.planned = gap.end.clone();
            }
        }
        self.last_seen = Some(now);
        ended.sort_by(|a, b| a.node.cmp(&b.node));
        ended
    }

    /// Ends everything at the last moment that was seen when the pause since then was too long.
    fn forget_after_pause(&mut self, now: UnixTime) -> Vec<EndedGap> {
        let Some(last) = self.last_seen else { return Vec::new() };
        if now.secs_since(last) <= LONGEST_PAUSE_SECS {
            return Vec::new();
        }
        self.last_seen = None;
        let open = std::mem::take(&mut self.open);
        open.into_iter().filter_map(|(node, gap)| gap.ended(node, last, false)).collect()
    }

    fn close(
        &mut self,
        free: &BTreeMap<NodeName, (NodeType, Use)>,
        now: UnixTime,
        ended: &mut Vec<EndedGap>,
    ) {
        let (stay, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.open).into_iter().partition(|(node, _)| is_free(free, node));
        self.open = stay;
        for (node, gap) in gone {
            let taken = matches!(free.get(&node), Some((_, Use::Main { .. })));
            ended.extend(gap.ended(node, now, taken));
        }
    }

    fn open_new(&mut self, free: &BTreeMap<NodeName, (NodeType, Use)>, saw_start: bool, now: UnixTime) {
        let new: Vec<_> = free
            .iter()
            .filter(|(node, _)| is_free(free, node) && !self.open.contains_key(*node))
            .map(|(node, (node_type, _))| (node.clone(), node_type.clone()))
            .collect();
        let block = u32::try_from(new.len()).unwrap_or(u32::MAX);
        for (node, node_type) in new {
            let gap = OpenGap { node_type, since: now, block, planned: WindowEnd::Unknown, saw_start };
            self.open.insert(node, gap);
        }
    }
}

impl OpenGap {
    fn ended(self, node: NodeName, end: UnixTime, taken: bool) -> Option<EndedGap> {
        let OpenGap { node_type, since, block, planned, saw_start } = self;
        saw_start.then_some(EndedGap { node, node_type, start: since, end, taken, block, planned })
    }
}

/// Whether no main job is on the node, and nothing else keeps us from watching it.
fn is_free(free: &BTreeMap<NodeName, (NodeType, Use)>, node: &NodeName) -> bool {
    matches!(free.get(node), Some((_, Use::Free | Use::Ours(_) | Use::Leaving(_))))
}
