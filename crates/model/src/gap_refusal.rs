//! Why a node is not a gap. The values become sentences only when someone reads them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{JobId, NodeCount, NodeState, UnixTime, WindowCause, counted_noun};

/// Why a node of the malleable partition is not usable. Every round makes one for each busy node of the
/// machine, so it holds no sentence. In JSON it is a sentence, which is read back as [`GapRefusal::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum GapRefusal {
    /// A main job is on it, even if only to clean up.
    Busy {
        /// The main job.
        job: JobId,
        /// The main job's partition.
        partition: Arc<str>,
    },
    /// Slurm's state forbids new work.
    BadState(NodeState),
    /// Malleable jobs have all CPUs of its node that the malleable partition may have.
    Capped,
    /// Slurm calls it allocated, but the snapshot shows no job on it.
    Unexplained,
    /// A malleable job is cleaning up on it.
    Leaving(JobId),
    /// A job of the malleable partition is on it that no malleable job holds.
    NotOurs(JobId),
    /// This reservation covers it now.
    Reserved(Arc<str>),
    /// It has not been free for long enough.
    TooNew {
        /// Seconds for which it has been free.
        free_secs: f64,
        /// Seconds after which it will be used.
        settle_secs: f64,
    },
    /// Its window is too short to start in.
    WindowTooShort {
        /// Length of the window, seconds.
        window_secs: f64,
        /// What ends the window, if known.
        cause: Option<WindowCause>,
        /// Shortest window that is worth starting in, seconds.
        worth_secs: f64,
    },
    /// Slurm has switched it off, and the daemon may not switch it on.
    PoweredOff,
    /// It is among the idle nodes that are left alone.
    KeptIdle {
        /// The number of nodes that are left alone.
        nodes: usize,
    },
    /// The administrator allows other nodes only.
    NotAllowed,
    /// The administrator allows no nodes at this time.
    Blackout {
        /// When nodes may be used again.
        until: UnixTime,
    },
    /// Malleable jobs have as many nodes as the administrator allows.
    AboveNodeLimit {
        /// The largest number of nodes.
        max: u32,
    },
    /// A reason from outside the gap finder, or one read back from JSON.
    Said(String),
}

impl fmt::Display for GapRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GapRefusal::Busy { job, partition } => {
                write!(f, "busy: job {job} of partition {partition} is on it")
            }
            GapRefusal::BadState(state) => write!(f, "not usable: {state}"),
            GapRefusal::Capped => f.write_str(
                "jobs of ours have all CPUs of its node that the partition may have (MaxCPUsPerNode)",
            ),
            GapRefusal::Unexplained => f.write_str("allocated, but no job of the snapshot is on it"),
            GapRefusal::Leaving(job) => write!(f, "job {job} of ours is still cleaning up on it"),
            GapRefusal::NotOurs(job) => write!(f, "held by job {job}, not ours to plan yet"),
            GapRefusal::Reserved(name) => write!(f, "covered by reservation {name}"),
            GapRefusal::TooNew { free_secs, settle_secs } => {
                write!(f, "free for {free_secs:.0} s; it is used after {settle_secs:.0} s")
            }
            GapRefusal::WindowTooShort { window_secs, cause, worth_secs } => {
                write!(f, "window of {:.0} s", window_secs.max(0.0))?;
                match cause {
                    Some(WindowCause::PlannedJob(job)) => write!(f, " (job {job} is planned)")?,
                    Some(WindowCause::Reservation(name)) => write!(f, " (reservation {name} begins)")?,
                    None => {}
                }
                write!(f, " is shorter than the {worth_secs:.0} s that are worth starting in")
            }
            GapRefusal::PoweredOff => {
                f.write_str("switched off to save power; jobs do not wake it (gaps.wake)")
            }
            GapRefusal::KeptIdle { nodes } => {
                let kept = counted_noun(*nodes as u64, "idle node");
                let are = if *nodes == 1 { "is" } else { "are" };
                write!(f, "left alone: {kept} {are} kept for Slurm to switch off (gaps.keep_idle)")
            }
            GapRefusal::NotAllowed => f.write_str("not among the nodes that infill may use (safety.nodes)"),
            GapRefusal::Blackout { until } => {
                write!(f, "not used until {until}: this is a blackout (safety.blackouts)")
            }
            GapRefusal::AboveNodeLimit { max } => {
                let nodes = NodeCount(*max);
                write!(f, "not used: malleable jobs have at most {nodes} (safety.max_nodes)")
            }
            GapRefusal::Said(why) => f.write_str(why),
        }
    }
}

impl From<String> for GapRefusal {
    fn from(why: String) -> Self {
        GapRefusal::Said(why)
    }
}

impl Serialize for GapRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GapRefusal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(GapRefusal::Said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_json_it_is_the_sentence() {
        let busy = GapRefusal::Busy { job: JobId(7), partition: "main".into() };
        let json = r#""busy: job 7 of partition main is on it""#;
        assert_eq!(serde_json::to_string(&busy).unwrap(), json);
        assert_eq!(serde_json::from_str::<GapRefusal>(json).unwrap().to_string(), busy.to_string());
    }
}
