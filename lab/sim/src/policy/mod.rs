//! Policies: who gets the idle nodes.

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

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct PolicyView<'a> {
    /// The moment, s on the log's clock.
    pub now: i64,
    /// The machine.
    pub cluster: &'a ClusterState,
    /// Nodes whose use has changed since the last round.
    pub changed: &'a BTreeSet<NodeIx>,
    /// The main queue, for what can be known of its plans.
    pub queue: &'a MainQueue,
    /// Malleable jobs that have not ended.
    pub jobs: &'a BTreeMap<JobId, SimJob>,
    /// What rescales cost.
    pub costs: &'a RescaleCosts,
}

/// What a job shall hold from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The job.
    pub job: JobId,
    /// Its nodes, the lead's first.
    pub nodes: Vec<NodeIx>,
    /// Why.
    pub cause: ChangeCause,
}

/// Who gets the idle nodes.
pub trait AllocationPolicy {
    /// Its name.
    fn name(&self) -> String;

    /// What shall be done now. A job that is not named stays as it is.
    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target>;

    /// When it wants to be asked again though nothing has happened.
    fn wake_at(&self) -> Option<i64> {
        None
    }

    /// What it knows of the main queue's future.
    fn foresight(&self) -> Foresight {
        Foresight::None
    }

    /// Whether its rescales take time.
    fn pays_rescales(&self) -> bool {
        true
    }

    /// Whether a job that loses its first node has to start anew.
    fn has_lead(&self) -> bool {
        false
    }

    /// Whether it wants to hear how jobs run.
    fn learns_rates(&self) -> bool {
        false
    }

    /// Hears how a job ran for some seconds. Says whether it wants to be asked now.
    fn record_progress(&mut self, _job: &SimJob, _samples: f64, _secs: f64, _now: i64) -> bool {
        false
    }

    /// Hears how long a job took to leave nodes that its policy took from it, seconds until the next job can
    /// have them.
    fn record_leaving(&mut self, _job: &SimJob, _secs: f64, _now: i64) {}

    /// Hears that a job has ended.
    fn job_ended(&mut self, _job: &SimJob, _now: i64) {}

    /// How many of its plans were refused, and the largest gap to the optimum that one was left with.
    fn plan_defects(&self) -> (u64, f64) {
        (0, 0.0)
    }
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyName {
    /// infill; curves unknown at first.
    Infill,
    /// infill; curves given.
    InfillKnown,
    /// infill; curves given, blind to what backfill plans.
    InfillBlind,
    /// infill; curves given, and the true ends of all windows of an idle log.
    InfillOracle,
    /// The published MILP with this T_fwd, s; curves given.
    FreeTrain(f64),
    /// The same without curves.
    FreeTrainLinear(f64),
    /// The same with the published profiling: sizes 4, 3, 2 and 1.
    MalleTrain(f64),
    /// As many nodes for each.
    EqualShare,
    /// As many as it can use for the first, then for the next.
    FcfsMax,
    /// What could be had if rescales cost nothing: the optimum at every event.
    Bound,
}

/// Forward-looking time of the published MILP, s.
pub const DEFAULT_TFWD_SECS: f64 = 10.0;

/// What is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a policy; there are infill, infill-known, infill-blind, infill-oracle, freetrain[@SECS], \
     freetrain-linear[@SECS], malletrain[@SECS], equal-share, fcfs-max, bound"
)]
pub struct UnknownPolicy(pub String);

impl PolicyName {
    /// Parses a name; `tfwd` is the forward-looking time of those that name none.
    pub fn parse(text: &str, tfwd: f64) -> Result<PolicyName, UnknownPolicy> {
        let none = || UnknownPolicy(text.to_owned());
        let (name, secs) = match text.split_once('@') {
            Some((name, secs)) => (name, Some(secs.parse::<f64>().map_err(|_| none())?)),
            None => (text, None),
        };
        let t = secs.unwrap_or(tfwd);
        match (name, secs) {
            ("freetrain" | "freetrain-linear" | "malletrain", _) if !(t > 0.0 && t <= 1e9) => Err(none()),
            ("freetrain", _) => Ok(PolicyName::FreeTrain(t)),
            ("freetrain-linear", _) => Ok(PolicyName::FreeTrainLinear(t)),
            ("malletrain", _) => Ok(PolicyName::MalleTrain(t)),
            ("infill", None) => Ok(PolicyName::Infill),
            ("infill-known", None) => Ok(PolicyName::InfillKnown),
            ("infill-blind", None) => Ok(PolicyName::InfillBlind),
            ("infill-oracle", None) => Ok(PolicyName::InfillOracle),
            ("equal-share", None) => Ok(PolicyName::EqualShare),
            ("fcfs-max", None) => Ok(PolicyName::FcfsMax),
            ("bound", None) => Ok(PolicyName::Bound),
            _ => Err(none()),
        }
    }

    /// Makes the policy.
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
        let at = |f: &mut fmt::Formatter<'_>, name: &str, secs: f64| {
            if secs == DEFAULT_TFWD_SECS { f.write_str(name) } else { write!(f, "{name}@{secs}") }
        };
        match self {
            PolicyName::Infill => f.write_str("infill"),
            PolicyName::InfillKnown => f.write_str("infill-known"),
            PolicyName::InfillBlind => f.write_str("infill-blind"),
            PolicyName::InfillOracle => f.write_str("infill-oracle"),
            PolicyName::FreeTrain(t) => at(f, "freetrain", *t),
            PolicyName::FreeTrainLinear(t) => at(f, "freetrain-linear", *t),
            PolicyName::MalleTrain(t) => at(f, "malletrain", *t),
            PolicyName::EqualShare => f.write_str("equal-share"),
            PolicyName::FcfsMax => f.write_str("fcfs-max"),
            PolicyName::Bound => f.write_str("bound"),
        }
    }
}

/// Targets that give each job so many nodes without migration: what must be given up goes last in, first out,
/// and what is free is taken lowest numbers first.
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
            more.iter().for_each(|n| {
                free.remove(n);
            });
            let nodes = job.nodes.iter().copied().chain(more).collect();
            changes.push(Target { job: *id, nodes, cause: ChangeCause::Rescale });
        }
    }
    changes
}
