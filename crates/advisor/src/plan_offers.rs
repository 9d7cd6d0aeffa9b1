//! What each execution plan of a job would give on the nodes that it has, for people.

use std::fmt;

use super::job_input::JobInput;
use super::rate_estimator::RateEstimator;
use infill_model::{AllowedSizes, DeclaredPlan, ExecPlan, ProfileKey, RateSource};

/// An execution plan of a job, on so many nodes of its type.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOffer {
    /// The plan.
    pub plan: ExecPlan,
    /// What it would make, samples a second, or what it lacks.
    pub rate: Result<f64, PlanObstacle>,
    /// Whether it was measured, at this size or another; else the rate is a cautious guess.
    pub is_measured: bool,
    /// The interval that holds the true rate with 90 %, samples a second, where a rate is known.
    pub interval: Option<(f64, f64)>,
    /// From what that is known.
    pub source: Option<RateSource>,
}

/// What is known of a plan on so many nodes.
struct KnownRate {
    /// What it is counted on to make, samples a second.
    rate: f64,
    interval: (f64, f64),
    source: RateSource,
}

/// Why a plan cannot have so many nodes of a type, or is not known to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanObstacle {
    /// Its owner names other types of nodes for it.
    OtherTypes,
    /// Its owner names other sizes for it, or its processes cannot be divided so.
    OtherSizes,
    /// It ran out of memory on so many nodes.
    Memory {
        /// The most on which it did.
        nodes: u32,
    },
    /// By what its owner says of it and the model, it needs more memory of a GPU than that has.
    TooLarge,
    /// Nothing is known of how fast it is.
    Unknown,
}

impl fmt::Display for PlanObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanObstacle::OtherTypes => f.write_str("is not for nodes of this type"),
            PlanObstacle::OtherSizes => f.write_str("cannot have so many nodes"),
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
    /// What each of the job's plans gives on so many nodes of its type, the best first; none of a program
    /// with but one.
    pub(super) fn plan_offers(&self, subject: &JobInput, nodes: u32) -> Vec<PlanOffer> {
        let offer = |plan: &DeclaredPlan| {
            let key = ProfileKey { exec_plan: plan.name.clone(), ..subject.key.clone() };
            let is_measured = !self.profiles.points(&key).is_empty();
            let known = self.plan_rate(subject, plan, &key, nodes);
            let (interval, source) = known.as_ref().map(|k| (k.interval, k.source)).ok().unzip();
            PlanOffer { plan: plan.name.clone(), rate: known.map(|k| k.rate), is_measured, interval, source }
        };
        let mut offers: Vec<PlanOffer> = subject.plans.iter().map(offer).collect();
        let rate = |offer: &PlanOffer| offer.rate.unwrap_or(0.0);
        offers.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        offers
    }

    fn plan_rate(
        &self,
        subject: &JobInput,
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
        match self.profiles.unfit_sizes(key).last() {
            Some(unfit) if nodes < plan.may_fit_from(*unfit) => {
                return Err(PlanObstacle::Memory { nodes: *unfit });
            }
            _ => {}
        }
        if !self
            .fitting_sizes(subject, Some(plan), key)
            .is_none_or(|sizes: AllowedSizes| sizes.contains(nodes) || !subject.sizes.contains(nodes))
        {
            return Err(PlanObstacle::TooLarge);
        }
        self.known_rate(subject, plan, nodes).ok_or(PlanObstacle::Unknown)
    }

    fn known_rate(&self, subject: &JobInput, plan: &DeclaredPlan, nodes: u32) -> Option<KnownRate> {
        let way = self.way_to_run(subject, Some(plan), &subject.key.node_type)?;
        let rate = self.rate_curve_of(subject, &way)?.rate(nodes);
        let interval = self.estimate_size(subject, &way, nodes).interval_90();
        (rate > 0.0).then(|| KnownRate { rate, interval, source: self.rate_source(subject, &way, nodes) })
    }
}
