//! The results as one document, which `--json` prints and from which table and page are built.

use serde::Serialize;

use super::unit::LogUnit;
use infill_api::SCHEMA_VERSION;
use infill_model::RescaleCosts;
use infill_sim::{FairnessScore, JobScore, MainQueueDelays, PolicyScore};

/// Losses as shares of the bound's work.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LossShares {
    /// Lost in changes that the policy wanted.
    pub rescale: f64,
    /// Lost because the main queue took nodes.
    pub preemption: f64,
    /// Lost in changes that measure a size.
    pub probing: f64,
    /// Lost for all other reasons: nodes unused, or used by jobs that make less of them.
    pub unused: f64,
}

/// The results of one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyRow {
    /// Its name.
    pub policy: String,
    /// Work as a share of the bound's.
    pub efficiency: f64,
    /// Samples of all jobs.
    pub samples: f64,
    /// Samples of all jobs, times what each is worth.
    pub work: f64,
    /// Work that was lost, by cause.
    pub loss: LossShares,
    /// Share of the idle node-time that malleable jobs held.
    pub harvest_ratio: f64,
    /// Node-seconds that malleable jobs held.
    pub held_node_secs: f64,
    /// Main jobs that found a node held although their start had been planned for long enough.
    pub late_vacates: u64,
    /// All main jobs that found a node held.
    pub preempted: MainQueueDelays,
    /// Rescales of all jobs.
    pub rescales: u64,
    /// Number of jobs that ended.
    pub finished: usize,
    /// Mean seconds from a job's submission to its end, or to the end of the simulation; `null` if no job
    /// ended.
    pub jct_mean_s: Option<f64>,
    /// How evenly nodes were divided among jobs and users, and how long jobs waited for their first node.
    pub fairness: FairnessScore,
    /// Number of rounds.
    pub rounds: u64,
    /// Plans that the checker refused.
    pub refused_plans: u64,
    /// Seconds that the simulation took; `null` unless asked for.
    pub wall_s: Option<f64>,
    /// The results of each job, in the order of submission; times are s on the log's clock.
    pub jobs: Vec<JobScore>,
}

/// A description of what was simulated.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SimulationSubject {
    /// Name of the log's file.
    pub log: String,
    /// Whether it has idle intervals of nodes, and not jobs.
    pub idle_log: bool,
    /// The unit wherever this document says nodes.
    pub unit: LogUnit,
    /// Number of nodes of the machine.
    pub nodes: usize,
    /// Simulated seconds.
    pub span_secs: f64,
    /// The malleable jobs, in words.
    pub malleable: String,
    /// The costs of rescales.
    pub rescales: RescaleCosts,
    /// Seconds for which a newcomer warms up on its own node while the others train, if jobs stay alive over
    /// changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_secs: Option<f64>,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// `infill simulate --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SimulationDocument {
    /// Version of this document.
    pub schema: u32,
    /// What was simulated.
    pub subject: SimulationSubject,
    /// Node-seconds that the main queue did not use.
    pub idle_node_secs: f64,
    /// The policies in the order in which they were named.
    pub policies: Vec<PolicyRow>,
}

impl SimulationDocument {
    /// Average number of nodes that the main queue did not use.
    pub fn idle_nodes_mean(&self) -> f64 {
        self.idle_node_secs / self.subject.span_secs.max(1.0)
    }

    /// Their share of the machine.
    pub fn idle_share(&self) -> f64 {
        self.idle_nodes_mean() / (self.subject.nodes as f64).max(1.0)
    }
}

/// The document of these outcomes, each with the seconds that it took. `bound` is the outcome to compare
/// with.
pub(crate) fn simulation_document(
    outcomes: &[(PolicyScore, f64)],
    bound: &PolicyScore,
    subject: SimulationSubject,
    timings: bool,
) -> SimulationDocument {
    let policies =
        outcomes.iter().map(|(outcome, secs)| policy_row(outcome, bound, timings.then_some(*secs))).collect();
    SimulationDocument { schema: SCHEMA_VERSION, subject, idle_node_secs: bound.idle_node_secs, policies }
}

fn policy_row(outcome: &PolicyScore, bound: &PolicyScore, wall_s: Option<f64>) -> PolicyRow {
    let best = if bound.work > 0.0 { bound.work } else { f64::INFINITY };
    let efficiency = outcome.work / best;
    let loss = outcome.loss;
    let explained = (loss.rescale + loss.preemption + loss.probing) / best;
    PolicyRow {
        policy: outcome.policy.clone(),
        efficiency,
        samples: outcome.samples,
        work: outcome.work,
        loss: LossShares {
            rescale: loss.rescale / best,
            preemption: loss.preemption / best,
            probing: loss.probing / best,
            unused: 1.0 - efficiency - explained,
        },
        harvest_ratio: outcome.held_node_secs / outcome.idle_node_secs.max(f64::MIN_POSITIVE),
        held_node_secs: outcome.held_node_secs,
        late_vacates: outcome.preempted.late,
        preempted: outcome.preempted,
        rescales: outcome.rescales,
        finished: outcome.finished,
        jct_mean_s: outcome.jct_mean_secs(),
        fairness: outcome.fairness(),
        rounds: outcome.rounds,
        refused_plans: outcome.refused_plans,
        wall_s,
        jobs: outcome.jobs.clone(),
    }
}
