//! Notices to administrators, delivered through a program or a service of the site.
//!
//! Each kind of notice is sent at most once in a quarter of an hour. Nothing in the daemon waits for
//! delivery.

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
use infill_api::{SCHEMA_VERSION, addresses::this_host};
use infill_model::{
    MainDelay, NodeTimeUsage, UnixTime, config::NotifyConfig, counted_noun, error_causes, words,
};
use infill_slurm::install_crypto;

/// Shortest time between two notices of the same kind.
const QUIET_PERIOD: Duration = Duration::from_secs(900);

/// Most notices that wait for delivery. Further ones are dropped.
const MAX_WAITING: usize = 16;

/// Longest time that a program or service may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Snapshots must be doubtful for this time before a notice is sent, seconds. A round or two do not matter.
const DOUBTFUL_SECS: f64 = 60.0;

/// Longest time that a daemon that has lost the lead takes to deliver its last notice.
const LAST_DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// A main job must wait longer than this for nodes of malleable jobs before a notice is sent, seconds. The
/// Prometheus alerts use the same limit.
const DELAYED_SECS: f64 = 10.0;

words! {
    /// What a notice is about.
    pub enum NoticeEvent {
        /// This daemon leads from now on.
        Leads = "leads",
        /// The store does not say which daemon leads.
        LeadInDoubt = "lead_in_doubt",
        /// This daemon no longer leads, and ends.
        LeadLost = "lead_lost",
        /// Slurm does not answer.
        SlurmAway = "slurm_away",
        /// Slurm answers again.
        SlurmBack = "slurm_back",
        /// Slurm answers, but its snapshots cannot be trusted.
        SlurmDoubtful = "slurm_doubtful",
        /// Slurm's snapshots can be trusted again.
        SlurmClear = "slurm_clear",
        /// The store fails.
        StoreAway = "store_away",
        /// The store works again.
        StoreBack = "store_back",
        /// A main job waited for nodes of malleable jobs.
        MainJobDelayed = "main_job_delayed",
        /// Nodes are left alone after failures.
        NodesLeftAlone = "nodes_left_alone",
        /// Rows of history could not be stored and are lost.
        RowsLost = "rows_lost",
        /// A test of the delivery. Nothing has happened.
        Test = "test",
    }
}

/// A notice, as it is sent in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AdminNotice {
    schema: u32,
    event: NoticeEvent,
    at: UnixTime,
    /// The host on which the daemon runs.
    host: String,
    /// One sentence for people.
    text: String,
}

impl AdminNotice {
    fn new(event: NoticeEvent, at: UnixTime, text: String) -> AdminNotice {
        AdminNotice { schema: SCHEMA_VERSION, event, at, host: this_host().unwrap_or_default(), text }
    }
}

/// Notices that wait for delivery.
#[derive(Debug)]
pub struct NoticeQueue {
    /// `None` where the site has configured no notices.
    sender: Option<mpsc::Sender<AdminNotice>>,
    /// Taken by [`deliver_notices`].
    receiver: Mutex<Option<mpsc::Receiver<AdminNotice>>>,
    history: Mutex<NoticeHistory>,
}

/// The notices that were sent.
#[derive(Debug, Default)]
struct NoticeHistory {
    /// When each kind of notice was queued last.
    sent_at: BTreeMap<NoticeEvent, Instant>,
    /// The conditions that administrators know of.
    reported: NoticeConditions,
    /// Since when snapshots are doubtful.
    doubtful_since: Option<UnixTime>,
}

/// A moment for which a notice is queued, by both clocks.
#[derive(Clone, Copy)]
struct NoticeTime {
    /// The time of day, for the notice.
    at: UnixTime,
    /// The monotonic clock, for the quiet period.
    now: Instant,
}

impl NoticeTime {
    fn from_clock(at: UnixTime) -> NoticeTime {
        NoticeTime { at, now: Instant::now() }
    }
}

/// The conditions that notices are about.
#[derive(Clone, Copy, Debug, Default)]
struct NoticeConditions {
    slurm_away: bool,
    store_away: bool,
    doubtful: bool,
    lead_in_doubt: bool,
    left_alone: usize,
}

impl NoticeConditions {
    /// Copies the condition that a notice was about from `now`.
    fn copy_condition(&mut self, event: NoticeEvent, now: NoticeConditions) {
        match event {
            NoticeEvent::SlurmAway | NoticeEvent::SlurmBack => self.slurm_away = now.slurm_away,
            NoticeEvent::StoreAway | NoticeEvent::StoreBack => self.store_away = now.store_away,
            NoticeEvent::SlurmDoubtful | NoticeEvent::SlurmClear => self.doubtful = now.doubtful,
            NoticeEvent::LeadInDoubt => self.lead_in_doubt = now.lead_in_doubt,
            _ => self.left_alone = now.left_alone,
        }
    }

