//! The resources of a node, the parts of them that jobs hold, and the units in which parts are lent.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NodeName, counted_noun};

/// CPUs, memory and GPUs of a node, or of a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPUs, as Slurm counts them (threads or cores).
    pub cpus: u32,
    /// Memory in MiB. Jobs hold none if the site does not allocate memory.
    pub memory_mib: u64,
    /// GPUs by type.
    pub gpus: GpuCounts,
}

impl Resources {
    /// Whether all parts are zero.
    pub fn is_none(&self) -> bool {
        self.cpus == 0 && self.memory_mib == 0 && self.gpus.total_count() == 0
    }

    /// Adds `other` to it.
    pub fn add(&mut self, other: &Resources) {
        self.cpus = self.cpus.saturating_add(other.cpus);
        self.memory_mib = self.memory_mib.saturating_add(other.memory_mib);
        self.gpus.add(&other.gpus);
    }

    /// The difference; `None` if `other` has more of any part.
    pub fn checked_sub(&self, other: &Resources) -> Option<Resources> {
        Some(Resources {
            cpus: self.cpus.checked_sub(other.cpus)?,
            memory_mib: self.memory_mib.checked_sub(other.memory_mib)?,
            gpus: self.gpus.checked_sub(&other.gpus)?,
        })
    }
}

/// Formats as `2 a100 GPUs, 6 CPUs, 12.0 GiB`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.gpus.0 {
            let noun = if kind.is_empty() { "GPU".to_owned() } else { format!("{kind} GPU") };
            write!(f, "{}, ", counted_noun(u64::from(*count), &noun))?;
        }
        f.write_str(&counted_noun(u64::from(self.cpus), "CPU"))?;
        if self.memory_mib > 0 {
            write!(f, ", {:.1} GiB", self.memory_mib as f64 / 1024.0)?;
        }
        Ok(())
    }
}

/// Numbers of GPUs by type, sorted by type, each at least 1. The type is empty if the site does not name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(String, u32)>")]
pub struct GpuCounts(Vec<(String, u32)>);

impl GpuCounts {
    /// GPUs of these types. A type may occur more than once.
    pub fn from_counts(counts: impl IntoIterator<Item = (String, u32)>) -> GpuCounts {
        let mut gpus = GpuCounts::default();
        counts.into_iter().for_each(|(kind, count)| gpus.add_type(&kind, count));
        gpus
    }

    /// The number of all GPUs.
    pub fn total_count(&self) -> u32 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The type of all GPUs; `None` if there are none or several types.
    pub fn only_type(&self) -> Option<&str> {
        if let [(kind, _)] = self.0.as_slice() { Some(kind) } else { None }
    }

    fn add_type(&mut self, kind: &str, count: u32) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(kind)) {
            Ok(index) => self.0[index].1 = self.0[index].1.saturating_add(count),
            Err(index) if count > 0 => self.0.insert(index, (kind.to_owned(), count)),
            Err(_) => {}
        }
    }

    fn add(&mut self, other: &GpuCounts) {
        other.0.iter().for_each(|(kind, count)| self.add_type(kind, *count));
    }

    fn checked_sub(&self, other: &GpuCounts) -> Option<GpuCounts> {
        let mut left = self.clone();
        for (kind, count) in &other.0 {
            let index = left.0.binary_search_by(|(known, _)| known.cmp(kind)).ok()?;
            left.0[index].1 = left.0[index].1.checked_sub(*count)?;
        }
        left.0.retain(|(_, count)| *count > 0);
        Some(left)
    }
}

impl From<Vec<(String, u32)>> for GpuCounts {
    fn from(counts: Vec<(String, u32)>) -> GpuCounts {
        GpuCounts::from_counts(counts)
    }
}

/// The resources that a job holds on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedResources {
    /// The node.
    pub node: NodeName,
    /// The resources that the job holds there.
    pub holds: Resources,
}

/// A site's rules for lending parts of nodes. Without rules, a GPU comes with an equal part of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LendingRules {
    /// The share of a GPU, by its type in Slurm. The empty type is for GPUs without a type.
    pub gpus: BTreeMap<String, GpuShare>,
    /// CPUs in each lent part of a node without GPUs, each with its share of the memory. With 0, such nodes
    /// are not lent.
    pub cpus: u32,
}

/// The share of a node that comes with a GPU. Values that the site does not set are an equal part of the
/// node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuShare {
    /// CPUs, at least 1.
    pub cpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
}

impl LendingRules {
    /// The part in which a node with these resources is lent. `None` if it cannot be lent in parts. With
    /// GPUs of several types, for instance, it is unknown which one a job gets.
    pub fn unit_of_node(&self, node: &Resources) -> Option<LendingUnit> {
        if node.gpus.total_count() == 0 {
            return LendingUnit::from_node_cpus(node, self.cpus);
        }
        let share = self.gpus.get(node.gpus.only_type()?).copied().unwrap_or_default();
        let even = LendingUnit::from_node(node)?;
        let cpus = share.cpus.unwrap_or(even.cpus).max(1);
        // Jobs hold no memory if the site does not allocate it.
        let memory_mib = share.memory_mib.filter(|_| node.memory_mib > 0).unwrap_or(even.memory_mib);
        Some(LendingUnit { cpus, memory_mib, ..even })
    }
}

