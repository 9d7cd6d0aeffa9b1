//! Whether everything is all right, in one line: the first line of `infill status`.

use std::fmt;

use infill_api::{ControlOrigin, DaemonStatus, NodeKind};
use infill_model::{ControlState, DaemonMode, MalleableState};

use super::{DisplayClock, counted_noun};

/// Seconds without a round after which something is wrong, whatever the daemon says. The longest allowed
/// interval of rounds and the deadline of a plan are far below.
const STALE_ROUND_SECS: f64 = 600.0;

/// How things stand. The first that applies, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusVerdict {
    /// Somebody must look.
    Problem(StatusProblem),
    /// No job starts or grows, by an order.
    Paused(Option<ControlOrigin>),
    /// All jobs save and are parked, by an order.
    Draining(Option<ControlOrigin>),
    /// No round has ended yet.
    Starting,
    /// infill works, and changes nothing at Slurm.
    Observing,
    /// infill works.
    Ok,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusProblem {
    /// The daemon names problems: the first one, and the number of the others.
    Reported {
        /// The first problem, as the daemon says it.
        first: String,
        /// The number of further problems.
        others: usize,
    },
    /// The last round ended too long ago. The value is the time since then.
    StaleRound(String),
}

/// Nodes and jobs in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusNumbers {
    /// Nodes of the partition.
    pub nodes: usize,
    /// Nodes without a main job: those that malleable jobs hold, and gaps.
    pub idle: usize,
    /// Nodes that malleable jobs hold.
    pub held: usize,
    /// Malleable jobs whose command runs, with other users' hidden jobs.
    pub training: usize,
    /// Malleable jobs that wait for nodes.
    pub waiting: usize,
}

/// The answer to "is everything all right?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusHeadline {
    /// How things stand.
    pub verdict: StatusVerdict,
    /// The configured mode.
    pub mode: DaemonMode,
    /// Nodes and jobs.
    pub numbers: StatusNumbers,
    /// When an order was given, as users read it: `since 12:03:00`.
    since: String,
}

impl StatusHeadline {
    /// The headline of a status.
    pub fn from_status(status: &DaemonStatus, when: DisplayClock) -> StatusHeadline {
        let origin = status.control_origin.clone();
        let since =
            origin.as_ref().map(|o| format!(" since {}", when.format_clock(o.at))).unwrap_or_default();
        let verdict = match (find_problem(status, when), status.control) {
            (Some(problem), _) => StatusVerdict::Problem(problem),
            (None, ControlState::Paused) => StatusVerdict::Paused(origin),
            (None, ControlState::Draining) => StatusVerdict::Draining(origin),
            (None, ControlState::Normal) if status.last_round.is_none() => StatusVerdict::Starting,
            (None, ControlState::Normal) if status.mode == DaemonMode::Observe => StatusVerdict::Observing,
            (None, ControlState::Normal) => StatusVerdict::Ok,
        };
        StatusHeadline { verdict, mode: status.mode, numbers: StatusNumbers::count(status), since }
    }

    /// The exit code of `infill status --check`, as monitoring plugins have it: 0 ok, 1 warning, 2 critical.
    pub fn check_code(&self) -> u8 {
        match self.verdict {
            StatusVerdict::Ok | StatusVerdict::Observing => 0,
            StatusVerdict::Starting | StatusVerdict::Paused(_) | StatusVerdict::Draining(_) => 1,
            StatusVerdict::Problem(_) => 2,
        }
    }

    /// `acting on 128 nodes; 12 jobs train on 96 of 101 idle nodes`.
    fn activity(&self) -> String {
        let StatusNumbers { nodes, idle, held, training, waiting } = self.numbers;
        let nodes = counted_noun(nodes as u64, "node");
        let idle_nodes = counted_noun(idle as u64, "idle node");
        let [are, held_are] = [idle, held].map(|count| if count == 1 { "is" } else { "are" });
        if self.mode == DaemonMode::Observe {
            return format!("observing {nodes}: {idle} {are} idle");
        }
        let waits = match waiting {
            0 => String::new(),
            1 => ", 1 waits".to_owned(),
            n => format!(", {n} wait"),
        };
        let jobs = match training {
            0 if held == 0 => format!("{idle} {are} idle, and no job trains{waits}"),
            0 => format!("no job trains, and {held} of {idle_nodes} {held_are} held{waits}"),
            1 => format!("1 job trains on {held} of {idle_nodes}{waits}"),
            n => format!("{n} jobs train on {held} of {idle_nodes}{waits}"),
        };
        format!("acting on {nodes}; {jobs}")
    }
}

fn find_problem(status: &DaemonStatus, when: DisplayClock) -> Option<StatusProblem> {
    if let Some(first) = status.problems.first() {
        return Some(StatusProblem::Reported { first: first.clone(), others: status.problems.len() - 1 });
    }
    let last = status.last_round.unwrap_or(status.started_at);
    let is_stale = when.now.secs_since(last) > STALE_ROUND_SECS;
    is_stale.then(|| StatusProblem::StaleRound(when.time_since(last)))
}

