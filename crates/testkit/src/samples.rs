//! A small cluster, as the tests of the command line's output show it.

use std::collections::BTreeMap;

use infill_api::{
    CurveRow, DaemonStatus, EndPrediction, HiddenCounts, HistoryRow, HistoryView, JobView, NodeKind,
    NodeView, ProfileView, ProfilesView, RoundView, RoundsView, SCHEMA_VERSION,
};
use infill_model::{
    BatchMode, ChangeCost, ControlState, DaemonMode, EndedJob, ExecPlan, JobId, JobPlan, JobVerdict,
    MalleableState, MeasuredCosts, NodeName, NodeType, NodeVerdict, Plan, PlannedNode, Profile, ProfileKey,
    RoundReport, RoundSummary, SizePoint, SolveStatus, UnixTime,
};

/// The moment of the samples: 2026-11-20 22:10:17 UTC.
pub const NOW: UnixTime = UnixTime(1_795_212_617);

/// An idle node of this kind. All optional fields are empty.
pub fn sample_node(name: &str, kind: NodeKind) -> NodeView {
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
        idle: None,
        failures: vec![],
    }
}

/// A job in this state on these nodes, with sizes 1 to 8. It has neither measurements nor reasons.
pub fn sample_job(id: u32, user: &str, state: MalleableState, nodes: &[&str]) -> JobView {
    JobView {
        state,
        nodes: nodes.iter().map(|n| NodeName::from(*n)).collect(),
        ..JobView::queued(JobId(id), format!("train-{id}"), user.to_owned(), "1-8".to_owned())
    }
}

/// A status with two held nodes, a gap, a busy node and a refused one; one running job and one waiting job.
pub fn sample_status() -> DaemonStatus {
    let held = NodeView {
        job: Some(JobId(101)),
        since: Some(NOW + -600),
        window_end: Some(NOW + 1800),
        wanted_by: Some("job 77".to_owned()),
        usable_until: Some(NOW + 1785),
        state: "ALLOCATED".to_owned(),
        ..sample_node("n1", NodeKind::Held)
    };
    let gap = NodeView {
        since: Some(NOW + -30),
        usable_until: Some(NOW + 240),
        ..sample_node("n3", NodeKind::Gap)
    };
    let busy = NodeView {
        main_job: Some(JobId(55)),
        state: "ALLOCATED".to_owned(),
        ..sample_node("n4", NodeKind::Busy)
    };
    let refused = NodeView {
        state: "IDLE+DRAIN".to_owned(),
        why: Some("drained: bad fan".to_owned()),
        ..sample_node("n5", NodeKind::Refused)
    };
    let running = JobView {
        generation: 3,
        rescales: 2,
        step: Some(4200),
        loss: Some(1.25),
        samples: 1_234_567.0,
        rate: Some(812.4),
        wings: vec![JobId(103)],
        efficiency: Some(0.873),
        advice: "curve from 3 sizes; 8 nodes will be tried".to_owned(),
        leaving: "leaves a node 20 s before the main queue needs it: 4 s are for saving, based on its last 5 stops".to_owned(),
        ends: Some(EndPrediction { low_secs: 1500.0, median_secs: 2400.0, high_secs: 5000.0, predictable: true }),
        turn: "2:30:00 of work on one node in total, as similar jobs took; 1:10:00 of it done; its owner used 3.0 node-hours recently".to_owned(),
        changing: "its processes restart: 7.5 s to grow, 5.0 s to shrink, 11 s to start".to_owned(),
        why: "2 of 3 gaps: the third closes in 4:00".to_owned(),
        ..sample_job(101, "alice", MalleableState::Running, &["n1", "n2"])
    };
    let waiting = JobView {
        why: "no gap lasts a minute".to_owned(),
        ..sample_job(102, "bob", MalleableState::Queued, &[])
    };
    DaemonStatus {
        schema: SCHEMA_VERSION,
        version: "0.1.0".to_owned(),
        slurm: Some("24.11.5".to_owned()),
        rest: Some("v0.0.42".to_owned()),
        runs_as: None,
        mode: DaemonMode::Act,
        control: ControlState::Normal,
        control_origin: None,
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
        lengths: None,
        hidden: HiddenCounts::default(),
    }
}

