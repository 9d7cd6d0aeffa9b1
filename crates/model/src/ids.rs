//! Newtypes for the things that Slurm numbers or names, so that they cannot be mixed up.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A Slurm job id. A malleable job is known by the id of its lead.
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
pub struct UserId(pub u32);

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a node as Slurm knows it. Cheap to clone, and clones are quick to compare.
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
    /// Wraps `name` as it is; Slurm decides what a valid name is.
    pub fn new(name: impl AsRef<str>) -> Self {
        NodeName(Arc::from(name.as_ref()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The place of this number on the node: `n1:2`. Slurm's names have no colon.
    pub fn place_name(&self, number: usize) -> NodeName {
        NodeName::new(format!("{}:{number}", self.0))
    }

    /// Several places of the node as one, in ascending order: `n1:0+2`. Of one it is that place.
    pub fn block_name(&self, numbers: &[usize]) -> NodeName {
        let numbers: std::collections::BTreeSet<usize> = numbers.iter().copied().collect();
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        NodeName::new(format!("{}:{}", self.0, numbers.join("+")))
    }

    /// The node that a place is on; of a node the node itself.
    pub fn host(&self) -> NodeName {
        self.0.split_once(':').map_or_else(|| self.clone(), |(host, _)| NodeName::new(host))
    }

    /// Whether it is the same node, or places of the same.
    pub fn shares_host_with(&self, other: &NodeName) -> bool {
        let host = |name: &NodeName| name.0.find(':').unwrap_or(name.0.len());
        self.0[..host(self)] == other.0[..host(other)]
    }

    /// Whether it is meant by this name: its own, or that of the node that it is a place on.
    pub fn matches_name(&self, name: &str) -> bool {
        *self.0 == *name
            || self.0.split_once(':').is_some_and(|(host, _): (&str, &str)| host == name)
            || (self.is_block() && self.single_places().iter().any(|part| part.as_str() == name))
    }

    /// Whether it is a place, or several of one node, rather than a node.
    pub fn is_place(&self) -> bool {
        self.0.contains(':')
    }

    /// Whether it is several places of one node.
    pub fn is_block(&self) -> bool {
        self.0.contains('+')
    }

    /// The numbers of a place on its node; none of a node.
    pub fn place_numbers(&self) -> Vec<usize> {
        let numbers = self.0.split_once(':').map_or("", |(_, numbers)| numbers);
        numbers.split('+').filter_map(|number| number.parse().ok()).collect()
    }

    /// Each place of several by itself; of all else just that.
    pub fn single_places(&self) -> Vec<NodeName> {
        if !self.is_block() {
            return vec![self.clone()];
        }
        let host = self.host();
        self.place_numbers().into_iter().map(|number| host.place_name(number)).collect()
    }

    /// Compares as people count: `n9` before `n10`.
    pub fn cmp_natural(&self, other: &NodeName) -> Ordering {
        digit_runs(&self.0).cmp(digit_runs(&other.0)).then_with(|| self.cmp(other))
    }
}

/// Runs of digits and of other characters; digits as (length without leading zeros, digits), so that longer
/// is larger.
fn digit_runs(text: &str) -> impl Iterator<Item = (bool, usize, &str)> {
    let digits = |s: &str| s.starts_with(|c: char| c.is_ascii_digit());
    let mut rest = text;
    std::iter::from_fn(move || {
        let number = digits(rest);
        let end = rest.find(|c: char| c.is_ascii_digit() != number).unwrap_or(rest.len());
        let (run, tail) = rest.split_at_checked(end).filter(|(run, _)| !run.is_empty())?;
        rest = tail;
        let bare = if number { run.trim_start_matches('0') } else { run };
        Some((number, if number { bare.len() } else { 0 }, bare))
    })
}

/// Sets of names can be asked for a text.
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

/// Most GiB of a GPU that a type's name is believed.
const MOST_GPU_GIB: u32 = 2048;

/// GiB of GPUs that are sold with one size of memory only.
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
pub struct NodeType(Arc<str>);

impl NodeType {
    /// Wraps a type name.
    pub fn new(name: impl AsRef<str>) -> Self {
        NodeType(Arc::from(name.as_ref()))
    }

    /// The type's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The type of a node that is so many places of this type: `gpu:a100:1/cpu4*2`.
    pub fn with_place_count(self, count: u32) -> NodeType {
        if count > 1 { NodeType::new(format!("{self}*{count}")) } else { self }
    }

    /// Whether it has GPUs.
    pub fn has_gpus(&self) -> bool {
        let generic = self.0.split_once('/').map_or("", |(generic, _)| generic);
        generic.split('+').any(|gres| gres == "gpu" || gres.starts_with("gpu:"))
    }

    /// GPUs of a node of it; 0 where it has none.
    pub fn gpus(&self) -> u32 {
        let (one, times) = self.single_place();
        let generic = one.0.split_once('/').map_or("", |(generic, _)| generic);
        let count = |gres: &str| match gres.split(':').collect::<Vec<_>>()[..] {
            ["gpu"] => 1,
            ["gpu", .., last] => last.parse().unwrap_or(1),
            _ => 0,
        };
        generic.split('+').map(count).fold(0, u32::saturating_add).saturating_mul(times)
    }

    /// The make of its GPUs, where its name tells: `a100` of `gpu:a100:4/cpu64`.
    pub fn gpu_make(&self) -> Option<&str> {
        let (generic, _) = self.0.split_once('/')?;
        generic.split('+').find_map(|gres| match gres.split(':').collect::<Vec<_>>()[..] {
            ["gpu", make, ..] if make.parse::<u32>().is_err() => Some(make),
            _ => None,
        })
    }

    /// GiB of each of its GPUs: as its name says (`a100-80gb`), else as all of that make have; `None` where
    /// neither tells.
    pub fn gpu_memory_gib(&self) -> Option<f64> {
        let generic = self.0.split_once('/').map_or("", |(generic, _)| generic);
        let words = || generic.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase);
        let told = words().find_map(|word| {
            let digits = word.strip_suffix("gb").or_else(|| word.strip_suffix('g'))?;
            digits.parse::<u32>().ok().filter(|gib| (1..=MOST_GPU_GIB).contains(gib))
        });
        let usual = || words().find_map(|word| GPU_MEMORY_GIB.iter().find(|(make, _)| *make == word));
        told.map(f64::from).or_else(|| usual().map(|(_, gib)| f64::from(*gib)))
    }

    /// Whether a word means it: its whole name, or a part of that (`a100` of `gpu:a100:4/cpu64`).
    pub fn matches_name(&self, word: &str) -> bool {
        *self.0 == *word || self.0.split(['/', ':', '+', '*']).any(|part| part == word)
    }

    /// The type of one place, and how many it is.
    pub fn single_place(&self) -> (NodeType, u32) {
        let times = self.0.rsplit_once('*').and_then(|(one, count)| Some((one, count.parse().ok()?)));
        times.map_or_else(|| (self.clone(), 1), |(one, count)| (NodeType::new(one), count))
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
    fn several_places_are_one() {
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
        let gib = |name: &str| NodeType::new(name).gpu_memory_gib();
        assert_eq!(gib("gpu:nvidia_a100-sxm4-80gb:8/cpu128"), Some(80.0));
        assert_eq!(gib("gpu:a100-40g:1/cpu16*2"), Some(40.0));
        assert_eq!(gib("gpu:H100:8/cpu96"), Some(80.0));
        assert_eq!(gib("gpu:a100:4/cpu64"), None, "there are two of that make");
        assert_eq!(gib("cpu64"), None);
        assert_eq!(gib("gpu:x0gb:4/cpu64"), None);
    }

    #[test]
    fn gpus_and_their_make_are_read_off_the_type() {
        let told = |name: &str| {
            let node_type = NodeType::new(name);
            (node_type.gpus(), node_type.gpu_make().map(str::to_owned))
        };
        let a100 = || Some("a100".to_owned());
        assert_eq!(told("gpu:a100:4/cpu64"), (4, a100()));
        assert_eq!(told("gpu:a100:1/cpu4*2"), (2, a100()));
        assert_eq!(told("gpu:a100/cpu4"), (1, a100()));
        assert_eq!(told("gpu:8/cpu64"), (8, None));
        assert_eq!(told("gpu/cpu64"), (1, None));
        assert_eq!(told("shard:4+gpu:a100:2/cpu64"), (2, a100()));
        assert_eq!(told("cpu64"), (0, None));
    }

    #[test]
    fn types_of_several_places() {
        let one = NodeType::new("gpu:a100:1/cpu4");
        assert_eq!(
            (one.clone().with_place_count(1), one.clone().with_place_count(0)),
            (one.clone(), one.clone())
        );
        let two = one.clone().with_place_count(2);
        assert_eq!((two.as_str(), two.single_place()), ("gpu:a100:1/cpu4*2", (one.clone(), 2)));
        assert_eq!(one.single_place(), (one.clone(), 1));
        let called = ["a100", "gpu", "cpu4", "gpu:a100:1/cpu4", "a10", ""].map(|word| one.matches_name(word));
        assert_eq!(called, [true, true, true, true, false, false]);
    }

    #[test]
    fn names_count_as_people_do() {
        let sorted = ["gpu1", "n1", "n2", "n9", "n10", "n10b2", "n10b11", "x007", "x8"];
        let mut names: Vec<NodeName> = sorted.iter().rev().map(NodeName::new).collect();
        names.sort_by(NodeName::cmp_natural);
        assert_eq!(names.iter().map(NodeName::as_str).collect::<Vec<_>>(), sorted);
    }
}
