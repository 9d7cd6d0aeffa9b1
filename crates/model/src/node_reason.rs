//! Why a round gave a node to a job or to none: values that become a sentence only when somebody reads it.

use std::fmt;

use super::gap_refusal::GapRefusal;
use super::ids::JobId;
use super::sentence::sentence;
use super::time::UnixTime;
use crate::words;

/// Why a node got the job it got, or none. A round makes one for each node of the partition, so it holds no
/// sentence. In JSON it is the sentence, and is read back as [`NodeReason::Said`].
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
        /// What is planned on it.
        wanted: WantedAt,
    },
    /// It is too soon at its end for a step.
    Ends {
        /// Seconds for which it is counted on.
        secs: f64,
        /// What is planned on it.
        wanted: WantedAt,
    },
    /// There is no malleable job.
    NoJob,
    /// All jobs are parked.
    Drained,
    /// Its job gives it up, and no other gains by it.
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
        /// What is planned on it.
        wanted: WantedAt,
    },
    /// Starting and growth are paused.
    Paused,
    /// Nothing was planned in this round.
    NotPlanned,
    /// No job gains more by it than the change costs.
    NoGain {
        /// Length of the window, seconds.
        secs: f64,
        /// What is planned on it.
        wanted: WantedAt,
    },
    /// It is no gap.
    Refused(GapRefusal),
    /// In the words of another round.
    Said(String),
}

words! {
    /// What kind of reason a [`NodeReason`] is.
    pub enum NodeReasonKind {
        /// Its job keeps it.
        Kept = "kept",
        /// A job gets it.
        Given = "given",
        /// Its job must leave it.
        Left = "left",
        /// Too soon at its end.
        Ends = "ends",
        /// No malleable job.
        NoJob = "no_job",
        /// All jobs are parked.
        Drained = "drained",
        /// Given up.
        Spared = "spared",
        /// Window too short to start in.
        Short = "short",
        /// Starting and growth are paused.
        Paused = "paused",
        /// Nothing was planned.
        NotPlanned = "not_planned",
        /// No job gains by it.
        NoGain = "no_gain",
        /// No gap.
        Refused = "refused",
        /// In the words of another round.
        Said = "said",
    }
}

/// When the main queue wants a node, as far as it is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedAt(pub Option<UnixTime>);

impl NodeReason {
    /// What kind of reason it is.
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
            NodeReason::NoJob => f.write_str("idle: no malleable job is there"),
            NodeReason::Drained => f.write_str("idle: an administrator drains infill"),
            NodeReason::Spared { job } => write!(f, "job {job} gives it up, and no other job gains by it"),
            NodeReason::Short { secs, worth_secs, wanted } => {
                write!(f, "idle: its window of {secs:.0} s is shorter than the {worth_secs:.0} s")?;
                write!(f, " worth starting in; {wanted}")
            }
            NodeReason::Paused => f.write_str("idle: starting and growth are paused"),
            NodeReason::NotPlanned => f.write_str("idle: nothing was planned in this round"),
            NodeReason::NoGain { secs, wanted } => {
                write!(f, "idle: no job gains more by it in {secs:.0} s than the change costs; {wanted}")
            }
            NodeReason::Refused(why) => why.fmt(f),
            NodeReason::Said(why) => f.write_str(why),
        }
    }
}

sentence!(NodeReason);

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
    fn sentences() {
        let job = JobId(7);
        let until = UnixTime(0);
        let secs = 40.0;
        let wanted = WantedAt(Some(UnixTime(60)));
        let free = WantedAt(None);
        let all = [
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
            NodeReason::NoGain { secs, wanted: free },
            NodeReason::Refused(GapRefusal::Leaving(job)),
            NodeReason::Said("as it was".to_owned()),
        ];
        let kinds: Vec<NodeReasonKind> = all.iter().map(NodeReason::kind).collect();
        assert_eq!(kinds, NodeReasonKind::ALL);
        let lines: Vec<String> = all.iter().map(|r| format!("{}: {r}", r.kind().word())).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        kept: job 7 keeps it until 1970-01-01T00:00:00Z
        given: job 7 gets it until 1970-01-01T00:00:00Z
        left: job 7 leaves it: the main queue wants it at 1970-01-01T00:01:00Z
        ends: left alone: it is counted on for 40 s only, too short for a step; the main queue wants it at 1970-01-01T00:01:00Z
        no_job: idle: no malleable job is there
        drained: idle: an administrator drains infill
        spared: job 7 gives it up, and no other job gains by it
        short: idle: its window of 40 s is shorter than the 60 s worth starting in; the main queue wants it at 1970-01-01T00:01:00Z
        paused: idle: starting and growth are paused
        not_planned: idle: nothing was planned in this round
        no_gain: idle: no job gains more by it in 40 s than the change costs; nothing is planned on it
        refused: job 7 of ours is still cleaning up on it
        said: as it was
        ");
        let json = serde_json::to_string(&all[4]).unwrap();
        assert_eq!(json, r#""idle: no malleable job is there""#);
        assert_eq!(serde_json::from_str::<NodeReason>(&json).unwrap().to_string(), all[4].to_string());
    }
}