    /// The notices, with their texts, that follow from the difference to earlier conditions.
    fn changes_since(self, before: NoticeConditions) -> Vec<(NoticeEvent, String)> {
        let mut notices = Vec::new();
        if self.slurm_away != before.slurm_away {
            let event = if self.slurm_away { NoticeEvent::SlurmAway } else { NoticeEvent::SlurmBack };
            notices.push((event, availability_text(self.slurm_away, "Slurm")));
        }
        if self.store_away != before.store_away {
            let event = if self.store_away { NoticeEvent::StoreAway } else { NoticeEvent::StoreBack };
            notices.push((event, availability_text(self.store_away, "the store")));
        }
        if self.doubtful != before.doubtful {
            notices.push(if self.doubtful {
                let text = "Slurm's snapshots have been doubtful for a minute: nothing is started";
                (NoticeEvent::SlurmDoubtful, text.to_owned())
            } else {
                (NoticeEvent::SlurmClear, "Slurm's snapshots can be trusted again".to_owned())
            });
        }
        if self.lead_in_doubt && !before.lead_in_doubt {
            let text = "the store does not say which daemon leads: do not start a second daemon now";
            notices.push((NoticeEvent::LeadInDoubt, text.to_owned()));
        }
        if self.left_alone > before.left_alone {
            let nodes = counted_noun(self.left_alone as u64, "node");
            let are = if self.left_alone == 1 { "is" } else { "are" };
            let text = format!("{nodes} {are} left alone after failures");
            notices.push((NoticeEvent::NodesLeftAlone, text));
        }
        notices
    }
}

fn availability_text(away: bool, what: &str) -> String {
    if away { format!("{what} does not answer: nothing is started") } else { format!("{what} answers again") }
}

/// What has happened since the last round.
#[derive(Debug, Default)]
pub struct RoundEvents {
    /// Main jobs that started on nodes of malleable jobs, and how long each waited.
    pub delays: Vec<MainDelay>,
    /// How many rows of history were lost, by kind.
    pub lost: BTreeMap<HistoryKind, usize>,
    /// The node-time that malleable jobs held, by account.
    pub spent: BTreeMap<String, NodeTimeUsage>,
}

impl RoundEvents {
    /// The notices, with their texts, that these events call for.
    fn notable_events(&self) -> Vec<(NoticeEvent, String)> {
        let mut notices = Vec::new();
        let worst = self.delays.iter().max_by(|a, b| a.secs.total_cmp(&b.secs));
        if let Some(MainDelay { job, secs, .. }) = worst.filter(|worst| worst.secs > DELAYED_SECS) {
            let text = format!("main job {job} waited {secs:.0} s for nodes that malleable jobs were on");
            notices.push((NoticeEvent::MainJobDelayed, text));
        }
        let lost: usize = self.lost.values().sum();
        if lost > 0 {
            let rows = counted_noun(lost as u64, "row");
            notices.push((NoticeEvent::RowsLost, format!("{rows} of history could not be stored")));
        }
        notices
    }
}

impl NoticeQueue {
    /// The queue for the program or service that the configuration names, if any.
    pub fn new(config: &NotifyConfig) -> NoticeQueue {
        if config.is_disabled() {
            return NoticeQueue { sender: None, receiver: Mutex::default(), history: Mutex::default() };
        }
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        NoticeQueue { sender: Some(sender), receiver: Mutex::new(Some(receiver)), history: Mutex::default() }
    }

