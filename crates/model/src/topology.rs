//! The switches of the cluster and the nodes that are connected to them.

use std::fmt;

use rustc_hash::FxHashMap;

use super::NodeName;

/// Most warnings that are kept.
const MAX_WARNINGS: usize = 10;

/// A switch, by its index in [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(u32);

/// The switches of a cluster as a forest, from `topology/tree`, or from the blocks of `topology/block`.
///
/// Nodes are connected to leaf switches. A node without a known leaf is near no other node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    switches: Vec<Switch>,
    leaves: FxHashMap<NodeName, SwitchId>,
    warnings: Vec<TopologyWarning>,
}

#[derive(Clone, Debug, PartialEq)]
struct Switch {
    name: String,
    above: Option<SwitchId>,
}

/// An oddity in the description of switches. Slurm accepts these, so infill does, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyWarning {
    /// Two switches have the same name and count as one.
    DuplicateSwitch(String),
    /// A node is connected to two leaves. The first counts.
    TwoLeaves(NodeName),
    /// A switch has two switches above it. The last counts.
    TwoParents(String),
    /// A switch below another one is not described.
    UnknownSwitch(String),
}

impl fmt::Display for TopologyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyWarning::DuplicateSwitch(switch) => write!(f, "switch {switch} is described twice"),
            TopologyWarning::TwoLeaves(node) => write!(f, "node {node} is connected to two switches"),
            TopologyWarning::TwoParents(switch) => write!(f, "switch {switch} is below two others"),
            TopologyWarning::UnknownSwitch(switch) => {
                write!(f, "switch {switch} is not described, but another is above it")
            }
        }
    }
}

/// The switches form a ring: this one is above itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("switch {0} is above itself")]
pub struct TopologyError(pub String);

/// A described switch: a leaf with nodes, or a switch with others below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchRecord {
    /// The name of the switch.
    pub name: String,
    /// The nodes that are connected to it; empty unless it is a leaf.
    pub nodes: Vec<NodeName>,
    /// The names of the switches directly below it.
    pub below: Vec<String>,
}

impl Topology {
    /// The topology of these switches. Oddities become warnings.
    ///
    /// # Errors
    /// If the switches form a ring.
    pub fn from_records(records: &[SwitchRecord]) -> Result<Topology, TopologyError> {
        let mut topology = Topology {
            switches: records
                .iter()
                .map(|record| Switch { name: record.name.clone(), above: None })
                .collect(),
            ..Topology::default()
        };
        let mut by_name = FxHashMap::default();
        for (record, id) in records.iter().zip((0..).map(SwitchId)) {
            if by_name.contains_key(record.name.as_str()) {
                topology.add_warning(TopologyWarning::DuplicateSwitch(record.name.clone()));
            } else {
                by_name.insert(record.name.as_str(), id);
            }
        }
        for record in records {
            topology.attach_switch(by_name[record.name.as_str()], record, &by_name);
        }
        topology.check_rings()?;
        Ok(topology)
    }

    fn attach_switch(&mut self, id: SwitchId, record: &SwitchRecord, by_name: &FxHashMap<&str, SwitchId>) {
        for name in &record.below {
            let Some(below) = by_name.get(name.as_str()) else {
                self.add_warning(TopologyWarning::UnknownSwitch(name.clone()));
                continue;
            };
            let previous = self.switches[below.0 as usize].above.replace(id);
            if previous.is_some_and(|previous| previous != id) {
                self.add_warning(TopologyWarning::TwoParents(name.clone()));
            }
        }
        for node in &record.nodes {
            if *self.leaves.entry(node.clone()).or_insert(id) != id {
                self.add_warning(TopologyWarning::TwoLeaves(node.clone()));
            }
        }
    }

    fn add_warning(&mut self, warning: TopologyWarning) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// The first warnings about the description.
    pub fn warnings(&self) -> &[TopologyWarning] {
        &self.warnings
    }

    /// Walks from each switch upwards until a switch from which an earlier walk reached the top.
    fn check_rings(&self) -> Result<(), TopologyError> {
        let mut seen_from = vec![None; self.switches.len()];
        for start in 0..self.switches.len() {
            let mut current = Some(SwitchId(start as u32));
            while let Some(SwitchId(index)) = current {
                match seen_from[index as usize].replace(start) {
                    Some(seen) if seen == start => {
                        return Err(TopologyError(self.switches[start].name.clone()));
                    }
                    Some(_) => break,
                    None => current = self.switches[index as usize].above,
                }
            }
        }
        Ok(())
    }

