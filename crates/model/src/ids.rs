//! Newtypes for the numbers and names that Slurm gives, so that they cannot be mixed up.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A Slurm job id. The id of a malleable job is the id of its lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A numeric user id on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserId(pub u32);

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a node in Slurm, or of places on a node. Cheap to clone, and clones are quick to compare.
#[derive(Clone, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeName(Arc<str>);

impl PartialEq for NodeName {
    fn eq(&self, other: &NodeName) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Ord for NodeName {
    fn cmp(&self, other: &NodeName) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for NodeName {
    fn partial_cmp(&self, other: &NodeName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for NodeName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl NodeName {
    /// Wraps `name` unchanged. Slurm decides which names are valid.
    pub fn new(name: impl AsRef<str>) -> Self {
        NodeName(Arc::from(name.as_ref()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The place with this number on the node: `n1:2`. Names in Slurm have no colon.
    pub fn place_name(&self, number: usize) -> NodeName {
        NodeName::new(format!("{}:{number}", self.0))
    }

    /// Several places of the node as one block, in ascending order: `n1:0+2`. A single place stays that
    /// place.
    pub fn block_name(&self, numbers: &[usize]) -> NodeName {
        let numbers: std::collections::BTreeSet<usize> = numbers.iter().copied().collect();
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        NodeName::new(format!("{}:{}", self.0, numbers.join("+")))
    }

    /// The node that a place is on. For a node, the node itself.
    pub fn host(&self) -> NodeName {
        self.0.split_once(':').map_or_else(|| self.clone(), |(host, _)| NodeName::new(host))
    }

    /// Whether both are on the same node.
    pub fn shares_host_with(&self, other: &NodeName) -> bool {
        self.host_part() == other.host_part()
    }

    fn host_part(&self) -> &str {
        self.0.split_once(':').map_or(&*self.0, |(host, _)| host)
    }

    /// Whether `name` refers to it: by its own name, by the name of its node, or by the name of a place in
    /// the block.
    pub fn matches_name(&self, name: &str) -> bool {
        *self.0 == *name
            || (self.is_place() && self.host_part() == name)
            || (self.is_block() && self.single_places().iter().any(|part| part.as_str() == name))
    }

    /// Whether it is a place or a block of places, and not a whole node.
    pub fn is_place(&self) -> bool {
        self.0.contains(':')
    }

    /// Whether it is a block of several places on one node.
    pub fn is_block(&self) -> bool {
        self.0.contains('+')
    }

    /// The numbers of its places on the node. Empty for a whole node.
    pub fn place_numbers(&self) -> Vec<usize> {
        let numbers = self.0.split_once(':').map_or("", |(_, numbers)| numbers);
        numbers.split('+').filter_map(|number| number.parse().ok()).collect()
    }

    /// The places of a block one by one. For anything else, just itself.
    pub fn single_places(&self) -> Vec<NodeName> {
        if !self.is_block() {
            return vec![self.clone()];
        }
        let host = self.host();
        self.place_numbers().into_iter().map(|number| host.place_name(number)).collect()
    }

    /// Compares numbers in names by value: `n9` comes before `n10`.
    pub fn cmp_natural(&self, other: &NodeName) -> Ordering {
        digit_runs(&self.0).cmp(digit_runs(&other.0)).then_with(|| self.cmp(other))
    }
}

/// Runs of digits and of other characters. A run of digits is (true, length without leading zeros, digits),
/// so that longer runs are larger.
fn digit_runs(text: &str) -> impl Iterator<Item = (bool, usize, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = rest.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(rest.len());
        let (run, tail) = rest.split_at_checked(end).filter(|(run, _)| !run.is_empty())?;
        rest = tail;
        if is_number {
            let digits = run.trim_start_matches('0');
            Some((true, digits.len(), digits))
        } else {
            Some((false, 0, run))
        }
    })
}

/// Sets of names can be searched for a text.
impl std::borrow::Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        NodeName::new(name)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The largest GPU memory that is believed if a type's name contains it, in GiB.
const MAX_GPU_GIB: u32 = 2048;

/// GPUs that are sold with one memory size only, with that size in GiB.
const GPU_MEMORY_GIB: &[(&str, u32)] = &[
    ("h200", 141),
    ("h100", 80),
    ("h800", 80),
    ("a800", 80),
    ("a40", 48),
    ("a6000", 48),
    ("l40", 48),
    ("l40s", 48),
    ("a10", 24),
    ("a30", 24),
    ("l4", 24),
    ("rtx3090", 24),
    ("rtx4090", 24),
    ("t4", 16),
    ("mi300x", 192),
];

/// A class of interchangeable nodes: equal GPUs, CPUs and features, written like `gpu:a100:4/cpu64`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeType(Arc<str>);

impl NodeType {
    /// Wraps a type's name unchanged.
    pub fn new(name: impl AsRef<str>) -> Self {
        NodeType(Arc::from(name.as_ref()))
    }

    /// The type's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The type of a block of `count` places of this type: `gpu:a100:1/cpu4*2`. A count of 0 or 1 changes
    /// nothing.
    pub fn with_place_count(self, count: u32) -> NodeType {
        if count > 1 { NodeType::new(format!("{self}*{count}")) } else { self }
    }

    /// Whether its nodes have GPUs.
    pub fn has_gpus(&self) -> bool {
        let gres = self.gres_part();
        gres.split('+').any(|item| item == "gpu" || item.starts_with("gpu:"))
    }

    /// The generic resources of its name: `gpu:a100:4` of `gpu:a100:4/cpu64`. Empty if it has none.
    fn gres_part(&self) -> &str {
        self.0.split_once('/').map_or("", |(gres, _)| gres)
    }

    /// GPUs of a node of this type; 0 if it has none.
    pub fn gpus(&self) -> u32 {
        let (place, places) = self.single_place();
        let on_place = place.gres_part().split('+').map(gpus_of_gres).fold(0, u32::saturating_add);
        on_place.saturating_mul(places)
    }

    /// The model of its GPUs, if its name contains it: `a100` of `gpu:a100:4/cpu64`.
    pub fn gpu_model(&self) -> Option<&str> {
        self.gres_part().split('+').find_map(|item| match item.split(':').collect::<Vec<_>>()[..] {
            ["gpu", make, ..] if make.parse::<u32>().is_err() => Some(make),
            _ => None,
        })
    }

    /// GiB of each of its GPUs. Its name may contain the size (`a100-80gb`); else the size follows from the
    /// GPU model if all GPUs of the model have the same. `None` if neither is the case.
    pub fn gpu_memory_gib(&self) -> Option<f64> {
        let words: Vec<String> = self
            .gres_part()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .map(str::to_ascii_lowercase)
            .collect();
        let named = words.iter().find_map(|word| {
            let digits = word.strip_suffix("gb").or_else(|| word.strip_suffix('g'))?;
            digits.parse::<u32>().ok().filter(|gib| (1..=MAX_GPU_GIB).contains(gib))
        });
        if let Some(gib) = named {
            return Some(f64::from(gib));
        }
        let by_model = words.iter().find_map(|word| GPU_MEMORY_GIB.iter().find(|(model, _)| model == word));
        by_model.map(|(_, gib)| f64::from(*gib))
    }

    /// Whether `word` refers to it: its whole name, or a part of that (`a100` of `gpu:a100:4/cpu64`).
    pub fn matches_name(&self, word: &str) -> bool {
        *self.0 == *word || self.0.split(['/', ':', '+', '*']).any(|part| part == word)
    }

    /// The type of one place, and the number of places in a node of this type.
    pub fn single_place(&self) -> (NodeType, u32) {
        let block = self.0.rsplit_once('*').and_then(|(place, count)| Some((place, count.parse().ok()?)));
        block.map_or_else(|| (self.clone(), 1), |(place, count)| (NodeType::new(place), count))
    }
}

/// GPUs of one generic resource: 4 of `gpu:a100:4`, 1 of `gpu` and `gpu:a100`, 0 of others.
fn gpus_of_gres(item: &str) -> u32 {
    match item.split(':').collect::<Vec<_>>()[..] {
        ["gpu"] => 1,
        ["gpu", .., last] => last.parse().unwrap_or(1),
        _ => 0,
    }
}

impl std::borrow::Borrow<str> for NodeType {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeType {
    fn from(name: &str) -> Self {
        NodeType::new(name)
    }
}

impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_on_a_node() {
        let node = NodeName::new("n1");
        let place = NodeName::new("n1").place_name(2);
        assert_eq!((place.as_str(), place.host(), place.place_numbers()), ("n1:2", node.clone(), vec![2]));
        assert_eq!(
            (node.host(), node.place_numbers(), node.single_places()),
            (node.clone(), vec![], vec![node.clone()])
        );
        assert!(place.is_place() && !node.is_place() && !place.is_block());
        assert!(
            place.shares_host_with(&node)
                && place.shares_host_with(&node.place_name(7))
                && !place.shares_host_with(&"n10:2".into())
        );
        assert!(place.matches_name("n1:2") && place.matches_name("n1") && node.matches_name("n1"));
        assert!(!place.matches_name("n1:") && !place.matches_name("n12") && !node.matches_name("n1:2"));
    }

    #[test]
    fn a_block_of_places_is_on_one_node() {
        let node = NodeName::new("n1");
        let block = NodeName::new("n1").block_name(&[0, 2]);
        assert_eq!(
            (block.as_str(), block.host(), block.place_numbers()),
            ("n1:0+2", node.clone(), vec![0, 2])
        );
        assert_eq!(block.single_places(), [node.place_name(0), node.place_name(2)]);
        assert!(block.is_place() && block.is_block() && block.matches_name("n1"));
        assert_eq!(node.block_name(&[1]), node.place_name(1));
        assert_eq!(node.block_name(&[10, 2]).as_str(), "n1:2+10");
    }

    #[test]
    fn memory_of_a_gpu_is_read_off_the_type() {
        for (name, gib) in [
            ("gpu:nvidia_a100-sxm4-80gb:8/cpu128", Some(80.0)),
            ("gpu:a100-40g:1/cpu16*2", Some(40.0)),
            ("gpu:H100:8/cpu96", Some(80.0)),
            // The A100 is sold with two sizes.
            ("gpu:a100:4/cpu64", None),
            ("cpu64", None),
            ("gpu:x0gb:4/cpu64", None),
        ] {
            assert_eq!(NodeType::new(name).gpu_memory_gib(), gib, "{name}");
        }
    }

    #[test]
    fn gpus_and_their_model_are_read_off_the_type() {
        for (name, gpus, model) in [
            ("gpu:a100:4/cpu64", 4, Some("a100")),
            ("gpu:a100:1/cpu4*2", 2, Some("a100")),
            ("gpu:a100/cpu4", 1, Some("a100")),
            ("gpu:8/cpu64", 8, None),
            ("gpu/cpu64", 1, None),
            ("shard:4+gpu:a100:2/cpu64", 2, Some("a100")),
            ("cpu64", 0, None),
        ] {
            let node_type = NodeType::new(name);
            assert_eq!((node_type.gpus(), node_type.gpu_model()), (gpus, model), "{name}");
        }
    }

    #[test]
    fn a_type_can_be_a_block_of_places() {
        let one = NodeType::new("gpu:a100:1/cpu4");
        assert_eq!(
            (one.clone().with_place_count(1), one.clone().with_place_count(0)),
            (one.clone(), one.clone())
        );
        let two = one.clone().with_place_count(2);
        assert_eq!((two.as_str(), two.single_place()), ("gpu:a100:1/cpu4*2", (one.clone(), 2)));
        assert_eq!(one.single_place(), (one.clone(), 1));
        let matches =
            ["a100", "gpu", "cpu4", "gpu:a100:1/cpu4", "a10", ""].map(|word| one.matches_name(word));
        assert_eq!(matches, [true, true, true, true, false, false]);
    }

    #[test]
    fn numbers_in_names_are_compared_by_value() {
        let sorted = ["gpu1", "n1", "n2", "n9", "n10", "n10b2", "n10b11", "x007", "x8"];
        let mut names: Vec<NodeName> = sorted.iter().rev().map(NodeName::new).collect();
        names.sort_by(NodeName::cmp_natural);
        assert_eq!(names.iter().map(NodeName::as_str).collect::<Vec<_>>(), sorted);
    }
}
