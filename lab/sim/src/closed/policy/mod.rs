//! Policies for closed machines: who gets how many GPUs of which type, and with which plan.

mod infill;
mod mirror;
mod programs;
mod reseating;
mod rubick;
mod sia;
mod submitted;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::job::Job;
use super::machine::Machine;
use super::setup::Setup;
use super::speeds::{Choice, Measured, Speeds};
use infill::Infill;
use rubick::Rubick;
use sia::Sia;
use submitted::Submitted;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The moment, s.
    pub now: f64,
    /// What a change costs, s.
    pub restart_secs: f64,
    /// The machine.
    pub machine: &'a Machine,
    /// Jobs that have been submitted and have not ended.
    pub jobs: &'a BTreeMap<usize, Job>,
    /// How fast models truly train. Policies that learn look only at what there is to choose from.
    pub speeds: &'a Speeds,
}

/// What a job shall have from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The job.
    pub job: usize,
    /// What; nothing to stop it.
    pub choice: Option<Choice>,
    /// Whether it shall be seated anew though it has that already.
    pub anew: bool,
}

impl Wish {
    /// In this order wishes are seated: the largest first, for what is small finds room in what is left.
    pub fn order(&self) -> (std::cmp::Reverse<u32>, usize) {
        (std::cmp::Reverse(self.choice.as_ref().map_or(0, |c| c.gpus)), self.job)
    }

    /// A job shall have this.
    pub fn to(job: usize, choice: Option<Choice>) -> Wish {
        Wish { job, choice, anew: false }
    }

    /// A job shall be seated anew with what it has.
    fn anew(job: usize, choice: Choice) -> Wish {
        Wish { job, choice: Some(choice), anew: true }
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
pub trait Policy {
    /// Its name.
    fn name(&self) -> String;

    /// Seconds between its rounds.
    fn every_secs(&self) -> f64;

    /// Whether it is asked also when a job comes or ends.
    fn hears_events(&self) -> bool {
        false
    }

    /// Whether it wants to hear how fast jobs run.
    fn learns(&self) -> bool {
        false
    }

    /// Hears how a job goes on.
    fn progress(&mut self, _machine: &Machine, _job: &Job, _report: WorkReport, _now: f64) {}

    /// Hears that a job has ended.
    fn ended(&mut self, _job: &Job, _now: f64) {}

    /// What shall be changed. A job that is not named stays as it is.
    fn decide(&mut self, view: &View<'_>) -> Vec<Wish>;
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedPolicy {
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
pub struct NoClosedPolicy(pub String);

impl ClosedPolicy {
    /// All of them.
    pub const ALL: [ClosedPolicy; 6] = [
        ClosedPolicy::Infill,
        ClosedPolicy::InfillKnown,
        ClosedPolicy::Static,
        ClosedPolicy::Rubick,
        ClosedPolicy::Sia,
        ClosedPolicy::Fcfs,
    ];

    /// Makes the policy.
    pub fn build(self, setup: &Setup) -> Box<dyn Policy> {
        match self {
            ClosedPolicy::Infill => Box::new(Infill::learning(setup)),
            ClosedPolicy::InfillKnown => Box::new(Infill::knowing(setup)),
            ClosedPolicy::Static => Box::new(Submitted::as_they_are()),
            ClosedPolicy::Rubick => Box::new(Rubick),
            ClosedPolicy::Sia => Box::new(Sia),
            ClosedPolicy::Fcfs => Box::new(Submitted::in_order()),
        }
    }
}

impl fmt::Display for ClosedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClosedPolicy::Infill => "infill",
            ClosedPolicy::InfillKnown => "infill-known",
            ClosedPolicy::Static => "static",
            ClosedPolicy::Rubick => "rubick",
            ClosedPolicy::Sia => "sia",
            ClosedPolicy::Fcfs => "fcfs",
        })
    }
}

impl FromStr for ClosedPolicy {
    type Err = NoClosedPolicy;
    fn from_str(text: &str) -> Result<Self, NoClosedPolicy> {
        let found = ClosedPolicy::ALL.into_iter().find(|p| p.to_string() == text);
        found.ok_or_else(|| NoClosedPolicy(text.to_owned()))
    }
}

/// Ways to run a job with their true rates, steps a second, on the closest placement.
fn offers(view: &View<'_>, job: &Job) -> Vec<(Choice, f64)> {
    offers_by(view, job, |measured| Some(measured.rate))
}

/// The same with other rates; ways without one are left out.
fn offers_by(view: &View<'_>, job: &Job, rate: impl Fn(&Measured) -> Option<f64>) -> Vec<(Choice, f64)> {
    let Some(speeds) = view.speeds.of(&job.submitted.model) else { return Vec::new() };
    let offer = |choice: &Choice| Some((choice.clone(), rate(speeds.closest(choice)?)?));
    speeds.choices().filter_map(|(choice, _)| offer(choice)).collect()
}

/// Of these ways the fastest for each type and size.
fn fastest(offers: Vec<(Choice, f64)>) -> Vec<(Choice, f64)> {
    let mut best: BTreeMap<(usize, u32), (Choice, f64)> = BTreeMap::new();
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
fn as_submitted(view: &View<'_>, job: &Job, any_plan: bool) -> Option<(Choice, f64)> {
    let asked = &job.submitted;
    let pool = |t| view.machine.pools.iter().position(|p| p.node_type == t);
    let pool = asked.node_type.clone().and_then(pool);
    offers(view, job).into_iter().min_by(|(a, rate_of_a), (b, rate_of_b)| {
        let far = |c: &Choice| {
            let plan = !any_plan && asked.plan.as_ref().is_some_and(|p| *p != c.plan);
            (pool.is_some_and(|p| p != c.pool), c.gpus.abs_diff(asked.gpus), plan)
        };
        let faster = rate_of_b.total_cmp(rate_of_a);
        // Who does not know rates chooses by name.
        far(a).cmp(&far(b)).then(if any_plan { faster } else { a.cmp(b) })
    })
}
