//! A compute node as the snapshot shows it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NodeName, NodeType, PlaceShare, Resources};

/// Whether a word of a node's state allows new work on the node. One unusable word suffices to forbid it.
#[derive(Clone, Copy, PartialEq)]
enum NodeUsability {
    Usable,
    Unusable,
}
use NodeUsability::{Unusable, Usable};

/// Slurm's words for states of nodes, sorted.
///
/// PLANNED forbids nothing: it has no time, which may be tomorrow.
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
    let mut index = 0;
    while !matches!(WORDS[index].0.as_bytes(), b"IDLE") {
        index += 1;
    }
    1 << index
};

/// The words that forbid new work, as bits.
const UNUSABLE: u64 = {
    let mut bits = 0;
    let mut index = 0;
    while index < WORDS.len() {
        if matches!(WORDS[index].1, Unusable) {
            bits |= 1 << index;
        }
        index += 1;
    }
    bits
};

/// The bit of a word in [`WORDS`].
fn state_bit(word: &str) -> Option<u64> {
    WORDS.binary_search_by(|(known, _)| (*known).cmp(word)).ok().map(|index| 1 << index)
}

/// A node's state: Slurm's base state and flags, as upper-case words. Unknown words are kept.
///
/// Every round makes one for each node and compares it, so the known words are stored as bits. Its JSON is
/// `{"words": […]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "NodeStateJson", into = "NodeStateJson")]
pub struct NodeState {
    known: u64,
    other: BTreeSet<String>,
}

/// A [`NodeState`] in JSON.
#[derive(Serialize, Deserialize)]
struct NodeStateJson {
    words: BTreeSet<String>,
}

impl From<NodeStateJson> for NodeState {
    fn from(json: NodeStateJson) -> Self {
        NodeState::from_words(json.words)
    }
}

impl From<NodeState> for NodeStateJson {
    fn from(state: NodeState) -> Self {
        NodeStateJson { words: state.words().into_iter().map(str::to_owned).collect() }
    }
}

impl NodeState {
    /// The only word that is not Slurm's: the malleable partition may not have the free rest of the node
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
        let known = WORDS.iter().enumerate().filter(|(index, _)| self.known & (1 << index) != 0);
        let mut words: Vec<&str> = known.map(|(_, (word, _))| *word).collect();
        words.extend(self.other.iter().map(String::as_str));
        words.sort_unstable();
        words
    }

    /// Whether Slurm gave this word.
    pub fn has_word(&self, word: &str) -> bool {
        state_bit(word).map_or_else(|| self.other.contains(word), |bit| self.known & bit != 0)
    }

    /// Adds a word. It is stored in upper case.
    pub fn insert(&mut self, word: &str) {
        if let Some(bit) = state_bit(word) {
            self.known |= bit;
            return;
        }
        let word = word.to_ascii_uppercase();
        match state_bit(&word) {
            Some(bit) => self.known |= bit,
            None => {
                self.other.insert(word);
            }
        }
    }

    /// Removes a word. Returns whether the state had it.
    pub fn remove(&mut self, word: &str) -> bool {
        let had_word = self.has_word(word);
        match state_bit(word) {
            Some(bit) => self.known &= !bit,
            None => {
                self.other.remove(word);
            }
        }
        had_word
    }

    /// Whether nothing runs on the node and no word forbids new work.
    pub fn is_idle(&self) -> bool {
        self.known & IDLE != 0 && self.is_sound()
    }

    /// Whether no word forbids new work. This does not say whether something runs on the node.
    pub fn is_sound(&self) -> bool {
        self.known & UNUSABLE == 0
    }
}

/// In Slurm's form: `DRAIN+IDLE`.
impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.words().join("+"))
    }
}

/// A compute node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The node's name in Slurm.
    pub name: NodeName,
    /// The address at which other nodes reach it: Slurm's NodeAddr.
    pub address: String,
    /// Base state and flags.
    pub state: NodeState,
    /// The partitions that contain the node.
    pub partitions: Vec<String>,
    /// The class of interchangeable nodes that it belongs to.
    pub node_type: NodeType,
    /// The features that it has now. Jobs may ask for them.
    pub features: Vec<String>,
    /// Why the node is drained or down, if someone gave a reason.
    pub reason: Option<String>,
    /// The resources that jobs may have on it; empty if Slurm does not say.
    #[serde(default)]
    pub has: Resources,
    /// The resources that jobs hold on it by Slurm's own sums, which lag some seconds behind the jobs.
    #[serde(default)]
    pub used: Resources,
    /// If it is a place: its share of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<PlaceShare>,
}

impl Node {
    /// An idle node in no partition, whose address is its name.
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
    fn known_words_are_sorted_and_fit_into_the_bits() {
        assert!(WORDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
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
