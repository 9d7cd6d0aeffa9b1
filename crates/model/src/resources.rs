//! What a node has and jobs hold of it, and the units that a share of it is counted in.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::NodeName;

/// CPUs, memory and GPUs: what a node has, or a part of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPUs, as Slurm counts them (threads or cores).
    pub cpus: u32,
    /// Memory, MiB. Nobody holds any where the site does not share it out.
    pub memory_mib: u64,
    /// GPUs.
    pub gpus: GpuCounts,
}

impl Resources {
    /// Whether it is nothing at all.
    pub fn is_none(&self) -> bool {
        self.cpus == 0 && self.memory_mib == 0 && self.gpus.total_count() == 0
    }

    /// Adds the other's.
    pub fn add(&mut self, other: &Resources) {
        self.cpus = self.cpus.saturating_add(other.cpus);
        self.memory_mib = self.memory_mib.saturating_add(other.memory_mib);
        self.gpus.add(&other.gpus);
    }

    /// What is left without the other's; `None` if that has more of anything.
    pub fn checked_sub(&self, other: &Resources) -> Option<Resources> {
        Some(Resources {
            cpus: self.cpus.checked_sub(other.cpus)?,
            memory_mib: self.memory_mib.checked_sub(other.memory_mib)?,
            gpus: self.gpus.checked_sub(&other.gpus)?,
        })
    }
}

/// As people say it: `2 a100 GPUs, 6 CPUs, 12.0 GiB`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u32| if n == 1 { "" } else { "s" };
        for (kind, count) in &self.gpus.0 {
            let space = if kind.is_empty() { "" } else { " " };
            write!(f, "{count} {kind}{space}GPU{}, ", plural(*count))?;
        }
        write!(f, "{} CPU{}", self.cpus, plural(self.cpus))?;
        match self.memory_mib {
            0 => Ok(()),
            mib => write!(f, ", {:.1} GiB", mib as f64 / 1024.0),
        }
    }
}

/// GPUs by type; those whose type the site does not name have the empty one. Sorted by type, none without a
/// count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(String, u32)>")]
pub struct GpuCounts(Vec<(String, u32)>);

impl GpuCounts {
    /// GPUs of these types; the same type may come more than once.
    pub fn from_counts(counts: impl IntoIterator<Item = (String, u32)>) -> GpuCounts {
        let mut gpus = GpuCounts::default();
        counts.into_iter().for_each(|(kind, count)| gpus.add_type(&kind, count));
        gpus
    }

    /// All of them.
    pub fn total_count(&self) -> u32 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The type of all of them; `None` where there are none, or several types.
    pub fn only_type(&self) -> Option<&str> {
        if let [(kind, _)] = self.0.as_slice() { Some(kind) } else { None }
    }

    fn add_type(&mut self, kind: &str, count: u32) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(kind)) {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(count),
            Err(at) if count > 0 => self.0.insert(at, (kind.to_owned(), count)),
            Err(_) => {}
        }
    }

    fn add(&mut self, other: &GpuCounts) {
        other.0.iter().for_each(|(kind, count)| self.add_type(kind, *count));
    }

    fn checked_sub(&self, other: &GpuCounts) -> Option<GpuCounts> {
        let mut left = self.clone();
        for (kind, count) in &other.0 {
            let at = left.0.binary_search_by(|(known, _)| known.cmp(kind)).ok()?;
            left.0[at].1 = left.0[at].1.checked_sub(*count)?;
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

/// What a job has of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedResources {
    /// The node.
    pub node: NodeName,
    /// What of it.
    pub holds: Resources,
}

/// What parts of nodes a site lends, beside the rule that a GPU comes with an equal part of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LendingRules {
    /// What a GPU comes with, by its type as Slurm has it; the empty one is for GPUs without a type.
    pub gpus: BTreeMap<String, GpuShare>,
    /// Of how many CPUs the parts of a node without GPUs are, each with its share of the memory; 0: such
    /// nodes are not lent.
    pub cpus: u32,
}

/// What a site gives with a GPU; an equal part of its node's, where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuShare {
    /// CPUs, at least 1.
    pub cpus: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
}

impl LendingRules {
    /// What each part of a node is that has this; `None` where it cannot be lent in parts: with GPUs of
    /// several types nobody can tell which one a job gets.
    pub fn unit_of_node(&self, node: &Resources) -> Option<LendingUnit> {
        if node.gpus.total_count() == 0 {
            return LendingUnit::from_node_cpus(node, self.cpus);
        }
        let given = self.gpus.get(node.gpus.only_type()?).copied().unwrap_or_default();
        let even = LendingUnit::from_node(node)?;
        let cpus = given.cpus.unwrap_or(even.cpus).max(1);
        // Where memory is not shared out nobody holds any.
        let memory = given.memory_mib.filter(|_| node.memory_mib > 0);
        Some(LendingUnit { cpus, memory_mib: memory.unwrap_or(even.memory_mib), ..even })
    }
}

