//! Sentences without what is hidden.

use super::*;
use crate::timeline::UsageRun;
use infill_api::{ControlOrigin, EndPrediction, HiddenCounts, JobView, NodeFailure, PlanView};
use infill_model::{ExecPlan, GenerationRecord, JobVerdict, MalleableState, NodeName, NodeVerdict};
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
    let viewer = ApiReader { uid: Some(UserId(1000)), ..ApiReader::default() };
    RedactionFilter::new(&viewer, PrivateData::parse(private), &owner).redact_text(text).into_owned()
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
    let viewer = ApiReader { uid: Some(UserId(1000)), ..ApiReader::default() };
    let redaction = RedactionFilter::new(&viewer, PrivateData::parse("jobs"), &owner);
    let mut text = "job 7: infill:nodes=x is unclear; job 8: infill:nodes=secret is unclear".to_owned();
    redaction.redact_problem(&mut text);
    assert_eq!(text, format!("job 7: infill:nodes=x is unclear; {HIDDEN_PROBLEM}"));
}

#[test]
fn operators_see_everything() {
    let viewer = ApiReader { uid: Some(UserId(1)), name: None, all: true };
    let redaction = RedactionFilter::new(&viewer, PrivateData::ALL, &owner);
    assert!(redaction.may_see_job(JobId(8)) && redaction.sees_everything());
    let nobody = ApiReader::default();
    let redaction = RedactionFilter::new(&nobody, PrivateData::ALL, &|_| None);
    assert!(!redaction.may_see_job(JobId(9)), "a reader without a user owns no job");
}

#[test]
fn what_jobs_met_on_a_node_is_told_without_whose_it_was() {
    let viewer = ApiReader { uid: Some(UserId(1000)), ..ApiReader::default() };
    let failure =
        |job| NodeFailure { job: Some(JobId(job)), at: UnixTime(0), what: format!("job {job} died") };
    let mut status = samples::sample_status();
    status.nodes[2].failures = vec![failure(7), failure(8)];
    let private = PrivateData::parse("jobs");
    let shown = RedactionFilter::new(&viewer, private, &owner).redact_status(status);
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
        ends: Some(EndPrediction { low_secs: 1.0, median_secs: 2.0, high_secs: 3.0, predictable: true }),
        plans: vec![PlanView {
            plan,
            runs: true,
            rate: Some(19.5),
            share: Some(1.0),
            is_measured: true,
            source: None,
            low: None,
            high: None,
            lacks: None,
        }],
        profile: Some(samples::sample_profile("bob", "bert", "cpu2").key),
        ..samples::sample_job(id, "bob", MalleableState::Running, &["n1"])
    }
}

