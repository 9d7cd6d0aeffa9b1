//! Policies, which decide which jobs get the idle nodes.

mod freetrain;
mod infill;
mod knapsack;
mod malletrain;
mod simple;
mod snapshot_mirror;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::cluster::ClusterState;
use super::job::{ChangeCause, SimJob};
use super::queue::{Foresight, MainQueue, NodeIx};
use infill_model::{JobId, RescaleCosts, config::Config};

pub(crate) use freetrain::FreeTrain;
pub(crate) use infill::InfillPolicy;
pub(crate) use malletrain::MalleTrain;
pub(crate) use simple::{EqualShare, FcfsMax};

/// The state that a policy sees in a round.
#[derive(Clone, Copy, Debug)]
pub struct PolicyView<'a> {
    /// The moment, s on the log's clock.
    pub now: i64,
    /// The owner of each node.
    pub cluster: &'a ClusterState,
    /// Nodes whose use has changed since the last round.
    pub changed: &'a BTreeSet<NodeIx>,
    /// The main queue, for its plans as far as [`AllocationPolicy::foresight`] allows.
    pub queue: &'a MainQueue,
    /// Malleable jobs that have not ended.
    pub jobs: &'a BTreeMap<JobId, SimJob>,
    /// The costs of rescales.
    pub costs: &'a RescaleCosts,
}

/// The nodes that a policy wants for one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The job.
    pub job: JobId,
    /// Its nodes, the lead's first.
    pub nodes: Vec<NodeIx>,
    /// Why the job is changed.
    pub cause: ChangeCause,
}

/// Decides which jobs get the idle nodes.
pub trait AllocationPolicy: Send {
    /// Its name.
    fn name(&self) -> String;

    /// The changes to make now. A job without a target stays as it is.
    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target>;

    /// When it needs a round even if nothing happens, s; `None` for never.
    fn wake_at(&self) -> Option<i64> {
        None
    }

    /// The part of the main queue's future that it may use.
    fn foresight(&self) -> Foresight {
        Foresight::None
    }

    /// Whether its rescales take time.
    fn pays_rescales(&self) -> bool {
        true
    }

    /// Whether a job that loses its first node has to start again.
    fn has_lead(&self) -> bool {
        false
    }

    /// Whether it needs [`AllocationPolicy::record_progress`].
    fn learns_rates(&self) -> bool {
        false
    }

    /// Records the samples that a job made in `secs` seconds. Returns whether it needs a round now.
    fn record_progress(&mut self, _job: &SimJob, _samples: f64, _secs: f64, _now: i64) -> bool {
        false
    }

    /// Records how long a job took to leave nodes that the policy took from it: seconds until the next job
    /// can have them.
    fn record_leaving(&mut self, _job: &SimJob, _secs: f64, _now: i64) {}

    /// Records that a job has ended.
    fn job_ended(&mut self, _job: &SimJob, _now: i64) {}

    /// The number of its plans that were refused, and the largest proved gap to the optimum of a plan.
    fn plan_defects(&self) -> (u64, f64) {
        (0, 0.0)
    }
}

/// The name of a policy with its parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyName {
    /// infill, which learns the curves.
    Infill,
    /// infill with given curves.
    InfillKnown,
    /// infill with given curves, but without backfill's plans.
    InfillBlind,
    /// infill with given curves and the true ends of all windows of an idle log.
    InfillOracle,
    /// The published MILP with this T_fwd, s, and given curves.
    FreeTrain(f64),
    /// The published MILP without curves.
    FreeTrainLinear(f64),
    /// The published MILP with the published profiling: sizes 4, 3, 2 and 1.
    MalleTrain(f64),
    /// The same number of nodes for each job.
    EqualShare,
    /// As many nodes as it can use for the first job, then for the next.
    FcfsMax,
    /// An upper bound: the optimum at every event if rescales cost nothing.
    Bound,
}

/// Forward-looking time of the published MILP, s.
pub const DEFAULT_TFWD_SECS: f64 = 10.0;

/// A text that does not name a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a policy; there are infill, infill-known, infill-blind, infill-oracle, freetrain[@SECS], \
     freetrain-linear[@SECS], malletrain[@SECS], equal-share, fcfs-max, bound"
)]
pub struct UnknownPolicy(pub String);

impl PolicyName {
    /// Parses a name. `default_tfwd` is the forward-looking time, s, if the text has none.
    ///
    /// # Errors
    /// If there is no policy of this name, or if the time is not a positive number up to 1e9.
    pub fn parse(text: &str, default_tfwd: f64) -> Result<PolicyName, UnknownPolicy> {
        PolicyName::parse_known(text, default_tfwd).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }

