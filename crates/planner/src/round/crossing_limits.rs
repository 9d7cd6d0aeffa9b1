//! Programs that are slower on several leaf switches than on one, or, where parts of nodes are lent, on
//! several hosts: sizes for which none has room count so much less. So a job starts smaller on one, or
//! grows over several, whichever makes more; it never waits for a tighter place.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use infill_advisor::CrossingSlowdown;
use infill_model::{
    AllowedSizes, CurvePoint, Gap, GapSet, JobId, NodeName, NodeType, ScalingCurve, SwitchId, Topology,
};

/// What nodes may hang on together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NodeGroup {
    Leaf(SwitchId),
    Host(NodeName),
}

/// How many nodes there are on leaf switches, or parts of nodes on hosts.
#[derive(Debug)]
pub(super) struct GroupCapacity<'a> {
    /// The leaf switches; `None` where they are hosts.
    topology: Option<&'a Topology>,
    /// In each group that nobody holds, by type.
    free: FxHashMap<(&'a NodeType, NodeGroup), u32>,
    /// The most of these in one group, by type.
    most: BTreeMap<&'a NodeType, u32>,
    /// What each job holds in each group, and in none that is known.
    held: BTreeMap<JobId, FxHashMap<(&'a NodeType, Option<NodeGroup>), u32>>,
}

/// Hosts and leaf switches. Only programs that are known to be slower across them need them.
#[derive(Debug)]
pub(super) struct CrossingLimits<'a> {
    gaps: &'a GapSet,
    topology: &'a Topology,
    hosts: OnceCell<Option<GroupCapacity<'a>>>,
    leaves: OnceCell<Option<GroupCapacity<'a>>>,
}

impl<'a> CrossingLimits<'a> {
    /// Of these gaps.
    pub(super) fn new(gaps: &'a GapSet, topology: &'a Topology) -> CrossingLimits<'a> {
        CrossingLimits { gaps, topology, hosts: OnceCell::new(), leaves: OnceCell::new() }
    }

    /// What a curve comes to for a job that is slower across them.
    pub(super) fn slowed_curve(
        &self,
        curve: &ScalingCurve,
        job: &CurveRequest<'_>,
        node_type: Option<&NodeType>,
        slowdown: CrossingSlowdown,
    ) -> ScalingCurve {
        let mut curve = curve.clone();
        if slowdown.hosts > 1.0
            && let Some(hosts) = self.hosts.get_or_init(|| GroupCapacity::per_host(self.gaps))
        {
            curve = hosts.slowed_curve(&curve, job, node_type, slowdown.hosts);
        }
        if slowdown.switches > 1.0
            && let Some(leaves) =
                self.leaves.get_or_init(|| GroupCapacity::per_leaf(self.gaps, self.topology))
        {
            curve = leaves.slowed_curve(&curve, job, node_type, slowdown.switches);
        }
        curve
    }
}

/// A job whose curve is asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurveRequest<'a> {
    /// It.
    pub job: JobId,
    /// The node of its lead, if it has one: it keeps that.
    pub lead: Option<&'a NodeName>,
    /// Its sizes.
    pub sizes: &'a AllowedSizes,
    /// How many places each of its nodes takes.
    pub block: u32,
}