/// What one GPU comes with on a node, or some CPUs where there are none: an equal part of its CPUs and
/// memory, rounded down, or what the site says ([`LendingRules`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LendingUnit {
    /// Whether a GPU is part of it.
    pub has_gpu: bool,
    /// CPUs, at least 1.
    pub cpus: u32,
    /// MiB.
    pub memory_mib: u64,
}

impl LendingUnit {
    /// The unit of a node that has this; `None` without CPUs.
    pub fn from_node(node: &Resources) -> Option<LendingUnit> {
        let gpus = node.gpus.total_count();
        let parts = if gpus > 0 { gpus } else { node.cpus };
        let memory_mib = node.memory_mib.checked_div(u64::from(parts))?;
        let cpus = node.cpus.checked_div(parts).filter(|_| node.cpus > 0)?.max(1);
        Some(LendingUnit { has_gpu: gpus > 0, cpus, memory_mib })
    }

    /// So many CPUs of a node that has this, with their share of its memory; `None` for none, or if the node
    /// has fewer.
    fn from_node_cpus(node: &Resources, cpus: u32) -> Option<LendingUnit> {
        let parts = node.cpus.checked_div(cpus).filter(|parts| *parts > 0)?;
        Some(LendingUnit { has_gpu: false, cpus, memory_mib: node.memory_mib / u64::from(parts) })
    }

    /// How many parts a node is lent in: its GPUs, or as many times its CPUs as there are.
    pub fn part_count(&self, node: &Resources) -> u32 {
        if self.has_gpu { node.gpus.total_count() } else { node.cpus / self.cpus.max(1) }
    }

    /// What one unit is, with a GPU of this type if it has one.
    pub fn unit_resources(&self, kind: &str) -> Resources {
        let gpus = GpuCounts::from_counts([(kind.to_owned(), u32::from(self.has_gpu))]);
        Resources { cpus: self.cpus, memory_mib: self.memory_mib, gpus }
    }

    /// What so many units are.
    pub fn resources_of_units(&self, count: usize, kind: &str) -> Resources {
        let mut all = Resources::default();
        (0..count).for_each(|_| all.add(&self.unit_resources(kind)));
        all
    }

    /// How many such units hold all of this, at least one.
    pub fn units_needed(&self, wants: &Resources) -> u32 {
        let memory = if self.memory_mib > 0 { wants.memory_mib.div_ceil(self.memory_mib) } else { 0 };
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        let gpus = if self.has_gpu { wants.gpus.total_count() } else { 0 };
        wants.cpus.div_ceil(self.cpus).max(memory).max(gpus).max(1)
    }

    /// How many such units have the CPUs and the memory of this, to the nearest whole number: one that has
    /// nearly enough will do, for then the last on a node is left over, and not every second one.
    pub fn units_nearest(&self, wants: &Resources) -> u32 {
        let ratio = |wants: f64, has: f64| if has > 0.0 { wants / has } else { 0.0 };
        let memory = ratio(wants.memory_mib as f64, self.memory_mib as f64);
        ratio(wants.cpus.into(), self.cpus.into()).max(memory).round() as u32
    }

