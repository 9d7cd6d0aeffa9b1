//! Why a node is no gap: values that become a sentence only when somebody reads it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{JobId, NodeState, WindowCause};

/// Why a node of the malleable partition is not usable. Every round makes one for each busy node of the
/// machine, so it holds no sentence. In JSON it is the sentence, and is read back as [`GapRefusal::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum GapRefusal {
    /// A job of the main queue is on it, even if only to clean up.
    Busy {
        /// The job.
        job: JobId,
        /// Its partition.
        partition: Arc<str>,
    },
    /// Slurm's state forbids new work.
    Unsound(NodeState),
    /// Ours have all CPUs of its node that the malleable partition may have.
    Capped,
    /// Slurm calls it allocated, but shows no job on it.
    Unexplained,
    /// A job of ours is cleaning up on it.
    Leaving(JobId),
    /// A job of ours is on it that no malleable job holds.
    NotOurs(JobId),
    /// This reservation covers it now.
    Reserved(Arc<str>),
    /// It has not been free for long enough.
    Young {
        /// Seconds for which it has been free.
        free_secs: f64,
        /// Seconds after which it is used.
        settle_secs: f64,
    },
    /// Its window is too short to start in.
    Short {
        /// Length of the window, seconds.
        window_secs: f64,
        /// What ends it, if that is known.
        cause: Option<WindowCause>,
        /// Shortest window that is worth starting in, seconds.
        worth_secs: f64,
    },
    /// Slurm has switched it off, and we do not switch it on.
    Asleep,
    /// It is one of the idle nodes that are left alone.
    Kept {
        /// How many these shall be.
        nodes: usize,
    },
    /// What others than the gap finder have against it.
    Said(String),
}

impl fmt::Display for GapRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GapRefusal::Busy { job, partition } => {
                write!(f, "busy: job {job} of partition {partition} is on it")
            }
            GapRefusal::Unsound(state) => write!(f, "not usable: {state}"),
            GapRefusal::Capped => f.write_str(
                "jobs of ours have all CPUs of its node that the partition may have (MaxCPUsPerNode)",
            ),
            GapRefusal::Unexplained => f.write_str("allocated, but no job of the snapshot is on it"),
            GapRefusal::Leaving(job) => write!(f, "job {job} of ours is still cleaning up on it"),
            GapRefusal::NotOurs(job) => write!(f, "held by job {job}, not ours to plan yet"),
            GapRefusal::Reserved(name) => write!(f, "covered by reservation {name}"),
            GapRefusal::Young { free_secs, settle_secs } => {
                write!(f, "free for {free_secs:.0} s; it is used after {settle_secs:.0} s")
            }
            GapRefusal::Short { window_secs, cause, worth_secs } => {
                write!(f, "window of {:.0} s", window_secs.max(0.0))?;
                match cause {
                    Some(WindowCause::PlannedJob(job)) => write!(f, " (job {job} is planned)")?,
                    Some(WindowCause::Reservation(name)) => write!(f, " (reservation {name} begins)")?,
                    None => {}
                }
                write!(f, " is shorter than the {worth_secs:.0} s that are worth starting in")
            }
            GapRefusal::Asleep => f.write_str("switched off to save power; jobs do not wake it (gaps.wake)"),
            GapRefusal::Kept { nodes } => {
                write!(f, "left alone: {nodes} idle nodes are kept for Slurm to switch off (gaps.keep_idle)")
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
