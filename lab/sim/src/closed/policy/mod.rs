//! Policies for closed machines, which decide the number and type of GPUs and the plan of each job.

mod infill;
mod machine_snapshot;
mod programs;
mod relocation;
mod rubick;
mod sia;
mod submitted;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::job::ActiveJob;
use super::machine::ClosedMachine;
use super::setup::ClosedSetup;
use super::speeds::{MeasuredPlacement, RunChoice, SpeedTable};
use infill::ClosedInfill;
use rubick::RubickPolicy;
use sia::SiaPolicy;
use submitted::SubmittedPolicy;

/// The state that a policy sees in a round.
#[derive(Clone, Copy, Debug)]
pub struct ClosedView<'a> {
    /// The moment, s.
    pub now: f64,
    /// Seconds that a change costs.
    pub restart_secs: f64,
    /// The machine.
    pub machine: &'a ClosedMachine,
    /// Jobs that have been submitted and have not ended.
    pub jobs: &'a BTreeMap<usize, ActiveJob>,
    /// The true speeds of models. Policies that learn speeds use only the list of choices.
    pub speeds: &'a SpeedTable,
}

/// The GPUs and the plan that a policy wants for one job.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedTarget {
    /// Index of the job.
    pub job: usize,
    /// How it shall run; `None` to stop it.
    pub choice: Option<RunChoice>,
    /// Whether it shall get other GPUs although it has this choice already.
    pub relocates: bool,
}

impl ClosedTarget {
    /// The sort key for the assignment of GPUs: the largest first, because small jobs fit into the rest.
    pub fn placement_order(&self) -> (std::cmp::Reverse<u32>, usize) {
        (std::cmp::Reverse(self.choice.as_ref().map_or(0, |c| c.gpus)), self.job)
    }

    /// A target with this choice.
    pub fn with_choice(job: usize, choice: Option<RunChoice>) -> ClosedTarget {
        ClosedTarget { job, choice, relocates: false }
    }

    /// A target with the present choice and other GPUs.
    fn relocation(job: usize, choice: RunChoice) -> ClosedTarget {
        ClosedTarget { job, choice: Some(choice), relocates: true }
    }
}

/// The steps that a job made in some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkReport {
    /// Steps that it made.
    pub steps: f64,
    /// Seconds on its own clock.
    pub secs: f64,
}

/// Decides the GPUs and the plan of each job.
pub trait ClosedMachinePolicy {
    /// Its name.
    fn name(&self) -> String;

    /// Seconds between its regular rounds.
    fn round_interval_secs(&self) -> f64;

    /// Whether it also needs a round when a job arrives or ends.
    fn reacts_to_events(&self) -> bool {
        false
    }

    /// Whether it needs [`ClosedMachinePolicy::record_progress`].
    fn learns_speeds(&self) -> bool {
        false
    }

    /// Records the progress of a job.
    fn record_progress(
        &mut self,
        _machine: &ClosedMachine,
        _job: &ActiveJob,
        _report: WorkReport,
        _now: f64,
    ) {
    }

    /// Records that a job has ended.
    fn job_ended(&mut self, _job: &ActiveJob, _now: f64) {}

    /// The changes to make now. A job without a target stays as it is.
    fn decide_targets(&mut self, view: &ClosedView<'_>) -> Vec<ClosedTarget>;
}

/// The name of a policy for closed machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedPolicyName {
    /// infill, which learns the speeds.
    Infill,
    /// infill with given speeds.
    InfillKnown,
    /// Each job as it was submitted. Each job that fits starts.
    Static,
    /// Rubick's slopes.
    Rubick,
    /// Sia's integer program over types and sizes.
    Sia,
    /// Type and size as submitted with the best plan, strictly in the order of submission.
    Fcfs,
}

/// A text that does not name a policy for closed machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a policy for a closed machine; there are infill, infill-known, static, rubick, sia, fcfs"
)]
pub struct UnknownClosedPolicy(pub String);

impl ClosedPolicyName {
    /// All names.
    pub const ALL: [ClosedPolicyName; 6] = [
        ClosedPolicyName::Infill,
        ClosedPolicyName::InfillKnown,
        ClosedPolicyName::Static,
        ClosedPolicyName::Rubick,
        ClosedPolicyName::Sia,
        ClosedPolicyName::Fcfs,
    ];