/// A part in which a node is lent: a GPU with an equal part of the node's CPUs and memory, rounded down, or
/// some CPUs of a node without GPUs. [`LendingRules`] may set other shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LendingUnit {
    /// Whether a GPU is part of it.
    pub has_gpu: bool,
    /// CPUs, at least 1.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl LendingUnit {
    /// An equal part of a node with these resources. `None` without CPUs.
    pub fn from_node(node: &Resources) -> Option<LendingUnit> {
        let gpus = node.gpus.total_count();
        let parts = if gpus > 0 { gpus } else { node.cpus };
        let memory_mib = node.memory_mib.checked_div(u64::from(parts))?;
        let cpus = node.cpus.checked_div(parts).filter(|_| node.cpus > 0)?.max(1);
        Some(LendingUnit { has_gpu: gpus > 0, cpus, memory_mib })
    }

    /// A part with this number of CPUs and their share of the node's memory. `None` if the number is zero, or
    /// the node has fewer CPUs.
    fn from_node_cpus(node: &Resources, cpus: u32) -> Option<LendingUnit> {
        let parts = node.cpus.checked_div(cpus).filter(|parts| *parts > 0)?;
        Some(LendingUnit { has_gpu: false, cpus, memory_mib: node.memory_mib / u64::from(parts) })
    }

    /// The number of parts in which a node is lent: its GPUs, or how many times its CPUs contain those of a
    /// part.
    pub fn part_count(&self, node: &Resources) -> u32 {
        if self.has_gpu { node.gpus.total_count() } else { node.cpus / self.cpus.max(1) }
    }

    /// The resources of one unit, with a GPU of this type if it has one.
    pub fn unit_resources(&self, kind: &str) -> Resources {
        let gpus = GpuCounts::from_counts([(kind.to_owned(), u32::from(self.has_gpu))]);
        Resources { cpus: self.cpus, memory_mib: self.memory_mib, gpus }
    }

    /// The resources of `count` units.
    pub fn resources_of_units(&self, count: usize, kind: &str) -> Resources {
        let mut sum = Resources::default();
        for _ in 0..count {
            sum.add(&self.unit_resources(kind));
        }
        sum
    }

    /// The number of units that together have at least `wants`, at least one.
    pub fn units_needed(&self, wants: &Resources) -> u32 {
        let memory = if self.memory_mib > 0 { wants.memory_mib.div_ceil(self.memory_mib) } else { 0 };
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        let gpus = if self.has_gpu { wants.gpus.total_count() } else { 0 };
        wants.cpus.div_ceil(self.cpus).max(memory).max(gpus).max(1)
    }

    /// The number of units whose CPUs and memory are nearest to those of `wants`. A unit that has nearly
    /// enough counts as one, so that a node's last unit is left over rather than every second one.
    pub fn units_nearest(&self, wants: &Resources) -> u32 {
        let by_memory = ratio_or_zero(wants.memory_mib as f64, self.memory_mib as f64);
        let by_cpus = ratio_or_zero(wants.cpus.into(), self.cpus.into());
        by_cpus.max(by_memory).round() as u32
    }

    /// The number of units that fit into `free`.
    pub fn units_in(&self, free: &Resources) -> u32 {
        let memory = free.memory_mib.checked_div(self.memory_mib);
        let memory = memory.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let gpus = if self.has_gpu { free.gpus.total_count() } else { u32::MAX };
        (free.cpus / self.cpus).min(memory).min(gpus)
    }
}

