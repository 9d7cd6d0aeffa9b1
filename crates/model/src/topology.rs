//! Which switch each node hangs on: what is near what in the network.

use std::fmt;

use rustc_hash::FxHashMap;

use super::NodeName;

/// Most oddities that are told of.
const MOST_ODDITIES: usize = 10;

/// A switch by its place in [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(u32);

/// The switches of a cluster, as a forest: of `topology/tree`, or of the blocks of `topology/block`.
///
/// Nodes hang on leaves. A node that none is known of is near no other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    switches: Vec<Switch>,
    leaves: FxHashMap<NodeName, SwitchId>,
    oddities: Vec<TopologyWarning>,
}

/// One switch.
#[derive(Clone, Debug, PartialEq)]
struct Switch {
    name: String,
    above: Option<SwitchId>,
}

/// What is odd about switches that somebody described. Slurm takes them all the same, and so do we.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyWarning {
    /// Two have one name: they count as one.
    Twice(String),
    /// A node hangs on two leaves: the first counts.
    TwoLeaves(NodeName),
    /// A switch has two above it: the last counts.
    TwoAbove(String),
    /// A switch below another is not described.
    Unknown(String),
}

impl fmt::Display for TopologyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyWarning::Twice(switch) => write!(f, "switch {switch} is described twice"),
            TopologyWarning::TwoLeaves(node) => write!(f, "node {node} hangs on two switches"),
            TopologyWarning::TwoAbove(switch) => write!(f, "switch {switch} hangs below two others"),
            TopologyWarning::Unknown(switch) => {
                write!(f, "switch {switch} is not described, but another is above it")
            }
        }
    }
}

/// Switches hang on each other in a ring: this one is above itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("switch {0} is above itself")]
pub struct TopologyError(pub String);

/// A switch as it is described: nodes on a leaf, else switches below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchRecord {
    /// Its name.
    pub name: String,
    /// Nodes that hang on it; none unless it is a leaf.
    pub nodes: Vec<NodeName>,
    /// Names of the switches right below it.
    pub below: Vec<String>,
}

impl Topology {
    /// The topology of these switches.
    ///
    /// # Errors
    /// When they are no forest.
    pub fn from_records(records: &[SwitchRecord]) -> Result<Topology, TopologyError> {
        let mut topology = Topology {
            switches: records
                .iter()
                .map(|record: &SwitchRecord| Switch { name: record.name.clone(), above: None })
                .collect(),
            ..Topology::default()
        };
        let mut by_name = FxHashMap::default();
        for (record, id) in records.iter().zip((0..).map(SwitchId)) {
            if by_name.contains_key(record.name.as_str()) {
                topology.add_warning(TopologyWarning::Twice(record.name.clone()));
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
                self.add_warning(TopologyWarning::Unknown(name.clone()));
                continue;
            };
            if self.switches[below.0 as usize].above.replace(id).is_some_and(|before| before != id) {
                self.add_warning(TopologyWarning::TwoAbove(name.clone()));
            }
        }
        for node in &record.nodes {
            if *self.leaves.entry(node.clone()).or_insert(id) != id {
                self.add_warning(TopologyWarning::TwoLeaves(node.clone()));
            }
        }
    }

    fn add_warning(&mut self, oddity: TopologyWarning) {
        if self.oddities.len() < MOST_ODDITIES {
            self.oddities.push(oddity);
        }
    }

    /// What is odd about its description, the first of it.
    pub fn oddities(&self) -> &[TopologyWarning] {
        &self.oddities
    }

    /// Each switch is walked upwards from once, until one from which the top was found before.
    fn check_rings(&self) -> Result<(), TopologyError> {
        let mut seen_from = vec![None; self.switches.len()];
        for from in 0..self.switches.len() {
            let mut at = Some(SwitchId(from as u32));
            while let Some(SwitchId(here)) = at {
                match seen_from[here as usize].replace(from) {
                    Some(seen) if seen == from => {
                        return Err(TopologyError(self.switches[from].name.clone()));
                    }
                    Some(_) => break,
                    None => at = self.switches[here as usize].above,
                }
            }
        }
        Ok(())
    }