    fn parse_known(text: &str, default_tfwd: f64) -> Option<PolicyName> {
        let (name, secs) = match text.split_once('@') {
            Some((name, secs)) => (name, Some(secs.parse::<f64>().ok()?)),
            None => (text, None),
        };
        let tfwd = secs.unwrap_or(default_tfwd);
        let policy = match (name, secs) {
            ("freetrain" | "freetrain-linear" | "malletrain", _) if !(tfwd > 0.0 && tfwd <= 1e9) => {
                return None;
            }
            ("freetrain", _) => PolicyName::FreeTrain(tfwd),
            ("freetrain-linear", _) => PolicyName::FreeTrainLinear(tfwd),
            ("malletrain", _) => PolicyName::MalleTrain(tfwd),
            ("infill", None) => PolicyName::Infill,
            ("infill-known", None) => PolicyName::InfillKnown,
            ("infill-blind", None) => PolicyName::InfillBlind,
            ("infill-oracle", None) => PolicyName::InfillOracle,
            ("equal-share", None) => PolicyName::EqualShare,
            ("fcfs-max", None) => PolicyName::FcfsMax,
            ("bound", None) => PolicyName::Bound,
            _ => return None,
        };
        Some(policy)
    }

    /// Builds the policy. infill's policies use the site's configuration.
    pub fn build_policy(self, config: &Config) -> Box<dyn AllocationPolicy> {
        match self {
            PolicyName::Infill
            | PolicyName::InfillKnown
            | PolicyName::InfillBlind
            | PolicyName::InfillOracle => Box::new(InfillPolicy::new(self, config)),
            PolicyName::FreeTrain(t) => Box::new(FreeTrain::with_curves(self, t)),
            PolicyName::FreeTrainLinear(t) => Box::new(FreeTrain::without_curves(self, t)),
            PolicyName::Bound => Box::new(FreeTrain::upper_bound(self)),
            PolicyName::MalleTrain(t) => Box::new(MalleTrain::new(self, t)),
            PolicyName::EqualShare => Box::new(EqualShare),
            PolicyName::FcfsMax => Box::new(FcfsMax),
        }
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;
    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        PolicyName::parse(text, DEFAULT_TFWD_SECS)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyName::Infill => f.write_str("infill"),
            PolicyName::InfillKnown => f.write_str("infill-known"),
            PolicyName::InfillBlind => f.write_str("infill-blind"),
            PolicyName::InfillOracle => f.write_str("infill-oracle"),
            PolicyName::FreeTrain(t) => write_with_tfwd(f, "freetrain", *t),
            PolicyName::FreeTrainLinear(t) => write_with_tfwd(f, "freetrain-linear", *t),
            PolicyName::MalleTrain(t) => write_with_tfwd(f, "malletrain", *t),
            PolicyName::EqualShare => f.write_str("equal-share"),
            PolicyName::FcfsMax => f.write_str("fcfs-max"),
            PolicyName::Bound => f.write_str("bound"),
        }
    }
}

/// Writes a name, and its forward-looking time if that is not the default.
fn write_with_tfwd(f: &mut fmt::Formatter<'_>, name: &str, secs: f64) -> fmt::Result {
    if secs == DEFAULT_TFWD_SECS { f.write_str(name) } else { write!(f, "{name}@{secs}") }
}

/// Targets that give jobs these sizes without migration. A job gives up the nodes that it got last. Free
/// nodes are taken by ascending number.
fn targets_for_sizes(view: &PolicyView<'_>, sizes: &BTreeMap<JobId, u32>) -> Vec<Target> {
    let mut free: BTreeSet<NodeIx> = view.cluster.free_nodes().clone();
    let mut changes = Vec::new();
    for (id, job) in view.jobs {
        let wanted = sizes.get(id).copied().unwrap_or(0) as usize;
        if wanted < job.nodes.len() {
            let (kept, given) = job.nodes.split_at(wanted);
            free.extend(given);
            changes.push(Target { job: *id, nodes: kept.to_vec(), cause: ChangeCause::Rescale });
        }
    }
    for (id, job) in view.jobs {
        let wanted = sizes.get(id).copied().unwrap_or(0) as usize;
        if wanted > job.nodes.len() {
            let more: Vec<NodeIx> = free.iter().copied().take(wanted - job.nodes.len()).collect();
            for node in &more {
                free.remove(node);
            }
            let nodes = job.nodes.iter().copied().chain(more).collect();
            changes.push(Target { job: *id, nodes, cause: ChangeCause::Rescale });
        }
    }
    changes
}