impl StatusNumbers {
    fn count(status: &DaemonStatus) -> StatusNumbers {
        let count = |kind: NodeKind| {
            let shown = status.nodes.iter().filter(|n| n.kind == kind).count();
            shown + status.hidden.nodes.get(&kind).map_or(0, |hidden| *hidden as usize)
        };
        let held = count(NodeKind::Held);
        let idle = held + count(NodeKind::Gap);
        let with_state =
            |wanted: fn(MalleableState) -> bool| status.jobs.iter().filter(|job| wanted(job.state)).count();
        StatusNumbers {
            nodes: idle + count(NodeKind::Busy) + count(NodeKind::Refused),
            idle,
            held,
            training: with_state(is_training) + status.hidden.jobs.min(status.hidden.job_nodes) as usize,
            waiting: with_state(|state| state == MalleableState::Queued),
        }
    }
}

/// Whether a job's command runs, or is about to run again.
fn is_training(state: MalleableState) -> bool {
    !matches!(state, MalleableState::Queued | MalleableState::Ending | MalleableState::Ended)
}

impl fmt::Display for StatusHeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let activity = self.activity();
        match &self.verdict {
            StatusVerdict::Ok => write!(f, "ok: {activity}; no problem"),
            StatusVerdict::Observing => write!(f, "{activity}; nothing is changed; no problem"),
            StatusVerdict::Starting => write!(f, "starting: no round has ended yet"),
            StatusVerdict::Problem(problem) => write!(f, "PROBLEM: {problem}; {activity}"),
            StatusVerdict::Paused(origin) => {
                write!(f, "paused{}{}: no job starts or grows; {activity}", giver(origin), self.since)
            }
            StatusVerdict::Draining(origin) => {
                write!(f, "draining{}{}: all jobs save and leave; {activity}", giver(origin), self.since)
            }
        }
    }
}

/// ` by alice`, or nothing if that is unknown.
fn giver(origin: &Option<ControlOrigin>) -> String {
    match origin {
        Some(ControlOrigin { automatic: true, .. }) => " by infill itself ([safety])".to_owned(),
        Some(ControlOrigin { by: Some(name), .. }) => format!(" by {name}"),
        _ => String::new(),
    }
}

impl fmt::Display for StatusProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusProblem::Reported { first, others: 0 } => write!(f, "{first}"),
            StatusProblem::Reported { first, others } => write!(f, "{first} (and {others} more)"),
            StatusProblem::StaleRound(time) => write!(f, "no round has ended for {time}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn headline(status: DaemonStatus) -> String {
        let headline = StatusHeadline::from_status(&status, samples::when());
        format!("{} {headline}", headline.check_code())
    }

    fn healthy() -> DaemonStatus {
        DaemonStatus { problems: vec![], ..samples::sample_status() }
    }

    fn origin(by: Option<&str>) -> Option<ControlOrigin> {
        Some(ControlOrigin { at: samples::NOW + -60, by: by.map(str::to_owned), automatic: by.is_none() })
    }

    #[test]
    fn the_first_line_says_whether_all_is_well() {
        insta::assert_snapshot!(headline(healthy()), @"0 ok: acting on 5 nodes; 1 job trains on 2 of 3 idle nodes, 1 waits; no problem");
        let observing = DaemonStatus { mode: DaemonMode::Observe, ..healthy() };
        insta::assert_snapshot!(headline(observing), @"0 observing 5 nodes: 3 are idle; nothing is changed; no problem");
        let empty = DaemonStatus { nodes: vec![], jobs: vec![], ..healthy() };
        insta::assert_snapshot!(headline(empty), @"0 ok: acting on 0 nodes; 0 are idle, and no job trains; no problem");
        let new = DaemonStatus { last_round: None, started_at: samples::NOW, ..healthy() };
        insta::assert_snapshot!(headline(new), @"1 starting: no round has ended yet");
    }

    #[test]
    fn problems_come_first() {
        insta::assert_snapshot!(headline(samples::sample_status()), @"2 PROBLEM: node n5 drained after infill left it; acting on 5 nodes; 1 job trains on 2 of 3 idle nodes, 1 waits");
        let two = DaemonStatus {
            problems: vec!["a".to_owned(), "b".to_owned()],
            control: ControlState::Paused,
            ..samples::sample_status()
        };
        assert!(headline(two).starts_with("2 PROBLEM: a (and 1 more); "));
        let silent = DaemonStatus { last_round: Some(samples::NOW + -700), ..healthy() };
        assert!(headline(silent).starts_with("2 PROBLEM: no round has ended for 11:40; "));
        let never = DaemonStatus { last_round: None, ..healthy() };
        assert!(headline(never).starts_with("2 PROBLEM: no round has ended for 1-01:00:00; "));
    }

    #[test]
    fn orders_name_who_gave_them() {
        let ordered =
            |control, control_origin| headline(DaemonStatus { control, control_origin, ..healthy() });
        insta::assert_snapshot!(ordered(ControlState::Paused, origin(Some("alice"))), @"1 paused by alice since 22:09:17: no job starts or grows; acting on 5 nodes; 1 job trains on 2 of 3 idle nodes, 1 waits");
        insta::assert_snapshot!(ordered(ControlState::Draining, origin(None)), @"1 draining by infill itself ([safety]) since 22:09:17: all jobs save and leave; acting on 5 nodes; 1 job trains on 2 of 3 idle nodes, 1 waits");
        assert!(ordered(ControlState::Paused, None).starts_with("1 paused: no job starts or grows"));
    }

    #[test]
    fn hidden_jobs_and_nodes_count() {
        let mut status = healthy();
        status.hidden =
            infill_api::HiddenCounts { jobs: 2, job_nodes: 4, nodes: [(NodeKind::Held, 4)].into() };
        assert!(headline(status).contains("acting on 9 nodes; 3 jobs train on 6 of 7 idle nodes"));
    }
}
