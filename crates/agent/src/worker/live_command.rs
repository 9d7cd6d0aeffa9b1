//! A command that stays alive over changes: takes in the messages of its processes, and answers them.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use infill_model::{AgentEvent, Directive, GenerationMember, Secret};

use super::super::control::{
    AgentMessage, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, ProcessChannel, ProcessMessage, ReceivedMessage,
};
use super::super::decide::ChangeMode;
use super::Worker;
use super::peer_secrets::PeerSecrets;

/// How long a process has to answer a roll call. If it does not, it is frozen, and its peers wait in vain.
const ROLL_TIME: Duration = Duration::from_secs(2);

/// How long a worker whose node is wanted waits for an orderly leave from the others.
const PART_TIME: Duration = Duration::from_secs(1);

/// How long a lead whose node is wanted waits for the answer that the others go on without it. Without the
/// answer it has to save.
const LEAD_PART_TIME: Duration = Duration::from_millis(500);

/// Time that a command without anything to save gets to end.
const SPARE_GRACE: Duration = Duration::from_secs(2);

/// Shortest time between two reports that a step takes suspiciously long.
const STUCK_PAUSE: Duration = Duration::from_secs(2);

/// Longest text of a process that is passed on to the daemon, characters.
const MAX_REASON_CHARS: usize = 300;

/// The state of the present command's processes that talk to us. It is reset for each command.
#[derive(Default)]
pub(super) struct LiveCommand {
    /// The conversations with the processes, by local rank.
    conversations: BTreeMap<u32, ProcessConversation>,
    /// Whether the command was started as a newcomer.
    newcomer: bool,
    /// Whether it is a newcomer without a place.
    spare: bool,
    /// Whether it was asked to leave.
    parting: bool,
    /// How far it has come.
    newest: NewestGenerations,
    /// The store's port, once known.
    store: Option<u16>,
    /// The secrets with which its processes and those of other nodes recognise each other.
    pub(super) secrets: PeerSecrets,
    /// Whether the log says already that the command speaks an old version of the protocol.
    warned: bool,
    /// The last roll call of the daemon: its generation and number.
    last_roll: (u64, u32),
    /// When all processes must have answered the roll call.
    roll_by: Option<Instant>,
    /// Whether the agent has asked it to save what is in its memory.
    saving: SaveState,
    /// When it is stopped even if it has not saved, and when it must have ended.
    rescue_by: Option<(Instant, Instant)>,
    /// When the command must have left.
    part_by: Option<Instant>,
    /// When this agent must have left, if Slurm takes the node.
    leave_by: Option<Instant>,
}

/// The newest generations in which certain things happened; 0 for none.
#[derive(Default)]
struct NewestGenerations {
    /// A process was asked to host a store for it.
    hosted: u64,
    /// The processes were notified of their places in it.
    notified: u64,
    /// All processes have joined it.
    joined: u64,
    /// Something failed in it, and the daemon was notified.
    failed: u64,
    /// A step takes suspiciously long in it, and when that was reported.
    stuck: Option<(u64, Instant)>,
}

/// How far a save is that the agent has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SaveState {
    #[default]
    No,
    Asked,
    Done,
}

/// A conversation with one process.
struct ProcessConversation {
    channel: ProcessChannel,
    /// Whether it is warm.
    ready: bool,
    /// The epoch in which it has its place; 0 for none.
    epoch: u64,
    /// Seconds that it took to join that epoch.
    secs: f64,
    /// Whether it has sent anything since the last roll call.
    answered: bool,
}

impl LiveCommand {
    /// The state for a command that is about to be started.
    pub(super) fn new(newcomer: bool) -> LiveCommand {
        LiveCommand { newcomer, spare: newcomer, ..LiveCommand::default() }
    }

    /// Whether all `ranks` processes talk to us, and are warm or have a place.
    fn all_connected(&self, ranks: u32) -> bool {
        self.conversations.len() == ranks as usize
            && self.conversations.values().all(|t| t.ready || t.epoch > 0)
    }

    /// How the command takes changes.
    pub(super) fn change_mode_for(&self, ranks: u32) -> ChangeMode {
        match self {
            LiveCommand { parting: true, .. } => ChangeMode::Parting,
            LiveCommand { spare: true, .. } => ChangeMode::Spare,
            _ if self.all_connected(ranks) => ChangeMode::Live,
            _ => ChangeMode::Plain,
        }
    }

    /// The generation in which it makes its steps, if it is not the one that it was started for.
    pub(super) fn joined_generation(&self) -> Option<u64> {
        (self.newest.joined > 0).then_some(self.newest.joined)
    }

