//! A compute node as the snapshot shows it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NodeName, NodeType, PlaceShare, Resources};

/// Whether a word of a node's state forbids new work on the node, whatever the other words are.
#[derive(Clone, Copy, PartialEq)]
enum NodeUsability {
    Usable,
    Unusable,
}
use NodeUsability::{Unusable, Usable};

/// Slurm's words for states of nodes, sorted.
///
/// PLANNED forbids nothing: it carries no time and may mean tomorrow.
const WORDS: [(&str, NodeUsability); 34] = [
    ("ALLOCATED", Usable),
    ("BLOCKED", Unusable),
    ("CLOUD", Usable),
    ("COMPLETING", Unusable),
    ("DOWN", Unusable),
    ("DRAIN", Unusable),
    ("DYNAMIC_FUTURE", Unusable),
    ("DYNAMIC_NORM", Usable),
    ("ERROR", Unusable),
    ("EXTERNAL", Usable),
    ("FAIL", Unusable),
    ("FUTURE", Unusable),
    ("IDLE", Usable),
    ("INVALID", Unusable),
    ("INVALID_REG", Unusable),
    ("MAINTENANCE", Unusable),
    (NodeState::CAPPED, Unusable),
    ("MIXED", Usable),
    ("NOT_RESPONDING", Unusable),
    ("PARAMETERS", Usable),
    ("PLANNED", Usable),
    ("POWERED_DOWN", Unusable),
    ("POWERING_DOWN", Unusable),
    ("POWERING_UP", Unusable),
    ("POWER_DOWN", Unusable),
    ("POWER_DRAIN", Unusable),
    ("POWER_UP", Unusable),
    ("REBOOT_CANCELED", Unusable),
    ("REBOOT_ISSUED", Unusable),
    ("REBOOT_REQUESTED", Unusable),
    ("RESERVED", Unusable),
    ("RESUME", Usable),
    ("UNDRAIN", Usable),
    ("UNKNOWN", Unusable),
];

/// The bit of the word IDLE.
const IDLE: u64 = {
    let mut at = 0;
    while !matches!(WORDS[at].0.as_bytes(), b"IDLE") {
        at += 1;
    }
    1 << at
};

/// The words that forbid new work, as bits.
const UNUSABLE: u64 = {
    let mut bits = 0;
    let mut at = 0;
    while at < WORDS.len() {
        if matches!(WORDS[at].1, Unusable) {
            bits |= 1 << at;
        }
        at += 1;
    }
    bits
};

/// The bit of a word that we know.
fn state_bit(word: &str) -> Option<u64> {
    WORDS.binary_search_by(|(known, _)| (*known).cmp(word)).ok().map(|at| 1 << at)
}

/// A node's state: Slurm's base state and flags, as upper-case words. Words that we do not know are kept.
///
/// Every round makes one for each node and compares it, so the usual words are bits. Its JSON is `{"words":
/// […]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Shown", into = "Shown")]
pub struct NodeState {
    known: u64,
    other: BTreeSet<String>,
}

/// A [`NodeState`] in JSON.
#[derive(Serialize, Deserialize)]
struct Shown {
    words: BTreeSet<String>,
}

impl From<Shown> for NodeState {
    fn from(shown: Shown) -> Self {
        NodeState::from_words(shown.words)
    }
}

impl From<NodeState> for Shown {
    fn from(state: NodeState) -> Self {
        Shown { words: state.words().into_iter().map(str::to_owned).collect() }
    }
}

impl NodeState {
    /// The one word that is not Slurm's: what is left of the node the malleable partition may not have
    /// (MaxCPUsPerNode).
    pub const CAPPED: &str = "MAX_CPUS_PER_NODE";

    /// Builds a state from Slurm's words.
    pub fn from_words<I: IntoIterator<Item = S>, S: AsRef<str>>(words: I) -> Self {
        let mut state = NodeState::default();
        for word in words {
            state.insert(word.as_ref());
        }
        state
    }

    /// All words that Slurm gave, for example `IDLE` and `PLANNED`, sorted.
    pub fn words(&self) -> Vec<&str> {
        let known = WORDS.iter().enumerate().filter(|(at, _)| self.known & (1 << at) != 0);
        let mut words: Vec<&str> = known.map(|(_, (word, _))| *word).collect();
        words.extend(self.other.iter().map(String::as_str));
        words.sort_unstable();
        words
    }

