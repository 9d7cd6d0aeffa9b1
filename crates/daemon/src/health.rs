//! What is wrong now, one problem a topic.

use std::collections::BTreeMap;
use std::fmt;

use infill_model::SnapshotDoubt;

/// What a problem is about. In the order in which people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
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
pub enum Problem {
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

impl Problem {
    /// What it is about.
    pub(crate) fn topic(&self) -> Topic {
        match self {
            Problem::Lead(_) => Topic::Lead,
            Problem::Requests(_) => Topic::Requests,
            Problem::Records(_) => Topic::Records,
            Problem::Slurm(_) => Topic::Slurm,
            Problem::Snapshot(_) => Topic::Snapshot,
            Problem::Planner(_) => Topic::Planner,
            Problem::Store(_) => Topic::Store,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Lead(why) => {
                write!(f, "the store does not say who leads ({why}): a second daemon must not be started now")
            }
            Problem::Requests(unclear) => f.write_str(&unclear.join("; ")),
            Problem::Records(which) => write!(f, "Slurm shows records that cannot be read in full: {which}"),
            Problem::Slurm(why) => {
                write!(f, "Slurm does not answer ({why}): jobs run on, nothing is started")
            }
            Problem::Snapshot(doubts) => {
                let said: Vec<String> = doubts.iter().map(ToString::to_string).collect();
                write!(f, "the last snapshot was doubtful: {}", said.join("; "))
            }
            Problem::Planner(why) => {
                write!(f, "nothing is planned ({why}): jobs keep what they have, nothing is started")
            }
            Problem::Store(why) => write!(f, "the store fails ({why}): nothing is started"),
        }
    }
}

/// All that is wrong now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    problems: BTreeMap<Topic, Problem>,
}

impl Health {
    /// Takes in a problem, in place of the last one of its topic. Says whether the topic was well before.
    pub fn raise(&mut self, problem: Problem) -> bool {
        self.problems.insert(problem.topic(), problem).is_none()
    }

    /// All is well with this topic. Says whether it was not before.
    pub fn clear(&mut self, topic: Topic) -> bool {
        self.problems.remove(&topic).is_some()
    }

    /// Whether something is wrong with this topic.
    pub(crate) fn ails(&self, topic: Topic) -> bool {
        self.problems.contains_key(&topic)
    }

    /// Each problem as a sentence.
    pub fn sentences(&self) -> Vec<String> {
        self.problems.values().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_news_once_and_over_once() {
        let mut health = Health::default();
        let away = |why: &str| Problem::Store(why.to_owned());
        assert!(health.raise(away("disk full")));
        assert!(!health.raise(away("connection lost")), "the topic ails already");
        assert!(health.raise(Problem::Lead("timeout".to_owned())));
        assert_eq!(
            health.sentences(),
            [
                "the store does not say who leads (timeout): a second daemon must not be started now",
                "the store fails (connection lost): nothing is started",
            ]
        );
        assert!(health.ails(Topic::Store) && health.clear(Topic::Store) && !health.clear(Topic::Store));
    }
}