    /// Whether it was asked to save what is in its memory.
    pub(super) fn is_saving(&self) -> bool {
        self.saving != SaveState::No
    }

    /// Whether the command was asked to leave, so that its end is not its own decision.
    pub(super) fn was_released(&self) -> bool {
        self.parting
    }

    fn send_to_all(&self, message: &AgentMessage<'_>) {
        self.conversations.values().for_each(|conversation| conversation.channel.send_message(message));
    }

    /// Sends a message to the first process only.
    fn send_to_first(&self, message: &AgentMessage<'_>) {
        if let Some(conversation) = self.conversations.values().next() {
            conversation.channel.send_message(message);
        }
    }

    fn call_roll(&mut self) {
        self.conversations.values_mut().for_each(|conversation| conversation.answered = false);
        self.send_to_all(&AgentMessage::Roll);
        self.roll_by = Some(Instant::now() + ROLL_TIME);
    }

    /// Waits until the first deadline has passed.
    pub(super) fn wait_until_overdue(&self) -> impl Future<Output = ()> + use<> {
        let rescue_by = self.rescue_by.map(|(stop_at, _)| stop_at);
        let deadline = self.roll_by.into_iter().chain(self.part_by).chain(rescue_by).min();
        async move {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        }
    }
}

impl Worker {
    fn local_ranks(&self) -> u32 {
        self.config.common.local_ranks()
    }

    /// How the present command takes changes.
    pub(super) fn change_mode(&self) -> ChangeMode {
        self.live.change_mode_for(self.local_ranks())
    }

    /// Takes in a message of one of the command's processes.
    pub(super) fn handle_message(&mut self, received: ReceivedMessage) {
        let ReceivedMessage { message, channel } = received;
        if let ProcessMessage::Hello { version, local_rank } = message {
            self.handle_hello(version, local_rank, channel);
            return;
        }
        let Some(conversation) =
            self.live.conversations.values_mut().find(|t| t.channel.number == channel.number)
        else {
            return;
        };
        conversation.answered = true;
        match message {
            // A repeated message changes nothing: processes may send it as often as they like.
            ProcessMessage::Ready if conversation.ready => {}
            ProcessMessage::Ready => {
                conversation.ready = true;
                self.handle_ready();
            }
            ProcessMessage::Store { port } if self.live.store == Some(port) => {}
            ProcessMessage::Store { port } => {
                self.live.store = Some(port);
                self.report_store(self.live.newest.hosted, port);
            }
            ProcessMessage::Regrouped { epoch, secs } => {
                let secs = secs.values().filter(|s| s.is_finite() && **s >= 0.0).sum();
                conversation.epoch = epoch;
                conversation.secs = secs;
                self.handle_regrouped(epoch);
            }
            ProcessMessage::Stuck { epoch } => self.report_stuck(epoch),
            ProcessMessage::Failed { epoch, .. } if epoch <= self.live.newest.failed => {}
            ProcessMessage::Failed { epoch, error } => {
                self.live.newest.failed = epoch;
                tracing::warn!(
                    epoch,
                    error,
                    "a step of the command has failed, or joining the other processes"
                );
                self.outbox.push(AgentEvent::Failed { generation: epoch });
            }
            ProcessMessage::Hopeless { .. } if self.live.is_saving() || self.live.parting => {}
            ProcessMessage::Hopeless { why } => self.handle_hopeless(&why, &channel),
            // A checkpoint that the agent did not ask for does not count.
            ProcessMessage::Saved if self.live.saving != SaveState::Asked => {}
            ProcessMessage::Saved => {
                self.live.saving = SaveState::Done;
                self.stop_after_save();
            }
            ProcessMessage::Error { text } => {
                tracing::warn!(text, "the command did not understand a message of infill")
            }
            ProcessMessage::Closed => {
                self.live.conversations.retain(|_, t| t.channel.number != channel.number)
            }
            ProcessMessage::Hello { .. } | ProcessMessage::Other => {}
        }
    }

    fn handle_hello(&mut self, version: u64, local_rank: u32, channel: ProcessChannel) {
        if version < OLDEST_PROTOCOL_VERSION || local_rank >= self.local_ranks() || self.running.is_none() {
            channel.send_message(&AgentMessage::Error {
                text: "expected version 1 or 2 and a local rank of this node's command",
            });
            return;
        }
        if version < PROTOCOL_VERSION && !std::mem::replace(&mut self.live.warned, true) {
            tracing::warn!(
                "the command speaks the first version of the control protocol: its processes do not prove who \
                 they are to each other; a newer Python package of infill does"
            );
        }
        channel.send_message(&AgentMessage::Welcome { version: version.min(PROTOCOL_VERSION) });
        let conversation = ProcessConversation { channel, ready: false, epoch: 0, secs: 0.0, answered: true };
        self.live.conversations.insert(local_rank, conversation);
    }

