//! What each execution plan of a job would give on the nodes that it has, for people.

use std::fmt;

use super::belief::Belief;
use super::subject::Subject;
use infill_model::{DeclaredPlan, ExecPlan, ProfileKey};

/// An execution plan of a job, on so many nodes of its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The plan.
    pub plan: ExecPlan,
    /// What it would make, samples a second, or what it lacks.
    pub rate: Result<f64, Lack>,
    /// Whether it was measured, at this size or another; else the rate is a cautious guess.
    pub is_measured: bool,
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
            Offer { plan: plan.name.clone(), rate: self.offered(subject, plan, &key, nodes), is_measured }
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
    ) -> Result<f64, Lack> {
        if !plan.runs_on(&key.node_type) {
            return Err(Lack::OtherTypes);
        }
        if !plan.allows(nodes) {
            return Err(Lack::OtherSizes);
        }
        match self.profiles.unfit(key).last() {
            Some(unfit) if nodes < plan.may_fit_from(*unfit) => return Err(Lack::Memory { nodes: *unfit }),
            _ => {}
        }
        let known = self.rate_with(subject, plan).map(|curve| curve.rate(nodes));
        known.filter(|rate| *rate > 0.0).ok_or(Lack::Unknown)
    }
}