fn ratio_or_zero(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `CPUS MIB TYPE=COUNT…`.
    fn resources(text: &str) -> Resources {
        let mut words = text.split_whitespace();
        let cpus = words.next().and_then(|word| word.parse().ok()).expect("a number of CPUs");
        let memory_mib = words.next().and_then(|word| word.parse().ok()).expect("a number of MiB");
        let gpus = words.filter_map(|word| {
            let (kind, count) = word.split_once('=')?;
            Some((kind.to_owned(), count.parse().unwrap()))
        });
        Resources { cpus, memory_mib, gpus: GpuCounts::from_counts(gpus) }
    }

    #[test]
    fn resources_are_subtracted_part_by_part() {
        for (has, held, expected) in [
            ("16 16000 a100=4", "4 2000 a100=1", Some("12 14000 a100=3")),
            ("16 16000 a100=4", "16 0 a100=4", Some("0 16000")),
            ("16 16000 a100=4 t4=2", "1 0 t4=2", Some("15 16000 a100=4")),
            ("16 16000 a100=4", "17 0", None),
            ("16 16000 a100=4", "1 16001", None),
            ("16 16000 a100=4", "1 0 a100=5", None),
            ("16 16000 a100=4", "1 0 t4=1", None),
        ] {
            let left = resources(has).checked_sub(&resources(held));
            assert_eq!(left, expected.map(resources), "{has} less {held}");
        }
    }

    #[test]
    fn a_difference_and_its_subtrahend_add_up_to_the_whole() {
        let has = resources("16 16000 a100=4 t4=2");
        let held = resources("3 100 a100=4");
        let mut sum = has.checked_sub(&held).unwrap();
        assert!(!sum.is_none());
        sum.add(&held);
        assert_eq!(sum, has);
        assert!(has.checked_sub(&has).unwrap().is_none());
    }

    #[test]
    fn units_are_equal_parts_of_a_node() {
        for (has, free, units, why) in [
            ("16 16000 a100=4", "16 16000 a100=4", 4, "all is free"),
            ("16 16000 a100=4", "12 16000 a100=4", 3, "CPUs for three"),
            ("16 16000 a100=4", "16 7999 a100=4", 1, "memory for one"),
            ("16 16000 a100=4", "16 16000 a100=1", 1, "one GPU"),
            ("16 16000 a100=4", "16 16000", 0, "no GPU"),
            ("17 16001 a100=4", "17 16001 a100=4", 4, "parts are rounded down"),
            ("16 16000", "5 16000", 5, "one CPU each"),
            ("16 0", "5 0", 5, "memory is not allocated"),
            ("2 0 t4=4", "2 0 t4=4", 2, "more GPUs than CPUs"),
        ] {
            let unit = LendingUnit::from_node(&resources(has)).unwrap();
            assert_eq!(unit.units_in(&resources(free)), units, "{has}, {free} free: {why}");
        }
        assert_eq!(LendingUnit::from_node(&resources("0 16000")), None);
        assert_eq!(LendingUnit::from_node(&resources("0 16000 a100=4")), None);
    }

    #[test]
    fn rules_set_the_shares_of_parts() {
        let a100 = GpuShare { cpus: Some(2), memory_mib: None };
        let t4 = GpuShare { cpus: None, memory_mib: Some(500) };
        let gpus = BTreeMap::from([("a100".to_owned(), a100), ("t4".to_owned(), t4)]);
        let rules = LendingRules { gpus, cpus: 6 };
        for (has, expected, why) in [
            ("16 16000 a100=4", Some((2, 4000, 4)), "the rule for CPUs"),
            ("16 16000 t4=2", Some((8, 500, 2)), "the rule for memory"),
            ("16 0 t4=2", Some((8, 0, 2)), "memory is not allocated"),
            ("16 16000 h100=4", Some((4, 4000, 4)), "an equal part"),
            ("16 16000 a100=4 t4=2", None, "several types"),
            ("16 16000", Some((6, 8000, 2)), "four CPUs are left over"),
            ("5 16000", None, "too few CPUs for one part"),
        ] {
            let node = resources(has);
            let unit = rules.unit_of_node(&node);
            let actual = unit.map(|unit| (unit.cpus, unit.memory_mib, unit.part_count(&node)));
            assert_eq!(actual, expected, "{has}: {why}");
        }
        assert_eq!(LendingRules::default().unit_of_node(&resources("16 16000")), None);
    }

    #[test]
    fn a_request_needs_units_for_each_resource() {
        let unit = LendingUnit::from_node(&resources("16 16000 a100=4")).unwrap();
        for (wants, needed) in [
            ("0 0", 1),
            ("1 100 a100=1", 1),
            ("4 4000 a100=1", 1),
            ("5 100 a100=1", 2),
            ("1 4001 a100=1", 2),
            ("1 0 a100=3", 3),
        ] {
            assert_eq!(unit.units_needed(&resources(wants)), needed, "{wants}");
        }
        for (wants, nearest) in [("0 0", 0), ("5 100 a100=3", 1), ("6 100", 2), ("1 9999", 2)] {
            assert_eq!(unit.units_nearest(&resources(wants)), nearest, "{wants}");
        }
        let without_memory = LendingUnit::from_node(&resources("16 0")).unwrap();
        assert_eq!(without_memory.units_needed(&resources("3 500")), 3);
    }

    #[test]
    fn resources_are_formatted_for_users() {
        assert_eq!(resources("6 12288 a100=2").to_string(), "2 a100 GPUs, 6 CPUs, 12.0 GiB");
        assert_eq!(resources("1 0 a100=1 t4=3").to_string(), "1 a100 GPU, 3 t4 GPUs, 1 CPU");
        let untyped = Resources { gpus: GpuCounts::from_counts([(String::new(), 2)]), ..resources("0 0") };
        assert_eq!(untyped.to_string(), "2 GPUs, 0 CPUs");
    }

    #[test]
    fn gpus_in_json_may_be_in_any_order() {
        let gpus: GpuCounts = serde_json::from_str(r#"[["t4",1],["a100",2],["t4",1],["x",0]]"#).unwrap();
        assert_eq!(gpus, GpuCounts::from_counts([("a100".to_owned(), 2), ("t4".to_owned(), 2)]));
        assert_eq!(serde_json::to_string(&gpus).unwrap(), r#"[["a100",2],["t4",2]]"#);
    }
}
