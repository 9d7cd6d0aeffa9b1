//! How many nodes malleable jobs have and could have at a moment, by type of nodes.

use std::collections::BTreeMap;

use infill_model::{GapSet, NodeType};

/// Nodes that malleable jobs hold or could hold, by type; or places of shared nodes. A type of several places
/// (`gpu:a100:1/cpu4*2`) counts the nodes that have this number of places free together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCapacity {
    types: BTreeMap<NodeType, TypeCapacity>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct TypeCapacity {
    /// Nodes that are held or free.
    usable: u32,
    /// For each host with free places, their number.
    free: Vec<u32>,
}

impl NodeCapacity {
    /// The nodes of these gaps.
    pub fn from_gaps(gaps: &GapSet) -> NodeCapacity {
        let mut capacity = NodeCapacity::default();
        // Places of one host are adjacent in the list.
        for host in gaps.gaps.chunk_by(|a, b| a.node.shares_host_with(&b.node) && a.node_type == b.node_type)
        {
            let free = host.iter().filter(|gap| gap.holder.is_none()).count() as u32;
            let capacity_of_type = match capacity.types.get_mut(&host[0].node_type) {
                Some(capacity_of_type) => capacity_of_type,
                None => capacity.types.entry(host[0].node_type.clone()).or_default(),
            };
            capacity_of_type.usable += host.len() as u32;
            capacity_of_type.free.extend((free > 0).then_some(free));
        }
        capacity
    }

    /// Nodes of one type only, `free` of them free.
    pub fn from_one_type(node_type: NodeType, usable: u32, free: u32) -> NodeCapacity {
        let free = vec![1; free as usize];
        NodeCapacity { types: BTreeMap::from([(node_type, TypeCapacity { usable, free })]) }
    }

    /// Free nodes of each of these types, and nothing else.
    pub fn from_types(nodes: impl IntoIterator<Item = (NodeType, u32)>) -> NodeCapacity {
        let mut types = BTreeMap::new();
        for (node_type, usable) in nodes {
            types.insert(node_type, TypeCapacity { usable, free: vec![1; usable as usize] });
        }
        NodeCapacity { types }
    }

    /// How many nodes of this type are free.
    pub fn free_nodes(&self, node_type: &NodeType) -> u32 {
        let (one, width) = node_type.single_place();
        let of_type = self.types.get(&one);
        of_type.map_or(0, |of_type| of_type.free.iter().map(|free| free / width.max(1)).sum())
    }

    /// Counts this number of free nodes of a type as taken.
    pub(super) fn take_nodes(&mut self, node_type: &NodeType, nodes: u32) {
        let (one, width) = node_type.single_place();
        let Some(of_type) = self.types.get_mut(&one) else { return };
        let width = width.max(1);
        let mut missing = nodes;
        for free in &mut of_type.free {
            let taken = missing.min(*free / width);
            *free -= taken * width;
            missing -= taken;
        }
    }

    /// The types, with how many nodes of each are held or free.
    pub(super) fn usable_by_type(&self) -> impl Iterator<Item = (&NodeType, u32)> {
        self.types.iter().map(|(node_type, of_type)| (node_type, of_type.usable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{Gap, JobId, NodeName, UnixTime, WindowEnd};

    /// `n1:0 gpu` or, held, `n1:0 gpu 7`.
    fn gaps(lines: &[&str]) -> GapSet {
        let gap = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            Gap {
                node: NodeName::new(words[0]),
                node_type: NodeType::new(words[1]),
                holder: words.get(2).map(|id| JobId(id.parse().expect("a job"))),
                share: None,
                since: UnixTime(0),
                end: WindowEnd::Unknown,
                vacate_by: None,
                usable_until: UnixTime(100),
                expected_secs: 100.0,
            }
        };
        GapSet { gaps: lines.iter().map(gap).collect(), ..GapSet::default() }
    }

    #[test]
    fn each_type_has_its_own_nodes() {
        let mut capacity = NodeCapacity::from_gaps(&gaps(&[
            "n1:0 gpu",
            "n1:1 gpu 7",
            "n1:2 gpu",
            "n2:0 gpu",
            "n2:1 gpu",
            "n2:2 gpu",
            "n3:0 cpu4",
            "n3:1 cpu4 9",
        ]));
        let free = |capacity: &NodeCapacity| {
            ["gpu", "gpu*2", "gpu*3", "cpu4", "cpu4*2", "v100"].map(|t| capacity.free_nodes(&t.into()))
        };
        assert_eq!(free(&capacity), [5, 2, 1, 1, 0, 0], "two and three free on two hosts");
        let usable: Vec<(&str, u32)> = capacity.usable_by_type().map(|(t, n)| (t.as_str(), n)).collect();
        assert_eq!(usable, [("cpu4", 2), ("gpu", 6)]);
        capacity.take_nodes(&"gpu*2".into(), 1);
        assert_eq!(free(&capacity), [3, 1, 1, 1, 0, 0], "of the first host");
        capacity.take_nodes(&"gpu".into(), 9);
        assert_eq!(free(&capacity), [0, 0, 0, 1, 0, 0], "no more than there is");
    }
}