fn planned_node(name: &str) -> PlannedNode {
    PlannedNode { node: NodeName::from(name), lease_until: NOW + 1785 }
}

/// A plan for a job that gets these nodes.
fn job_plan(id: u32, nodes: &[&str], rate: f64, forecast: Vec<(UnixTime, u32)>) -> JobPlan {
    JobPlan {
        job: JobId(id),
        nodes: nodes.iter().map(|name| planned_node(name)).collect(),
        exec_plan: ExecPlan::default(),
        rate,
        probe: None,
        forecast,
    }
}

/// The verdict on a job that keeps its number of nodes.
fn job_verdict(id: u32, nodes: u32, why: &str) -> JobVerdict {
    JobVerdict {
        job: JobId(id),
        had: nodes,
        gets: nodes,
        why: why.to_owned().into(),
        hosts: None,
        guarantee: None,
    }
}

fn node_verdict(name: &str, job: Option<u32>, why: &str) -> NodeVerdict {
    NodeVerdict { node: NodeName::from(name), job: job.map(JobId), why: why.to_owned().into() }
}

/// A round that gives two nodes to job 101 and none to 102.
pub fn sample_round() -> RoundView {
    let forecast = vec![(NOW + 240, 2), (NOW + 900, 2), (NOW + 1785, 1)];
    RoundView {
        schema: SCHEMA_VERSION,
        plan: Plan {
            at: NOW,
            jobs: vec![job_plan(101, &["n1", "n2"], 812.4, forecast), job_plan(102, &[], 0.0, vec![])],
            status: SolveStatus::Optimal,
            proof: None,
            objective: 1_450_134.0,
            steps: vec![NOW + 240, NOW + 900, NOW + 1785],
        },
        report: RoundReport {
            at: NOW,
            jobs: vec![
                job_verdict(101, 2, "growing to 3 costs 18 s and gains 12 s"),
                job_verdict(102, 0, "needs 2 nodes for a minute"),
            ],
            nodes: vec![
                node_verdict("n1", Some(101), "kept"),
                node_verdict("n2", Some(101), "kept"),
                node_verdict("n3", None, "closes in 4:00, too soon for any job"),
            ],
            notes: vec!["backfill's plan was cut short".to_owned().into()],
            owners: BTreeMap::new(),
        },
        hidden: HiddenCounts::default(),
        acting: true,
        secs: [("snapshot", 0.031), ("plan", 0.012)].map(|(part, secs)| (part.to_owned(), secs)).into(),
    }
}

/// The round of [`sample_round`] and two earlier ones, newest first.
pub fn sample_rounds() -> RoundsView {
    let RoundView { plan, report, .. } = sample_round();
    let last = RoundSummary::new(NOW, true, &plan, &report);
    let cut_short = RoundSummary {
        at: NOW + -5,
        acted: false,
        status: SolveStatus::TimeLimit { gap: Some(0.012) },
        objective: 950.0,
        gap: Some(0.012),
        nodes: 3,
        changes: 1,
        notes: vec![],
        ..last.clone()
    };
    let empty = RoundSummary {
        at: NOW + -10,
        status: SolveStatus::Trivial,
        objective: 0.0,
        jobs: 0,
        nodes: 0,
        notes: vec![],
        ..last.clone()
    };
    RoundsView { schema: SCHEMA_VERSION, rounds: vec![last, cut_short, empty] }
}