    /// The name of a switch.
    pub fn switch_name(&self, switch: SwitchId) -> &str {
        &self.switches[switch.0 as usize].name
    }

    /// The number of switches.
    pub fn len(&self) -> usize {
        self.switches.len()
    }

    /// Whether there are no switches.
    pub fn is_empty(&self) -> bool {
        self.switches.is_empty()
    }

    /// The leaf to which a node is connected. For a place or a block, the leaf of its node.
    pub fn leaf_of(&self, node: &NodeName) -> Option<SwitchId> {
        self.leaves.get(node).or_else(|| self.leaves.get(&node.host())).copied()
    }

    /// A switch and those above it, from bottom to top.
    pub fn path_to_root(&self, switch: SwitchId) -> impl Iterator<Item = SwitchId> {
        std::iter::successors(Some(switch), |current| self.switches[current.0 as usize].above)
    }

    /// The number of leaves to which these nodes are connected. Each node without a known leaf counts as one.
    pub fn count_leaves<'n>(&self, nodes: impl IntoIterator<Item = &'n NodeName>) -> usize {
        let mut leaves = Vec::new();
        let mut without_leaf = 0;
        for node in nodes {
            match self.leaf_of(node) {
                Some(leaf) => leaves.push(leaf),
                None => without_leaf += 1,
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        leaves.len() + without_leaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, nodes: &[&str], below: &[&str]) -> SwitchRecord {
        let nodes = nodes.iter().map(NodeName::new).collect();
        SwitchRecord { name: name.to_owned(), nodes, below: below.iter().map(|b| (*b).to_owned()).collect() }
    }

    #[test]
    fn nodes_and_places_are_connected_to_leaves() {
        let records = [
            record("top", &[], &["left", "right"]),
            record("left", &["n1", "n2"], &[]),
            record("right", &["n3"], &[]),
        ];
        let topology = Topology::from_records(&records).unwrap();
        let leaves = ["n1", "n2:0+1", "n3:1", "n9"]
            .map(|name| topology.leaf_of(&name.into()).map(|leaf| topology.switch_name(leaf)));
        assert_eq!(leaves, [Some("left"), Some("left"), Some("right"), None]);
        assert_eq!(path(&topology, "n3"), ["right", "top"]);
        for (names, leaves) in [("n1 n2", 1), ("n1 n3", 2), ("n1 n8 n9", 3)] {
            let nodes: Vec<NodeName> = names.split_whitespace().map(NodeName::from).collect();
            assert_eq!(topology.count_leaves(&nodes), leaves, "{names}");
        }
        assert!(
            Topology::default().leaf_of(&NodeName::new("n1")).is_none() && Topology::default().is_empty()
        );
    }

    /// The names of the switches above a node, from bottom to top.
    fn path<'t>(topology: &'t Topology, node: &str) -> Vec<&'t str> {
        let leaf = topology.leaf_of(&node.into()).unwrap();
        topology.path_to_root(leaf).map(|switch| topology.switch_name(switch)).collect()
    }

    #[test]
    fn oddities_give_warnings_and_only_a_ring_is_refused() {
        let records = [
            record("a", &["n1"], &[]),
            record("b", &["n1", "n2"], &[]),
            record("a", &["n3"], &[]),
            record("left", &[], &["a", "nowhere"]),
            record("right", &[], &["a", "b"]),
        ];
        let topology = Topology::from_records(&records).unwrap();
        let warnings: Vec<String> = topology.warnings().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(warnings.join("\n"), @r"
        switch a is described twice
        node n1 is connected to two switches
        switch nowhere is not described, but another is above it
        switch a is below two others
        ");
        assert_eq!(path(&topology, "n1"), ["a", "right"]);
        assert_eq!(path(&topology, "n2"), ["b", "right"]);
        let ring = [record("a", &[], &["b"]), record("b", &[], &["c"]), record("c", &[], &["a"])];
        assert_eq!(Topology::from_records(&ring).unwrap_err().to_string(), "switch a is above itself");
        let above_itself = Topology::from_records(&[record("a", &[], &["a"])]);
        assert!(above_itself.is_err());
    }
}
