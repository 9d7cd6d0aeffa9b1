//! A malleable job that has ended, as history keeps it.

use serde::{Deserialize, Serialize};

use super::{JobId, PastJob, Submission, UnixTime, UserEstimate};

/// What is kept of a job that has ended: what it was, what it did, and why it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedJob {
    /// The lead's job id.
    pub job: JobId,
    /// Slurm's submission time: with the id it names a job for good.
    pub submitted_at: UnixTime,
    /// When it ended.
    pub ended_at: UnixTime,
    /// Owner.
    pub user: String,
    /// Slurm's account; empty where that is not known.
    pub account: String,
    /// Its profile's name, else Slurm's name of it with numbers taken out.
    pub name: String,
    /// Hash of its command; empty where that is not known.
    pub command_hash: String,
    /// Fewest nodes that it could have.
    pub min_nodes: u32,
    /// Most nodes that it could have.
    pub max_nodes: u32,
    /// GPUs of each; 0 where that is not known.
    pub gpus_per_node: u32,
    /// Its time limit, seconds.
    pub limit_secs: Option<f64>,
    /// Work that it has done: seconds that it would have taken on one node, by its own rate there; of a job
    /// whose progress nobody knows, the seconds for which it held nodes, times these.
    pub work_secs: f64,
    /// Work in all that it first told of, in the same seconds, if it told.
    pub said_secs: Option<f64>,
    /// Work in all after which its loss would have been flat, as was first seen, if it told of losses.
    #[serde(default)]
    pub flat_secs: Option<f64>,
    /// Samples that it has made; 0 where it told of none.
    pub samples: f64,
    /// Seconds from its first start to its end.
    pub secs: f64,
    /// Its command's exit code; `None` where Slurm ended it, or nobody saw it.
    pub exit_code: Option<i32>,
    /// Why it ended, in a word or two: a state of Slurm's.
    pub why: String,
}

impl EndedJob {
    /// The same as what lengths are learned from: its work is its length.
    pub fn to_past_job(&self) -> PastJob {
        let job = Submission {
            at: self.submitted_at.0 as f64,
            user: self.user.clone(),
            name: self.name.clone(),
            nodes: self.max_nodes,
            gpus: 0,
            // A limit is seconds of the wall, not of work.
            limit_secs: None,
            more: vec![f64::from(self.min_nodes)],
        };
        let word = UserEstimate { said_secs: self.said_secs, flat_secs: self.flat_secs };
        PastJob { job, ended_at: self.ended_at.0 as f64, secs: self.work_secs, word }
    }
}

/// A name of a job without what changes from one of its kind to the next: its digits.
pub fn strip_digits(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_series_have_one_name() {
        assert_eq!(strip_digits("train_007-lr0.1"), strip_digits("train_12-lr0.05"));
        assert_eq!(strip_digits("42"), "");
    }
}
