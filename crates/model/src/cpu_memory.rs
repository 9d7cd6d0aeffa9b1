//! CPUs and memory of a host, and what of them a place comes with.

use serde::{Deserialize, Serialize};

/// CPUs and memory of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMemory {
    /// CPUs, as Slurm counts them.
    pub cpus: u32,
    /// MiB; 0 where the site does not share memory out.
    pub memory_mib: u64,
}

impl CpuMemory {
    /// Both together.
    #[must_use]
    pub fn sum_with(self, other: CpuMemory) -> CpuMemory {
        CpuMemory {
            cpus: self.cpus.saturating_add(other.cpus),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    /// What is left without the other; nothing of what the other has more of.
    #[must_use]
    pub fn saturating_sub(self, other: CpuMemory) -> CpuMemory {
        CpuMemory {
            cpus: self.cpus.saturating_sub(other.cpus),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    /// Of each the larger.
    #[must_use]
    pub fn max_each(self, other: CpuMemory) -> CpuMemory {
        CpuMemory { cpus: self.cpus.max(other.cpus), memory_mib: self.memory_mib.max(other.memory_mib) }
    }

    /// Of each the smaller.
    #[must_use]
    pub fn min_each(self, other: CpuMemory) -> CpuMemory {
        CpuMemory { cpus: self.cpus.min(other.cpus), memory_mib: self.memory_mib.min(other.memory_mib) }
    }

    /// So many of it.
    #[must_use]
    pub fn scaled_by(self, count: u32) -> CpuMemory {
        CpuMemory {
            cpus: self.cpus.saturating_mul(count),
            memory_mib: self.memory_mib.saturating_mul(count.into()),
        }
    }

    /// Whether the other has as much of each at least.
    pub fn is_within(self, other: CpuMemory) -> bool {
        self.cpus <= other.cpus && self.memory_mib <= other.memory_mib
    }

    /// Whether it is nothing.
    pub fn is_none(self) -> bool {
        self == CpuMemory::default()
    }

    /// The sum of these.
    pub fn sum_all(all: impl IntoIterator<Item = CpuMemory>) -> CpuMemory {
        all.into_iter().fold(CpuMemory::default(), CpuMemory::sum_with)
    }
}

/// What is known of a host's CPUs and memory at one of its places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceShare {
    /// What the place comes with.
    pub own: CpuMemory,
    /// What the malleable job on it has of the host; of a job on several places this place's part.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub held: CpuMemory,
    /// What no job has of the host, so far as malleable jobs may have it. The same at all of its places.
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
        let p = |cpus, memory_mib| CpuMemory { cpus, memory_mib };
        assert_eq!(p(3, 10).sum_with(p(1, 5)), p(4, 15));
        assert_eq!(p(u32::MAX, 1).sum_with(p(1, u64::MAX)), p(u32::MAX, u64::MAX));
        assert_eq!(p(3, 10).saturating_sub(p(4, 4)), p(0, 6));
        assert_eq!((p(3, 10).max_each(p(4, 4)), p(3, 10).min_each(p(4, 4))), (p(4, 10), p(3, 4)));
        assert_eq!(p(3, 10).scaled_by(3), p(9, 30));
        assert_eq!(CpuMemory::sum_all([p(1, 2), p(3, 4)]), p(4, 6));
        let within = |a: CpuMemory, b: CpuMemory| a.is_within(b);
        assert!(within(p(3, 4), p(3, 4)) && !within(p(4, 4), p(3, 4)) && !within(p(3, 5), p(3, 4)));
        assert!(p(0, 0).is_none() && !p(0, 1).is_none());
    }

    #[test]
    fn what_is_nothing_is_not_told() {
        let own = CpuMemory { cpus: 4, memory_mib: 0 };
        let share = PlaceShare { own, ..PlaceShare::default() };
        let text = serde_json::to_string(&share).unwrap();
        assert_eq!(text, r#"{"own":{"cpus":4,"memory_mib":0}}"#);
        assert_eq!(serde_json::from_str::<PlaceShare>(&text).unwrap(), share);
    }
}
