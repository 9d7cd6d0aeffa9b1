//! A command that stays alive over changes: what its processes have said, and what they are told.

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

/// In this time a process says that it is there. One that does not is frozen: its peers wait in vain.
const ROLL_TIME: Duration = Duration::from_secs(2);

/// For so long a worker whose node is wanted waits for its place among the others to be given up in order.
const PART_TIME: Duration = Duration::from_secs(1);

/// For so long the lead's waits to hear that the others go on without it. If they do not, it has to save.
const LEAD_PART_TIME: Duration = Duration::from_millis(500);

/// Time that a command gets to end that has nothing to save.
const SPARE_GRACE: Duration = Duration::from_secs(2);

/// How often it is told at most that a step lasts suspiciously long.
const STUCK_PAUSE: Duration = Duration::from_secs(2);

/// Longest text of a process that goes on to the daemon, characters.
const MAX_REASON_CHARS: usize = 300;

/// What is known of the processes of the present command that talk to us. Begins anew with each command.
#[derive(Default)]
pub(super) struct LiveCommand {
    /// By local rank.
    talks: BTreeMap<u32, ProcessConversation>,
    /// Whether the command was started as a newcomer, and whether it has no place yet.
    newcomer: bool,
    spare: bool,
    /// Whether it was told to leave.
    parting: bool,
    /// How far it has come.
    newest: NewestGenerations,
    /// The store's port, once known.
    store: Option<u16>,
    /// By which its processes know those of other nodes.
    pub(super) secrets: PeerSecrets,
    /// Whether somebody was told that the command is old.
    warned: bool,
    /// The last roll: its generation and number.
    rolled: (u64, u32),
    /// When all must have answered it.
    roll_by: Option<Instant>,
    /// Whether it was asked to save what is in its memory, and how far that is.
    saving: SaveState,
    /// When it is stopped, whether it has saved or not, and when it must have ended.
    rescue_by: Option<(Instant, Instant)>,
    /// When the command must have left.
    part_by: Option<Instant>,
    /// Our own last moment, if Slurm takes the node.
    leave_by: Option<Instant>,
}

/// The newest generations of some kinds.
#[derive(Default)]
struct NewestGenerations {
    /// For which a store was asked for.
    hosted: u64,
    /// Of which the processes were told.
    told: u64,
    /// In which all of them are.
    joined: u64,
    /// In which something failed, as the daemon knows.
    failed: u64,
    /// In which a step lasts suspiciously long, and when that was said.
    stuck: Option<(u64, Instant)>,
}

/// How far saving is that the agent has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SaveState {
    #[default]
    No,
    Asked,
    Done,
}

/// A conversation with one process.
struct ProcessConversation {
    voice: ProcessChannel,
    ready: bool,
    epoch: u64,
    secs: f64,
    /// Whether it has said anything since the roll was called.
    heard: bool,
}

impl LiveCommand {
    /// Of a command that is about to be started.
    pub(super) fn new(newcomer: bool) -> LiveCommand {
        LiveCommand { newcomer, spare: newcomer, ..LiveCommand::default() }
    }

