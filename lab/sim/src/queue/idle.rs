//! A main queue from a log that has only the idle intervals of nodes.

use std::collections::BTreeMap;

use super::{NodeIx, PlannedUse, QueueChange, TakenNodes};
use infill_model::{JobId, NodeName, trace::IdleLog};

/// Replays an idle log. Nodes are busy before their first interval and after their last.
#[derive(Clone, Debug)]
pub struct IdleQueue {
    names: Vec<NodeName>,
    /// Start, end and node of each interval, by start.
    starts: Vec<(i64, i64, NodeIx)>,
    /// End and node of each interval, by end.
    ends: Vec<(i64, NodeIx)>,
    next_start: usize,
    next_end: usize,
    idle_until: Vec<Option<i64>>,
    moments: u32,
    span: (i64, i64),
}

impl IdleQueue {
    /// The first `most` nodes of a log, in natural order.
    pub fn new(log: &IdleLog, most: usize) -> Self {
        let mut names: Vec<NodeName> = log.intervals.iter().map(|i| i.node.clone()).collect();
        names.sort_by(NodeName::cmp_natural);
        names.dedup();
        names.truncate(most);
        let numbers: BTreeMap<&NodeName, NodeIx> = names.iter().zip(0..).collect();
        let known = log.intervals.iter().filter_map(|i| Some((i.start, i.end, *numbers.get(&i.node)?)));
        let mut starts: Vec<(i64, i64, NodeIx)> = known.collect();
        starts.sort_unstable();
        let mut ends: Vec<(i64, NodeIx)> = starts.iter().map(|(_, end, node)| (*end, *node)).collect();
        ends.sort_unstable();
        let idle_until = vec![None; names.len()];
        let span = (log.start, log.end);
        IdleQueue { names, starts, ends, next_start: 0, next_end: 0, idle_until, moments: 0, span }
    }

    pub(super) fn node_names(&self) -> &[NodeName] {
        &self.names
    }

    pub(super) fn time_span(&self) -> (i64, i64) {
        self.span
    }

    pub(super) fn next_change(&self) -> Option<i64> {
        let start = self.starts.get(self.next_start).map(|(at, _, _)| *at);
        let end = self.ends.get(self.next_end).map(|(at, _)| *at);
        start.into_iter().chain(end).min()
    }

    /// The next change. A node that is taken and freed in the same second stays free: no job ran there.
    pub(super) fn advance(&mut self) -> Option<QueueChange> {
        let at = self.next_change()?;
        self.moments += 1;
        let mut taken = Vec::new();
        while let Some((_, node)) = self.ends.get(self.next_end).filter(|(end, _)| *end == at) {
            self.idle_until[*node as usize] = None;
            taken.push(*node);
            self.next_end += 1;
        }
        let mut freed = Vec::new();
        while let Some((_, end, node)) = self.starts.get(self.next_start).filter(|(start, ..)| *start == at) {
            self.idle_until[*node as usize] = Some(*end);
            match taken.iter().position(|t| t == node) {
                Some(place) => drop(taken.swap_remove(place)),
                None => freed.push(*node),
            }
            self.next_start += 1;
        }
        freed.sort_unstable();
        taken.sort_unstable();
        let job = TakenNodes { job: JobId(self.moments), nodes: taken };
        let taken = if job.nodes.is_empty() { Vec::new() } else { vec![job] };
        Some(QueueChange { at, freed, taken })
    }

    pub(super) fn idle_until(&self, node: NodeIx) -> Option<PlannedUse> {
        let at = (*self.idle_until.get(node as usize)?)?;
        Some(PlannedUse { at, job: JobId(0) })
    }
}
