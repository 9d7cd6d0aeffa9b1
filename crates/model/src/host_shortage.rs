//! The CPUs or memory that hosts lack for a size of a job, although they have places for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cpu_memory::CpuMemory;

/// A resource of hosts that workers take besides places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostPart {
    /// CPUs of the host.
    Cpus,
    /// Memory of the host.
    Memory,
}

/// A shortage of CPUs or memory on hosts that have places for more workers of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostShortage {
    /// Workers that the size takes beyond those that the job has.
    pub workers: u32,
    /// What each of them takes of its host.
    pub takes: CpuMemory,
    /// The resource that is scarce.
    pub lacks: HostPart,
    /// The number of these workers that fit.
    pub fit: u32,
}

impl fmt::Display for HostShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.workers == 1 {
            f.write_str("1 more worker needs")?;
        } else {
            write!(f, "{} more workers each need", self.workers)?;
        }
        let CpuMemory { cpus, memory_mib } = self.takes;
        match self.lacks {
            HostPart::Cpus => {
                write!(f, " {cpus} CPUs of one host, and hosts with free places have CPUs left for ")?
            }
            HostPart::Memory => {
                write!(f, " {memory_mib} MiB of one host, and hosts with free places have memory left for ")?;
            }
        }
        if self.fit == 0 { f.write_str("none") } else { write!(f, "{}", self.fit) }
    }
}
