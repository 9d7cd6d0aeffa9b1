//! Runs the command line against a daemon that serves the samples, and checks the exit codes.

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::client::DaemonClient;
use super::command_line::parse_words;
use super::{daemon_failure, samples};
use infill_agent::identity::SlurmIdentity;
use infill_api::{HistoryView, ProfilesView, RoundView, RoundsQuery, RoundsView, routes};
use infill_model::{ProfileFilter, ProfileKey};
use infill_present::exit::ProgramExit;
use infill_slurm::SlurmError;

/// Serves on a free port of this machine while the test runs. Returns the URL.
fn daemon() -> String {
    let app = Router::new()
        .route(routes::STATUS, get(|| async { Json(samples::sample_status()) }))
        .route(routes::PROFILES, get(profiles))
        .route(routes::PLAN, get(|| async { Json(samples::sample_round()) }))
        .route(routes::PROFILE_HISTORY, get(history))
        .route(routes::ROUNDS, get(rounds))
        .route(routes::ROUND_AT, get(round_at))
        .route(
            routes::ROUND,
            get(|| async { (StatusCode::NOT_FOUND, Json(json!({"error": "no round yet"}))) }),
        )
        .route(
            routes::CONTROL,
            post(|| async { (StatusCode::FORBIDDEN, Json(json!({"error": "no admin"}))) }),
        )
        .route(
            routes::GENERATIONS,
            get(|Path(_): Path<u32>| async { Json(json!({"schema": 1, "generations": []})) }),
        );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
    });
    url
}

/// Serves the profiles that the filter matches.
async fn profiles(Query(filter): Query<ProfileFilter>) -> Json<ProfilesView> {
    let mut all = samples::sample_profiles();
    all.profiles.retain(|p| filter.matches_key(&p.profile.key));
    Json(all)
}

/// Serves the same history for all profiles.
async fn history(Query(_): Query<ProfileKey>) -> Json<HistoryView> {
    Json(samples::sample_history())
}

async fn rounds(Query(_): Query<RoundsQuery>) -> Json<RoundsView> {
    Json(samples::sample_rounds())
}

/// Serves the samples' round for all moments from its own on.
async fn round_at(Path(at): Path<i64>) -> Result<Json<RoundView>, (StatusCode, Json<Value>)> {
    if at < samples::NOW.0 {
        return Err((StatusCode::NOT_FOUND, Json(json!({"error": "no round is kept"}))));
    }
    Ok(Json(samples::sample_round()))
}

/// The exit code of a command line.
fn exit(url: &str, line: &str) -> u8 {
    let arguments = format!("infill --url {url} {line}");
    let cli = parse_words(arguments.split(' ').map(Into::into).collect()).unwrap();
    match super::dispatch_command(cli) {
        Ok(code) => code,
        Err(failure) => failure.exit.code(),
    }
}

#[test]
fn a_command_that_the_daemon_answers_succeeds() {
    let url = daemon();
    for line in [
        "status",
        "status --json",
        "status --once-width 60",
        "jobs --noheader -o %i|%r",
        "jobs --json",
        "gaps -a",
        "nodes",
        "gaps -n n4",
        "plan",
        "plan --json",
        "explain 101",
        "explain 103 --json",
        "explain n3",
        "explain 101 --at now+52weeks",
        "explain n3 --at 1795212617 --json",
        "rounds",
        "rounds --noheader -o %t|%n -n 5 --before 22:00",
        "rounds --json",
        "profiles",
        "profiles --noheader -o %n|%m -u alice,bob",
        "profiles list --json",
        "profiles show bert",
        "profiles show bert -u alice --svg -",
        "profiles show bert --json",
        "profiles show bert --history",
        "profiles show bert --history --json",
        "profiles export -n bert --csv",
    ] {
        assert_eq!(exit(&url, line), ProgramExit::Ok.code(), "{line}");
    }
}

#[test]
fn a_check_has_the_codes_of_monitoring_plugins() {
    // The sample has a problem.
    assert_eq!(exit(&daemon(), "status --check"), 2);
}

#[test]
fn each_failure_has_its_code() {
    let url = daemon();
    let check = |line: &str, expected: ProgramExit| assert_eq!(exit(&url, line), expected.code(), "{line}");
    check("explain 9", ProgramExit::NotFound);
    check("explain n9", ProgramExit::NotFound);
    check("explain 101 --at 1795212616", ProgramExit::NotFound);
    check("explain 9 --at 1795212617", ProgramExit::NotFound);
    check("rounds -o %q", ProgramExit::Usage);
    check("profiles show no-such --history", ProgramExit::NotFound);
    check("jobs -j 9", ProgramExit::NotFound);
    check("gaps -n n9", ProgramExit::NotFound);
    check("nodes -n n9", ProgramExit::NotFound);
    check("profiles show no-such", ProgramExit::NotFound);
    check("profiles show bert -u bob --svg -", ProgramExit::NotFound);
    check("profiles import /nonexistent/profiles.json", ProgramExit::Input);
    check("advise --curve /nonexistent/curve.csv", ProgramExit::Input);
    check("history import --from /nonexistent/log", ProgramExit::Input);
    check("history import --since 1", ProgramExit::Usage);
    check("profiles -o %q", ProgramExit::Usage);
    check("jobs -o %q", ProgramExit::Usage);
    check("--config /nonexistent/infill.toml config check", ProgramExit::Config);
    assert_eq!(exit("ftp://x", "status"), ProgramExit::Usage.code());
}

#[tokio::test]
async fn an_order_is_given_only_to_a_daemon_that_proves_itself() {
    let dir = tempfile::tempdir().unwrap();
    let munge = infill_testkit::write_script(dir.path().join("munge"), "cat");
    let client =
        DaemonClient::new(&daemon(), SlurmIdentity { munge, ..SlurmIdentity::default() }, None).unwrap();
    let error = client.send_order("control", routes::CONTROL, &json!({})).await.unwrap_err();
    assert_eq!(error.exit_code(), ProgramExit::Denied);
    let text = error.to_string();
    assert!(text.contains("does not prove") && text.contains("(it answers 404)"), "{text}");
}

#[test]
fn an_absent_daemon_has_its_own_code() {
    // No one listens on a port that was bound and is free again.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    assert_eq!(exit(&url, "status"), ProgramExit::Unreachable.code());
    assert_eq!(exit(&url, "status --check"), 3);
    // A wrong format needs no daemon to be found.
    for line in ["jobs -o %Z", "gaps -o %Z", "nodes -o %Z", "rounds -o %Z", "profiles -o %Z"] {
        assert_eq!(exit(&url, line), ProgramExit::Usage.code(), "{line}");
    }
}

#[test]
fn what_slurm_denies_is_denied() {
    let denied = SlurmError::Denied { doing: "reading nodes".to_owned(), what: "no".to_owned() };
    assert_eq!(daemon_failure(anyhow::Error::new(denied).context("planning")).exit, ProgramExit::Denied);
}
