//! Tells a program or a service of the site's what administrators should know: of each thing at most once in
//! a quarter of an hour, and without anybody waiting for it.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::health::ProblemTopic;
use super::state::DaemonState;
use super::write_queue::HistoryKind;
use infill_api::{SCHEMA, addresses::this_host};
use infill_model::{MainDelay, NodeTimeUsage, UnixTime, config::NotifyConfig, error_causes, words};
use infill_slurm::install_crypto;

/// Of each thing people are told once in this time.
const QUIET_PERIOD: Duration = Duration::from_secs(900);

/// Notices that wait to be told; the next ones are dropped.
const MAX_WAITING: usize = 16;

/// Longest that a program may take, or a service.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Snapshots that have been doubtful for so long are news, seconds: a round or two are not.
const DOUBTFUL_SECS: f64 = 60.0;

/// Longest that a daemon that has lost the lead takes to say so before it ends.
const LAST_DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// A main job that waited for so long for nodes of ours is news, seconds: as in the alerts.
const DELAYED_SECS: f64 = 10.0;

words! {
    /// What people are told of.
    pub enum NoticeEvent {
        /// This daemon leads from now on.
        Leads = "leads",
        /// The store does not say which daemon leads.
        LeadInDoubt = "lead_in_doubt",
        /// This daemon leads no more, and ends.
        LeadLost = "lead_lost",
        /// Slurm does not answer.
        SlurmAway = "slurm_away",
        /// It answers again.
        SlurmBack = "slurm_back",
        /// It answers, but what it shows cannot be trusted.
        SlurmDoubtful = "slurm_doubtful",
        /// What it shows can be trusted again.
        SlurmClear = "slurm_clear",
        /// The store fails.
        StoreAway = "store_away",
        /// It works again.
        StoreBack = "store_back",
        /// A main job waited for nodes that malleable jobs were on.
        MainJobDelayed = "main_job_delayed",
        /// Nodes are left alone after failures.
        NodesLeftAlone = "nodes_left_alone",
        /// History is lost.
        RowsLost = "rows_lost",
        /// Nothing has happened: somebody tries whether notices arrive.
        Test = "test",
    }
}

/// What is told, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AdminNotice {
    schema: u32,
    event: NoticeEvent,
    at: UnixTime,
    /// On which host.
    host: String,
    /// In words.
    text: String,
}

