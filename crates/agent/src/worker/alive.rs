//! A command that stays alive over changes: what its processes have said, and what they are told.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use infill_model::{AgentEvent, Directive, GenerationMember, Secret};

use super::super::control::{FIRST_VERSION, Heard, Said, Tell, VERSION, Voice};
use super::super::duty::Way;
use super::Worker;
use super::secrets::Secrets;

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
const MOST_CHARS: usize = 300;

/// What is known of the processes of the present command that talk to us. Begins anew with each command.
#[derive(Default)]
pub(super) struct Alive {
    /// By local rank.
    talks: BTreeMap<u32, Talk>,
    /// Whether the command was started as a newcomer, and whether it has no place yet.
    newcomer: bool,
    spare: bool,
    /// Whether it was told to leave.
    parting: bool,
    /// How far it has come.
    newest: Newest,
    /// The store's port, once known.
    store: Option<u16>,
    /// By which its processes know those of other nodes.
    pub(super) secrets: Secrets,
    /// Whether somebody was told that the command is old.
    warned: bool,
    /// The last roll: its generation and number.
    rolled: (u64, u32),
    /// When all must have answered it.
    roll_by: Option<Instant>,
    /// Whether it was asked to save what is in its memory, and how far that is.
    saving: Saving,
    /// When it is stopped, whether it has saved or not, and when it must have ended.
    rescue_by: Option<(Instant, Instant)>,
    /// When the command must have left.
    part_by: Option<Instant>,
    /// Our own last moment, if Slurm takes the node.
    leave_by: Option<Instant>,
}

/// The newest generations of some kinds.
#[derive(Default)]
struct Newest {
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
enum Saving {
    #[default]
    No,
    Asked,
    Done,
}

/// A conversation with one process.
struct Talk {
    voice: Voice,
    ready: bool,
    epoch: u64,
    secs: f64,
    /// Whether it has said anything since the roll was called.
    heard: bool,
}

impl Alive {
    /// Of a command that is about to be started.
    pub(super) fn new(newcomer: bool) -> Alive {
        Alive { newcomer, spare: newcomer, ..Alive::default() }
    }

    /// Whether all of so many processes talk to us, and are warm or have a place.
    fn is_whole(&self, ranks: u32) -> bool {
        self.talks.len() == ranks as usize && self.talks.values().all(|t| t.ready || t.epoch > 0)
    }

    /// How the command takes changes.
    pub(super) fn way(&self, ranks: u32) -> Way {
        match self {
            Alive { parting: true, .. } => Way::Parting,
            Alive { spare: true, .. } => Way::Spare,
            _ if self.is_whole(ranks) => Way::Live,
            _ => Way::Plain,
        }
    }

    /// The generation in which its steps are made, if it is not the one that it was started for.
    pub(super) fn generation(&self) -> Option<u64> {
        (self.newest.joined > 0).then_some(self.newest.joined)
    }

    /// Whether it was asked to save what is in its memory.
    pub(super) fn is_saving(&self) -> bool {
        self.saving != Saving::No
    }

    /// Whether an end of the command is no decision of its own.
    pub(super) fn was_let_go(&self) -> bool {
        self.parting
    }

    fn say(&self, what: &Tell<'_>) {
        self.talks.values().for_each(|talk| talk.voice.say(what));
    }

    fn call_the_roll(&mut self) {
        self.talks.values_mut().for_each(|talk| talk.heard = false);
        self.say(&Tell::Roll);
        self.roll_by = Some(Instant::now() + ROLL_TIME);
    }

