//! What a node was used for.

use infill_model::JobId;

/// The code of job 0. Codes below it stand for other uses.
const FIRST_JOB_CODE: u64 = 6;

/// What a node was used for. A node that main jobs share with malleable ones counts as used by main jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeUse {
    /// No snapshot was read, or Slurm did not answer.
    #[default]
    Unknown,
    /// A main job runs on it.
    Main,
    /// No job uses it.
    Idle,
    /// No job uses it, and its window is too short, because the main queue wants it soon.
    Wanted,
    /// No job uses it, and infill may not use it either.
    Refused,
    /// No job can use it: it is down, drained or switched off.
    Down,
    /// A malleable job holds it.
    Job(JobId),
}

impl NodeUse {
    /// Whether a job uses the node, or may use it.
    pub(super) fn may_be_taken(self) -> bool {
        matches!(self, NodeUse::Unknown | NodeUse::Main | NodeUse::Job(_))
    }

    /// The use as a number. Frequent uses have small numbers.
    pub fn to_code(self) -> u64 {
        match self {
            NodeUse::Unknown => 0,
            NodeUse::Main => 1,
            NodeUse::Idle => 2,
            NodeUse::Wanted => 3,
            NodeUse::Refused => 4,
            NodeUse::Down => 5,
            NodeUse::Job(job) => FIRST_JOB_CODE + u64::from(job.0),
        }
    }

    /// The use of a number; `None` where the number has no meaning.
    pub(super) fn from_code(code: u64) -> Option<NodeUse> {
        Some(match code {
            0 => NodeUse::Unknown,
            1 => NodeUse::Main,
            2 => NodeUse::Idle,
            3 => NodeUse::Wanted,
            4 => NodeUse::Refused,
            5 => NodeUse::Down,
            _ => NodeUse::Job(JobId((code - FIRST_JOB_CODE).try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_has_a_number_of_its_own() {
        let uses = (0..FIRST_JOB_CODE).map(|code| NodeUse::from_code(code).unwrap());
        let jobs = [0, 1, u32::MAX].map(|id| NodeUse::Job(JobId(id)));
        for used in uses.chain(jobs) {
            assert_eq!(NodeUse::from_code(used.to_code()), Some(used));
        }
        assert_eq!(NodeUse::from_code(u64::MAX), None);
    }
}