    /// Queues notices of conditions that have changed since the last notice about them, and of events. A
    /// change whose notice cannot be queued is tried again in the next round.
    pub fn notify_changes(&self, state: &DaemonState, events: &RoundEvents, at: UnixTime) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let is_doubtful = state.health.has_problem(ProblemTopic::Snapshot);
        history.doubtful_since = history.doubtful_since.or(Some(at)).filter(|_| is_doubtful);
        let present = NoticeConditions {
            slurm_away: state.health.has_problem(ProblemTopic::Slurm),
            store_away: state.health.has_problem(ProblemTopic::Store),
            doubtful: history.doubtful_since.is_some_and(|since| at.secs_since(since) >= DOUBTFUL_SECS),
            lead_in_doubt: state.health.has_problem(ProblemTopic::Lead),
            left_alone: state.round_state.breaker().count_open(at),
        };
        let time = NoticeTime::from_clock(at);
        for (event, text) in present.changes_since(history.reported) {
            if self.queue_notice(&mut history.sent_at, event, text, time) {
                history.reported.copy_condition(event, present);
            }
        }
        history.reported.left_alone = history.reported.left_alone.min(present.left_alone);
        history.reported.lead_in_doubt &= present.lead_in_doubt;
        for (event, text) in events.notable_events() {
            self.queue_notice(&mut history.sent_at, event, text, time);
        }
    }

    /// Queues the notice that this daemon leads from now on.
    pub fn announce_lead(&self, at: UnixTime) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let text = "this daemon leads from now on".to_owned();
        self.queue_notice(&mut history.sent_at, NoticeEvent::Leads, text, NoticeTime::from_clock(at));
    }

    /// Queues a notice. Returns false where the queue is full, or in the quiet period after the last notice
    /// of this kind.
    fn queue_notice(
        &self,
        sent_at: &mut BTreeMap<NoticeEvent, Instant>,
        event: NoticeEvent,
        text: String,
        time: NoticeTime,
    ) -> bool {
        let Some(sender) = &self.sender else { return true };
        if sent_at.get(&event).is_some_and(|last| time.now.duration_since(*last) < QUIET_PERIOD) {
            return false;
        }
        match sender.try_send(AdminNotice::new(event, time.at, text)) {
            Ok(()) => {
                sent_at.insert(event, time.now);
                true
            }
            Err(e) => {
                tracing::warn!(event = event.word(), "a notice is not sent: {e}");
                false
            }
        }
    }
}

/// Delivers notices one after the other. Never returns.
pub(crate) async fn deliver_notices(notices: &NoticeQueue, config: &NotifyConfig) {
    let receiver = notices.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut receiver) = receiver else { return std::future::pending().await };
    while let Some(notice) = receiver.recv().await {
        for failure in deliver_notice(config, &notice).await {
            tracing::warn!(event = notice.event.word(), "{failure}");
        }
    }
}

/// Delivers the notice that this daemon no longer leads. It is the last thing that the daemon does.
pub(crate) async fn notify_lead_lost(config: &NotifyConfig, why: &str, at: UnixTime) {
    let text = format!("this daemon no longer leads, and ends: {why}");
    let notice = AdminNotice::new(NoticeEvent::LeadLost, at, text);
    if tokio::time::timeout(LAST_DELIVERY_TIMEOUT, deliver_notice(config, &notice)).await.is_err() {
        tracing::warn!(event = notice.event.word(), "a notice took longer than {LAST_DELIVERY_TIMEOUT:?}");
    }
}

/// Delivers a test notice. Returns one sentence for each way that failed, which begins with its key in the
/// configuration.
pub async fn send_test_notice(config: &NotifyConfig, at: UnixTime) -> Vec<String> {
    let text = "a test of infill's notices: nothing has happened".to_owned();
    deliver_notice(config, &AdminNotice::new(NoticeEvent::Test, at, text)).await
}

/// Delivers a notice in each configured way. Returns one sentence for each way that failed.
async fn deliver_notice(config: &NotifyConfig, notice: &AdminNotice) -> Vec<String> {
    let text = serde_json::to_string(notice).unwrap_or_default();
    let mut failures = Vec::new();
    if let Some((program, arguments)) = config.command.split_first() {
        match tokio::time::timeout(DELIVERY_TIMEOUT, run_program(program, arguments, &text)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => failures.push(format!("notify.command: {e}")),
            Err(_) => failures.push(format!("notify.command: not finished after {DELIVERY_TIMEOUT:?}")),
        }
    }
    // The URL is read each time, so that a change needs no restart of the daemon.
    match config.notice_url() {
        Ok(url) if url.is_empty() => {}
        Ok(url) => {
            if let Err(e) = post_notice(&url, text).await {
                failures.push(format!("notify.url: {}", error_causes::error_chain(&e)));
            }
        }
        Err(e) => failures.push(error_causes::error_chain(&e)),
    }
    failures
}

/// Runs the program with the notice on its standard input. The program is killed when this future is dropped.
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
        // A program that reads nothing may end before everything is written.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
    let status = child.wait().await.map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("ended with {status}")) }
}

async fn post_notice(url: &str, text: String) -> Result<(), reqwest::Error> {
    install_crypto();
    let client = reqwest::Client::builder().timeout(DELIVERY_TIMEOUT).build()?;
    let request = client.post(url).header("content-type", "application/json").body(text);
    // The URL is a secret, so errors must not contain it.
    let sent = request.send().await.and_then(reqwest::Response::error_for_status);
    sent.map(drop).map_err(reqwest::Error::without_url)
}

#[cfg(test)]
mod tests;