    /// Whether Slurm gave this word.
    pub fn has_word(&self, word: &str) -> bool {
        state_bit(word).map_or_else(|| self.other.contains(word), |bit| self.known & bit != 0)
    }

    /// Adds a word, in upper case.
    pub fn insert(&mut self, word: &str) {
        if let Some(bit) = state_bit(word) {
            self.known |= bit;
            return;
        }
        let word = word.to_ascii_uppercase();
        match state_bit(&word) {
            Some(bit) => self.known |= bit,
            None => drop(self.other.insert(word)),
        }
    }

    /// Takes a word out; whether it was there.
    pub fn remove(&mut self, word: &str) -> bool {
        let had = self.has_word(word);
        match state_bit(word) {
            Some(bit) => self.known &= !bit,
            None => drop(self.other.remove(word)),
        }
        had
    }

    /// Whether nothing runs here and nothing forbids new work.
    pub fn is_idle(&self) -> bool {
        self.known & IDLE != 0 && self.is_sound()
    }

    /// Whether no flag forbids new work; says nothing about what runs on the node.
    pub fn is_sound(&self) -> bool {
        self.known & UNUSABLE == 0
    }
}

/// As Slurm shows it: `DRAIN+IDLE`.
impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.words().join("+"))
    }
}

/// A compute node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Slurm's name.
    pub name: NodeName,
    /// Where other nodes reach it: Slurm's NodeAddr.
    pub address: String,
    /// Base state and flags.
    pub state: NodeState,
    /// Partitions that contain the node.
    pub partitions: Vec<String>,
    /// The class of interchangeable nodes that it belongs to.
    pub node_type: NodeType,
    /// Features that it has now, which jobs may ask for.
    pub features: Vec<String>,
    /// Why the node is drained or down, if somebody said so.
    pub reason: Option<String>,
    /// What jobs may have of it; nothing where Slurm does not say.
    #[serde(default)]
    pub has: Resources,
    /// What jobs have of it by Slurm's own sums, which lag some seconds behind the jobs.
    #[serde(default)]
    pub used: Resources,
    /// Where it is a place: what it has of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<PlaceShare>,
}

impl Node {
    /// A node that is idle, at the address that its name is, and in no partition.
    pub fn new(name: NodeName, node_type: NodeType) -> Node {
        Node {
            address: name.to_string(),
            name,
            state: NodeState::from_words(["IDLE"]),
            partitions: Vec::new(),
            node_type,
            features: Vec::new(),
            reason: None,
            has: Resources::default(),
            used: Resources::default(),
            share: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_are_sorted_so_that_they_are_found() {
        assert!(WORDS.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(WORDS.len() <= 64);
    }

    #[test]
    fn known_and_unknown_words_are_kept_alike() {
        let mut state = NodeState::from_words(["idle", "SNOOZING", "PLANNED", "drain"]);
        assert_eq!(state.to_string(), "DRAIN+IDLE+PLANNED+SNOOZING");
        assert!(
            state.has_word("SNOOZING")
                && state.has_word("IDLE")
                && !state.has_word("DOWN")
                && !state.has_word("DREAMING")
        );
        assert!(!state.is_sound());
        let json = r#"{"words":["DRAIN","IDLE","PLANNED","SNOOZING"]}"#;
        assert_eq!(serde_json::to_string(&state).unwrap(), json);
        assert_eq!(serde_json::from_str::<NodeState>(json).unwrap(), state);
        assert!(state.remove("DRAIN") && !state.remove("DRAIN") && state.remove("SNOOZING"));
        assert!(state.is_idle());
        assert_eq!(state.words(), ["IDLE", "PLANNED"]);
    }

    #[test]
    fn each_unusable_word_forbids_new_work() {
        for word in ["DOWN", "ERROR", "FAIL", "MAINTENANCE", "POWERED_DOWN", "RESERVED", "UNKNOWN"] {
            assert!(!NodeState::from_words(["IDLE", word]).is_idle(), "{word}");
        }
        assert!(NodeState::from_words(["IDLE", "PLANNED", "CLOUD", "WHAT_IS_THIS"]).is_idle());
    }
}
