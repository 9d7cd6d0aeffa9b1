//! Sentences without what is hidden.

use super::*;
use infill_api::{EndView, JobView, NodeFailure, PlanView};
use infill_model::{ExecPlan, MalleableState};
use infill_testkit::samples;

/// Job 7 is the reader's, job 8 somebody else's.
fn owner(job: JobId) -> Option<UserId> {
    match job.0 {
        7 => Some(UserId(1000)),
        8 => Some(UserId(1001)),
        _ => None,
    }
}

fn said(private: &str, text: &str) -> String {
    let viewer = Viewer { uid: Some(UserId(1000)), ..Viewer::default() };
    Sight::new(&viewer, PrivateData::parse(private), &owner).words(text).into_owned()
}

#[test]
fn numbers_of_others_jobs_are_left_out() {
    for (text, expected) in [
        ("busy: job 8 of partition main is on it", "busy: a job of partition main is on it"),
        ("job 7 keeps it until noon", "job 7 keeps it until noon"),
        ("held by job 9, not ours to plan yet", "held by a job, not ours to plan yet"),
        ("(job 8 is planned) 40 s", "(a job is planned) 40 s"),
        ("jobs 7, 8 and 9 wait", "jobs wait"),
        ("jobs 7 and 7 wait", "jobs 7 and 7 wait"),
        ("wing 8 without its lead 7", "a wing without its lead 7"),
        ("Job 8; JobId=8 job_id: 8", "a job; a job a job"),
        ("no job: 4 nodes are too few", "no job: 4 nodes are too few"),
    ] {
        assert_eq!(said("jobs", text), expected, "{text}");
        assert_eq!(said("users,nodes", text), text);
    }
}

#[test]
fn reservations_are_not_named() {
    assert_eq!(said("reservations", "covered by reservation maint_7"), "covered by a reservation");
    assert_eq!(said("reservations", "(reservation x) job 8"), "(a reservation) job 8");
}

#[test]
fn what_is_wrong_with_others_jobs_is_not_quoted() {
    let viewer = Viewer { uid: Some(UserId(1000)), ..Viewer::default() };
    let sight = Sight::new(&viewer, PrivateData::parse("jobs"), &owner);
    let mut text = "job 7: infill:nodes=x is unclear; job 8: infill:nodes=secret is unclear".to_owned();
    sight.clean_problem(&mut text);
    assert_eq!(text, format!("job 7: infill:nodes=x is unclear; {OF_OTHERS}"));
}

#[test]
fn operators_see_everything() {
    let viewer = Viewer { uid: Some(UserId(1)), name: None, all: true };
    let sight = Sight::new(&viewer, PrivateData::ALL, &owner);
    assert!(sight.job(JobId(8)) && sight.is_clear());
    let nobody = Viewer::default();
    let sight = Sight::new(&nobody, PrivateData::ALL, &|_| None);
    assert!(!sight.job(JobId(9)), "nobody owns what is nobody's");
}

#[test]
fn what_jobs_met_on_a_node_is_told_without_whose_it_was() {
    let viewer = Viewer { uid: Some(UserId(1000)), ..Viewer::default() };
    let failure =
        |job| NodeFailure { job: Some(JobId(job)), at: UnixTime(0), what: format!("job {job} died") };
    let mut status = samples::status();
    status.nodes[2].failures = vec![failure(7), failure(8)];
    let private = PrivateData::parse("jobs");
    let shown = Sight::new(&viewer, private, &owner).status(status);
    let told: Vec<_> = shown.nodes[2].failures.iter().map(|f| (f.job, f.what.as_str())).collect();
    assert_eq!(told, [(Some(JobId(7)), "job 7 died"), (None, "a job died")]);
}

/// Whether a reader sees a job's turn, its end, its plans, its profile.
fn parts_seen(job: &JobView) -> [bool; 4] {
    [!job.turn.is_empty(), job.ends.is_some(), !job.plans.is_empty(), job.profile.is_some()]
}

/// A job that has all of these.
fn job_with_all_parts(id: u32) -> JobView {
    let plan = ExecPlan::default();
    JobView {
        turn: "index 0.75".to_owned(),
        ends: Some(EndView { low_secs: 1.0, median_secs: 2.0, high_secs: 3.0, predictable: true }),
        plans: vec![PlanView {
            plan,
            runs: true,
            rate: Some(19.5),
            share: Some(1.0),
            is_measured: true,
            lacks: None,
        }],
        profile: Some(samples::profile("bob", "bert", "cpu2").key),
        ..samples::job(id, "bob", MalleableState::Running, &["n1"])
    }
}

#[test]
fn turn_end_plans_and_profile_of_others_are_hidden_where_they_are_private() {
    for (private, is_seen) in
        [("none", true), ("nodes,reservations", true), ("accounts", true), ("usage", false), ("users", false)]
    {
        let seen_by = |uid: Option<u32>, all: bool| {
            let viewer = Viewer { uid: uid.map(UserId), name: None, all };
            let status = Status { jobs: vec![job_with_all_parts(8)], ..samples::status() };
            let shown = Sight::new(&viewer, PrivateData::parse(private), &owner).status(status);
            parts_seen(&shown.jobs[0])
        };
        assert_eq!(seen_by(Some(1000), false), [is_seen; 4], "another user with {private}");
        assert_eq!(seen_by(None, false), [is_seen; 4], "nobody with {private}");
        assert_eq!(seen_by(Some(1001), false), [true; 4], "the owner with {private}");
        assert_eq!(seen_by(Some(1), true), [true; 4], "an operator with {private}");
    }
}

#[test]
fn problems_that_name_a_node_are_hidden_where_nodes_are_private() {
    let problem = "node n3 has no state; job 7 asks for nothing; Slurm shows no node at all";
    let left = format!("job 7 asks for nothing; Slurm shows no node at all; {OF_OTHERS}");
    for (private, expected) in [("none", problem), ("jobs", problem), ("nodes", &left), ("jobs,nodes", &left)]
    {
        let viewer = Viewer { uid: Some(UserId(1000)), ..Viewer::default() };
        let status = Status { problems: vec![problem.to_owned()], ..samples::status() };
        let shown = Sight::new(&viewer, PrivateData::parse(private), &owner).status(status);
        assert_eq!(shown.problems, [expected], "{private}");
    }
}