/// The history of alice's profile: a minute of work, and a probe during which no sample was done.
pub fn sample_history() -> HistoryView {
    let work =
        HistoryRow { at: NOW + -60, job: JobId(101), nodes: 2, samples: 46_800.0, secs: 60.0, probe: false };
    let probe = HistoryRow { at: NOW + -120, nodes: 4, samples: 0.0, secs: 0.0, probe: true, ..work.clone() };
    let profile = sample_profile("alice", "bert", "gpu:a100:4/cpu64").key;
    HistoryView { schema: SCHEMA_VERSION, profile, rows: vec![work, probe] }
}

/// A measured point of [`sample_profile`].
fn sample_point(nodes: u32, rate: f64, error: f64) -> SizePoint {
    SizePoint {
        nodes,
        rate,
        error,
        secs: 60.0 * f64::from(nodes),
        step_samples: Some(256.0 * f64::from(nodes)),
        hosts: None,
        spread: infill_model::Spread::Near,
        over_hosts: infill_model::Spread::Near,
        at: NOW + -600,
    }
}

/// A profile with three measured sizes.
pub fn sample_profile(user: &str, name: &str, node_type: &str) -> Profile {
    let key = ProfileKey {
        user: user.to_owned(),
        name: name.to_owned(),
        node_type: NodeType::new(node_type),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    };
    let growing =
        ChangeCost { checkpoint_secs: 2.5, exit_secs: 1.0, start_secs: 8.25, warmup_secs: 3.0, count: 4 };
    Profile {
        points: vec![
            sample_point(1, 410.0, 0.006),
            sample_point(2, 780.0, 0.01),
            sample_point(4, 1390.0, 0.03),
        ],
        costs: MeasuredCosts {
            up: growing,
            down: ChangeCost { count: 1, ..growing },
            ..MeasuredCosts::default()
        },
        probes: 2,
        probe_secs: 48.0,
        jobs: 3,
        updated_at: NOW + -60,
        ..Profile::new(key)
    }
}

/// A measured profile and an empty one. The curve is written down, not fitted, so that the output does not
/// change with how curves are fitted.
pub fn sample_profiles() -> ProfilesView {
    let rates: [f64; 8] = [410.0, 780.0, 1100.0, 1390.0, 1640.0, 1860.0, 2050.0, 2210.0];
    let measured = ProfileView {
        profile: sample_profile("alice", "bert", "gpu:a100:4/cpu64"),
        batch_seen: BatchMode::PerNode,
        curve: (1..=8_u32)
            .zip(rates)
            .map(|(nodes, rate)| {
                let error = rate * 0.04 * f64::from(nodes.saturating_sub(3));
                CurveRow { nodes, rate, low: rate - error, high: rate + error }
            })
            .collect(),
        model: "n/rate = 2.440e-3 + 1.361e-4·(n-1)".to_owned(),
    };
    let key = ProfileKey { user: "bob".to_owned(), batch: BatchMode::Global, ..measured.profile.key.clone() };
    let unknown = ProfileView {
        profile: Profile { updated_at: NOW + -3600, ..Profile::new(key) },
        batch_seen: BatchMode::Global,
        curve: vec![],
        model: String::new(),
    };
    ProfilesView { schema: SCHEMA_VERSION, profiles: vec![measured, unknown] }
}

/// A job that completed a minute before [`NOW`].
pub fn sample_ended_job(id: u32) -> EndedJob {
    EndedJob {
        job: JobId(id),
        submitted_at: NOW + -7200,
        ended_at: NOW + -60,
        user: "alice".to_owned(),
        account: "physics".to_owned(),
        name: "train-".to_owned(),
        command_hash: "0a1b".to_owned(),
        min_nodes: 2,
        max_nodes: 2,
        gpus_per_node: 4,
        limit_secs: Some(86_400.0),
        work_secs: 7200.0,
        said_secs: None,
        flat_secs: None,
        samples: 0.0,
        secs: 3600.0,
        exit_code: Some(0),
        why: "completed".to_owned(),
    }
}