impl AdminNotice {
    fn new(event: NoticeEvent, at: UnixTime, text: String) -> AdminNotice {
        AdminNotice { schema: SCHEMA, event, at, host: this_host().unwrap_or_default(), text }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct NoticeQueue {
    /// `None` where nobody is told.
    queue: Option<mpsc::Sender<AdminNotice>>,
    end: Mutex<Option<mpsc::Receiver<AdminNotice>>>,
    known: Mutex<NoticeHistory>,
}

/// What is known already.
#[derive(Debug, Default)]
struct NoticeHistory {
    told: BTreeMap<NoticeEvent, Instant>,
    /// How things were when people were told of them last.
    told_of: NoticeConditions,
    /// Since when snapshots are doubtful.
    doubtful_since: Option<UnixTime>,
}

/// How things are.
#[derive(Clone, Copy, Debug, Default)]
struct NoticeConditions {
    slurm_away: bool,
    store_away: bool,
    doubtful: bool,
    lead_in_doubt: bool,
    left_alone: usize,
}

impl NoticeConditions {
    /// People were told of this.
    fn copy_condition(&mut self, event: NoticeEvent, now: NoticeConditions) {
        match event {
            NoticeEvent::SlurmAway | NoticeEvent::SlurmBack => self.slurm_away = now.slurm_away,
            NoticeEvent::StoreAway | NoticeEvent::StoreBack => self.store_away = now.store_away,
            NoticeEvent::SlurmDoubtful | NoticeEvent::SlurmClear => self.doubtful = now.doubtful,
            NoticeEvent::LeadInDoubt => self.lead_in_doubt = now.lead_in_doubt,
            _ => self.left_alone = now.left_alone,
        }
    }

    fn changes_since(self, before: NoticeConditions) -> Vec<(NoticeEvent, String)> {
        let mut news = Vec::new();
        if self.slurm_away != before.slurm_away {
            let event = if self.slurm_away { NoticeEvent::SlurmAway } else { NoticeEvent::SlurmBack };
            news.push((event, availability_text(self.slurm_away, "Slurm")));
        }
        if self.store_away != before.store_away {
            let event = if self.store_away { NoticeEvent::StoreAway } else { NoticeEvent::StoreBack };
            news.push((event, availability_text(self.store_away, "the store")));
        }
        if self.doubtful != before.doubtful {
            let (event, text) = if self.doubtful {
                (
                    NoticeEvent::SlurmDoubtful,
                    "what Slurm shows has been doubtful for a minute: nothing is started",
                )
            } else {
                (NoticeEvent::SlurmClear, "what Slurm shows can be trusted again")
            };
            news.push((event, text.to_owned()));
        }
        if self.lead_in_doubt && !before.lead_in_doubt {
            let text = "the store does not say which daemon leads: a second one must not be started now";
            news.push((NoticeEvent::LeadInDoubt, text.to_owned()));
        }
        if self.left_alone > before.left_alone {
            let text = format!("{} nodes are left alone after failures", self.left_alone);
            news.push((NoticeEvent::NodesLeftAlone, text));
        }
        news
    }
}

fn availability_text(away: bool, what: &str) -> String {
    if away { format!("{what} does not answer: nothing is started") } else { format!("{what} answers again") }
}

/// What has happened since the last round.
#[derive(Debug, Default)]
pub struct RoundEvents {
    /// Main jobs that started where ours were.
    pub delays: Vec<MainDelay>,
    /// Rows of history that are lost.
    pub lost: BTreeMap<HistoryKind, usize>,
    /// What malleable jobs held, by accounts.
    pub spent: BTreeMap<String, NodeTimeUsage>,
}

impl RoundEvents {
    fn notable_events(&self) -> Vec<(NoticeEvent, String)> {
        let mut news = Vec::new();
        let worst = self.delays.iter().max_by(|a, b| a.secs.total_cmp(&b.secs));
        if let Some(MainDelay { job, secs, .. }) = worst.filter(|worst| worst.secs > DELAYED_SECS) {
            let text = format!("main job {job} waited {secs:.0} s for nodes that malleable jobs were on");
            news.push((NoticeEvent::MainJobDelayed, text));
        }
        let lost: usize = self.lost.values().sum();
        if lost > 0 {
            news.push((NoticeEvent::RowsLost, format!("{lost} rows of history could not be stored")));
        }
        news
    }
}

impl NoticeQueue {
    /// For those whom the configuration names.
    pub fn new(config: &NotifyConfig) -> NoticeQueue {
        if config.is_disabled() {
            return NoticeQueue { queue: None, end: Mutex::default(), known: Mutex::default() };
        }
        let (queue, end) = mpsc::channel(MAX_WAITING);
        NoticeQueue { queue: Some(queue), end: Mutex::new(Some(end)), known: Mutex::default() }
    }

    /// Compares what is now with what people were told last. What could not be told is tried again.
    pub fn notify_changes(&self, state: &DaemonState, happened: &RoundEvents, at: UnixTime) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_doubtful = state.health.has_problem(ProblemTopic::Snapshot);
        known.doubtful_since = known.doubtful_since.or(Some(at)).filter(|_| is_doubtful);
        let present = NoticeConditions {
            slurm_away: state.health.has_problem(ProblemTopic::Slurm),
            store_away: state.health.has_problem(ProblemTopic::Store),
            doubtful: known.doubtful_since.is_some_and(|since| at.secs_since(since) >= DOUBTFUL_SECS),
            lead_in_doubt: state.health.has_problem(ProblemTopic::Lead),
            left_alone: state.scene.breaker().count_open(at),
        };
        let now = Instant::now();
        for (event, text) in present.changes_since(known.told_of) {
            if self.queue_notice(&mut known.told, event, text, (at, now)) {
                known.told_of.copy_condition(event, present);
            }
        }
        known.told_of.left_alone = known.told_of.left_alone.min(present.left_alone);
        known.told_of.lead_in_doubt &= present.lead_in_doubt;
        for (event, text) in happened.notable_events() {
            self.queue_notice(&mut known.told, event, text, (at, now));
        }
    }

    /// This daemon leads from now on.
    pub fn announce_lead(&self, at: UnixTime) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let text = "this daemon leads from now on".to_owned();
        self.queue_notice(&mut known.told, NoticeEvent::Leads, text, (at, Instant::now()));
    }

    /// Has something told. Says whether that is done; it is not in the quiet after the last time.
    fn queue_notice(
        &self,
        told: &mut BTreeMap<NoticeEvent, Instant>,
        event: NoticeEvent,
        text: String,
        (at, now): (UnixTime, Instant),
    ) -> bool {
        let Some(queue) = &self.queue else { return true };
        if told.get(&event).is_some_and(|before| now.duration_since(*before) < QUIET_PERIOD) {
            return false;
        }
        let notice = AdminNotice::new(event, at, text);
        match queue.try_send(notice) {
            Ok(()) => {
                told.insert(event, now);
                true
            }
            Err(e) => {
                tracing::warn!(event = event.word(), "nobody is told: {e}");
                false
            }
        }
    }
}

