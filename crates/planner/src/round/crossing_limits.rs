//! Programs that are slower on several leaf switches than on one, or, where places are lent, on several
//! hosts. The rates of sizes for which no switch or host has enough capacity are lowered in proportion. So a
//! job starts smaller on one, or grows over several, whichever makes more. It never waits for a tighter
//! place.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use infill_advisor::CrossingSlowdown;
use infill_model::{
    AllowedSizes, CurvePoint, Gap, GapSet, JobId, NodeName, NodeType, ScalingCurve, SwitchId, Topology,
};

/// A leaf switch or a host: nodes or places of one group are near each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NodeGroup {
    Leaf(SwitchId),
    Host(NodeName),
}

/// The numbers of nodes at leaf switches, or of places on hosts.
#[derive(Debug)]
pub(super) struct GroupCapacity<'a> {
    /// The leaf switches; `None` where the groups are hosts.
    topology: Option<&'a Topology>,
    /// Free nodes by type and group.
    free: FxHashMap<(&'a NodeType, NodeGroup), u32>,
    /// By type, the largest number of free nodes in one group.
    most: BTreeMap<&'a NodeType, u32>,
    /// Nodes that each job holds, by type and group. The group is `None` where it is unknown.
    held: BTreeMap<JobId, FxHashMap<(&'a NodeType, Option<NodeGroup>), u32>>,
}

/// The capacities of hosts and leaf switches, computed on first use. Only programs that are slower across
/// groups need them.
#[derive(Debug)]
pub(super) struct CrossingLimits<'a> {
    gaps: &'a GapSet,
    topology: &'a Topology,
    hosts: OnceCell<Option<GroupCapacity<'a>>>,
    leaves: OnceCell<Option<GroupCapacity<'a>>>,
}

impl<'a> CrossingLimits<'a> {
    /// The limits for these gaps.
    pub(super) fn new(gaps: &'a GapSet, topology: &'a Topology) -> CrossingLimits<'a> {
        CrossingLimits { gaps, topology, hosts: OnceCell::new(), leaves: OnceCell::new() }
    }

    /// The curve of a job that is slower across groups.
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

/// A job whose curve is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurveRequest<'a> {
    /// The id of the job.
    pub job: JobId,
    /// The node of its lead, which it keeps; `None` without a lead.
    pub lead: Option<&'a NodeName>,
    /// Sizes that it allows.
    pub sizes: &'a AllowedSizes,
    /// Number of places that each of its nodes takes.
    pub block: u32,
}

