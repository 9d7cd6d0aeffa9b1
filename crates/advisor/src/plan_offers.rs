//! What each execution plan of a job would give on its nodes, for people.

use std::fmt;

use super::job_input::JobInput;
use super::rate_estimator::RateEstimator;
use infill_model::{DeclaredPlan, ExecPlan, ProfileKey, RateSource};

/// What an execution plan of a job would give on a number of nodes of its type.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOffer {
    /// The plan.
    pub plan: ExecPlan,
    /// Its rate, samples a second, or why it has none.
    pub rate: Result<f64, PlanObstacle>,
    /// Whether it was measured, at this size or another; else the rate is a cautious guess.
    pub is_measured: bool,
    /// The interval that holds the true rate with 90 %, samples a second, where a rate is known.
    pub interval: Option<(f64, f64)>,
    /// The source of the rate, where one is known.
    pub source: Option<RateSource>,
}

/// A known rate of a plan on a number of nodes.
struct KnownRate {
    /// The rate that the planner counts with, samples a second.
    rate: f64,
    interval: (f64, f64),
    source: RateSource,
}

/// Why a plan cannot run on this number of nodes of a type, or is not known to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanObstacle {
    /// Its user names other types of nodes for it.
    OtherTypes,
    /// Its user names other sizes for it, or its processes cannot be divided over this number of nodes.
    OtherSizes,
    /// It ran out of memory on this number of nodes or more.
    Memory {
        /// The largest number of nodes on which it did.
        nodes: u32,
    },
    /// By its user's description of plan and model, it needs more memory of a GPU than there is.
    TooLarge,
    /// Nothing is known of its rate.
    Unknown,
}

impl fmt::Display for PlanObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanObstacle::OtherTypes => f.write_str("is not for nodes of this type"),
            PlanObstacle::OtherSizes => f.write_str("cannot run on this number of nodes"),
            PlanObstacle::Memory { nodes } => {
                let nodes_are = if *nodes == 1 { "node" } else { "nodes" };
                write!(f, "does not fit into memory: it ran out of it on {nodes} {nodes_are}")
            }
            PlanObstacle::TooLarge => f.write_str("is predicted not to fit into the memory of a GPU"),
            PlanObstacle::Unknown => f.write_str("was never measured"),
        }
    }
}

impl RateEstimator<'_> {
    /// What each of the job's plans gives on this number of nodes of its type, the best first; empty for a
    /// program with only one plan.
    pub(super) fn plan_offers(&self, input: &JobInput, nodes: u32) -> Vec<PlanOffer> {
        let mut offers: Vec<PlanOffer> =
            input.plans.iter().map(|plan| self.plan_offer(input, plan, nodes)).collect();
        offers.sort_by(|a, b| b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0)));
        offers
    }

    fn plan_offer(&self, input: &JobInput, plan: &DeclaredPlan, nodes: u32) -> PlanOffer {
        let key = ProfileKey { exec_plan: plan.name.clone(), ..input.key.clone() };
        let is_measured = !self.profiles.points(&key).is_empty();
        let known = self.plan_rate(input, plan, &key, nodes);
        let (interval, source) = known.as_ref().map(|k| (k.interval, k.source)).ok().unzip();
        PlanOffer { plan: plan.name.clone(), rate: known.map(|k| k.rate), is_measured, interval, source }
    }

    fn plan_rate(
        &self,
        input: &JobInput,
        plan: &DeclaredPlan,
        key: &ProfileKey,
        nodes: u32,
    ) -> Result<KnownRate, PlanObstacle> {
        if !plan.runs_on(&key.node_type) {
            return Err(PlanObstacle::OtherTypes);
        }
        if !plan.allows_size(nodes) {
            return Err(PlanObstacle::OtherSizes);
        }
        if let Some(unfit) = self.profiles.unfit_sizes(key).last()
            && nodes < plan.may_fit_from(*unfit)
        {
            return Err(PlanObstacle::Memory { nodes: *unfit });
        }
        let fitting = self.fitting_sizes(input, Some(plan), key);
        if fitting.is_some_and(|sizes| !sizes.contains(nodes) && input.sizes.contains(nodes)) {
            return Err(PlanObstacle::TooLarge);
        }
        self.known_rate(input, plan, nodes).ok_or(PlanObstacle::Unknown)
    }

    fn known_rate(&self, input: &JobInput, plan: &DeclaredPlan, nodes: u32) -> Option<KnownRate> {
        let way = self.way_to_run(input, Some(plan), &input.key.node_type)?;
        let rate = self.rate_curve_of(input, &way)?.rate(nodes);
        let interval = self.estimate_size(input, &way, nodes).interval_90();
        (rate > 0.0).then(|| KnownRate { rate, interval, source: self.rate_source(input, &way, nodes) })
    }
}