/// Tells what comes, one after the other, for ever.
pub(crate) async fn deliver_notices(notices: &NoticeQueue, config: &NotifyConfig) {
    let end = notices.end.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut queue) = end else { return std::future::pending().await };
    while let Some(notice) = queue.recv().await {
        for failure in deliver_notice(config, &notice).await {
            tracing::warn!(event = notice.event.word(), "{failure}");
        }
    }
}

/// Says that this daemon leads no more: the last thing that it does.
pub(crate) async fn notify_lead_lost(config: &NotifyConfig, why: &str, at: UnixTime) {
    let notice =
        AdminNotice::new(NoticeEvent::LeadLost, at, format!("this daemon leads no more, and ends: {why}"));
    if tokio::time::timeout(LAST_DELIVERY_TIMEOUT, deliver_notice(config, &notice)).await.is_err() {
        tracing::warn!(event = notice.event.word(), "nobody was told in {LAST_DELIVERY_TIMEOUT:?}");
    }
}

/// Sends a notice that says that it is a test. Returns what went wrong with each way, named by its key.
pub async fn send_test_notice(config: &NotifyConfig, at: UnixTime) -> Vec<String> {
    let text = "a test of infill's notices: nothing has happened".to_owned();
    deliver_notice(config, &AdminNotice::new(NoticeEvent::Test, at, text)).await
}

/// What went wrong with each way, named by its key.
async fn deliver_notice(config: &NotifyConfig, notice: &AdminNotice) -> Vec<String> {
    let text = serde_json::to_string(notice).unwrap_or_default();
    let mut failures = Vec::new();
    if let Some((program, arguments)) = config.command.split_first() {
        let told = tokio::time::timeout(DELIVERY_TIMEOUT, run_program(program, arguments, &text)).await;
        let told = told.map_err(|_| format!("not ready after {DELIVERY_TIMEOUT:?}")).and_then(|ended| ended);
        failures.extend(told.err().map(|e| format!("notify.command: {e}")));
    }
    // It is read each time: whoever changes the address need not start the daemon anew.
    match config.notice_url() {
        Ok(url) if url.is_empty() => {}
        Ok(url) => {
            let told = post_notice(&url, text).await;
            failures.extend(told.err().map(|e| format!("notify.url: {}", error_causes::error_chain(&e))));
        }
        Err(e) => failures.push(error_causes::error_chain(&e)),
    }
    failures
}

/// It is killed where nobody waits for it any more.
async fn run_program(program: &str, arguments: &[String], text: &str) -> Result<(), String> {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| format!("cannot be started: {e}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads nothing may end before it was told.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
    let status = child.wait().await.map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("ended with {status}")) }
}

