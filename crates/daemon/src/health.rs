//! What is wrong now, one problem a topic.

use std::collections::BTreeMap;
use std::fmt;

use infill_model::SnapshotDoubt;

/// What a problem is about. In the order in which people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemTopic {
    /// Who leads.
    Lead,
    /// What jobs ask for.
    Requests,
    /// Records of Slurm's.
    Records,
    /// Slurm.
    Slurm,
    /// The last snapshot.
    Snapshot,
    /// The planner.
    Planner,
    /// The store.
    Store,
}

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthProblem {
    /// The store does not say who leads; the text says why.
    Lead(String),
    /// Jobs whose comments cannot be read, each with the reason.
    Requests(Vec<String>),
    /// Records of which something cannot be read; the text says which.
    Records(String),
    /// Slurm does not answer; the text says how.
    Slurm(String),
    /// The last snapshot cannot be trusted.
    Snapshot(Vec<SnapshotDoubt>),
    /// The last round was not planned; the text says why.
    Planner(String),
    /// The store fails; the text says how.
    Store(String),
}

impl HealthProblem {
    /// What it is about.
    pub(crate) fn topic(&self) -> ProblemTopic {
        match self {
            HealthProblem::Lead(_) => ProblemTopic::Lead,
            HealthProblem::Requests(_) => ProblemTopic::Requests,
            HealthProblem::Records(_) => ProblemTopic::Records,
            HealthProblem::Slurm(_) => ProblemTopic::Slurm,
            HealthProblem::Snapshot(_) => ProblemTopic::Snapshot,
            HealthProblem::Planner(_) => ProblemTopic::Planner,
            HealthProblem::Store(_) => ProblemTopic::Store,
        }
    }
}

impl fmt::Display for HealthProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthProblem::Lead(why) => {
                write!(f, "the store does not say who leads ({why}): a second daemon must not be started now")
            }
            HealthProblem::Requests(unclear) => f.write_str(&unclear.join("; ")),
            HealthProblem::Records(which) => {
                write!(f, "Slurm shows records that cannot be read in full: {which}")
            }
            HealthProblem::Slurm(why) => {
                write!(f, "Slurm does not answer ({why}): jobs run on, nothing is started")
            }
            HealthProblem::Snapshot(doubts) => {
                let said: Vec<String> = doubts.iter().map(ToString::to_string).collect();
                write!(f, "the last snapshot was doubtful: {}", said.join("; "))
            }
            HealthProblem::Planner(why) => {
                write!(f, "nothing is planned ({why}): jobs keep what they have, nothing is started")
            }
            HealthProblem::Store(why) => write!(f, "the store fails ({why}): nothing is started"),
        }
    }
}

/// All that is wrong now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthState {
    problems: BTreeMap<ProblemTopic, HealthProblem>,
}

impl HealthState {
    /// Takes in a problem, in place of the last one of its topic. Says whether the topic was well before.
    pub fn raise_problem(&mut self, problem: HealthProblem) -> bool {
        self.problems.insert(problem.topic(), problem).is_none()
    }

    /// All is well with this topic. Says whether it was not before.
    pub fn clear_problem(&mut self, topic: ProblemTopic) -> bool {
        self.problems.remove(&topic).is_some()
    }

    /// Whether something is wrong with this topic.
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
    fn a_problem_is_news_once_and_over_once() {
        let mut health = HealthState::default();
        let away = |why: &str| HealthProblem::Store(why.to_owned());
        assert!(health.raise_problem(away("disk full")));
        assert!(!health.raise_problem(away("connection lost")), "the topic ails already");
        assert!(health.raise_problem(HealthProblem::Lead("timeout".to_owned())));
        assert_eq!(
            health.problem_sentences(),
            [
                "the store does not say who leads (timeout): a second daemon must not be started now",
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
