//! CPUs and memory of a host, and the share of them that a place has.

use serde::{Deserialize, Serialize};

/// CPUs and memory of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuMemory {
    /// CPUs, as Slurm counts them.
    pub cpus: u32,
    /// Memory in MiB; 0 if the site does not allocate memory.
    pub memory_mib: u64,
}

impl CpuMemory {
    /// The sum of both.
    #[must_use]
    pub fn sum_with(self, other: CpuMemory) -> CpuMemory {
        CpuMemory {
            cpus: self.cpus.saturating_add(other.cpus),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    /// The difference, where each part is at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: CpuMemory) -> CpuMemory {
        CpuMemory {
            cpus: self.cpus.saturating_sub(other.cpus),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    /// The larger value of each part.
    #[must_use]
    pub fn max_each(self, other: CpuMemory) -> CpuMemory {
        CpuMemory { cpus: self.cpus.max(other.cpus), memory_mib: self.memory_mib.max(other.memory_mib) }
    }

    /// The smaller value of each part.
    #[must_use]
    pub fn min_each(self, other: CpuMemory) -> CpuMemory {
        CpuMemory { cpus: self.cpus.min(other.cpus), memory_mib: self.memory_mib.min(other.memory_mib) }
    }

    /// `count` times this amount.
    #[must_use]
    pub fn scaled_by(self, count: u32) -> CpuMemory {
        CpuMemory {
            cpus: self.cpus.saturating_mul(count),
            memory_mib: self.memory_mib.saturating_mul(count.into()),
        }
    }

    /// Whether `other` has at least as much of each part.
    pub fn is_within(self, other: CpuMemory) -> bool {
        self.cpus <= other.cpus && self.memory_mib <= other.memory_mib
    }

    /// Whether both parts are zero.
    pub fn is_none(self) -> bool {
        self == CpuMemory::default()
    }

    /// The sum of all these amounts.
    pub fn sum_all(all: impl IntoIterator<Item = CpuMemory>) -> CpuMemory {
        all.into_iter().fold(CpuMemory::default(), CpuMemory::sum_with)
    }
}

/// A host's CPUs and memory, as seen from one of its places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceShare {
    /// The place's own share of the host.
    pub own: CpuMemory,
    /// The part of the host that the malleable job here holds at this place. For a job on several places, the
    /// part of this place only.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub held: CpuMemory,
    /// The part of the host that no job holds and that malleable jobs may take. All places of the host have
    /// the same value.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub free: CpuMemory,
}

fn is_nothing(portion: &CpuMemory) -> bool {
    portion.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_bounds() {
        assert_eq!(amount(3, 10).sum_with(amount(1, 5)), amount(4, 15));
        assert_eq!(amount(u32::MAX, 1).sum_with(amount(1, u64::MAX)), amount(u32::MAX, u64::MAX));
        assert_eq!(amount(3, 10).saturating_sub(amount(4, 4)), amount(0, 6));
        assert_eq!(amount(3, 10).max_each(amount(4, 4)), amount(4, 10));
        assert_eq!(amount(3, 10).min_each(amount(4, 4)), amount(3, 4));
        assert_eq!(amount(3, 10).scaled_by(3), amount(9, 30));
        assert_eq!(CpuMemory::sum_all([amount(1, 2), amount(3, 4)]), amount(4, 6));
        assert!(amount(3, 4).is_within(amount(3, 4)));
        assert!(!amount(4, 4).is_within(amount(3, 4)));
        assert!(!amount(3, 5).is_within(amount(3, 4)));
        assert!(amount(0, 0).is_none() && !amount(0, 1).is_none());
    }

    fn amount(cpus: u32, memory_mib: u64) -> CpuMemory {
        CpuMemory { cpus, memory_mib }
    }

    #[test]
    fn zero_amounts_are_not_written() {
        let own = CpuMemory { cpus: 4, memory_mib: 0 };
        let share = PlaceShare { own, ..PlaceShare::default() };
        let text = serde_json::to_string(&share).unwrap();
        assert_eq!(text, r#"{"own":{"cpus":4,"memory_mib":0}}"#);
        assert_eq!(serde_json::from_str::<PlaceShare>(&text).unwrap(), share);
    }
}
