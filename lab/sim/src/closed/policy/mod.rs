//! Policies for closed machines: who gets how many GPUs of which type, and with which plan.

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

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct ClosedView<'a> {
    /// The moment, s.
    pub now: f64,
    /// What a change costs, s.
    pub restart_secs: f64,
    /// The machine.
    pub machine: &'a ClosedMachine,
    /// Jobs that have been submitted and have not ended.
    pub jobs: &'a BTreeMap<usize, ActiveJob>,
    /// How fast models truly train. Policies that learn look only at what there is to choose from.
    pub speeds: &'a SpeedTable,
}

/// What a job shall have from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedTarget {
    /// The job.
    pub job: usize,
    /// What; nothing to stop it.
    pub choice: Option<RunChoice>,
    /// Whether it shall be seated anew though it has that already.
    pub anew: bool,
}

impl ClosedTarget {
    /// In this order wishes are seated: the largest first, for what is small finds room in what is left.
    pub fn placement_order(&self) -> (std::cmp::Reverse<u32>, usize) {
        (std::cmp::Reverse(self.choice.as_ref().map_or(0, |c| c.gpus)), self.job)
    }

    /// A job shall have this.
    pub fn with_choice(job: usize, choice: Option<RunChoice>) -> ClosedTarget {
        ClosedTarget { job, choice, anew: false }
    }

    /// A job shall be seated anew with what it has.
    fn relocation(job: usize, choice: RunChoice) -> ClosedTarget {
        ClosedTarget { job, choice: Some(choice), anew: true }
    }
}

/// What a job did in some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkReport {
    /// Steps that it made.
    pub steps: f64,
    /// The seconds, of its own clock.
    pub secs: f64,
}

/// Who gets what.
pub trait ClosedMachinePolicy {
    /// Its name.
    fn name(&self) -> String;

    /// Seconds between its rounds.
    fn round_interval_secs(&self) -> f64;

    /// Whether it is asked also when a job comes or ends.
    fn reacts_to_events(&self) -> bool {
        false
    }

    /// Whether it wants to hear how fast jobs run.
    fn learns_speeds(&self) -> bool {
        false
    }

    /// Hears how a job goes on.
    fn record_progress(
        &mut self,
        _machine: &ClosedMachine,
        _job: &ActiveJob,
        _report: WorkReport,
        _now: f64,
    ) {
    }

    /// Hears that a job has ended.
    fn job_ended(&mut self, _job: &ActiveJob, _now: f64) {}

    /// What shall be changed. A job that is not named stays as it is.
    fn decide_targets(&mut self, view: &ClosedView<'_>) -> Vec<ClosedTarget>;
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedPolicyName {
    /// infill; speeds unknown at first.
    Infill,
    /// infill; speeds given.
    InfillKnown,
    /// Each job as it was submitted; whoever fits starts.
    Static,
    /// Rubick's slopes.
    Rubick,
    /// Sia's integer program over types and sizes.
    Sia,
    /// Type and size as submitted with the best plan, strictly in the order of submission.
    Fcfs,
}

/// What is no policy for a closed machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no policy for a closed machine; there are infill, infill-known, static, rubick, sia, fcfs")]
pub struct UnknownClosedPolicy(pub String);

impl ClosedPolicyName {
    /// All of them.
    pub const ALL: [ClosedPolicyName; 6] = [
        ClosedPolicyName::Infill,
        ClosedPolicyName::InfillKnown,
        ClosedPolicyName::Static,
        ClosedPolicyName::Rubick,
        ClosedPolicyName::Sia,
        ClosedPolicyName::Fcfs,
    ];

    /// Makes the policy.
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

/// The same with other rates; ways without one are left out.
fn offers_with_rate(
    view: &ClosedView<'_>,
    job: &ActiveJob,
    rate: impl Fn(&MeasuredPlacement) -> Option<f64>,
) -> Vec<(RunChoice, f64)> {
    let Some(speeds) = view.speeds.for_model(&job.submitted.model) else { return Vec::new() };
    let offer = |choice: &RunChoice| Some((choice.clone(), rate(speeds.closest_placement(choice)?)?));
    speeds.run_choices().filter_map(|(choice, _)| offer(choice)).collect()
}

/// Of these ways the fastest for each type and size.
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

/// What a job asked for, or the nearest to it that is known to run: its type, its GPUs, its plan, in this
/// order of weight.
fn as_submitted(view: &ClosedView<'_>, job: &ActiveJob, any_plan: bool) -> Option<(RunChoice, f64)> {
    let asked = &job.submitted;
    let pool = |t| view.machine.pools.iter().position(|p| p.node_type == t);
    let pool = asked.node_type.clone().and_then(pool);
    true_offers(view, job).into_iter().min_by(|(a, rate_of_a), (b, rate_of_b)| {
        let far = |c: &RunChoice| {
            let plan = !any_plan && asked.plan.as_ref().is_some_and(|p| *p != c.plan);
            (pool.is_some_and(|p| p != c.pool), c.gpus.abs_diff(asked.gpus), plan)
        };
        let faster = rate_of_b.total_cmp(rate_of_a);
        // Who does not know rates chooses by name.
        far(a).cmp(&far(b)).then(if any_plan { faster } else { a.cmp(b) })
    })
}