    /// Waits until something has lasted too long.
    pub(super) fn overdue(&self) -> impl Future<Output = ()> + use<> {
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
    fn ranks(&self) -> u32 {
        self.config.common.local_ranks()
    }

    /// How the present command takes changes.
    pub(super) fn way(&self) -> Way {
        self.alive.way(self.ranks())
    }

    /// Takes in what a process of the command says.
    pub(super) fn heard(&mut self, heard: Heard) {
        let Heard { said, voice } = heard;
        if let Said::Hello { version, local_rank } = said {
            self.greet(version, local_rank, voice);
            return;
        }
        let by_it = |t: &&mut Talk| t.voice.conversation == voice.conversation;
        let Some(talk) = self.alive.talks.values_mut().find(by_it) else { return };
        talk.heard = true;
        match said {
            // What is said again wakes nobody: processes may say it as often as they like.
            Said::Ready if talk.ready => {}
            Said::Ready => {
                talk.ready = true;
                self.ready();
            }
            Said::Store { port } if self.alive.store == Some(port) => {}
            Said::Store { port } => {
                self.alive.store = Some(port);
                self.tell_store(self.alive.newest.hosted, port);
            }
            Said::Regrouped { epoch, secs } => {
                let secs = secs.values().filter(|s| s.is_finite() && **s >= 0.0).sum();
                (talk.epoch, talk.secs) = (epoch, secs);
                self.regrouped(epoch);
            }
            Said::Stuck { epoch } => self.stuck(epoch),
            Said::Failed { epoch, .. } if epoch <= self.alive.newest.failed => {}
            Said::Failed { epoch, error } => {
                self.alive.newest.failed = epoch;
                tracing::warn!(epoch, error, "a step has failed, or meeting the others");
                self.outbox.push(AgentEvent::Failed { generation: epoch });
            }
            Said::Hopeless { .. } if self.alive.is_saving() || self.alive.parting => {}
            Said::Hopeless { why } => self.hopeless(&why, &voice),
            // Checkpoints that nobody asked for do not count.
            Said::Saved if self.alive.saving != Saving::Asked => {}
            Said::Saved => {
                self.alive.saving = Saving::Done;
                self.end_rescue();
            }
            Said::Error { text } => tracing::warn!(text, "the command did not understand"),
            Said::Closed => self.alive.talks.retain(|_, t| t.voice.conversation != voice.conversation),
            Said::Hello { .. } | Said::Other => {}
        }
    }

    fn greet(&mut self, version: u64, local_rank: u32, voice: Voice) {
        if version < FIRST_VERSION || local_rank >= self.ranks() || self.running.is_none() {
            voice.say(&Tell::Error {
                text: "expected version 1 or 2 and a local rank of this node's command",
            });
            return;
        }
        if version < VERSION && !std::mem::replace(&mut self.alive.warned, true) {
            tracing::warn!(
                "the command speaks the first version of the control protocol: its processes do not prove who \
                 they are to each other; a newer Python package of infill does"
            );
        }
        voice.say(&Tell::Welcome { version: version.min(VERSION) });
        let talk = Talk { voice, ready: false, epoch: 0, secs: 0.0, heard: true };
        self.alive.talks.insert(local_rank, talk);
    }

    fn ready(&mut self) {
        if self.alive.is_whole(self.ranks()) {
            self.tell_ready();
            self.act(false);
        }
    }

    /// Says (again) that the command waits for a place, if it does.
    pub(super) fn tell_ready(&self) {
        let waits = self.alive.is_whole(self.ranks()) && self.alive.newest.joined == 0;
        if let Some((generation, _)) = self.running.as_ref().filter(|_| waits) {
            self.outbox.push(AgentEvent::Ready { generation: *generation });
        }
    }

    /// A process is in this epoch.
    fn regrouped(&mut self, epoch: u64) {
        let all = self.alive.talks.values().all(|t| t.epoch == epoch);
        if !all || self.alive.talks.len() < self.ranks() as usize || self.alive.newest.joined == epoch {
            return;
        }
        // The start of a whole generation is measured from its own beginning.
        if self.alive.newcomer || self.alive.newest.joined > 0 {
            let before = self.alive.newest.joined;
            self.tell_progress(before);
            self.tally.restart();
            self.opening.next = None;
        }
        self.alive.newest.joined = epoch;
        self.tell_joined();
    }

    fn tell_joined(&self) {
        let (generation, talks) = (self.alive.newest.joined, self.alive.talks.values());
        let secs = talks.map(|t| t.secs).fold(0.0, f64::max);
        self.outbox.push(AgentEvent::Joined { generation, secs });
    }

    fn stuck(&mut self, epoch: u64) {
        let now = Instant::now();
        let lately = |(told, at): (u64, Instant)| told == epoch && now < at + STUCK_PAUSE;
        if !self.alive.newest.stuck.is_some_and(lately) {
            self.alive.newest.stuck = Some((epoch, now));
            self.outbox.push(AgentEvent::Stuck { generation: epoch });
        }
    }

    fn hopeless(&mut self, why: &str, voice: &Voice) {
        tracing::warn!(why, "the command cannot go on without a restart");
        let Some((generation, _)) = &self.running else { return };
        let why = why.chars().take(MOST_CHARS).collect();
        self.outbox.push(AgentEvent::Hopeless { generation: *generation, why });
        if self.is_lead() {
            // Perhaps nobody is there to say so.
            voice.say(&Tell::Save);
            self.alive.saving = Saving::Asked;
        } else if let Some((_, running)) = &self.running {
            // It may hang for good. What it knows the others know, and they may be waiting for its end.
            self.alive.parting = true;
            running.kill();
        }
    }

    /// Tells the processes of a command that stays alive their place. `again`: what they said is told again.
    pub(super) fn meet(&mut self, member: &GenerationMember, again: bool) {
        let Some(meeting) = member.meeting.as_ref().filter(|_| self.alive.is_whole(self.ranks())) else {
            return;
        };
        let epoch = member.generation;
        if let Some((generation, _)) = &mut self.running {
            *generation = epoch;
        }
        self.link.set_running(Some(epoch));
        self.alive.spare = false;
        if meeting.host && self.alive.newest.hosted < epoch {
            (self.alive.newest.hosted, self.alive.store) = (epoch, None);
            self.alive.talks.values().take(1).for_each(|t| t.voice.say(&Tell::Host { epoch }));
        } else if let Some(port) = self.alive.store.filter(|_| meeting.host && again) {
            self.tell_store(epoch, port);
        }
        if let Some(store) = meeting.store.as_ref().filter(|_| self.alive.newest.told < epoch)
            && let Some(secret) = self.secret_of(meeting, epoch)
        {
            self.alive.newest.told = epoch;
            self.tell_place(member, store, secret.as_ref(), meeting.urgent);
            if meeting.urgent {
                self.alive.call_the_roll();
            }
        }
        if meeting.rolls > 0 && self.alive.rolled != (epoch, meeting.rolls) {
            self.alive.rolled = (epoch, meeting.rolls);
            self.alive.call_the_roll();
        }
        if again && self.alive.newest.joined == epoch {
            self.tell_joined();
        }
    }

    fn tell_place(&self, member: &GenerationMember, store: &str, secret: Option<&Secret>, urgent: bool) {
        let (ranks, hosts) = (self.ranks(), member.hosts());
        for (local, talk) in &self.alive.talks {
            talk.voice.say(&Tell::Regroup {
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
    pub(super) fn part(&mut self, epoch: u64, urgent: bool) {
        if self.alive.parting {
            return;
        }
        if let Some((generation, _)) = &mut self.running {
            *generation = epoch;
        }
        self.alive.parting = true;
        self.alive.say(&Tell::Leave { epoch, urgent });
        self.alive.part_by.get_or_insert(Instant::now() + self.config.grace);
    }

    /// Stops a command that has lost its peers, once it has saved what is in its memory. The signal would end
    /// it before.
    pub(super) fn rescue(&mut self) {
        if self.alive.rescue_by.is_some() {
            return;
        }
        let (now, grace) = (Instant::now(), self.config.grace);
        self.alive.rescue_by = Some((now + grace * 3 / 4, now + grace));
        match self.alive.saving {
            Saving::No => {
                self.alive.talks.values().take(1).for_each(|talk| talk.voice.say(&Tell::Save));
                self.alive.saving = Saving::Asked;
            }
            Saving::Asked => {}
            Saving::Done => self.end_rescue(),
        }
    }

    fn end_rescue(&mut self) {
        if let Some((at, end)) = &mut self.alive.rescue_by {
            let (left, far) = (end.saturating_duration_since(Instant::now()), Duration::from_secs(3600));
            // It stays set, so that nobody begins it again.
            *at += far;
            *end += far;
            self.stop(left);
        }
    }

    /// Time for the command to stop by its signal.
    pub(super) fn grace(&self) -> Duration {
        if self.alive.spare { self.config.grace.min(SPARE_GRACE) } else { self.config.grace }
    }

    /// Whether the others can go on without this worker's command, if they are told in time: a signal would
    /// make all of them save and end.
    pub(super) fn may_part(&self) -> bool {
        let heard = !self.is_lead() || self.link.away() == Duration::ZERO;
        heard && self.alive.newest.joined > 0 && self.running.is_some()
    }

    /// Begins to leave, within `grace`, while the others go on.
    pub(super) fn leave_alive(&mut self, grace: Duration) {
        let now = Instant::now();
        self.alive.leave_by = Some(now + grace);
        let most = if self.is_lead() { LEAD_PART_TIME.min(grace / 4) } else { PART_TIME.min(grace / 2) };
        let part_by = now + most;
        self.alive.part_by = Some(self.alive.part_by.map_or(part_by, |t| t.min(part_by)));
    }

    /// What the daemon says of a worker that leaves: how its command goes.
    pub(super) fn act_leaving(&mut self) {
        let Some(directive) = self.assignment.as_ref().map(|a| a.directive.clone()) else { return };
        let Some(leave_by) = self.alive.leave_by.filter(|_| self.is_leaving()) else { return };
        match directive {
            Directive::Part { generation, urgent } => {
                if !self.alive.parting {
                    let left = leave_by.saturating_duration_since(Instant::now());
                    self.alive.part_by = Some(Instant::now() + PART_TIME.min(left / 2));
                }
                self.part(generation, urgent);
            }
            Directive::Stop { .. } | Directive::Rescue { .. } if !self.alive.parting => {
                self.alive.part_by = None;
                self.stop(leave_by.saturating_duration_since(Instant::now()));
            }
            _ => {}
        }
    }

    /// Ends a command that is frozen, or does not leave.
    pub(super) fn end_overdue(&mut self) {
        let now = Instant::now();
        let frozen = self.alive.talks.values().any(|t| !t.heard);
        if self.alive.rescue_by.is_some_and(|(at, _)| now >= at) {
            self.end_rescue();
        }
        let missed = self.alive.roll_by.take_if(|t| now >= *t).is_some() && frozen;
        let stays = self.alive.part_by.take_if(|t| now >= *t).is_some();
        let unheard = stays && self.is_lead() && !self.alive.parting;
        if let Some(leave_by) = self.alive.leave_by.filter(|_| unheard && !missed) {
            tracing::warn!("nobody says that the others go on without the lead: saving");
            self.stop(leave_by.saturating_duration_since(now));
        } else if let Some((_, running)) = self.running.as_ref().filter(|_| missed || stays) {
            tracing::warn!(missed, stays, "the command does not answer, or does not leave: killing it");
            running.kill();
        }
    }
}
