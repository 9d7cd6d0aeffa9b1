//! Sentences without what is hidden.

use super::*;
use crate::api::NodeFailure;
use crate::cli::samples;

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