impl<'a> GroupCapacity<'a> {
    /// Of these gaps on leaf switches; `None` where nothing is known of any.
    fn per_leaf(gaps: &'a GapSet, topology: &'a Topology) -> Option<GroupCapacity<'a>> {
        (!topology.is_empty()).then(|| GroupCapacity::from_gaps(gaps, Some(topology)))
    }

    /// Of these gaps on hosts; `None` where all nodes are whole.
    fn per_host(gaps: &'a GapSet) -> Option<GroupCapacity<'a>> {
        gaps.gaps.iter().any(|gap| gap.node.is_place()).then(|| GroupCapacity::from_gaps(gaps, None))
    }

    fn from_gaps(gaps: &'a GapSet, topology: Option<&'a Topology>) -> GroupCapacity<'a> {
        let free = FxHashMap::default();
        let most = BTreeMap::new();
        let held = BTreeMap::new();
        let mut rooms = GroupCapacity { topology, free, most, held };
        gaps.gaps.iter().for_each(|gap| rooms.add_gap(gap));
        rooms
    }

    fn group_of(&self, node: &NodeName) -> Option<NodeGroup> {
        match self.topology {
            Some(topology) => topology.leaf_of(node).map(NodeGroup::Leaf),
            None => node.is_place().then(|| NodeGroup::Host(node.host())),
        }
    }

    fn add_gap(&mut self, gap: &'a Gap) {
        let group = self.group_of(&gap.node);
        if let Some(job) = gap.holder {
            *self.held.entry(job).or_default().entry((&gap.node_type, group)).or_insert(0) += 1;
            return;
        }
        let most = self.most.entry(&gap.node_type).or_insert(1);
        if let Some(group) = group {
            let free = self.free.entry((&gap.node_type, group)).or_insert(0);
            *free += 1;
            *most = (*most).max(*free);
        }
    }

    /// The most nodes that a job can have in one group now, of this type or of any. One that keeps its lead
    /// keeps what it holds, too: where that is in several already, only so many as are in the lead's.
    fn max_in_group(&self, job: &CurveRequest<'_>, node_type: Option<&NodeType>) -> u32 {
        let is_it = |other: &NodeType| node_type.is_none_or(|t| t == other);
        let held = self.held.get(&job.job).into_iter().flatten().filter(|((t, _), _)| is_it(t));
        let lead = job.lead.map(|node| self.group_of(node));
        let mut own = 0;
        let mut all = 0;
        let mut own_type = None;
        for ((t, group), count) in held {
            all += count;
            if lead.as_ref() == Some(group) {
                (own, own_type) = (own + count, Some(*t));
            }
        }
        match (own_type, lead.flatten()) {
            // Of a group that nobody knows every node is one of its own.
            (Some(_), None) => 1,
            (Some(_), Some(_)) if all > own => own,
            (Some(t), Some(group)) => own + self.free.get(&(t, group)).copied().unwrap_or(0),
            _ => self.most.iter().filter(|(t, _)| is_it(t)).map(|(_, most)| *most).max().unwrap_or(0),
        }
    }

    /// What a curve comes to for a job whose steps take so many times as long in several groups.
    fn slowed_curve(
        &self,
        curve: &ScalingCurve,
        job: &CurveRequest<'_>,
        node_type: Option<&NodeType>,
        slowdown: f64,
    ) -> ScalingCurve {
        // A block is of one node.
        let room = (self.max_in_group(job, node_type) / job.block.max(1)).max(1);
        if curve.is_default() || slowdown <= 1.0 || room >= job.sizes.max() {
            return curve.clone();
        }
        let mut turns: Vec<u32> = curve.points().iter().map(|p| p.nodes).collect();
        turns.extend([job.sizes.min(), room, room + 1, job.sizes.max()]);
        turns.retain(|nodes| *nodes > 0);
        turns.sort_unstable();
        turns.dedup();
        let slower = |nodes: u32| if nodes > room { slowdown } else { 1.0 };
        ScalingCurve::new(
            turns
                .into_iter()
                .map(|nodes: u32| CurvePoint { nodes, rate: curve.rate(nodes) / slower(nodes) })
                .collect(),
        )
        .unwrap_or_else(|_| curve.clone())
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
        let topology = Topology::from_records(&records).unwrap();
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
        let gaps = GapSet { gaps, refused: Vec::new() };
        assert!(
            GroupCapacity::per_leaf(&gaps, &Topology::default()).is_none()
                && GroupCapacity::per_host(&gaps).is_none()
        );
        let leaves = GroupCapacity::per_leaf(&gaps, &topology).unwrap();
        let a = NodeType::new("a");
        let sizes = AllowedSizes::parse("1-4").unwrap();
        let lead = |node: &str| (!node.is_empty()).then(|| NodeName::new(node));
        let room = |job: u32, node: &str| {
            let lead = lead(node);
            let asking = CurveRequest { job: JobId(job), lead: lead.as_ref(), sizes: &sizes, block: 1 };
            leaves.max_in_group(&asking, Some(&a))
        };
        assert_eq!([room(1, "n1"), room(2, "n3")], [2, 2], "its own node, and the free one beside it");
        assert_eq!(room(7, ""), 2, "the two that are free on the right");
        assert_eq!(room(8, "n6"), 1, "of n6 nobody knows what it is near");
        assert_eq!(room(9, "n7"), 1, "it has a node on each side already");
        let asking = CurveRequest { job: JobId(1), lead: None, sizes: &sizes, block: 4 };
        assert_eq!(leaves.max_in_group(&asking, Some(&NodeType::new("b"))), 0);
        let curve = ScalingCurve::parse("1:10,2:19,4:36").unwrap();
        let of = |job: &CurveRequest<'_>, slowdown| {
            leaves.slowed_curve(&curve, job, Some(&a), slowdown).to_string()
        };
        let n1 = NodeName::new("n1");
        let whole = CurveRequest { lead: Some(&n1), block: 1, ..asking };
        assert_eq!(of(&whole, 1.0), curve.to_string());
        assert_eq!(of(&whole, 2.0), "1:10,2:19,3:13.75,4:18", "two nodes make more than four");
        assert_eq!(of(&asking, 2.0), "1:10,2:9.5,4:18", "a block is on one node");
        let few = AllowedSizes::parse("1-2").unwrap();
        assert_eq!(of(&CurveRequest { sizes: &few, ..whole }, 2.0), curve.to_string());
    }

    #[test]
    fn sizes_for_which_no_host_has_room_count_less() {
        let held = [
            ("n1:0", Some(1)),
            ("n1:1", None),
            ("n1:2", None),
            ("n1:3", Some(2)),
            ("n2:0", None),
            ("n2:1", None),
            ("n3:0", Some(3)),
            ("n4:0", Some(3)),
            ("n4:1", None),
        ];
        let gaps = held.iter().map(|(node, holder)| gap(node, *holder)).collect();
        let gaps = GapSet { gaps, refused: Vec::new() };
        let a = NodeType::new("a");
        let sizes = AllowedSizes::parse("1-4").unwrap();
        let none = Topology::default();
        let curve = ScalingCurve::parse("1:10,2:19,3:28,4:36").unwrap();
        let slowdown = CrossingSlowdown { hosts: 2.0, ..CrossingSlowdown::NONE };
        let of = |job: u32, lead: &str, block: u32| {
            let lead = (!lead.is_empty()).then(|| NodeName::new(lead));
            let asking = CurveRequest { job: JobId(job), lead: lead.as_ref(), sizes: &sizes, block };
            let crossed = CrossingLimits::new(&gaps, &none);
            crossed.slowed_curve(&curve, &asking, Some(&a), slowdown).to_string()
        };
        assert_eq!(of(1, "n1:0", 1), "1:10,2:19,3:28,4:18", "its own, and the two that are free beside it");
        assert_eq!(of(7, "", 1), "1:10,2:19,3:14,4:18", "two are free on one host");
        assert_eq!(of(3, "n4:0", 1), "1:10,2:9.5,3:14,4:18", "it is on two hosts already");
        assert_eq!(of(7, "", 2), "1:10,2:9.5,3:14,4:18", "one block is on one host");
        let crossed = CrossingLimits::new(&gaps, &none);
        let asking = CurveRequest { job: JobId(7), lead: None, sizes: &sizes, block: 1 };
        let across = CrossingSlowdown { switches: 2.0, ..CrossingSlowdown::NONE };
        let same = crossed.slowed_curve(&curve, &asking, Some(&a), across);
        assert_eq!(same.to_string(), curve.to_string(), "nothing is known of switches");
    }
}
