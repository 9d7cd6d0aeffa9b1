//! Why a round gave a node to a job or to none. The values become sentences only when someone reads them.

use std::fmt;

use super::gap_refusal::GapRefusal;
use super::ids::JobId;
use super::sentence::sentence;
use super::time::UnixTime;
use crate::words;

/// Why a round gave a node to a job, or to none. A round makes one for each node of the partition, so it
/// holds no sentence. In JSON it is a sentence, which is read back as [`NodeReason::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum NodeReason {
    /// Its job keeps it.
    Kept {
        /// The job.
        job: JobId,
        /// End of the lease.
        until: UnixTime,
    },
    /// A job gets it.
    Given {
        /// The job.
        job: JobId,
        /// End of the lease.
        until: UnixTime,
    },
    /// Its job must leave it.
    Left {
        /// The job.
        job: JobId,
        /// When the main queue wants it.
        wanted: WantedAt,
    },
    /// It is available for too short a time for one step.
    Ends {
        /// Seconds for which the planner counts on it.
        secs: f64,
        /// When the main queue wants it.
        wanted: WantedAt,
    },
    /// There is no malleable job.
    NoJob,
    /// All jobs are parked.
    Drained,
    /// Its job gives it up, and no other job gains from it.
    Spared {
        /// The job.
        job: JobId,
    },
    /// Its window is too short to start in.
    Short {
        /// Length of the window, seconds.
        secs: f64,
        /// Shortest window that is worth starting in, seconds.
        worth_secs: f64,
        /// When the main queue wants it.
        wanted: WantedAt,
    },
    /// Starting and growth are paused.
    Paused,
    /// Nothing was planned in this round.
    NotPlanned,
    /// The changes that one round may make are used up.
    BudgetUsed,
    /// No job gains more from it than the change costs.
    NoGain {
        /// Length of the window, seconds.
        secs: f64,
        /// When the main queue wants it.
        wanted: WantedAt,
    },
    /// It is not a gap, for this reason.
    Refused(GapRefusal),
    /// A sentence that was read back from JSON.
    Said(String),
}

words! {
    /// The kind of a [`NodeReason`].
    pub enum NodeReasonKind {
        /// Its job keeps it.
        Kept = "kept",
        /// A job gets it.
        Given = "given",
        /// Its job must leave it.
        Left = "left",
        /// It is available for too short a time for one step.
        Ends = "ends",
        /// There is no malleable job.
        NoJob = "no_job",
        /// All jobs are parked.
        Drained = "drained",
        /// Its job gives it up.
        Spared = "spared",
        /// Its window is too short to start in.
        Short = "short",
        /// Starting and growth are paused.
        Paused = "paused",
        /// Nothing was planned in this round.
        NotPlanned = "not_planned",
        /// No change is left in this round.
        BudgetUsed = "budget_used",
        /// No job gains from it.
        NoGain = "no_gain",
        /// It is not a gap.
        Refused = "refused",
        /// A sentence that was read back from JSON.
        Said = "said",
    }
}

/// When the main queue wants a node; `None` if nothing is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedAt(pub Option<UnixTime>);

impl NodeReason {
    /// The kind of this reason.
    pub fn kind(&self) -> NodeReasonKind {
        use NodeReasonKind as Kind;
        match self {
            NodeReason::Kept { .. } => Kind::Kept,
            NodeReason::Given { .. } => Kind::Given,
            NodeReason::Left { .. } => Kind::Left,
            NodeReason::Ends { .. } => Kind::Ends,
            NodeReason::NoJob => Kind::NoJob,
            NodeReason::Drained => Kind::Drained,
            NodeReason::Spared { .. } => Kind::Spared,
            NodeReason::Short { .. } => Kind::Short,
            NodeReason::Paused => Kind::Paused,
            NodeReason::NotPlanned => Kind::NotPlanned,
            NodeReason::BudgetUsed => Kind::BudgetUsed,
            NodeReason::NoGain { .. } => Kind::NoGain,
            NodeReason::Refused(_) => Kind::Refused,
            NodeReason::Said(_) => Kind::Said,
        }
    }
}

