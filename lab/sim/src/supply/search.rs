//! Searches that submit jobs: for hyper-parameters by successive halving, and for architectures.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::JobSubmission;
use crate::seeded_random::SeededRandom;
use infill_model::{CurvePoint, ScalingCurve, trace::NamedCurve};

/// Node-seconds of a trial on its first rung: ten minutes on two nodes.
const FIRST_RUNG_NODE_SECS: f64 = 1200.0;

/// Node-seconds of an architecture's training, from and to: an hour to eight, or 8 to 64 epochs of ImageNet
/// for ShuffleNet on a node of Summit.
const ARCHITECTURE_NODE_SECS: (f64, f64) = (3600.0, 28800.0);

/// Range of the exponent of an architecture's efficiency, relative to the program that it is derived from. An
/// architecture scales worse with an exponent above 1, and better with one below.
const EXPONENT_RANGE: (f64, f64) = (0.3, 3.0);

/// Range of the speed of an architecture on one node, relative to that program.
const SPEED_RANGE: (f64, f64) = (0.2, 5.0);

/// Successive halving (Jamieson and Talwalkar, 2016). `trials` configurations train with a small budget. When
/// all have ended, the best `1 / eta` of them continue with `eta` times the budget, and so on to the last
/// one. Then the next bracket begins.
#[derive(Clone, Debug)]
pub struct HalvingSearch {
    curves: Vec<NamedCurve>,
    sizes: (u32, u32),
    trials: u32,
    eta: u32,
    random: SeededRandom,
    bracket: u32,
    rung: u32,
    running: BTreeSet<String>,
    /// Trials of this rung.
    rung_trials: Vec<u32>,
}

impl HalvingSearch {
    /// A search with at least 2 trials per bracket and a factor of at least 2. Each bracket uses the next
    /// curve.
    pub fn new(trials: u32, eta: u32, curves: &[NamedCurve], sizes: (u32, u32), seed: u64) -> Self {
        HalvingSearch {
            curves: curves.to_vec(),
            sizes,
            trials: trials.max(2),
            eta: eta.max(2),
            random: SeededRandom::new(seed),
            bracket: 0,
            rung: 0,
            running: BTreeSet::new(),
            rung_trials: Vec::new(),
        }
    }

    pub(super) fn first_jobs(&mut self) -> Vec<JobSubmission> {
        self.bracket += 1;
        self.rung = 0;
        self.rung_trials = (1..=self.trials).collect();
        self.rung_jobs()
    }

    fn rung_jobs(&mut self) -> Vec<JobSubmission> {
        let place = (self.bracket as usize - 1) % self.curves.len().max(1);
        let Some(curve) = self.curves.get(place) else { return Vec::new() };
        let samples = FIRST_RUNG_NODE_SECS * f64::from(self.eta).powi(self.rung as i32) * curve.curve.rate(1);
        let shared = Arc::new(curve.curve.clone());
        let program = curve.name.clone();
        let bracket = self.bracket;
        let rung = self.rung;
        let submissions = self.rung_trials.iter().map(|trial| JobSubmission {
            name: format!("{program}-{bracket}.{trial}-rung{rung}"),
            program: program.clone(),
            curve: Arc::clone(&shared),
            sizes: self.sizes,
            samples,
            weight: 1.0,
            user: None,
        });
        let submissions: Vec<JobSubmission> = submissions.collect();
        self.running = submissions.iter().map(|submission| submission.name.clone()).collect();
        submissions
    }

    pub(super) fn trial_ended(&mut self, name: &str) -> Vec<JobSubmission> {
        self.running.remove(name);
        if !self.running.is_empty() {
            return Vec::new();
        }
        let next = self.rung_trials.len() / self.eta as usize;
        if next == 0 {
            return self.first_jobs();
        }
        // The best trials are drawn at random: quality does not depend on speed.
        let mut best = std::mem::take(&mut self.rung_trials);
        while best.len() > next {
            best.swap_remove(self.random.index_below(best.len()));
        }
        best.sort_unstable();
        self.rung_trials = best;
        self.rung += 1;
        self.rung_jobs()
    }
}

/// A search for architectures. A fixed number of them train at a time; when one ends, the next begins. Each
/// has its own scaling curve.
#[derive(Clone, Debug)]
pub struct ArchitectureSearch {
    curves: Vec<NamedCurve>,
    sizes: (u32, u32),
    at_once: u32,
    random: SeededRandom,
    count: u32,
}

impl ArchitectureSearch {
    /// A search that trains `at_once` architectures at a time, derived from the curves.
    pub fn new(at_once: u32, curves: &[NamedCurve], sizes: (u32, u32), seed: u64) -> Self {
        ArchitectureSearch {
            curves: curves.to_vec(),
            sizes,
            at_once,
            random: SeededRandom::new(seed),
            count: 0,
        }
    }

    pub(super) fn first_jobs(&mut self) -> Vec<JobSubmission> {
        (0..self.at_once).filter_map(|_| self.next_trial()).collect()
    }

    pub(super) fn trial_ended(&mut self) -> Vec<JobSubmission> {
        self.next_trial().into_iter().collect()
    }

    fn next_trial(&mut self) -> Option<JobSubmission> {
        if self.curves.is_empty() {
            return None;
        }
        self.count += 1;
        let parent = self.random.index_below(self.curves.len());
        let exponent = self.random.log_uniform(EXPONENT_RANGE);
        let speed = self.random.log_uniform(SPEED_RANGE);
        let node_secs = self.random.log_uniform(ARCHITECTURE_NODE_SECS);
        let curve = derive_curve(&self.curves.get(parent)?.curve, exponent, speed);
        let name = format!("arch-{}", self.count);
        Some(JobSubmission {
            program: name.clone(),
            name,
            samples: node_secs * curve.rate(1),
            curve: Arc::new(curve),
            sizes: self.sizes,
            weight: 1.0,
            user: None,
        })
    }
}

/// A curve with `speed` times the speed on one node, and the old efficiency to the power `exponent`.
fn derive_curve(curve: &ScalingCurve, exponent: f64, speed: f64) -> ScalingCurve {
    let one = curve.rate(1);
    ScalingCurve::new(
        curve
            .points()
            .iter()
            .map(|p| {
                let efficiency = (p.rate / (one * f64::from(p.nodes))).powf(exponent);
                CurvePoint { nodes: p.nodes, rate: speed * one * f64::from(p.nodes) * efficiency }
            })
            .collect(),
    )
    .unwrap_or_else(|_| curve.clone())
}