    fn handle_ready(&mut self) {
        if self.live.all_connected(self.local_ranks()) {
            self.report_ready();
            self.apply_directive(false);
        }
    }

    /// Reports (again) that the command waits for a place, if it does.
    pub(super) fn report_ready(&self) {
        let waits = self.live.all_connected(self.local_ranks()) && self.live.newest.joined == 0;
        if let Some((generation, _)) = self.running.as_ref().filter(|_| waits) {
            self.outbox.push(AgentEvent::Ready { generation: *generation });
        }
    }

    /// Notes that a process has joined this epoch, and reports when all have.
    fn handle_regrouped(&mut self, epoch: u64) {
        let all = self.live.conversations.values().all(|t| t.epoch == epoch);
        if !all
            || self.live.conversations.len() < self.local_ranks() as usize
            || self.live.newest.joined == epoch
        {
            return;
        }
        // If the command was started for this generation, its time counts from that start.
        if self.live.newcomer || self.live.newest.joined > 0 {
            let before = self.live.newest.joined;
            self.report_progress(before);
            self.tally.restart();
            self.startup.next = None;
        }
        self.live.newest.joined = epoch;
        self.report_joined();
    }

    fn report_joined(&self) {
        let generation = self.live.newest.joined;
        let conversations = self.live.conversations.values();
        let secs = conversations.map(|t| t.secs).fold(0.0, f64::max);
        self.outbox.push(AgentEvent::Joined { generation, secs });
    }

    fn report_stuck(&mut self, epoch: u64) {
        let now = Instant::now();
        if let Some((generation, reported_at)) = self.live.newest.stuck
            && generation == epoch
            && now < reported_at + STUCK_PAUSE
        {
            return;
        }
        self.live.newest.stuck = Some((epoch, now));
        self.outbox.push(AgentEvent::Stuck { generation: epoch });
    }

    fn handle_hopeless(&mut self, why: &str, channel: &ProcessChannel) {
        tracing::warn!(why, "the command cannot go on without a restart");
        let Some((generation, _)) = &self.running else { return };
        let why = why.chars().take(MAX_REASON_CHARS).collect();
        self.outbox.push(AgentEvent::Hopeless { generation: *generation, why });
        if self.is_lead() {
            // Perhaps no daemon is there to ask for it.
            channel.send_message(&AgentMessage::Save);
            self.live.saving = SaveState::Asked;
        } else if let Some((_, running)) = &self.running {
            // It may hang for good. The others have the same state, and may be waiting for its end.
            self.live.parting = true;
            running.kill();
        }
    }

    /// Notifies the processes of a command that stays alive of their places. `again`: repeats the reports of
    /// what they have said.
    pub(super) fn place_processes(&mut self, member: &GenerationMember, again: bool) {
        let Some(meeting) = member.meeting.as_ref().filter(|_| self.live.all_connected(self.local_ranks()))
        else {
            return;
        };
        let epoch = member.generation;
        if let Some((generation, _)) = &mut self.running {
            *generation = epoch;
        }
        self.link.set_running_generation(Some(epoch));
        self.live.spare = false;
        if meeting.host && self.live.newest.hosted < epoch {
            self.live.newest.hosted = epoch;
            self.live.store = None;
            self.live.send_to_first(&AgentMessage::Host { epoch });
        } else if let Some(port) = self.live.store.filter(|_| meeting.host && again) {
            self.report_store(epoch, port);
        }
        if let Some(store) = meeting.store.as_ref().filter(|_| self.live.newest.notified < epoch)
            && let Some(secret) = self.secret_for(meeting, epoch)
        {
            self.live.newest.notified = epoch;
            self.send_place(member, store, secret.as_ref(), meeting.urgent);
            if meeting.urgent {
                self.live.call_roll();
            }
        }
        if meeting.rolls > 0 && self.live.last_roll != (epoch, meeting.rolls) {
            self.live.last_roll = (epoch, meeting.rolls);
            self.live.call_roll();
        }
        if again && self.live.newest.joined == epoch {
            self.report_joined();
        }
    }

    fn send_place(&self, member: &GenerationMember, store: &str, secret: Option<&Secret>, urgent: bool) {
        let ranks = self.local_ranks();
        let hosts = member.hosts();
        for (local, conversation) in &self.live.conversations {
            conversation.channel.send_message(&AgentMessage::Regroup {
                epoch: member.generation,
                rank: member.rank.saturating_mul(ranks).saturating_add(*local),
                world: member.world.saturating_mul(ranks),
                store,
                secret,
                urgent,
                nodes: &hosts,
            });
        }
    }