    /// A switch's name.
    pub fn switch_name(&self, switch: SwitchId) -> &str {
        &self.switches[switch.0 as usize].name
    }

    /// Number of switches.
    pub fn len(&self) -> usize {
        self.switches.len()
    }

    /// Whether nothing is known of any switch.
    pub fn is_empty(&self) -> bool {
        self.switches.is_empty()
    }

    /// The leaf on which a node, a part of one, or a block hangs.
    pub fn leaf_of(&self, node: &NodeName) -> Option<SwitchId> {
        self.leaves.get(node).or_else(|| self.leaves.get(&node.host())).copied()
    }

    /// A switch, and those above it, upwards.
    pub fn path_to_root(&self, switch: SwitchId) -> impl Iterator<Item = SwitchId> {
        std::iter::successors(Some(switch), |at| self.switches[at.0 as usize].above)
    }

    /// Number of leaves on which these nodes hang; each of which none is known counts as one of its own.
    pub fn count_leaves<'n>(&self, nodes: impl IntoIterator<Item = &'n NodeName>) -> usize {
        let mut leaves = Vec::new();
        let mut alone = 0;
        for node in nodes {
            match self.leaf_of(node) {
                Some(leaf) => leaves.push(leaf),
                None => alone += 1,
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        leaves.len() + alone
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
    fn nodes_and_their_parts_hang_on_leaves() {
        let records = [
            record("top", &[], &["left", "right"]),
            record("left", &["n1", "n2"], &[]),
            record("right", &["n3"], &[]),
        ];
        let topology = Topology::from_records(&records).unwrap();
        let leaf = |name: &str| topology.leaf_of(&NodeName::new(name)).map(|leaf| topology.switch_name(leaf));
        assert_eq!(
            [leaf("n1"), leaf("n2:0+1"), leaf("n3:1"), leaf("n9")],
            [Some("left"), Some("left"), Some("right"), None]
        );
        let names: Vec<&str> = topology
            .path_to_root(topology.leaf_of(&NodeName::new("n3")).unwrap())
            .map(|s| topology.switch_name(s))
            .collect();
        assert_eq!(names, ["right", "top"]);
        let spans =
            |names: &[&str]| topology.count_leaves(&names.iter().map(NodeName::new).collect::<Vec<_>>());
        assert_eq!([spans(&["n1", "n2"]), spans(&["n1", "n3"]), spans(&["n1", "n8", "n9"])], [1, 2, 3]);
        assert!(
            Topology::default().leaf_of(&NodeName::new("n1")).is_none() && Topology::default().is_empty()
        );
    }

    #[test]
    fn what_is_odd_is_told_and_only_a_ring_is_refused() {
        let records = [
            record("a", &["n1"], &[]),
            record("b", &["n1", "n2"], &[]),
            record("a", &["n3"], &[]),
            record("left", &[], &["a", "nowhere"]),
            record("right", &[], &["a", "b"]),
        ];
        let topology = Topology::from_records(&records).unwrap();
        let said: Vec<String> = topology.oddities().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(said.join("\n"), @r"
        switch a is described twice
        node n1 hangs on two switches
        switch nowhere is not described, but another is above it
        switch a hangs below two others
        ");
        let path = |node: &str| {
            let leaf = topology.leaf_of(&NodeName::new(node)).unwrap();
            topology.path_to_root(leaf).map(|s| topology.switch_name(s)).collect::<Vec<_>>()
        };
        assert_eq!((path("n1"), path("n2")), (vec!["a", "right"], vec!["b", "right"]));
        let ring = [record("a", &[], &["b"]), record("b", &[], &["c"]), record("c", &[], &["a"])];
        assert_eq!(Topology::from_records(&ring).unwrap_err().to_string(), "switch a is above itself");
        let alone = Topology::from_records(&[record("a", &[], &["a"])]);
        assert!(alone.is_err());
    }
}
