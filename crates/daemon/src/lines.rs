//! The agents' lines: what each was told last, and who may ask.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::allowance::{Budget, Rate};
use infill_api::Assignment;
use infill_lifecycle::fleet::{Agent, Word};
use infill_model::{Directive, Secret, UnixTime};

/// Most polls that one agent may have open. It needs one; another may be left from a connection that broke.
const MOST_POLLS: usize = 4;

/// Reports of one agent. It sends one a second, and a burst where many wings come at once; what is sent away
/// stays with it.
const REPORTS: Rate = Rate { burst: 100, every: Duration::from_millis(50) };

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLine {
    /// Nobody knows this agent with this pass.
    Unknown,
    /// It has too many polls open.
    Crowded,
    /// It reports too often, and may again after this time.
    TooOften(Duration),
}

/// How much agents may be told before it is stored. What stops or holds a command is said at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// Nothing new: neither a generation nor a wing.
    Stop,
    /// New generations, for training goes on while the store fails; but no wing.
    Run,
    /// Everything.
    Order,
}

/// A request that was proved with the key of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved {
    /// The session. Its key says that we have made it, and not whose it is or whether it still counts.
    pub session: String,
    /// The request's number. Of a hello 0, of all others more.
    pub counter: u64,
}

/// With what an agent shows that it is the one that said hello.
#[derive(Clone, Debug)]
pub enum AgentPass {
    /// Its session.
    Session(Proved),
    /// A secret, which whoever sees it can use: of agents that know of no sessions.
    Bearer(Secret),
}

/// What an agent asks for. Requests of each kind are counted for themselves, for they go on side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Poll,
    Report,
}

/// By what an agent is known.
enum Key {
    Session { name: String, polled: u64, reported: u64 },
    Bearer([u8; 32]),
}

/// An agent's line to the daemon.
struct Line {
    key: Key,
    sender: watch::Sender<Assignment>,
    reports: Budget,
}

impl Line {
    /// Whether this is the agent's, and has not come before. Takes the same time whether a secret is right or
    /// wrong.
    fn admits(&mut self, pass: &AgentPass, kind: Kind) -> bool {
        match (&mut self.key, pass) {
            (Key::Bearer(known), AgentPass::Bearer(secret)) => bool::from(known.ct_eq(&hash(secret))),
            (Key::Session { name, polled, reported }, AgentPass::Session(proved)) => {
                let last = if kind == Kind::Poll { polled } else { reported };
                let is_new = *name == proved.session && proved.counter > *last;
                *last = if is_new { proved.counter } else { *last };
                is_new
            }
            _ => false,
        }
    }
}

struct Open {
    lines: BTreeMap<Agent, Line>,
    version: u64,
}

/// All agents' lines.
pub struct Lines(Mutex<Open>);

impl Lines {
    /// No lines yet. Versions begin above those that agents of an earlier daemon have seen.
    pub fn new(now: UnixTime) -> Self {
        let version = u64::try_from(now.0).unwrap_or(0) << 20;
        Lines(Mutex::new(Open { lines: BTreeMap::new(), version }))
    }

    /// A thread that panicked while holding the lock leaves the values whole: every change replaces values.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a line to an agent that has proved itself, in place of the one that it had. It is held at first.
    pub fn connect(&self, agent: Agent, pass: AgentPass) {
        let mut open = self.open();
        open.version += 1;
        let first =
            Assignment { version: open.version, directive: Directive::Hold, wings: Vec::new(), notice: None };
        let key = match pass {
            AgentPass::Session(Proved { session, counter }) => {
                Key::Session { name: session, polled: counter, reported: counter }
            }
            AgentPass::Bearer(secret) => Key::Bearer(hash(&secret)),
        };
        let reports = Budget::new(REPORTS, Instant::now());
        let line = Line { key, sender: watch::Sender::new(first), reports };
        open.lines.insert(agent, line);
    }

    /// Whether a report with this pass is to be heard.
    ///
    /// # Errors
    /// Where it is not this agent's, or one of before, or the agent reports in a loop.
    pub fn hears(&self, agent: &Agent, pass: &AgentPass, now: Instant) -> Result<(), NoLine> {
        let mut open = self.open();
        let line = open.lines.get_mut(agent).ok_or(NoLine::Unknown)?;
        if !line.admits(pass, Kind::Report) {
            return Err(NoLine::Unknown);
        }
        line.reports.take(REPORTS, now).map_err(NoLine::TooOften)
    }

    /// The agent's assignments from now on.
    ///
    /// # Errors
    /// Where the pass is not its own or has come before, or too many polls are open already.
    pub fn watch(&self, agent: &Agent, pass: &AgentPass) -> Result<watch::Receiver<Assignment>, NoLine> {
        let mut open = self.open();
        let line = open.lines.get_mut(agent).ok_or(NoLine::Unknown)?;
        if !line.admits(pass, Kind::Poll) {
            return Err(NoLine::Unknown);
        }
        if line.sender.receiver_count() >= MOST_POLLS {
            return Err(NoLine::Crowded);
        }
        Ok(line.sender.subscribe())
    }

    /// Tells agents what they shall do. A word that says nothing new wakes nobody.
    pub fn tell(&self, words: Vec<Word>, permit: Permit) {
        let mut open = self.open();
        let Open { lines, version } = &mut *open;
        for word in words {
            if let Some(line) = lines.get(&word.agent) {
                line.sender.send_if_modified(|told| update(told, word, permit, version));
            }
        }
    }

    /// Closes the lines of all but these agents.
    pub fn keep(&self, is_here: impl Fn(&Agent) -> bool) {
        self.open().lines.retain(|agent, _| is_here(agent));
    }
}

/// Makes the assignment what the word says, as far as that may be told. Says whether that changes it.
fn update(told: &mut Assignment, word: Word, permit: Permit, version: &mut u64) -> bool {
    let runs = matches!(word.directive, Directive::Run(_) | Directive::Regroup(_) | Directive::Part { .. });
    let directive = if runs && permit < Permit::Run { told.directive.clone() } else { word.directive };
    let wings = if permit < Permit::Order { told.wings.clone() } else { word.wings };
    let notice = word.notice;
    let changed = told.directive != directive || told.wings != wings || told.notice != notice;
    if changed {
        *version += 1;
        *told = Assignment { version: *version, directive, wings, notice };
    }
    changed
}

fn hash(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

#[cfg(test)]
mod tests;