    /// Asks the command to leave; the others go on without it.
    pub(super) fn release_command(&mut self, epoch: u64, urgent: bool) {
        if self.live.parting {
            return;
        }
        if let Some((generation, _)) = &mut self.running {
            *generation = epoch;
        }
        self.live.parting = true;
        self.live.send_to_all(&AgentMessage::Leave { epoch, urgent });
        self.live.part_by.get_or_insert(Instant::now() + self.config.grace);
    }

    /// Stops a command that has lost its peers, once it has saved what is in its memory. The rescale signal
    /// would end it before that.
    pub(super) fn save_and_stop(&mut self) {
        if self.live.rescue_by.is_some() {
            return;
        }
        let now = Instant::now();
        let grace = self.config.grace;
        self.live.rescue_by = Some((now + grace * 3 / 4, now + grace));
        match self.live.saving {
            SaveState::No => {
                self.live.send_to_first(&AgentMessage::Save);
                self.live.saving = SaveState::Asked;
            }
            SaveState::Asked => {}
            SaveState::Done => self.stop_after_save(),
        }
    }

    fn stop_after_save(&mut self) {
        if let Some((stop_at, end)) = &mut self.live.rescue_by {
            let left = end.saturating_duration_since(Instant::now());
            let far = Duration::from_secs(3600);
            // It stays set, so that the rescue does not begin again.
            *stop_at += far;
            *end += far;
            self.stop_command(left);
        }
    }

    /// Time that the command gets to stop after the rescale signal.
    pub(super) fn stop_grace(&self) -> Duration {
        if self.live.spare { self.config.grace.min(SPARE_GRACE) } else { self.config.grace }
    }

    /// Whether the others can go on without this worker's command, if they are notified in time. A signal
    /// would make all of them save and end.
    pub(super) fn can_leave_live(&self) -> bool {
        let is_daemon_reachable = !self.is_lead() || self.link.away_duration() == Duration::ZERO;
        is_daemon_reachable && self.live.newest.joined > 0 && self.running.is_some()
    }

    /// Begins to leave, within `grace`, while the others go on.
    pub(super) fn begin_live_leave(&mut self, grace: Duration) {
        let now = Instant::now();
        self.live.leave_by = Some(now + grace);
        let part_time = if self.is_lead() { LEAD_PART_TIME.min(grace / 4) } else { PART_TIME.min(grace / 2) };
        let part_by = now + part_time;
        self.live.part_by = Some(self.live.part_by.map_or(part_by, |t| t.min(part_by)));
    }

    /// Follows the daemon's directive while the worker leaves: how its command ends.
    pub(super) fn apply_leaving_directive(&mut self) {
        let Some(directive) = self.assignment.as_ref().map(|a| a.directive.clone()) else { return };
        let Some(leave_by) = self.live.leave_by.filter(|_| self.is_leaving()) else { return };
        match directive {
            Directive::Part { generation, urgent } => {
                if !self.live.parting {
                    let left = leave_by.saturating_duration_since(Instant::now());
                    self.live.part_by = Some(Instant::now() + PART_TIME.min(left / 2));
                }
                self.release_command(generation, urgent);
            }
            Directive::Stop { .. } | Directive::Rescue { .. } if !self.live.parting => {
                self.live.part_by = None;
                self.stop_command(leave_by.saturating_duration_since(Instant::now()));
            }
            _ => {}
        }
    }

    /// Ends a command that is frozen, or does not leave in time.
    pub(super) fn kill_overdue(&mut self) {
        let now = Instant::now();
        let frozen = self.live.conversations.values().any(|t| !t.answered);
        if self.live.rescue_by.is_some_and(|(stop_at, _)| now >= stop_at) {
            self.stop_after_save();
        }
        let missed = self.live.roll_by.take_if(|t| now >= *t).is_some() && frozen;
        let stays = self.live.part_by.take_if(|t| now >= *t).is_some();
        let is_unanswered = stays && self.is_lead() && !self.live.parting;
        if let Some(leave_by) = self.live.leave_by.filter(|_| is_unanswered && !missed) {
            tracing::warn!("no answer that the others go on without the lead: saving");
            self.stop_command(leave_by.saturating_duration_since(now));
        } else if let Some((_, running)) = self.running.as_ref().filter(|_| missed || stays) {
            tracing::warn!(missed, stays, "the command does not answer, or does not leave: killing it");
            running.kill();
        }
    }
}