    /// Whether all of so many processes talk to us, and are warm or have a place.
    fn all_connected(&self, ranks: u32) -> bool {
        self.talks.len() == ranks as usize && self.talks.values().all(|t| t.ready || t.epoch > 0)
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

    /// The generation in which its steps are made, if it is not the one that it was started for.
    pub(super) fn joined_generation(&self) -> Option<u64> {
        (self.newest.joined > 0).then_some(self.newest.joined)
    }

    /// Whether it was asked to save what is in its memory.
    pub(super) fn is_saving(&self) -> bool {
        self.saving != SaveState::No
    }

    /// Whether an end of the command is no decision of its own.
    pub(super) fn was_released(&self) -> bool {
        self.parting
    }

    fn send_to_all(&self, what: &AgentMessage<'_>) {
        self.talks.values().for_each(|talk| talk.voice.send_message(what));
    }

    fn call_roll(&mut self) {
        self.talks.values_mut().for_each(|talk| talk.heard = false);
        self.send_to_all(&AgentMessage::Roll);
        self.roll_by = Some(Instant::now() + ROLL_TIME);
    }

    /// Waits until something has lasted too long.
    pub(super) fn wait_until_overdue(&self) -> impl Future<Output = ()> + use<> {
        let rescue_by = self.rescue_by.map(|(at, _)| at);
        let first = self.roll_by.into_iter().chain(self.part_by).chain(rescue_by).min();
        async move {
            match first {
                Some(at) => sleep_until(at).await,
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
        self.alive.change_mode_for(self.local_ranks())
    }

    /// Takes in what a process of the command says.
    pub(super) fn handle_message(&mut self, heard: ReceivedMessage) {
        let ReceivedMessage { said, voice } = heard;
        if let ProcessMessage::Hello { version, local_rank } = said {
            self.handle_hello(version, local_rank, voice);
            return;
        }
        let Some(talk) = self
            .alive
            .talks
            .values_mut()
            .find(|t: &&mut ProcessConversation| t.voice.conversation == voice.conversation)
        else {
            return;
        };
        talk.heard = true;
        match said {
            // What is said again wakes nobody: processes may say it as often as they like.
            ProcessMessage::Ready if talk.ready => {}
            ProcessMessage::Ready => {
                talk.ready = true;
                self.handle_ready();
            }
            ProcessMessage::Store { port } if self.alive.store == Some(port) => {}
            ProcessMessage::Store { port } => {
                self.alive.store = Some(port);
                self.report_store(self.alive.newest.hosted, port);
            }
            ProcessMessage::Regrouped { epoch, secs } => {
                let secs = secs.values().filter(|s| s.is_finite() && **s >= 0.0).sum();
                (talk.epoch, talk.secs) = (epoch, secs);
                self.handle_regrouped(epoch);
            }
            ProcessMessage::Stuck { epoch } => self.report_stuck(epoch),
            ProcessMessage::Failed { epoch, .. } if epoch <= self.alive.newest.failed => {}
            ProcessMessage::Failed { epoch, error } => {
                self.alive.newest.failed = epoch;
                tracing::warn!(epoch, error, "a step has failed, or meeting the others");
                self.outbox.push(AgentEvent::Failed { generation: epoch });
            }
            ProcessMessage::Hopeless { .. } if self.alive.is_saving() || self.alive.parting => {}
            ProcessMessage::Hopeless { why } => self.handle_hopeless(&why, &voice),
            // Checkpoints that nobody asked for do not count.
            ProcessMessage::Saved if self.alive.saving != SaveState::Asked => {}
            ProcessMessage::Saved => {
                self.alive.saving = SaveState::Done;
                self.stop_after_save();
            }
            ProcessMessage::Error { text } => tracing::warn!(text, "the command did not understand"),
            ProcessMessage::Closed => {
                self.alive.talks.retain(|_, t| t.voice.conversation != voice.conversation)
            }
            ProcessMessage::Hello { .. } | ProcessMessage::Other => {}
        }
    }

    fn handle_hello(&mut self, version: u64, local_rank: u32, voice: ProcessChannel) {
        if version < OLDEST_PROTOCOL_VERSION || local_rank >= self.local_ranks() || self.running.is_none() {
            voice.send_message(&AgentMessage::Error {
                text: "expected version 1 or 2 and a local rank of this node's command",
            });
            return;
        }
        if version < PROTOCOL_VERSION && !std::mem::replace(&mut self.alive.warned, true) {
            tracing::warn!(
                "the command speaks the first version of the control protocol: its processes do not prove who \
                 they are to each other; a newer Python package of infill does"
            );
        }
        voice.send_message(&AgentMessage::Welcome { version: version.min(PROTOCOL_VERSION) });
        let talk = ProcessConversation { voice, ready: false, epoch: 0, secs: 0.0, heard: true };
        self.alive.talks.insert(local_rank, talk);
    }

    fn handle_ready(&mut self) {
        if self.alive.all_connected(self.local_ranks()) {
            self.report_ready();
            self.apply_directive(false);
        }
    }

    /// Says (again) that the command waits for a place, if it does.
    pub(super) fn report_ready(&self) {
        let waits = self.alive.all_connected(self.local_ranks()) && self.alive.newest.joined == 0;
        if let Some((generation, _)) = self.running.as_ref().filter(|_| waits) {
            self.outbox.push(AgentEvent::Ready { generation: *generation });
        }
    }

    /// A process is in this epoch.
    fn handle_regrouped(&mut self, epoch: u64) {
        let all = self.alive.talks.values().all(|t| t.epoch == epoch);
        if !all || self.alive.talks.len() < self.local_ranks() as usize || self.alive.newest.joined == epoch {
            return;
        }
        // The start of a whole generation is measured from its own beginning.
        if self.alive.newcomer || self.alive.newest.joined > 0 {
            let before = self.alive.newest.joined;
            self.report_progress(before);
            self.tally.restart();
            self.opening.next = None;
        }
        self.alive.newest.joined = epoch;
        self.report_joined();
    }

    fn report_joined(&self) {
        let generation = self.alive.newest.joined;
        let talks = self.alive.talks.values();
        let secs = talks.map(|t| t.secs).fold(0.0, f64::max);
        self.outbox.push(AgentEvent::Joined { generation, secs });
    }

    fn report_stuck(&mut self, epoch: u64) {
        let now = Instant::now();
        if !self
            .alive
            .newest
            .stuck
            .is_some_and(|(told, at): (u64, Instant)| told == epoch && now < at + STUCK_PAUSE)
        {
            self.alive.newest.stuck = Some((epoch, now));
            self.outbox.push(AgentEvent::Stuck { generation: epoch });
        }
    }

    fn handle_hopeless(&mut self, why: &str, voice: &ProcessChannel) {
        tracing::warn!(why, "the command cannot go on without a restart");
        let Some((generation, _)) = &self.running else { return };
        let why = why.chars().take(MAX_REASON_CHARS).collect();
        self.outbox.push(AgentEvent::Hopeless { generation: *generation, why });
        if self.is_lead() {
            // Perhaps nobody is there to say so.
            voice.send_message(&AgentMessage::Save);
            self.alive.saving = SaveState::Asked;
        } else if let Some((_, running)) = &self.running {
            // It may hang for good. What it knows the others know, and they may be waiting for its end.
            self.alive.parting = true;
            running.kill();
        }
    }

    /// Tells the processes of a command that stays alive their place. `again`: what they said is told again.
    pub(super) fn place_processes(&mut self, member: &GenerationMember, again: bool) {
        let Some(meeting) = member.meeting.as_ref().filter(|_| self.alive.all_connected(self.local_ranks()))
        else {
            return;
        };
        let epoch = member.generation;
        if let Some((generation, _)) = &mut self.running {
            *generation = epoch;
        }
        self.link.set_running_generation(Some(epoch));
        self.alive.spare = false;
        if meeting.host && self.alive.newest.hosted < epoch {
            (self.alive.newest.hosted, self.alive.store) = (epoch, None);
            self.alive
                .talks
                .values()
                .take(1)
                .for_each(|t| t.voice.send_message(&AgentMessage::Host { epoch }));
        } else if let Some(port) = self.alive.store.filter(|_| meeting.host && again) {
            self.report_store(epoch, port);
        }
        if let Some(store) = meeting.store.as_ref().filter(|_| self.alive.newest.told < epoch)
            && let Some(secret) = self.secret_for(meeting, epoch)
        {
            self.alive.newest.told = epoch;
            self.send_place(member, store, secret.as_ref(), meeting.urgent);
            if meeting.urgent {
                self.alive.call_roll();
            }
        }
        if meeting.rolls > 0 && self.alive.rolled != (epoch, meeting.rolls) {
            self.alive.rolled = (epoch, meeting.rolls);
            self.alive.call_roll();
        }
        if again && self.alive.newest.joined == epoch {
            self.report_joined();
        }
    }

    fn send_place(&self, member: &GenerationMember, store: &str, secret: Option<&Secret>, urgent: bool) {
        let ranks = self.local_ranks();
        let hosts = member.hosts();
        for (local, talk) in &self.alive.talks {
            talk.voice.send_message(&AgentMessage::Regroup {
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

    /// Lets the command go: the others go on without it.
    pub(super) fn release_command(&mut self, epoch: u64, urgent: bool) {
        if self.alive.parting {
            return;
        }
        if let Some((generation, _)) = &mut self.running {
            *generation = epoch;
        }
        self.alive.parting = true;
        self.alive.send_to_all(&AgentMessage::Leave { epoch, urgent });
        self.alive.part_by.get_or_insert(Instant::now() + self.config.grace);
    }

    /// Stops a command that has lost its peers, once it has saved what is in its memory. The signal would end
    /// it before.
    pub(super) fn save_and_stop(&mut self) {
        if self.alive.rescue_by.is_some() {
            return;
        }
        let now = Instant::now();
        let grace = self.config.grace;
        self.alive.rescue_by = Some((now + grace * 3 / 4, now + grace));
        match self.alive.saving {
            SaveState::No => {
                self.alive
                    .talks
                    .values()
                    .take(1)
                    .for_each(|talk| talk.voice.send_message(&AgentMessage::Save));
                self.alive.saving = SaveState::Asked;
            }
            SaveState::Asked => {}
            SaveState::Done => self.stop_after_save(),
        }
    }

    fn stop_after_save(&mut self) {
        if let Some((at, end)) = &mut self.alive.rescue_by {
            let left = end.saturating_duration_since(Instant::now());
            let far = Duration::from_secs(3600);
            // It stays set, so that nobody begins it again.
            *at += far;
            *end += far;
            self.stop_command(left);
        }
    }

    /// Time for the command to stop by its signal.
    pub(super) fn stop_grace(&self) -> Duration {
        if self.alive.spare { self.config.grace.min(SPARE_GRACE) } else { self.config.grace }
    }

    /// Whether the others can go on without this worker's command, if they are told in time: a signal would
    /// make all of them save and end.
    pub(super) fn can_leave_live(&self) -> bool {
        let heard = !self.is_lead() || self.link.away_duration() == Duration::ZERO;
        heard && self.alive.newest.joined > 0 && self.running.is_some()
    }

    /// Begins to leave, within `grace`, while the others go on.
    pub(super) fn begin_live_leave(&mut self, grace: Duration) {
        let now = Instant::now();
        self.alive.leave_by = Some(now + grace);
        let most = if self.is_lead() { LEAD_PART_TIME.min(grace / 4) } else { PART_TIME.min(grace / 2) };
        let part_by = now + most;
        self.alive.part_by = Some(self.alive.part_by.map_or(part_by, |t| t.min(part_by)));
    }

    /// What the daemon says of a worker that leaves: how its command goes.
    pub(super) fn apply_leaving_directive(&mut self) {
        let Some(directive) = self.assignment.as_ref().map(|a| a.directive.clone()) else { return };
        let Some(leave_by) = self.alive.leave_by.filter(|_| self.is_leaving()) else { return };
        match directive {
            Directive::Part { generation, urgent } => {
                if !self.alive.parting {
                    let left = leave_by.saturating_duration_since(Instant::now());
                    self.alive.part_by = Some(Instant::now() + PART_TIME.min(left / 2));
                }
                self.release_command(generation, urgent);
            }
            Directive::Stop { .. } | Directive::Rescue { .. } if !self.alive.parting => {
                self.alive.part_by = None;
                self.stop_command(leave_by.saturating_duration_since(Instant::now()));
            }
            _ => {}
        }
    }

    /// Ends a command that is frozen, or does not leave.
    pub(super) fn kill_overdue(&mut self) {
        let now = Instant::now();
        let frozen = self.alive.talks.values().any(|t| !t.heard);
        if self.alive.rescue_by.is_some_and(|(at, _)| now >= at) {
            self.stop_after_save();
        }
        let missed = self.alive.roll_by.take_if(|t| now >= *t).is_some() && frozen;
        let stays = self.alive.part_by.take_if(|t| now >= *t).is_some();
        let unheard = stays && self.is_lead() && !self.alive.parting;
        if let Some(leave_by) = self.alive.leave_by.filter(|_| unheard && !missed) {
            tracing::warn!("nobody says that the others go on without the lead: saving");
            self.stop_command(leave_by.saturating_duration_since(now));
        } else if let Some((_, running)) = self.running.as_ref().filter(|_| missed || stays) {
            tracing::warn!(missed, stays, "the command does not answer, or does not leave: killing it");
            running.kill();
        }
    }
}
