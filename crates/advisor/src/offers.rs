//! What each execution plan of a job would give on the nodes that it has, for people.

use std::fmt;

use super::belief::Belief;
use super::subject::Subject;
use infill_model::{AllowedSizes, DeclaredPlan, ExecPlan, ProfileKey, RateSource};

/// An execution plan of a job, on so many nodes of its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The plan.
    pub plan: ExecPlan,
    /// What it would make, samples a second, or what it lacks.
    pub rate: Result<f64, Lack>,
    /// Whether it was measured, at this size or another; else the rate is a cautious guess.
    pub is_measured: bool,
    /// The interval that holds the true rate with 90 %, samples a second, where a rate is known.
    pub interval: Option<(f64, f64)>,
    /// From what that is known.
    pub source: Option<RateSource>,
}

/// What is known of a plan on so many nodes.
struct Known {
    /// What it is counted on to make, samples a second.
    rate: f64,
    interval: (f64, f64),
    source: RateSource,
}

/// Why a plan cannot have so many nodes of a type, or is not known to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
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

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::OtherTypes => f.write_str("is not for nodes of this type"),
            Lack::OtherSizes => f.write_str("cannot have so many nodes"),
            Lack::Memory { nodes } => {
                let nodes_are = if *nodes == 1 { "node" } else { "nodes" };
                write!(f, "does not fit into memory: it ran out of it on {nodes} {nodes_are}")
            }
            Lack::TooLarge => f.write_str("is predicted not to fit into the memory of a GPU"),
            Lack::Unknown => f.write_str("was never measured"),
        }
    }
}

impl Belief<'_> {
    /// What each of the job's plans gives on so many nodes of its type, the best first; none of a program
    /// with but one.
    pub(super) fn offers(&self, subject: &Subject, nodes: u32) -> Vec<Offer> {
        let offer = |plan: &DeclaredPlan| {
            let key = ProfileKey { exec_plan: plan.name.clone(), ..subject.key.clone() };
            let is_measured = !self.profiles.points(&key).is_empty();
            let known = self.offered(subject, plan, &key, nodes);
            let (interval, source) = known.as_ref().map(|k| (k.interval, k.source)).ok().unzip();
            Offer { plan: plan.name.clone(), rate: known.map(|k| k.rate), is_measured, interval, source }
        };
        let mut offers: Vec<Offer> = subject.plans.iter().map(offer).collect();
        let rate = |offer: &Offer| offer.rate.unwrap_or(0.0);
        offers.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        offers
    }

    fn offered(
        &self,
        subject: &Subject,
        plan: &DeclaredPlan,
        key: &ProfileKey,
        nodes: u32,
    ) -> Result<Known, Lack> {
        if !plan.runs_on(&key.node_type) {
            return Err(Lack::OtherTypes);
        }
        if !plan.allows_size(nodes) {
            return Err(Lack::OtherSizes);
        }
        match self.profiles.unfit(key).last() {
            Some(unfit) if nodes < plan.may_fit_from(*unfit) => return Err(Lack::Memory { nodes: *unfit }),
            _ => {}
        }
        let fits = |sizes: AllowedSizes| sizes.contains(nodes) || !subject.sizes.contains(nodes);
        if !self.fitting(subject, Some(plan), key).is_none_or(fits) {
            return Err(Lack::TooLarge);
        }
        self.known_of(subject, plan, nodes).ok_or(Lack::Unknown)
    }

    fn known_of(&self, subject: &Subject, plan: &DeclaredPlan, nodes: u32) -> Option<Known> {
        let way = self.way(subject, Some(plan), &subject.key.node_type)?;
        let rate = self.rate_of(subject, &way)?.rate(nodes);
        let interval = self.estimate(subject, &way, nodes).interval();
        (rate > 0.0).then(|| Known { rate, interval, source: self.source(subject, &way, nodes) })
    }
}
