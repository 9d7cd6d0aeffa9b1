//! Programs that are slower on several leaf switches than on one: sizes for which no switch has room count so
//! much less. So a job starts smaller on one switch, or grows over several, whichever makes more; it never
//! waits for a tighter place.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use infill_model::{Curve, CurvePoint, Gap, Gaps, JobId, NodeName, NodeType, Sizes, SwitchId, Topology};

/// How many nodes there are on leaf switches.
#[derive(Debug)]
pub(super) struct Leaves<'a> {
    topology: &'a Topology,
    /// On each leaf that nobody holds, by type.
    free: FxHashMap<(&'a NodeType, SwitchId), u32>,
    /// The most of these on one leaf, by type.
    most: BTreeMap<&'a NodeType, u32>,
    /// What each job holds on each leaf, and on none that is known.
    held: BTreeMap<JobId, FxHashMap<(&'a NodeType, Option<SwitchId>), u32>>,
}

/// A job whose curve is asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    /// It.
    pub job: JobId,
    /// The node of its lead, if it has one: it keeps that.
    pub lead: Option<&'a NodeName>,
    /// Its sizes.
    pub sizes: &'a Sizes,
    /// How many places each of its nodes takes.
    pub block: u32,
}

impl<'a> Leaves<'a> {
    /// Of these gaps; `None` where nothing is known of switches.
    pub(super) fn of(gaps: &'a Gaps, topology: &'a Topology) -> Option<Leaves<'a>> {
        if topology.is_empty() {
            return None;
        }
        let (free, most, held) = (FxHashMap::default(), BTreeMap::new(), BTreeMap::new());
        let mut leaves = Leaves { topology, free, most, held };
        gaps.gaps.iter().for_each(|gap| leaves.add(gap));
        Some(leaves)
    }

    fn add(&mut self, gap: &'a Gap) {
        let leaf = self.topology.leaf(&gap.node);
        if let Some(job) = gap.holder {
            *self.held.entry(job).or_default().entry((&gap.node_type, leaf)).or_insert(0) += 1;
            return;
        }
        let most = self.most.entry(&gap.node_type).or_insert(1);
        if let Some(leaf) = leaf {
            let free = self.free.entry((&gap.node_type, leaf)).or_insert(0);
            *free += 1;
            *most = (*most).max(*free);
        }
    }

    /// The most nodes that a job can have on one leaf now, of this type or of any. One that keeps its lead
    /// keeps what it holds, too: where that is on several leaves already, only so many as hang on the lead's.
    fn room(&self, job: &Asking<'_>, node_type: Option<&NodeType>) -> u32 {
        let is_it = |other: &NodeType| node_type.is_none_or(|t| t == other);
        let held = self.held.get(&job.job).into_iter().flatten().filter(|((t, _), _)| is_it(t));
        let lead = job.lead.map(|node| self.topology.leaf(node));
        let (mut own, mut all, mut own_type) = (0, 0, None);
        for ((t, leaf), count) in held {
            all += count;
            if lead == Some(*leaf) {
                (own, own_type) = (own + count, Some(*t));
            }
        }
        match (own_type, lead.flatten()) {
            // Of a leaf that nobody knows every node is one of its own.
            (Some(_), None) => 1,
            (Some(_), Some(_)) if all > own => own,
            (Some(t), Some(leaf)) => own + self.free.get(&(t, leaf)).copied().unwrap_or(0),
            _ => self.most.iter().filter(|(t, _)| is_it(t)).map(|(_, most)| *most).max().unwrap_or(0),
        }
    }

    /// What a curve comes to for a job whose steps take so many times as long on several leaves.
    pub(super) fn narrowed(
        &self,
        curve: &Curve,
        job: &Asking<'_>,
        node_type: Option<&NodeType>,
        slowdown: f64,
    ) -> Curve {
        // A block is of one node.
        let room = (self.room(job, node_type) / job.block.max(1)).max(1);
        if curve.is_default() || slowdown <= 1.0 || room >= job.sizes.max() {
            return curve.clone();
        }
        let mut turns: Vec<u32> = curve.points().iter().map(|p| p.nodes).collect();
        turns.extend([job.sizes.min(), room, room + 1, job.sizes.max()]);
        turns.retain(|nodes| *nodes > 0);
        turns.sort_unstable();
        turns.dedup();
        let slower = |nodes: u32| if nodes > room { slowdown } else { 1.0 };
        let point = |nodes: u32| CurvePoint { nodes, rate: curve.rate(nodes) / slower(nodes) };
        Curve::new(turns.into_iter().map(point).collect()).unwrap_or_else(|_| curve.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{SwitchRecord, UnixTime, WindowEnd};

    fn gap(node: &str, holder: Option<u32>) -> Gap {
        Gap {
            node: NodeName::new(node),
            node_type: NodeType::new("a"),
            since: UnixTime(0),
            end: WindowEnd::Unknown,
            vacate_by: None,
            usable_until: UnixTime(900),
            expected_secs: 900.0,
            holder: holder.map(JobId),
            share: None,
        }
    }

    #[test]
    fn sizes_for_which_no_switch_has_room_count_less() {
        let record = |name: &str, nodes: &[&str]| SwitchRecord {
            name: name.to_owned(),
            nodes: nodes.iter().map(NodeName::new).collect(),
            below: Vec::new(),
        };
        let records = [record("left", &["n1", "n2", "n3", "n7"]), record("right", &["n4", "n5", "n8"])];
        let topology = Topology::of(&records).unwrap();
        let held = [
            ("n1", Some(1)),
            ("n2", None),
            ("n3", Some(2)),
            ("n4", None),
            ("n5", None),
            ("n6", Some(8)),
            ("n7", Some(9)),
            ("n8", Some(9)),
        ];
        let gaps = held.iter().map(|(node, holder)| gap(node, *holder)).collect();
        let gaps = Gaps { gaps, refused: Vec::new() };
        assert!(Leaves::of(&gaps, &Topology::default()).is_none());
        let leaves = Leaves::of(&gaps, &topology).unwrap();
        let (a, sizes) = (NodeType::new("a"), Sizes::parse("1-4").unwrap());
        let lead = |node: &str| (!node.is_empty()).then(|| NodeName::new(node));
        let room = |job: u32, node: &str| {
            let lead = lead(node);
            let asking = Asking { job: JobId(job), lead: lead.as_ref(), sizes: &sizes, block: 1 };
            leaves.room(&asking, Some(&a))
        };
        assert_eq!([room(1, "n1"), room(2, "n3")], [2, 2], "its own node, and the free one beside it");
        assert_eq!(room(7, ""), 2, "the two that are free on the right");
        assert_eq!(room(8, "n6"), 1, "of n6 nobody knows what it is near");
        assert_eq!(room(9, "n7"), 1, "it has a node on each side already");
        let asking = Asking { job: JobId(1), lead: None, sizes: &sizes, block: 4 };
        assert_eq!(leaves.room(&asking, Some(&NodeType::new("b"))), 0);
        let curve = Curve::parse("1:10,2:19,4:36").unwrap();
        let of = |job: &Asking<'_>, slowdown| leaves.narrowed(&curve, job, Some(&a), slowdown).to_string();
        let n1 = NodeName::new("n1");
        let whole = Asking { lead: Some(&n1), block: 1, ..asking };
        assert_eq!(of(&whole, 1.0), curve.to_string());
        assert_eq!(of(&whole, 2.0), "1:10,2:19,3:13.75,4:18", "two nodes make more than four");
        assert_eq!(of(&asking, 2.0), "1:10,2:9.5,4:18", "a block is on one node");
        let few = Sizes::parse("1-2").unwrap();
        assert_eq!(of(&Asking { sizes: &few, ..whole }, 2.0), curve.to_string());
    }
}