    /// How many such units what is free makes.
    pub fn units_in(&self, free: &Resources) -> u32 {
        let memory = free.memory_mib.checked_div(self.memory_mib);
        let memory = memory.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let gpus = if self.has_gpu { free.gpus.total_count() } else { u32::MAX };
        (free.cpus / self.cpus).min(memory).min(gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CPUS MIB TYPE=COUNT…`.
    fn resources(text: &str) -> Resources {
        let mut words = text.split_whitespace();
        let mut number = || words.next().and_then(|w| w.parse::<u32>().ok()).expect("a number");
        let cpus = number();
        let memory_mib = u64::from(number());
        Resources {
            cpus,
            memory_mib,
            gpus: GpuCounts::from_counts(words.filter_map(|word: &str| {
                word.split_once('=').map(|(kind, n)| (kind.to_owned(), n.parse().unwrap()))
            })),
        }
    }

    #[test]
    fn what_is_left_of_a_node() {
        let check = |has: &str, held: &str, expected: Option<&str>| {
            assert_eq!(
                resources(has).checked_sub(&resources(held)),
                expected.map(resources),
                "{has} less {held}"
            );
        };
        check("16 16000 a100=4", "4 2000 a100=1", Some("12 14000 a100=3"));
        check("16 16000 a100=4", "16 0 a100=4", Some("0 16000"));
        check("16 16000 a100=4 t4=2", "1 0 t4=2", Some("15 16000 a100=4"));
        check("16 16000 a100=4", "17 0", None);
        check("16 16000 a100=4", "1 16001", None);
        check("16 16000 a100=4", "1 0 a100=5", None);
        check("16 16000 a100=4", "1 0 t4=1", None);
    }

    #[test]
    fn added_again_it_is_whole() {
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
        let units = |has: &str, free: &str| {
            LendingUnit::from_node(&resources(has)).unwrap().units_in(&resources(free))
        };
        assert_eq!(units("16 16000 a100=4", "16 16000 a100=4"), 4);
        assert_eq!(units("16 16000 a100=4", "12 16000 a100=4"), 3, "CPUs for three");
        assert_eq!(units("16 16000 a100=4", "16 7999 a100=4"), 1, "memory for one");
        assert_eq!(units("16 16000 a100=4", "16 16000 a100=1"), 1);
        assert_eq!(units("16 16000 a100=4", "16 16000"), 0);
        assert_eq!(units("17 16001 a100=4", "17 16001 a100=4"), 4);
        assert_eq!(units("16 16000", "5 16000"), 5);
        assert_eq!(units("16 0", "5 0"), 5, "memory is not shared out");
        assert_eq!(units("2 0 t4=4", "2 0 t4=4"), 2, "more GPUs than CPUs");
        assert_eq!(LendingUnit::from_node(&resources("0 16000")), None);
        assert_eq!(LendingUnit::from_node(&resources("0 16000 a100=4")), None);
    }

    #[test]
    fn a_site_says_what_its_parts_are() {
        let given = |cpus, memory_mib| GpuShare { cpus, memory_mib };
        let gpus = [("a100", given(Some(2), None)), ("t4", given(None, Some(500)))];
        let gpus = gpus.map(|(kind, with)| (kind.to_owned(), with));
        let parts = LendingRules { gpus: BTreeMap::from(gpus), cpus: 6 };
        let unit = |has: &str| {
            let unit = parts.unit_of_node(&resources(has))?;
            Some((unit.cpus, unit.memory_mib, unit.part_count(&resources(has))))
        };
        assert_eq!(unit("16 16000 a100=4"), Some((2, 4000, 4)));
        assert_eq!(unit("16 16000 t4=2"), Some((8, 500, 2)));
        assert_eq!(unit("16 0 t4=2"), Some((8, 0, 2)), "memory is not shared out");
        assert_eq!(unit("16 16000 h100=4"), Some((4, 4000, 4)), "an equal part");
        assert_eq!(unit("16 16000 a100=4 t4=2"), None);
        assert_eq!(unit("16 16000"), Some((6, 8000, 2)), "four CPUs are left over");
        assert_eq!(unit("5 16000"), None, "too few for one");
        assert_eq!(LendingRules::default().unit_of_node(&resources("16 16000")), None);
    }

    #[test]
    fn units_that_hold_a_request() {
        let needed = |wants: &str| {
            LendingUnit::from_node(&resources("16 16000 a100=4")).unwrap().units_needed(&resources(wants))
        };
        assert_eq!((needed("0 0"), needed("1 100 a100=1"), needed("4 4000 a100=1")), (1, 1, 1));
        assert_eq!((needed("5 100 a100=1"), needed("1 4001 a100=1"), needed("1 0 a100=3")), (2, 2, 3));
        let nearest = |wants: &str| {
            LendingUnit::from_node(&resources("16 16000 a100=4")).unwrap().units_nearest(&resources(wants))
        };
        assert_eq!(
            (nearest("0 0"), nearest("5 100 a100=3"), nearest("6 100"), nearest("1 9999")),
            (0, 1, 2, 2)
        );
        let without = LendingUnit::from_node(&resources("16 0")).unwrap();
        assert_eq!(without.units_needed(&resources("3 500")), 3);
    }

    #[test]
    fn as_people_say_it() {
        let said = |text| resources(text).to_string();
        assert_eq!(said("6 12288 a100=2"), "2 a100 GPUs, 6 CPUs, 12.0 GiB");
        assert_eq!(said("1 0 a100=1 t4=3"), "1 a100 GPU, 3 t4 GPUs, 1 CPU");
        let untyped = Resources { gpus: GpuCounts::from_counts([(String::new(), 2)]), ..resources("0 0") };
        assert_eq!(untyped.to_string(), "2 GPUs, 0 CPUs");
    }

    #[test]
    fn json_may_come_in_any_order() {
        let gpus: GpuCounts = serde_json::from_str(r#"[["t4",1],["a100",2],["t4",1],["x",0]]"#).unwrap();
        assert_eq!(gpus, GpuCounts::from_counts([("a100".to_owned(), 2), ("t4".to_owned(), 2)]));
        assert_eq!(serde_json::to_string(&gpus).unwrap(), r#"[["a100",2],["t4",2]]"#);
    }
}
