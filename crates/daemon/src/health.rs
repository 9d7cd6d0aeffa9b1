//! The daemon's present problems, at most one per topic.

use std::collections::BTreeMap;
use std::fmt;

use infill_model::SnapshotDoubt;
use infill_model::config::{DelayAction, SafetyConfig};

use super::delay_watch::TooManyDelays;

/// What a problem is about. Problems are shown in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemTopic {
    /// Which daemon leads.
    Lead,
    /// The comments in which jobs state their requests.
    Requests,
    /// Slurm's records of nodes, jobs and reservations.
    Records,
    /// Whether Slurm answers.
    Slurm,
    /// Whether the last snapshot can be trusted.
    Snapshot,
    /// Whether rounds are planned.
    Planner,
    /// Whether too many main jobs were delayed.
    Delays,
    /// Whether tasks of job arrays get records of their own.
    Arrays,
    /// Whether the store works.
    Store,
}

/// Too many delayed main jobs, with the limits that they exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayProblem {
    /// The delays.
    pub found: TooManyDelays,
    /// The limits.
    pub limits: SafetyConfig,
}

impl fmt::Display for DelayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DelayProblem { found: TooManyDelays { jobs, worst, action }, limits } = self;
        write!(
            f,
            "{jobs} main jobs waited longer than {:.0} s within {:.0} s, job {} for {:.0} s: ",
            limits.max_delay_secs, limits.delay_window_secs, worst.job, worst.secs
        )?;
        f.write_str(match action {
            DelayAction::Warn => "infill goes on (safety.on_delays)",
            DelayAction::Pause => "no job starts or grows until `infill resume`",
            DelayAction::Drain => "all jobs leave, and wait until `infill resume`",
        })
    }
}

/// A present problem.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthProblem {
    /// The store does not say which daemon leads. The text says why.
    Lead(String),
    /// The comments of some jobs cannot be read. One sentence a job says why.
    Requests(Vec<String>),
    /// Some of Slurm's records cannot be read in full. The text says which.
    Records(String),
    /// Slurm does not answer. The text is the error.
    Slurm(String),
    /// The last snapshot cannot be trusted, for these reasons.
    Snapshot(Vec<SnapshotDoubt>),
    /// The last round was not planned. The text says why.
    Planner(String),
    /// Too many main jobs were delayed.
    Delays(DelayProblem),
    /// Tasks of job arrays did not get records of their own. The text says why.
    Arrays(String),
    /// The store fails. The text is the error.
    Store(String),
}

impl HealthProblem {
    /// What this problem is about.
    pub(crate) fn topic(&self) -> ProblemTopic {
        match self {
            HealthProblem::Lead(_) => ProblemTopic::Lead,
            HealthProblem::Requests(_) => ProblemTopic::Requests,
            HealthProblem::Records(_) => ProblemTopic::Records,
            HealthProblem::Slurm(_) => ProblemTopic::Slurm,
            HealthProblem::Snapshot(_) => ProblemTopic::Snapshot,
            HealthProblem::Planner(_) => ProblemTopic::Planner,
            HealthProblem::Delays(_) => ProblemTopic::Delays,
            HealthProblem::Arrays(_) => ProblemTopic::Arrays,
            HealthProblem::Store(_) => ProblemTopic::Store,
        }
    }
}

impl fmt::Display for HealthProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthProblem::Lead(why) => {
                write!(
                    f,
                    "the store does not say which daemon leads ({why}): do not start a second daemon now"
                )
            }
            HealthProblem::Requests(unclear) => f.write_str(&unclear.join("; ")),
            HealthProblem::Records(which) => {
                write!(f, "Slurm shows records that cannot be read in full: {which}")
            }
            HealthProblem::Slurm(why) => {
                write!(f, "Slurm does not answer ({why}): jobs run on, nothing is started")
            }
            HealthProblem::Snapshot(doubts) => {
                let reasons: Vec<String> = doubts.iter().map(ToString::to_string).collect();
                write!(f, "the last snapshot was doubtful: {}", reasons.join("; "))
            }
            HealthProblem::Planner(why) => {
                write!(f, "nothing is planned ({why}): jobs keep what they have, nothing is started")
            }
            HealthProblem::Delays(delays) => delays.fmt(f),
            HealthProblem::Arrays(why) => write!(f, "tasks of job arrays cannot be started ({why})"),
            HealthProblem::Store(why) => write!(f, "the store fails ({why}): nothing is started"),
        }
    }
}

/// All present problems, by topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthState {
    problems: BTreeMap<ProblemTopic, HealthProblem>,
}

impl HealthState {
    /// Sets the problem of its topic. Returns whether the topic had no problem before.
    pub fn raise_problem(&mut self, problem: HealthProblem) -> bool {
        self.problems.insert(problem.topic(), problem).is_none()
    }

    /// Removes the problem of this topic. Returns whether there was one.
    pub fn clear_problem(&mut self, topic: ProblemTopic) -> bool {
        self.problems.remove(&topic).is_some()
    }

    /// Whether this topic has a problem.
    pub(crate) fn has_problem(&self, topic: ProblemTopic) -> bool {
        self.problems.contains_key(&topic)
    }

    /// Each problem as a sentence.
    pub fn problem_sentences(&self) -> Vec<String> {
        self.problems.values().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_new_once_and_over_once() {
        let mut health = HealthState::default();
        assert!(health.raise_problem(HealthProblem::Store("disk full".to_owned())));
        let second = HealthProblem::Store("connection lost".to_owned());
        assert!(!health.raise_problem(second), "the topic has a problem already");
        assert!(health.raise_problem(HealthProblem::Lead("timeout".to_owned())));
        assert_eq!(
            health.problem_sentences(),
            [
                "the store does not say which daemon leads (timeout): do not start a second daemon now",
                "the store fails (connection lost): nothing is started",
            ]
        );
        assert!(
            health.has_problem(ProblemTopic::Store)
                && health.clear_problem(ProblemTopic::Store)
                && !health.clear_problem(ProblemTopic::Store)
        );
    }
}
