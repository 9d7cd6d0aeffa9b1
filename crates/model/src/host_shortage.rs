//! What hosts lack for a size of a job, though they have places for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cpu_memory::CpuMemory;

/// What workers take of a host besides its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostPart {
    /// CPUs.
    Cpus,
    /// Memory.
    Memory,
}

/// Workers that have places, and for which the hosts of these places have too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostShortage {
    /// Workers that the size takes beyond those that the job has.
    pub workers: u32,
    /// What each takes of its host.
    pub takes: CpuMemory,
    /// What hosts have too little of.
    pub lacks: HostPart,
    /// How many of the workers fit.
    pub fit: u32,
}

impl fmt::Display for HostShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.workers {
            1 => f.write_str("1 more worker would take")?,
            workers => write!(f, "{workers} more workers would each take")?,
        }
        let part = match self.lacks {
            HostPart::Cpus => {
                write!(f, " {} CPUs of its host", self.takes.cpus)?;
                "CPUs"
            }
            HostPart::Memory => {
                write!(f, " {} MiB of its host", self.takes.memory_mib)?;
                "memory"
            }
        };
        write!(f, ", and the {part} left beside free places would do for ")?;
        if self.fit == 0 { f.write_str("none") } else { write!(f, "{}", self.fit) }
    }
}
