//! When notices are sent, and how they are delivered.

use std::sync::Arc;

use super::*;
use crate::health::HealthProblem;
use infill_model::{JobId, clock::now, config::Config};

fn queue() -> NoticeQueue {
    NoticeQueue::new(&NotifyConfig { url: "http://x".to_owned(), ..NotifyConfig::default() })
}

/// Takes the kinds of all waiting notices.
fn waiting(notices: &NoticeQueue) -> Vec<&'static str> {
    let mut receiver = notices.receiver.lock().unwrap();
    let receiver = receiver.as_mut().unwrap();
    std::iter::from_fn(|| Some(receiver.try_recv().ok()?.event.word())).collect()
}

fn noticed(notices: &NoticeQueue, state: &DaemonState, events: &RoundEvents) -> Vec<&'static str> {
    notices.notify_changes(state, events, now());
    waiting(notices)
}

fn main_delay(secs: f64) -> MainDelay {
    MainDelay { job: JobId(7), at: now(), secs, planned: false }
}

#[test]
fn each_condition_is_reported_when_it_begins_and_when_it_is_over() {
    let notices = queue();
    let mut state = DaemonState::new(Arc::new(Config::default()), now());
    let nothing = RoundEvents::default();
    assert!(noticed(&notices, &state, &nothing).is_empty());
    state.health.raise_problem(HealthProblem::Store("disk full".to_owned()));
    assert_eq!(noticed(&notices, &state, &nothing), ["store_away"]);
    assert!(noticed(&notices, &state, &nothing).is_empty());
    state.health.clear_problem(ProblemTopic::Store);
    assert_eq!(noticed(&notices, &state, &nothing), ["store_back"]);
    state.health.raise_problem(HealthProblem::Store("disk full".to_owned()));
    assert!(noticed(&notices, &state, &nothing).is_empty(), "a quarter of an hour of quiet");
    // The quiet period is over.
    notices.history.lock().unwrap().sent_at.clear();
    assert_eq!(noticed(&notices, &state, &nothing), ["store_away"], "the notice follows afterwards");
    let lost = BTreeMap::from([(HistoryKind::Rounds, 3)]);
    let short = RoundEvents { delays: vec![main_delay(2.0)], lost: lost.clone(), ..RoundEvents::default() };
    assert_eq!(noticed(&notices, &state, &short), ["rows_lost"]);
    let long =
        RoundEvents { delays: vec![main_delay(2.0), main_delay(12.0)], lost, ..RoundEvents::default() };
    assert_eq!(noticed(&notices, &state, &long), ["main_job_delayed"]);
}

#[test]
fn doubt_is_reported_after_a_minute_and_when_it_is_over() {
    let notices = queue();
    let start = UnixTime(1000);
    let nothing = RoundEvents::default();
    let mut state = DaemonState::new(Arc::new(Config::default()), start);
    let mut noticed = |secs: i64, is_doubtful: bool| {
        if is_doubtful {
            state.health.raise_problem(HealthProblem::Snapshot(Vec::new()));
        } else {
            state.health.clear_problem(ProblemTopic::Snapshot);
        }
        notices.notify_changes(&state, &nothing, start + secs);
        waiting(&notices)
    };
    assert!(noticed(0, true).is_empty());
    assert!(noticed(59, true).is_empty());
    assert!(noticed(61, false).is_empty(), "the doubt was short");
    assert!(noticed(62, true).is_empty(), "a new doubt begins");
    assert_eq!(noticed(122, true), ["slurm_doubtful"]);
    assert!(noticed(130, true).is_empty());
    assert_eq!(noticed(140, false), ["slurm_clear"]);
}

#[test]
fn a_lead_in_doubt_is_reported_each_time() {
    let notices = queue();
    let mut state = DaemonState::new(Arc::new(Config::default()), now());
    let nothing = RoundEvents::default();
    let in_doubt = HealthProblem::Lead("timeout".to_owned());
    state.health.raise_problem(in_doubt.clone());
    assert_eq!(noticed(&notices, &state, &nothing), ["lead_in_doubt"]);
    state.health.clear_problem(ProblemTopic::Lead);
    assert!(noticed(&notices, &state, &nothing).is_empty());
    notices.history.lock().unwrap().sent_at.clear();
    state.health.raise_problem(in_doubt);
    assert_eq!(noticed(&notices, &state, &nothing), ["lead_in_doubt"]);
}

#[tokio::test]
async fn a_test_names_each_way_that_fails() {
    let command = vec!["/bin/false".to_owned()];
    let config = NotifyConfig { command, url: "http://127.0.0.1:1/".to_owned(), ..NotifyConfig::default() };
    let failures = send_test_notice(&config, UnixTime(7)).await;
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(failures[0], "notify.command: ended with exit status: 1");
    assert!(failures[1].starts_with("notify.url: "), "{failures:?}");
}

#[test]
fn a_full_queue_drops_notices() {
    let notices = queue();
    let mut sent_at = BTreeMap::new();
    let begun = Instant::now();
    for n in 0..3 * MAX_WAITING as u32 {
        let time = NoticeTime { at: now(), now: begun + QUIET_PERIOD * n };
        notices.queue_notice(&mut sent_at, NoticeEvent::Leads, String::new(), time);
    }
    assert_eq!(waiting(&notices).len(), MAX_WAITING);
}

#[tokio::test]
async fn a_program_that_hangs_does_not_delay_rounds() {
    let command = ["/bin/sleep", "60"].map(str::to_owned).to_vec();
    let config = NotifyConfig { command, ..NotifyConfig::default() };
    let notices = NoticeQueue::new(&config);
    let state = DaemonState::new(Arc::new(Config::default()), now());
    notices.announce_lead(now());
    let events = RoundEvents { lost: BTreeMap::from([(HistoryKind::Rounds, 3)]), ..RoundEvents::default() };
    let rounds = async {
        // The program hangs by now.
        tokio::time::sleep(Duration::from_millis(50)).await;
        notices.notify_changes(&state, &events, now());
    };
    tokio::select! {
        () = deliver_notices(&notices, &config) => panic!("the delivery never ends"),
        () = rounds => {}
    }
    let history = notices.history.lock().unwrap();
    assert!(history.sent_at.contains_key(&NoticeEvent::RowsLost), "the second notice waits in the queue");
}

#[tokio::test]
async fn a_program_reads_the_notice_from_its_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notice.json");
    let program = infill_testkit::write_script(dir.path().join("hook"), &format!("cat > {}", file.display()));
    let notice = AdminNotice {
        schema: SCHEMA_VERSION,
        event: NoticeEvent::Leads,
        at: UnixTime(7),
        host: "ctl".to_owned(),
        text: "x".to_owned(),
    };
    let config = NotifyConfig { command: vec![program.display().to_string()], ..NotifyConfig::default() };
    assert!(deliver_notice(&config, &notice).await.is_empty());
    let received: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let expected = serde_json::json!({"schema": 1, "event": "leads", "at": 7, "host": "ctl", "text": "x"});
    assert_eq!(received, expected);
    assert!(run_program("/nonexistent", &[], "").await.is_err());
    assert!(run_program("/bin/false", &[], "").await.unwrap_err().contains("exit status: 1"));
}
