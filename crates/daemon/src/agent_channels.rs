//! The channels to the agents: the last assignment of each agent, and which credential may read it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::rate_limit::{RateLimit, TokenBucket};
use infill_api::AgentAssignment;
use infill_lifecycle::fleet::{AgentId, AgentOrder};
use infill_model::{Directive, Secret, UnixTime};

/// Most polls that one agent may have open. It needs one. Others may remain from broken connections.
const MAX_POLLS: usize = 4;

/// Limit on the reports of one agent. It sends one a second, and a burst where many wings arrive at once. It
/// keeps a report that is refused.
const REPORT_RATE: RateLimit = RateLimit { burst: 100, every: Duration::from_millis(50) };

/// Why an agent gets no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// There is no such agent, or its pass is wrong.
    Unknown,
    /// The agent has too many polls open.
    Crowded,
    /// The agent reports too often. It may report again after this time.
    TooOften(Duration),
}

/// How much of an order may be sent before the record of the job is stored. All directives except `Run`,
/// `Regroup` and `Part` are sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendScope {
    /// No new generation and no new wing.
    NothingNew,
    /// New generations, so that training goes on while the store fails. No new wing.
    Generations,
    /// Everything.
    Everything,
}

/// A request that was signed with the key of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedRequest {
    /// The session. Its key proves that this daemon made it, not whose it is or whether it is still valid.
    pub session: String,
    /// The number of the request: 0 for a hello, greater for all others.
    pub counter: u64,
}

/// How an agent proves that it is the one that said hello.
#[derive(Clone, Debug)]
pub enum AgentPass {
    /// A signed request of its session.
    Session(ProvedRequest),
    /// A secret, for agents without support for sessions. Anyone who sees it can use it.
    Bearer(Secret),
}

/// What an agent asks for. The requests of each kind have a counter of their own, because both kinds run at
/// the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Poll,
    Report,
}

/// What an agent's pass is compared with.
enum AgentKey {
    /// The session, and the numbers of its last poll and its last report.
    Session { name: String, polled: u64, reported: u64 },
    /// The hash of the secret.
    Bearer([u8; 32]),
}

/// The channel to one agent.
struct AgentChannel {
    key: AgentKey,
    sender: watch::Sender<AgentAssignment>,
    reports: TokenBucket,
}

impl AgentChannel {
    /// Whether this pass is the agent's own, and its request is not a repetition. Takes the same time for a
    /// right secret and a wrong one.
    fn verify_pass(&mut self, pass: &AgentPass, kind: RequestKind) -> bool {
        match (&mut self.key, pass) {
            (AgentKey::Bearer(hash), AgentPass::Bearer(secret)) => {
                bool::from(hash.ct_eq(&hash_secret(secret)))
            }
            (AgentKey::Session { name, polled, reported }, AgentPass::Session(proved)) => {
                let last = if kind == RequestKind::Poll { polled } else { reported };
                let is_new = *name == proved.session && proved.counter > *last;
                if is_new {
                    *last = proved.counter;
                }
                is_new
            }
            _ => false,
        }
    }
}

struct ChannelTable {
    channels: BTreeMap<AgentId, AgentChannel>,
    /// Version of the last assignment of any agent.
    version: u64,
}

/// The channels to all agents.
pub struct AgentChannels(Mutex<ChannelTable>);

impl AgentChannels {
    /// A table without channels. Its versions begin above those that agents got from an earlier daemon.
    pub fn new(now: UnixTime) -> Self {
        let version = u64::try_from(now.0).unwrap_or(0) << 20;
        AgentChannels(Mutex::new(ChannelTable { channels: BTreeMap::new(), version }))
    }

    /// Every change replaces values, so a thread that panicked leaves them consistent.
    fn lock_table(&self) -> MutexGuard<'_, ChannelTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a channel to an agent that has proved its identity. It replaces the agent's earlier channel. The
    /// first assignment is to hold.
    pub fn open_channel(&self, agent: AgentId, pass: AgentPass) {
        let mut table = self.lock_table();
        table.version += 1;
        let first = AgentAssignment {
            version: table.version,
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
        let channel = AgentChannel { key, sender: watch::Sender::new(first), reports };
        table.channels.insert(agent, channel);
    }

    /// Checks that a report with this pass may be accepted.
    ///
    /// # Errors
    /// When the pass is not the agent's own, the request is a repetition, or the agent reports too often.
    pub fn check_report(&self, agent: &AgentId, pass: &AgentPass, now: Instant) -> Result<(), ChannelError> {
        let mut table = self.lock_table();
        let channel = table.channels.get_mut(agent).ok_or(ChannelError::Unknown)?;
        if !channel.verify_pass(pass, RequestKind::Report) {
            return Err(ChannelError::Unknown);
        }
        channel.reports.try_take(REPORT_RATE, now).map_err(ChannelError::TooOften)
    }

    /// The agent's assignment now and all later ones.
    ///
    /// # Errors
    /// When the pass is not the agent's own, the request is a repetition, or too many polls are open already.
    pub fn watch_assignment(
        &self,
        agent: &AgentId,
        pass: &AgentPass,
    ) -> Result<watch::Receiver<AgentAssignment>, ChannelError> {
        let mut table = self.lock_table();
        let channel = table.channels.get_mut(agent).ok_or(ChannelError::Unknown)?;
        if !channel.verify_pass(pass, RequestKind::Poll) {
            return Err(ChannelError::Unknown);
        }
        if channel.sender.receiver_count() >= MAX_POLLS {
            return Err(ChannelError::Crowded);
        }
        Ok(channel.sender.subscribe())
    }

    /// Sends orders to their agents. An order that changes nothing wakes no agent.
    pub fn send_orders(&self, orders: Vec<AgentOrder>, scope: SendScope) {
        let mut table = self.lock_table();
        let ChannelTable { channels, version } = &mut *table;
        for order in orders {
            if let Some(channel) = channels.get(&order.agent) {
                channel
                    .sender
                    .send_if_modified(|assignment| update_assignment(assignment, order, scope, version));
            }
        }
    }

    /// Closes the channels of all agents for which `is_present` is false.
    pub fn retain_agents(&self, is_present: impl Fn(&AgentId) -> bool) {
        self.lock_table().channels.retain(|agent, _| is_present(agent));
    }
}

/// Applies as much of an order to the assignment as `scope` allows. Returns whether that changes it.
fn update_assignment(
    assignment: &mut AgentAssignment,
    order: AgentOrder,
    scope: SendScope,
    version: &mut u64,
) -> bool {
    let runs = matches!(order.directive, Directive::Run(_) | Directive::Regroup(_) | Directive::Part { .. });
    let may_send_directive = !runs || scope >= SendScope::Generations;
    let directive = if may_send_directive { order.directive } else { assignment.directive.clone() };
    let may_send_wings = scope >= SendScope::Everything;
    let wings = if may_send_wings { order.wings } else { assignment.wings.clone() };
    let notice = order.notice;
    let is_changed =
        assignment.directive != directive || assignment.wings != wings || assignment.notice != notice;
    if is_changed {
        *version += 1;
        *assignment = AgentAssignment { version: *version, directive, wings, notice };
    }
    is_changed
}

fn hash_secret(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

#[cfg(test)]
mod tests;