impl fmt::Display for NodeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeReason::Kept { job, until } => write!(f, "job {job} keeps it until {until}"),
            NodeReason::Given { job, until } => write!(f, "job {job} gets it until {until}"),
            NodeReason::Left { job, wanted } => write!(f, "job {job} leaves it: {wanted}"),
            NodeReason::Ends { secs, wanted } => {
                write!(f, "left alone: it is counted on for {secs:.0} s only, too short for a step; {wanted}")
            }
            NodeReason::NoJob => f.write_str("idle: there is no malleable job"),
            NodeReason::Drained => f.write_str("idle: an administrator drains infill"),
            NodeReason::Spared { job } => write!(f, "job {job} gives it up, and no other job gains from it"),
            NodeReason::Short { secs, worth_secs, wanted } => {
                write!(f, "idle: its window of {secs:.0} s is shorter than the {worth_secs:.0} s")?;
                write!(f, " worth starting in; {wanted}")
            }
            NodeReason::Paused => f.write_str("idle: starting and growth are paused"),
            NodeReason::NotPlanned => f.write_str("idle: nothing was planned in this round"),
            NodeReason::BudgetUsed => f.write_str("idle: the changes of this round are used up"),
            NodeReason::NoGain { secs, wanted } => {
                write!(f, "idle: no job that may use it now would gain more in {secs:.0} s than the")?;
                write!(f, " change costs; {wanted}")
            }
            NodeReason::Refused(refusal) => refusal.fmt(f),
            NodeReason::Said(sentence) => f.write_str(sentence),
        }
    }
}

sentence!(NodeReason: "Why a round gave a node to a job, or to none, as a sentence without its subject.");

impl fmt::Display for WantedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(at) => write!(f, "the main queue wants it at {at}"),
            None => f.write_str("nothing is planned on it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_kind_and_a_sentence() {
        let job = JobId(7);
        let until = UnixTime(0);
        let secs = 40.0;
        let wanted = WantedAt(Some(UnixTime(60)));
        let free = WantedAt(None);
        let reasons = [
            NodeReason::Kept { job, until },
            NodeReason::Given { job, until },
            NodeReason::Left { job, wanted },
            NodeReason::Ends { secs, wanted },
            NodeReason::NoJob,
            NodeReason::Drained,
            NodeReason::Spared { job },
            NodeReason::Short { secs, worth_secs: 60.0, wanted },
            NodeReason::Paused,
            NodeReason::NotPlanned,
            NodeReason::BudgetUsed,
            NodeReason::NoGain { secs, wanted: free },
            NodeReason::Refused(GapRefusal::Leaving(job)),
            NodeReason::Said("as it was".to_owned()),
        ];
        let kinds: Vec<NodeReasonKind> = reasons.iter().map(NodeReason::kind).collect();
        assert_eq!(kinds, NodeReasonKind::ALL);
        let lines: Vec<String> =
            reasons.iter().map(|reason| format!("{}: {reason}", reason.kind().word())).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        kept: job 7 keeps it until 1970-01-01T00:00:00Z
        given: job 7 gets it until 1970-01-01T00:00:00Z
        left: job 7 leaves it: the main queue wants it at 1970-01-01T00:01:00Z
        ends: left alone: it is counted on for 40 s only, too short for a step; the main queue wants it at 1970-01-01T00:01:00Z
        no_job: idle: there is no malleable job
        drained: idle: an administrator drains infill
        spared: job 7 gives it up, and no other job gains from it
        short: idle: its window of 40 s is shorter than the 60 s worth starting in; the main queue wants it at 1970-01-01T00:01:00Z
        paused: idle: starting and growth are paused
        not_planned: idle: nothing was planned in this round
        budget_used: idle: the changes of this round are used up
        no_gain: idle: no job that may use it now would gain more in 40 s than the change costs; nothing is planned on it
        refused: job 7 of ours is still cleaning up on it
        said: as it was
        ");
        let json = serde_json::to_string(&reasons[4]).unwrap();
        assert_eq!(json, r#""idle: there is no malleable job""#);
        assert_eq!(serde_json::from_str::<NodeReason>(&json).unwrap().to_string(), reasons[4].to_string());
    }
}
