//! `[safety]`: limits that an administrator sets on infill as a whole.

use serde::{Deserialize, Serialize};

use super::rule::ConfigRule;
use crate::hostlist::expand_hostlist;
use crate::{NodeName, WeeklyBlackout, words};

words! {
    /// What the daemon does when it has delayed too many main jobs.
    #[derive(Default)]
    pub enum DelayAction {
        /// It reports a problem, and goes on.
        Warn = "warn",
        /// It pauses: no job starts or grows until an administrator resumes.
        #[default]
        Pause = "pause",
        /// It drains: all jobs save and leave, and wait until an administrator resumes.
        Drain = "drain",
    }
}

/// `[safety]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SafetyConfig {
    /// What happens when too many main jobs were delayed.
    pub on_delays: DelayAction,
    /// A main job that waited longer than this for nodes of malleable jobs counts as delayed, in seconds.
    pub max_delay_secs: f64,
    /// The number of delayed main jobs within `delay_window_secs` that is too many.
    pub max_delayed_jobs: u32,
    /// The time in which delayed main jobs are counted, in seconds.
    pub delay_window_secs: f64,
    /// The only nodes that may be used, as a host list; empty for all of the malleable partition.
    pub nodes: String,
    /// Most nodes that malleable jobs have together, or GPUs where these are lent; 0 for no limit.
    pub max_nodes: u32,
    /// Most nodes, or GPUs where these are lent, that the malleable jobs of one user have; 0 for no limit.
    pub max_nodes_a_user: u32,
    /// Most malleable jobs that train at a time; 0 for no limit.
    pub max_jobs: u32,
    /// Most malleable jobs of one user that train at a time; 0 for no limit.
    pub max_jobs_a_user: u32,
    /// The times of a week at which no node is used.
    pub blackouts: Vec<WeeklyBlackout>,
}

impl Default for SafetyConfig {
    fn default() -> Self {
        SafetyConfig {
            on_delays: DelayAction::default(),
            max_delay_secs: 30.0,
            max_delayed_jobs: 3,
            delay_window_secs: 3600.0,
            nodes: String::new(),
            max_nodes: 0,
            max_nodes_a_user: 0,
            max_jobs: 0,
            max_jobs_a_user: 0,
            blackouts: Vec::new(),
        }
    }
}

impl SafetyConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::some_secs("safety.max_delay_secs", |c| c.max_delay_secs),
        ConfigRule::some_secs("safety.delay_window_secs", |c| c.delay_window_secs),
        ConfigRule::within_bounds(
            "safety.max_delayed_jobs",
            |c| f64::from(c.max_delayed_jobs),
            1.0..=1000.0,
            "expected 1 to 1000 jobs",
        ),
        ConfigRule::custom_check(
            "safety.nodes",
            |c| {
                let is_wrong = !c.nodes.is_empty() && expand_hostlist(&c.nodes).is_err();
                is_wrong.then(|| format!("{:?}", c.nodes))
            },
            "expected a host list such as \"n[1-4],gpu7\"",
        ),
    ];

    /// The only nodes that may be used, sorted; `None` for all. A list that cannot be read allows none.
    pub fn allowed_nodes(&self) -> Option<Vec<NodeName>> {
        if self.nodes.is_empty() {
            return None;
        }
        let mut nodes = expand_hostlist(&self.nodes).unwrap_or_default();
        nodes.sort_unstable();
        Some(nodes)
    }
}
