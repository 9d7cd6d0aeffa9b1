//! The administrator's limits that a plan must keep (`[safety]`). The planner keeps them because gaps, sizes
//! and blocked jobs already follow them. The checker judges each plan by these values alone.

use rustc_hash::FxHashSet;

use infill_model::config::SafetyConfig;
use infill_model::{BlackoutSpan, NodeName};

/// Limits on all malleable jobs and on each user. Own nodes of main jobs count for none of them.
#[derive(Clone, Debug, Default)]
pub struct SiteLimits {
    /// The only hosts that may be used; `None` for all.
    pub allowed: Option<FxHashSet<NodeName>>,
    /// The blackout that is on or comes next.
    pub blackout: Option<BlackoutSpan>,
    /// Most nodes or places of all jobs together; `None` for no limit.
    pub max_nodes: Option<u32>,
    /// Most nodes or places of one user's jobs.
    pub max_nodes_a_user: Option<u32>,
    /// Most jobs that train at a time.
    pub max_jobs: Option<u32>,
    /// Most jobs of one user that train at a time.
    pub max_jobs_a_user: Option<u32>,
    /// Nodes or places that main jobs extended by wings have of their own.
    pub own: FxHashSet<NodeName>,
}

impl SiteLimits {
    /// The limits of a configuration, without a blackout and without own nodes.
    pub fn from_config(config: &SafetyConfig) -> SiteLimits {
        let limit = |value: u32| Some(value).filter(|max| *max > 0);
        SiteLimits {
            allowed: config.allowed_nodes().map(|nodes| nodes.into_iter().collect()),
            blackout: None,
            max_nodes: limit(config.max_nodes),
            max_nodes_a_user: limit(config.max_nodes_a_user),
            max_jobs: limit(config.max_jobs),
            max_jobs_a_user: limit(config.max_jobs_a_user),
            own: FxHashSet::default(),
        }
    }

    /// Whether jobs or users are limited.
    pub(crate) fn has_job_limits(&self) -> bool {
        self.max_nodes_a_user.is_some() || self.max_jobs.is_some() || self.max_jobs_a_user.is_some()
    }
}