#[test]
fn turn_end_plans_and_profile_of_others_are_hidden_where_they_are_private() {
    for (private, is_seen) in
        [("none", true), ("nodes,reservations", true), ("accounts", true), ("usage", false), ("users", false)]
    {
        let seen_by = |uid: Option<u32>, all: bool| {
            let viewer = ApiReader { uid: uid.map(UserId), name: None, all };
            let status = DaemonStatus { jobs: vec![job_with_all_parts(8)], ..samples::sample_status() };
            let shown =
                RedactionFilter::new(&viewer, PrivateData::parse(private), &owner).redact_status(status);
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
    let left = format!("job 7 asks for nothing; Slurm shows no node at all; {HIDDEN_PROBLEM}");
    for (private, expected) in [("none", problem), ("jobs", problem), ("nodes", &left), ("jobs,nodes", &left)]
    {
        let viewer = ApiReader { uid: Some(UserId(1000)), ..ApiReader::default() };
        let status = DaemonStatus { problems: vec![problem.to_owned()], ..samples::sample_status() };
        let shown = RedactionFilter::new(&viewer, PrivateData::parse(private), &owner).redact_status(status);
        assert_eq!(shown.problems, [expected], "{private}");
    }
}

/// The owner of job 7.
fn reader() -> ApiReader {
    ApiReader { uid: Some(UserId(1000)), name: Some("alice".to_owned()), all: false }
}

/// A reader who sees everything.
fn operator() -> ApiReader {
    ApiReader { uid: Some(UserId(1)), name: Some("bin".to_owned()), all: true }
}

/// The rows of a map as this reader sees them. Jobs 7 and 8 used `n1`; the main queue and job 9 used `n2`.
fn map_seen_by(viewer: &ApiReader, private: &str) -> Vec<(String, Vec<NodeUse>)> {
    let run = |(from, used)| UsageRun { from, to: from + 60, used };
    let row = |name: &str, uses: [NodeUse; 2]| {
        (NodeName::from(name), [0, 60].into_iter().zip(uses).map(run).collect::<Vec<_>>())
    };
    let rows = vec![
        row("n1", [7, 8].map(|id| NodeUse::Job(JobId(id)))),
        row("n2", [NodeUse::Main, NodeUse::Job(JobId(9))]),
    ];
    let mut map = UsageMap { nodes: 2, first: 0, count: 2, rows: MapRows::Nodes(rows) };
    RedactionFilter::new(viewer, PrivateData::parse(private), &owner).redact_map(&mut map);
    let MapRows::Nodes(rows) = map.rows else { panic!("a row a node") };
    rows.into_iter()
        .map(|(name, runs)| (name.to_string(), runs.into_iter().map(|run| run.used).collect()))
        .collect()
}

#[test]
fn a_map_shows_no_number_of_a_hidden_job_and_no_private_node() {
    let rows = |n1: [u32; 2], n2: u32| {
        let [first, second, third] = [n1[0], n1[1], n2].map(|id| NodeUse::Job(JobId(id)));
        vec![("n1".to_owned(), vec![first, second]), ("n2".to_owned(), vec![NodeUse::Main, third])]
    };
    assert_eq!(map_seen_by(&reader(), "none"), rows([7, 8], 9));
    assert_eq!(map_seen_by(&reader(), "jobs"), rows([7, 0], 0));
    assert_eq!(map_seen_by(&ApiReader::default(), "jobs"), rows([0, 0], 0));
    assert_eq!(map_seen_by(&reader(), "nodes"), []);
    assert_eq!(map_seen_by(&operator(), "jobs,nodes"), rows([7, 8], 9));
}

#[test]
fn a_status_counts_what_it_hides() {
    let status = DaemonStatus {
        jobs: vec![
            samples::sample_job(7, "alice", MalleableState::Running, &["n1"]),
            samples::sample_job(8, "bob", MalleableState::Running, &["n2", "n3"]),
            samples::sample_job(9, "carol", MalleableState::Running, &["n4", "n5", "n6"]),
        ],
        nodes: vec![
            NodeView { job: Some(JobId(7)), ..samples::sample_node("n1", NodeKind::Held) },
            NodeView { job: Some(JobId(8)), ..samples::sample_node("n2", NodeKind::Held) },
            NodeView { job: Some(JobId(8)), ..samples::sample_node("n3", NodeKind::Held) },
            samples::sample_node("n7", NodeKind::Gap),
        ],
        ..samples::sample_status()
    };
    let shown =
        RedactionFilter::new(&reader(), PrivateData::parse("jobs,nodes"), &owner).redact_status(status);
    assert_eq!(shown.jobs.iter().map(|job| job.job.0).collect::<Vec<_>>(), [7]);
    assert_eq!(shown.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["n1"]);
    let nodes = [(NodeKind::Held, 2), (NodeKind::Gap, 1)].into();
    assert_eq!(shown.hidden, HiddenCounts { jobs: 2, job_nodes: 5, nodes });
}

#[test]
fn a_round_counts_what_it_hides() {
    let mut round = samples::sample_round();
    let job = round.report.jobs[0].clone();
    round.report.jobs =
        [(7, 1), (8, 2), (9, 3)].map(|(id, gets)| JobVerdict { job: JobId(id), gets, ..job.clone() }).into();
    let node = round.report.nodes[0].clone();
    round.report.nodes = [("n1", Some(7)), ("n2", Some(8)), ("n3", Some(8)), ("n7", None)]
        .map(|(name, job)| NodeVerdict { node: name.into(), job: job.map(JobId), ..node.clone() })
        .into();
    let shown = RedactionFilter::new(&reader(), PrivateData::parse("jobs,nodes"), &owner).redact_round(round);
    assert_eq!(shown.report.jobs.iter().map(|job| job.job.0).collect::<Vec<_>>(), [7]);
    assert_eq!(shown.report.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["n1"]);
    let nodes = [(NodeKind::Held, 2), (NodeKind::Refused, 1)].into();
    assert_eq!(shown.hidden, HiddenCounts { jobs: 2, job_nodes: 5, nodes });
}

#[test]
fn the_reason_of_ones_own_generation_names_no_hidden_job() {
    let why = |viewer: &ApiReader, private: &str| {
        let generation = GenerationRecord {
            job: JobId(7),
            generation: 1,
            started_at: UnixTime(1000),
            nodes: vec!["n1".into()],
            why: "grows: job 8 leaves n1 in reservation x".to_owned(),
        };
        let view = GenerationsView { schema: 1, generations: vec![generation] };
        let redaction = RedactionFilter::new(viewer, PrivateData::parse(private), &owner);
        redaction.redact_generations(JobId(7), Some(UnixTime(1000)), view).generations.remove(0).why
    };
    assert_eq!(why(&reader(), "none"), "grows: job 8 leaves n1 in reservation x");
    assert_eq!(why(&reader(), "jobs"), "grows: a job leaves n1 in reservation x");
    assert_eq!(why(&reader(), "reservations"), "grows: job 8 leaves n1 in a reservation");
    assert_eq!(why(&operator(), "all"), "grows: job 8 leaves n1 in reservation x");
}

/// Users and seconds of the rows in a report, where usage is private.
fn spent_seen_by(viewer: &ApiReader, spent: &[(&str, f64)]) -> Vec<(String, f64)> {
    let row = |(user, secs): &(&str, f64)| NodeTimeRow {
        key: NodeTimeKey {
            from: UnixTime(3600),
            account: "physics".to_owned(),
            user: (*user).to_owned(),
            node_type: "cpu2".to_owned(),
        },
        spent: NodeTimeUsage { useful_secs: *secs, ..NodeTimeUsage::default() },
    };
    let view = ReportView {
        schema: 1,
        from: UnixTime(3600),
        to: UnixTime(7200),
        partition: "infill".to_owned(),
        is_partial: true,
        lends_parts: false,
        prices: infill_model::ReportConfig::default(),
        spent: spent.iter().map(row).collect(),
        uses: infill_api::UsesView::default(),
        delays: vec![],
        delays_cut: false,
    };
    let shown = RedactionFilter::new(viewer, PrivateData::parse("usage"), &owner).redact_report(view);
    shown.spent.into_iter().map(|row| (row.key.user, row.spent.useful_secs)).collect()
}

#[test]
fn others_share_one_row_of_a_report() {
    let own = || ("alice".to_owned(), 60.0);
    let all = [("alice", 60.0), ("bob", 20.0), ("carol", 3.0)];
    assert_eq!(spent_seen_by(&reader(), &all), [own(), (String::new(), 23.0)]);
    assert_eq!(spent_seen_by(&reader(), &all[..1]), [own()]);
    assert_eq!(spent_seen_by(&ApiReader::default(), &all), [(String::new(), 83.0)]);
    assert_eq!(spent_seen_by(&reader(), &[]), []);
}

#[test]
fn a_reader_gets_their_own_profiles_whether_they_say_their_name_or_not() {
    let user_asked_of_store = |viewer: &ApiReader, private: &str, user: Option<&str>| {
        let asked = ProfileFilter {
            user: user.map(str::to_owned),
            name: Some("bert".to_owned()),
            ..Default::default()
        };
        let redaction = RedactionFilter::new(viewer, PrivateData::parse(private), &owner);
        let found = redaction.restrict_filter(asked)?;
        assert_eq!(found.name.as_deref(), Some("bert"), "the rest of what is asked for stays");
        Some(found.user.unwrap_or_else(|| "anybody".to_owned()))
    };
    let own = Some("alice".to_owned());
    assert_eq!(user_asked_of_store(&reader(), "jobs", Some("alice")), own);
    assert_eq!(user_asked_of_store(&reader(), "jobs", None), own);
    assert_eq!(user_asked_of_store(&reader(), "jobs", Some("bob")), None);
    assert_eq!(user_asked_of_store(&ApiReader::default(), "jobs", None), None);
    assert_eq!(user_asked_of_store(&reader(), "nodes", Some("bob")), Some("bob".to_owned()));
    assert_eq!(user_asked_of_store(&operator(), "all", None), Some("anybody".to_owned()));
}

#[test]
fn readers_share_answers_only_with_those_who_see_the_same() {
    let jobs = PrivateData::parse("jobs");
    let none = PrivateData::default();
    assert_eq!(VisibilityClass::for_reader(&operator(), jobs), VisibilityClass::All);
    assert_eq!(VisibilityClass::for_reader(&reader(), none), VisibilityClass::All);
    assert_eq!(VisibilityClass::for_reader(&reader(), jobs), VisibilityClass::Own(Some(UserId(1000)), jobs));
    assert_eq!(VisibilityClass::for_reader(&ApiReader::default(), jobs), VisibilityClass::Own(None, jobs));
}

#[test]
fn who_gave_an_order_is_private_where_users_are() {
    let giver = |private: &str, name: Option<&str>| {
        let viewer =
            ApiReader { uid: Some(UserId(1000)), name: name.map(str::to_owned), ..ApiReader::default() };
        let origin = ControlOrigin { at: UnixTime(0), by: Some("alice".to_owned()), automatic: false };
        let status = DaemonStatus { control_origin: Some(origin), ..samples::sample_status() };
        let redaction = RedactionFilter::new(&viewer, PrivateData::parse(private), &owner);
        redaction.redact_status(status).control_origin.unwrap().by
    };
    assert_eq!(giver("users", Some("bob")), None);
    assert_eq!(giver("users", None), None);
    assert_eq!(giver("users", Some("alice")).as_deref(), Some("alice"));
    assert_eq!(giver("jobs", Some("bob")).as_deref(), Some("alice"));
}