async fn post_notice(url: &str, text: String) -> Result<(), reqwest::Error> {
    install_crypto();
    let client = reqwest::Client::builder().timeout(DELIVERY_TIMEOUT).build()?;
    let request = client.post(url).header("content-type", "application/json").body(text);
    // Such addresses are secrets.
    let sent = request.send().await.and_then(reqwest::Response::error_for_status);
    sent.map(drop).map_err(reqwest::Error::without_url)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::health::HealthProblem;
    use infill_model::{JobId, clock::now, config::Config};

    fn noticed(notices: &NoticeQueue, state: &DaemonState, happened: &RoundEvents) -> Vec<String> {
        notices.notify_changes(state, happened, now());
        let mut end = notices.end.lock().unwrap();
        let mut all = Vec::new();
        while let Ok(notice) = end.as_mut().unwrap().try_recv() {
            all.push(notice.event.word().to_owned());
        }
        all
    }

    #[test]
    fn each_thing_is_told_once_when_it_begins_and_when_it_is_over() {
        let notices =
            NoticeQueue::new(&NotifyConfig { url: "http://x".to_owned(), ..NotifyConfig::default() });
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
        let quiet_is_over = || notices.known.lock().unwrap().told.clear();
        quiet_is_over();
        assert_eq!(noticed(&notices, &state, &nothing), ["store_away"], "what was not told then is told now");
        let delay = |secs| MainDelay { job: JobId(7), at: now(), secs, planned: false };
        let lost = BTreeMap::from([(HistoryKind::Rounds, 3)]);
        let happened = RoundEvents { delays: vec![delay(2.0)], lost: lost.clone(), ..RoundEvents::default() };
        assert_eq!(noticed(&notices, &state, &happened), ["rows_lost"]);
        let happened = RoundEvents { delays: vec![delay(2.0), delay(12.0)], lost, ..RoundEvents::default() };
        assert_eq!(noticed(&notices, &state, &happened), ["main_job_delayed"]);
    }

    #[test]
    fn doubt_is_told_after_a_minute_and_when_it_is_over() {
        let notices =
            NoticeQueue::new(&NotifyConfig { url: "http://x".to_owned(), ..NotifyConfig::default() });
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
            let mut end = notices.end.lock().unwrap();
            std::iter::from_fn(|| Some(end.as_mut()?.try_recv().ok()?.event.word())).collect::<Vec<_>>()
        };
        assert!(noticed(0, true).is_empty());
        assert!(noticed(59, true).is_empty());
        assert!(noticed(61, false).is_empty(), "it was short");
        assert!(noticed(62, true).is_empty(), "it begins anew");
        assert_eq!(noticed(122, true), ["slurm_doubtful"]);
        assert!(noticed(130, true).is_empty());
        assert_eq!(noticed(140, false), ["slurm_clear"]);
    }

    #[test]
    fn a_lead_in_doubt_is_told_each_time() {
        let notices =
            NoticeQueue::new(&NotifyConfig { url: "http://x".to_owned(), ..NotifyConfig::default() });
        let mut state = DaemonState::new(Arc::new(Config::default()), now());
        let nothing = RoundEvents::default();
        let in_doubt = || HealthProblem::Lead("timeout".to_owned());
        state.health.raise_problem(in_doubt());
        assert_eq!(noticed(&notices, &state, &nothing), ["lead_in_doubt"]);
        state.health.clear_problem(ProblemTopic::Lead);
        assert!(noticed(&notices, &state, &nothing).is_empty());
        notices.known.lock().unwrap().told.clear();
        state.health.raise_problem(in_doubt());
        assert_eq!(noticed(&notices, &state, &nothing), ["lead_in_doubt"]);
    }

    #[tokio::test]
    async fn a_test_says_which_way_fails() {
        let command = vec!["/bin/false".to_owned()];
        let config =
            NotifyConfig { command, url: "http://127.0.0.1:1/".to_owned(), ..NotifyConfig::default() };
        let failures = send_test_notice(&config, UnixTime(7)).await;
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert_eq!(failures[0], "notify.command: ended with exit status: 1");
        assert!(failures[1].starts_with("notify.url: "), "{failures:?}");
    }

    #[test]
    fn nobody_waits_for_those_who_are_told() {
        let notices =
            NoticeQueue::new(&NotifyConfig { url: "http://x".to_owned(), ..NotifyConfig::default() });
        let mut told = BTreeMap::new();
        let begun = Instant::now();
        for n in 0..3 * MAX_WAITING as u64 {
            // Nobody takes them out.
            let later = begun + QUIET_PERIOD * n as u32;
            notices.queue_notice(&mut told, NoticeEvent::Leads, String::new(), (now(), later));
        }
        let mut end = notices.end.lock().unwrap();
        let waiting = std::iter::from_fn(|| end.as_mut().unwrap().try_recv().ok()).count();
        assert_eq!(waiting, MAX_WAITING);
    }

    #[tokio::test]
    async fn a_program_that_hangs_keeps_nobody_waiting() {
        let command = ["/bin/sleep", "60"].map(str::to_owned).to_vec();
        let config = NotifyConfig { command, ..NotifyConfig::default() };
        let notices = NoticeQueue::new(&config);
        let state = DaemonState::new(Arc::new(Config::default()), now());
        notices.announce_lead(now());
        let happened =
            RoundEvents { lost: BTreeMap::from([(HistoryKind::Rounds, 3)]), ..RoundEvents::default() };
        let rounds = async {
            // The program hangs by now.
            tokio::time::sleep(Duration::from_millis(50)).await;
            notices.notify_changes(&state, &happened, now());
        };
        tokio::select! {
            () = deliver_notices(&notices, &config) => panic!("it goes on for ever"),
            () = rounds => {}
        }
        assert!(notices.known.lock().unwrap().told.contains_key(&NoticeEvent::RowsLost), "it waits its turn");
    }

    #[tokio::test]
    async fn a_program_gets_it_on_its_standard_input() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told");
        let program =
            infill_testkit::write_script(dir.path().join("hook"), &format!("cat > {}", file.display()));
        let notice = AdminNotice {
            schema: SCHEMA,
            event: NoticeEvent::Leads,
            at: UnixTime(7),
            host: "ctl".to_owned(),
            text: "x".to_owned(),
        };
        let config = NotifyConfig { command: vec![program.display().to_string()], ..NotifyConfig::default() };
        assert!(deliver_notice(&config, &notice).await.is_empty());
        let told: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(
            told,
            serde_json::json!({"schema": 1, "event": "leads", "at": 7, "host": "ctl", "text": "x"})
        );
        assert!(run_program("/nonexistent", &[], "").await.is_err());
        assert!(run_program("/bin/false", &[], "").await.unwrap_err().contains("exit status: 1"));
    }
}
