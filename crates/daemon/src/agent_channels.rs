//! The agents' lines: what each was told last, and who may ask.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::rate_limit::{RateLimit, TokenBucket};
use infill_api::AgentAssignment;
use infill_lifecycle::fleet::{AgentId, AgentOrder};
use infill_model::{Directive, Secret, UnixTime};

/// Most polls that one agent may have open. It needs one; another may be left from a connection that broke.
const MAX_POLLS: usize = 4;

/// Reports of one agent. It sends one a second, and a burst where many wings come at once; what is sent away
/// stays with it.
const REPORT_RATE: RateLimit = RateLimit { burst: 100, every: Duration::from_millis(50) };

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// Nobody knows this agent with this pass.
    Unknown,
    /// It has too many polls open.
    Crowded,
    /// It reports too often, and may again after this time.
    TooOften(Duration),
}

/// How much agents may be told before it is stored. What stops or holds a command is said at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderPermit {
    /// Nothing new: neither a generation nor a wing.
    Stop,
    /// New generations, for training goes on while the store fails; but no wing.
    Run,
    /// Everything.
    Order,
}

/// A request that was proved with the key of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedRequest {
    /// The session. Its key says that we have made it, and not whose it is or whether it still counts.
    pub session: String,
    /// The request's number. Of a hello 0, of all others more.
    pub counter: u64,
}

/// With what an agent shows that it is the one that said hello.
#[derive(Clone, Debug)]
pub enum AgentPass {
    /// Its session.
    Session(ProvedRequest),
    /// A secret, which whoever sees it can use: of agents that know of no sessions.
    Bearer(Secret),
}

/// What an agent asks for. Requests of each kind are counted for themselves, for they go on side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Poll,
    Report,
}

/// By what an agent is known.
enum AgentKey {
    Session { name: String, polled: u64, reported: u64 },
    Bearer([u8; 32]),
}

/// An agent's line to the daemon.
struct AgentChannel {
    key: AgentKey,
    sender: watch::Sender<AgentAssignment>,
    reports: TokenBucket,
}

impl AgentChannel {
    /// Whether this is the agent's, and has not come before. Takes the same time whether a secret is right or
    /// wrong.
    fn verify_pass(&mut self, pass: &AgentPass, kind: RequestKind) -> bool {
        match (&mut self.key, pass) {
            (AgentKey::Bearer(known), AgentPass::Bearer(secret)) => {
                bool::from(known.ct_eq(&hash_secret(secret)))
            }
            (AgentKey::Session { name, polled, reported }, AgentPass::Session(proved)) => {
                let last = if kind == RequestKind::Poll { polled } else { reported };
                let is_new = *name == proved.session && proved.counter > *last;
                *last = if is_new { proved.counter } else { *last };
                is_new
            }
            _ => false,
        }
    }
}

struct ChannelTable {
    lines: BTreeMap<AgentId, AgentChannel>,
    version: u64,
}

/// All agents' lines.
pub struct AgentChannels(Mutex<ChannelTable>);

impl AgentChannels {
    /// No lines yet. Versions begin above those that agents of an earlier daemon have seen.
    pub fn new(now: UnixTime) -> Self {
        let version = u64::try_from(now.0).unwrap_or(0) << 20;
        AgentChannels(Mutex::new(ChannelTable { lines: BTreeMap::new(), version }))
    }

    /// A thread that panicked while holding the lock leaves the values whole: every change replaces values.
    fn lock_table(&self) -> MutexGuard<'_, ChannelTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a line to an agent that has proved itself, in place of the one that it had. It is held at first.
    pub fn open_channel(&self, agent: AgentId, pass: AgentPass) {
        let mut open = self.lock_table();
        open.version += 1;
        let first = AgentAssignment {
            version: open.version,
            directive: Directive::Hold,
            wings: Vec::new(),
            notice: None,
        };
        let key = match pass {
            AgentPass::Session(ProvedRequest { session, counter }) => {
                AgentKey::Session { name: session, polled: counter, reported: counter }
            }
            AgentPass::Bearer(secret) => AgentKey::Bearer(hash_secret(&secret)),
        };
        let reports = TokenBucket::new(REPORT_RATE, Instant::now());
        let line = AgentChannel { key, sender: watch::Sender::new(first), reports };
        open.lines.insert(agent, line);
    }

    /// Whether a report with this pass is to be heard.
    ///
    /// # Errors
    /// Where it is not this agent's, or one of before, or the agent reports in a loop.
    pub fn check_report(&self, agent: &AgentId, pass: &AgentPass, now: Instant) -> Result<(), ChannelError> {
        let mut open = self.lock_table();
        let line = open.lines.get_mut(agent).ok_or(ChannelError::Unknown)?;
        if !line.verify_pass(pass, RequestKind::Report) {
            return Err(ChannelError::Unknown);
        }
        line.reports.try_take(REPORT_RATE, now).map_err(ChannelError::TooOften)
    }

    /// The agent's assignments from now on.
    ///
    /// # Errors
    /// Where the pass is not its own or has come before, or too many polls are open already.
    pub fn watch_assignment(
        &self,
        agent: &AgentId,
        pass: &AgentPass,
    ) -> Result<watch::Receiver<AgentAssignment>, ChannelError> {
        let mut open = self.lock_table();
        let line = open.lines.get_mut(agent).ok_or(ChannelError::Unknown)?;
        if !line.verify_pass(pass, RequestKind::Poll) {
            return Err(ChannelError::Unknown);
        }
        if line.sender.receiver_count() >= MAX_POLLS {
            return Err(ChannelError::Crowded);
        }
        Ok(line.sender.subscribe())
    }

    /// Tells agents what they shall do. A word that says nothing new wakes nobody.
    pub fn send_orders(&self, words: Vec<AgentOrder>, permit: OrderPermit) {
        let mut open = self.lock_table();
        let ChannelTable { lines, version } = &mut *open;
        for word in words {
            if let Some(line) = lines.get(&word.agent) {
                line.sender.send_if_modified(|told| update_assignment(told, word, permit, version));
            }
        }
    }

    /// Closes the lines of all but these agents.
    pub fn retain_agents(&self, is_here: impl Fn(&AgentId) -> bool) {
        self.lock_table().lines.retain(|agent, _| is_here(agent));
    }
}

/// Makes the assignment what the word says, as far as that may be told. Says whether that changes it.
fn update_assignment(
    told: &mut AgentAssignment,
    word: AgentOrder,
    permit: OrderPermit,
    version: &mut u64,
) -> bool {
    let runs = matches!(word.directive, Directive::Run(_) | Directive::Regroup(_) | Directive::Part { .. });
    let directive = if runs && permit < OrderPermit::Run { told.directive.clone() } else { word.directive };
    let wings = if permit < OrderPermit::Order { told.wings.clone() } else { word.wings };
    let notice = word.notice;
    let changed = told.directive != directive || told.wings != wings || told.notice != notice;
    if changed {
        *version += 1;
        *told = AgentAssignment { version: *version, directive, wings, notice };
    }
    changed
}

fn hash_secret(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

#[cfg(test)]
mod tests;