impl<'a> GroupCapacity<'a> {
    /// The capacities of leaf switches; `None` where no topology is known.
    fn per_leaf(gaps: &'a GapSet, topology: &'a Topology) -> Option<GroupCapacity<'a>> {
        (!topology.is_empty()).then(|| GroupCapacity::from_gaps(gaps, Some(topology)))
    }

    /// The capacities of hosts; `None` where all nodes are whole.
    fn per_host(gaps: &'a GapSet) -> Option<GroupCapacity<'a>> {
        gaps.gaps.iter().any(|gap| gap.node.is_place()).then(|| GroupCapacity::from_gaps(gaps, None))
    }

    fn from_gaps(gaps: &'a GapSet, topology: Option<&'a Topology>) -> GroupCapacity<'a> {
        let free = FxHashMap::default();
        let most = BTreeMap::new();
        let held = BTreeMap::new();
        let mut capacity = GroupCapacity { topology, free, most, held };
        gaps.gaps.iter().for_each(|gap| capacity.add_gap(gap));
        capacity
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

    /// The largest number of nodes that a job can have in one group now, of this type or of any. A job that
    /// keeps its lead also keeps what it holds. If that is in several groups already, only the number in the
    /// lead's group counts.
    fn max_in_group(&self, job: &CurveRequest<'_>, node_type: Option<&NodeType>) -> u32 {
        let held = self.held.get(&job.job).into_iter().flatten();
        let held = held.filter(|((t, _), _)| node_type.is_none_or(|wanted| wanted == *t));
        let lead = job.lead.map(|node| self.group_of(node));
        let mut own = 0;
        let mut all = 0;
        let mut own_type = None;
        for ((t, group), count) in held {
            all += count;
            if lead.as_ref() == Some(group) {
                own += count;
                own_type = Some(*t);
            }
        }
        match (own_type, lead.flatten()) {
            // In an unknown group every node counts as a group of its own.
            (Some(_), None) => 1,
            (Some(_), Some(_)) if all > own => own,
            (Some(t), Some(group)) => own + self.free.get(&(t, group)).copied().unwrap_or(0),
            _ => {
                let of_type = self.most.iter().filter(|(t, _)| node_type.is_none_or(|wanted| wanted == **t));
                of_type.map(|(_, most)| *most).max().unwrap_or(0)
            }
        }
    }

    /// The curve of a job whose steps take `slowdown` times as long in several groups.
    fn slowed_curve(
        &self,
        curve: &ScalingCurve,
        job: &CurveRequest<'_>,
        node_type: Option<&NodeType>,
        slowdown: f64,
    ) -> ScalingCurve {
        // A block is on one host, so it has no part in several groups.
        let in_group = (self.max_in_group(job, node_type) / job.block.max(1)).max(1);
        if curve.is_linear() || slowdown <= 1.0 || in_group >= job.sizes.max() {
            return curve.clone();
        }
        let mut sizes: Vec<u32> = curve.points().iter().map(|p| p.nodes).collect();
        sizes.extend([job.sizes.min(), in_group, in_group + 1, job.sizes.max()]);
        sizes.retain(|nodes| *nodes > 0);
        sizes.sort_unstable();
        sizes.dedup();
        let points = sizes.into_iter().map(|nodes| {
            let slower = if nodes > in_group { slowdown } else { 1.0 };
            CurvePoint { nodes, rate: curve.rate(nodes) / slower }
        });
        ScalingCurve::new(points.collect()).unwrap_or_else(|_| curve.clone())
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

    fn switch(name: &str, nodes: &[&str]) -> SwitchRecord {
        SwitchRecord {
            name: name.to_owned(),
            nodes: nodes.iter().map(NodeName::new).collect(),
            below: Vec::new(),
        }
    }

    #[test]
    fn sizes_for_which_no_switch_has_capacity_count_less() {
        let records = [switch("left", &["n1", "n2", "n3", "n7"]), switch("right", &["n4", "n5", "n8"])];
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
        let max_nodes = |job: u32, lead: Option<&str>| {
            let lead = lead.map(NodeName::new);
            let request = CurveRequest { job: JobId(job), lead: lead.as_ref(), sizes: &sizes, block: 1 };
            leaves.max_in_group(&request, Some(&a))
        };
        assert_eq!(max_nodes(1, Some("n1")), 2, "its own node, and the free one beside it");
        assert_eq!(max_nodes(2, Some("n3")), 2, "its own node, and the free one beside it");
        assert_eq!(max_nodes(7, None), 2, "the two that are free on the right");
        assert_eq!(max_nodes(8, Some("n6")), 1, "the switch of n6 is unknown");
        assert_eq!(max_nodes(9, Some("n7")), 1, "it has a node on each side already");
        let blocks = CurveRequest { job: JobId(1), lead: None, sizes: &sizes, block: 4 };
        assert_eq!(leaves.max_in_group(&blocks, Some(&NodeType::new("b"))), 0);
        let curve = ScalingCurve::parse("1:10,2:19,4:36").unwrap();
        let slowed = |job: &CurveRequest<'_>, slowdown| {
            leaves.slowed_curve(&curve, job, Some(&a), slowdown).to_string()
        };
        let n1 = NodeName::new("n1");
        let whole = CurveRequest { lead: Some(&n1), block: 1, ..blocks };
        assert_eq!(slowed(&whole, 1.0), curve.to_string());
        assert_eq!(slowed(&whole, 2.0), "1:10,2:19,3:13.75,4:18", "two nodes make more than four");
        assert_eq!(slowed(&blocks, 2.0), "1:10,2:9.5,4:18", "a block is on one node");
        let few = AllowedSizes::parse("1-2").unwrap();
        assert_eq!(slowed(&CurveRequest { sizes: &few, ..whole }, 2.0), curve.to_string());
    }

    #[test]
    fn sizes_for_which_no_host_has_capacity_count_less() {
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
        let slowed = |job: u32, lead: Option<&str>, block: u32| {
            let lead = lead.map(NodeName::new);
            let request = CurveRequest { job: JobId(job), lead: lead.as_ref(), sizes: &sizes, block };
            let limits = CrossingLimits::new(&gaps, &none);
            limits.slowed_curve(&curve, &request, Some(&a), slowdown).to_string()
        };
        assert_eq!(slowed(1, Some("n1:0"), 1), "1:10,2:19,3:28,4:18", "its own, and the two free beside it");
        assert_eq!(slowed(7, None, 1), "1:10,2:19,3:14,4:18", "two are free on one host");
        assert_eq!(slowed(3, Some("n4:0"), 1), "1:10,2:9.5,3:14,4:18", "it is on two hosts already");
        assert_eq!(slowed(7, None, 2), "1:10,2:9.5,3:14,4:18", "one block is on one host");
        let limits = CrossingLimits::new(&gaps, &none);
        let request = CurveRequest { job: JobId(7), lead: None, sizes: &sizes, block: 1 };
        let across = CrossingSlowdown { switches: 2.0, ..CrossingSlowdown::NONE };
        let same = limits.slowed_curve(&curve, &request, Some(&a), across);
        assert_eq!(same.to_string(), curve.to_string(), "no switches are known");
    }
}