    /// Builds the policy for a simulation.
    pub fn build_policy(self, setup: &ClosedSetup) -> Box<dyn ClosedMachinePolicy> {
        match self {
            ClosedPolicyName::Infill => Box::new(ClosedInfill::with_unknown_speeds(setup)),
            ClosedPolicyName::InfillKnown => Box::new(ClosedInfill::with_known_speeds(setup)),
            ClosedPolicyName::Static => Box::new(SubmittedPolicy::with_submitted_plans()),
            ClosedPolicyName::Rubick => Box::new(RubickPolicy),
            ClosedPolicyName::Sia => Box::new(SiaPolicy),
            ClosedPolicyName::Fcfs => Box::new(SubmittedPolicy::in_strict_order()),
        }
    }
}

impl fmt::Display for ClosedPolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClosedPolicyName::Infill => "infill",
            ClosedPolicyName::InfillKnown => "infill-known",
            ClosedPolicyName::Static => "static",
            ClosedPolicyName::Rubick => "rubick",
            ClosedPolicyName::Sia => "sia",
            ClosedPolicyName::Fcfs => "fcfs",
        })
    }
}

impl FromStr for ClosedPolicyName {
    type Err = UnknownClosedPolicy;
    fn from_str(text: &str) -> Result<Self, UnknownClosedPolicy> {
        let found = ClosedPolicyName::ALL.into_iter().find(|p| p.to_string() == text);
        found.ok_or_else(|| UnknownClosedPolicy(text.to_owned()))
    }
}

/// Ways to run a job with their true rates, steps a second, on the closest placement.
fn true_offers(view: &ClosedView<'_>, job: &ActiveJob) -> Vec<(RunChoice, f64)> {
    offers_with_rate(view, job, |measured| Some(measured.rate))
}

/// Ways to run a job with the rates that `rate` gives; ways without a rate are left out.
fn offers_with_rate(
    view: &ClosedView<'_>,
    job: &ActiveJob,
    rate: impl Fn(&MeasuredPlacement) -> Option<f64>,
) -> Vec<(RunChoice, f64)> {
    let Some(speeds) = view.speeds.for_model(&job.submitted.model) else { return Vec::new() };
    let mut offers = Vec::new();
    for (choice, _) in speeds.run_choices() {
        if let Some(rate) = speeds.closest_placement(choice).and_then(&rate) {
            offers.push((choice.clone(), rate));
        }
    }
    offers
}

/// The fastest of these ways for each type and size.
fn fastest_per_size(offers: Vec<(RunChoice, f64)>) -> Vec<(RunChoice, f64)> {
    let mut best: BTreeMap<(usize, u32), (RunChoice, f64)> = BTreeMap::new();
    for (choice, rate) in offers {
        let at = (choice.pool, choice.gpus);
        if best.get(&at).is_none_or(|(_, known)| rate > *known) {
            best.insert(at, (choice, rate));
        }
    }
    best.into_values().collect()
}

/// The way that a job was submitted with, or the nearest one that can run. The type counts most, then the
/// number of GPUs, then the plan.
fn as_submitted(view: &ClosedView<'_>, job: &ActiveJob, any_plan: bool) -> Option<(RunChoice, f64)> {
    let submitted = &job.submitted;
    let wanted_type = submitted.node_type.as_ref();
    let pool = wanted_type.and_then(|t| view.machine.pools.iter().position(|p| p.node_type == *t));
    let wanted_plan = submitted.plan.as_ref().filter(|_| !any_plan);
    true_offers(view, job).into_iter().min_by(|(a, rate_of_a), (b, rate_of_b)| {
        let [distance_of_a, distance_of_b] = [a, b].map(|choice| {
            let is_other_type = pool.is_some_and(|pool| pool != choice.pool);
            let is_other_plan = wanted_plan.is_some_and(|plan| *plan != choice.plan);
            (is_other_type, choice.gpus.abs_diff(submitted.gpus), is_other_plan)
        });
        // With any plan the fastest one decides; otherwise the policy does not know rates.
        let tie = if any_plan { rate_of_b.total_cmp(rate_of_a) } else { a.cmp(b) };
        distance_of_a.cmp(&distance_of_b).then(tie)
    })
}
