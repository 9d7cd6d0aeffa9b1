//! A small cluster that the tests of the command line show.

use chrono::FixedOffset;

use super::output::When;
use crate::api::{Control, JobView, Mode, NodeKind, NodeView, RoundView, SCHEMA, Status};
use crate::model::{
    ExecPlan, JobId, JobPlan, JobVerdict, NodeName, NodeVerdict, Placement, Plan, Report, SolveStatus,
    UnixTime,
};

/// The moment of the samples: 2026-11-20 22:10:17 UTC.
pub const NOW: UnixTime = UnixTime(1_795_212_617);

/// That moment, in UTC.
pub fn when() -> When {
    When { now: NOW, zone: FixedOffset::east_opt(0).unwrap() }
}

/// A node of this kind.
pub fn node(name: &str, kind: NodeKind) -> NodeView {
    NodeView {
        node: NodeName::from(name),
        node_type: "gpu:a100:4/cpu64".to_owned(),
        state: "IDLE".to_owned(),
        kind,
        job: None,
        main_job: None,
        since: None,
        window_end: None,
        wanted_by: None,
        usable_until: None,
        why: None,
    }
}

/// A job on these nodes.
pub fn job(id: u32, user: &str, state: &str, nodes: &[&str]) -> JobView {
    JobView {
        job: JobId(id),
        name: format!("train-{id}"),
        user: user.to_owned(),
        state: state.to_owned(),
        sizes: "1-8".to_owned(),
        nodes: nodes.iter().map(|n| NodeName::from(*n)).collect(),
        generation: 0,
        rescales: 0,
        restarts: 0,
        kills: 0,
        step: None,
        loss: None,
        samples: 0.0,
        rate: None,
        wings: vec![],
        why: String::new(),
        efficiency: None,
        advice: String::new(),
    }
}

/// Two held nodes, a gap, a busy one and a refused one; a running job and a waiting one.
pub fn status() -> Status {
    let held = NodeView {
        job: Some(JobId(101)),
        since: Some(NOW + -600),
        window_end: Some(NOW + 1800),
        wanted_by: Some("job 77".to_owned()),
        usable_until: Some(NOW + 1785),
        state: "ALLOCATED".to_owned(),
        ..node("n1", NodeKind::Held)
    };
    let gap = NodeView { since: Some(NOW + -30), usable_until: Some(NOW + 240), ..node("n3", NodeKind::Gap) };
    let busy =
        NodeView { main_job: Some(JobId(55)), state: "ALLOCATED".to_owned(), ..node("n4", NodeKind::Busy) };
    let refused = NodeView {
        state: "IDLE+DRAIN".to_owned(),
        why: Some("drained: bad fan".to_owned()),
        ..node("n5", NodeKind::Refused)
    };
    let running = JobView {
        generation: 3,
        rescales: 2,
        step: Some(4200),
        loss: Some(1.25),
        samples: 1_234_567.0,
        rate: Some(812.4),
        wings: vec![JobId(103)],
        why: "2 of 3 gaps: the third closes in 4:00".to_owned(),
        ..job(101, "alice", "running", &["n1", "n2"])
    };
    let waiting = JobView { why: "no gap lasts a minute".to_owned(), ..job(102, "bob", "queued", &[]) };
    Status {
        schema: SCHEMA,
        version: "0.1.0".to_owned(),
        slurm: Some("24.11.5".to_owned()),
        rest: Some("v0.0.42".to_owned()),
        mode: Mode::Act,
        control: Control::Normal,
        started_at: NOW + -90_000,
        last_round: Some(NOW + -3),
        problems: vec!["node n5 drained after infill left it".to_owned()],
        nodes: vec![
            held.clone(),
            NodeView { node: NodeName::from("n2"), window_end: None, wanted_by: None, ..held },
            gap,
            busy,
            refused,
        ],
        jobs: vec![running, waiting],
    }
}

/// A round that gives two nodes to job 101 and none to 102.
pub fn round() -> RoundView {
    let place = |node: &str| Placement { node: NodeName::from(node), lease_until: NOW + 1785 };
    let plan = |id, nodes: Vec<Placement>, rate, forecast| JobPlan {
        job: JobId(id),
        nodes,
        exec_plan: ExecPlan::default(),
        rate,
        forecast,
    };
    let verdict = |id, had, gets, why: &str| JobVerdict { job: JobId(id), had, gets, why: why.to_owned() };
    let node = |name: &str, job: Option<u32>, why: &str| NodeVerdict {
        node: NodeName::from(name),
        job: job.map(JobId),
        why: why.to_owned(),
    };
    let forecast = vec![(NOW + 240, 2), (NOW + 900, 2), (NOW + 1785, 1)];
    RoundView {
        schema: SCHEMA,
        plan: Plan {
            at: NOW,
            jobs: vec![
                plan(101, vec![place("n1"), place("n2")], 812.4, forecast),
                plan(102, vec![], 0.0, vec![]),
            ],
            status: SolveStatus::Optimal,
            objective: 1_450_134.0,
            steps: vec![NOW + 240, NOW + 900, NOW + 1785],
        },
        report: Report {
            at: NOW,
            jobs: vec![
                verdict(101, 2, 2, "growing to 3 costs 18 s and gains 12 s"),
                verdict(102, 0, 0, "needs 2 nodes for a minute"),
            ],
            nodes: vec![
                node("n1", Some(101), "kept"),
                node("n2", Some(101), "kept"),
                node("n3", None, "closes in 4:00, too soon for any job"),
            ],
            notes: vec!["backfill's plan was cut short".to_owned()],
        },
        acting: true,
        secs: [("snapshot", 0.031), ("plan", 0.012)].map(|(k, v)| (k.to_owned(), v)).into(),
    }
}
