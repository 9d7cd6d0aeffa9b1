//! From what the daemon knows to what the planner asks for: malleable jobs with weights, rates and standing.

use std::collections::BTreeMap;

use crate::config::PlannerConfig;
use crate::gaps::GapSample;
use crate::generation::Machine;
use crate::model::malleable::RateCurve;
use crate::model::{Curve, ExecPlan, HeldNode, Job, JobId, MalleableJob, Request, UnixTime, UserId};
use crate::store::GapRecord;

use super::world::About;

/// What the survival model learns from one ended gap.
pub fn sample(gap: &GapRecord) -> GapSample {
    GapSample {
        duration_secs: gap.end.secs_since(gap.start),
        taken: gap.taken,
        block: gap.block,
        hour: crate::gaps::hour_of(gap.start),
    }
}

/// What a job in the partition asks for. The plug-in's comment goes before the user's.
///
/// # Errors
/// What is wrong with the comment, in words.
pub fn request_of(job: &Job) -> Result<Option<Request>, String> {
    let comment = if job.admin_comment.contains("infill:") { &job.admin_comment } else { &job.comment };
    if let Some(lead) = crate::generation::observe::lead_of(job) {
        return Ok(Some(Request::Wing(lead)));
    }
    Request::parse(comment).map_err(|e| e.to_string())
}

/// All malleable jobs that have not ended, as the planner sees them.
pub fn jobs(
    machines: &BTreeMap<JobId, Machine>,
    about: &BTreeMap<JobId, About>,
    config: &PlannerConfig,
    now: UnixTime,
) -> Vec<MalleableJob> {
    let living = || machines.values().filter(|m| !matches!(m.state_word(), "ended" | "ending"));
    let mut a_user: BTreeMap<&str, f64> = BTreeMap::new();
    for machine in living() {
        *a_user.entry(user_of(about, machine.job)).or_default() += 1.0;
    }
    living()
        .map(|machine| {
            let user = user_of(about, machine.job);
            let share = config.shares.get(user).copied().unwrap_or(1.0);
            malleable(
                machine,
                about.get(&machine.job),
                share / a_user.get(user).copied().unwrap_or(1.0),
                config,
                now,
            )
        })
        .collect()
}

fn user_of(about: &BTreeMap<JobId, About>, job: JobId) -> &str {
    about.get(&job).map_or("", |a| a.user.as_str())
}

/// What the job declared, else what the configuration says of its profile or name, else proportional to its nodes.
fn curve_of(machine: &Machine, about: Option<&About>, config: &PlannerConfig) -> Curve {
    let profile = machine.spec.profile.as_ref();
    let name = about.map(|a| &a.name);
    let configured = || profile.into_iter().chain(name).find_map(|n| config.curves.get(n));
    machine.spec.curve.as_ref().or_else(configured).cloned().unwrap_or_else(Curve::linear)
}

fn malleable(
    machine: &Machine,
    about: Option<&About>,
    share: f64,
    config: &PlannerConfig,
    now: UnixTime,
) -> MalleableJob {
    let curve = curve_of(machine, about, config);
    let min = machine.allowed().min();
    // Jobs count their samples in different units. A node-second at its smallest size weighs the same for all.
    let unit = curve.rate(min) / f64::from(min.max(1));
    let weight = if unit > 0.0 { share / unit } else { share };
    let held = machine.held().into_iter().map(|(node, slurm_job)| HeldNode { node, slurm_job }).collect();
    MalleableJob {
        id: machine.job,
        user: UserId(about.map_or(0, |a| a.user_id)),
        weight,
        sizes: machine.allowed().clone(),
        rates: vec![RateCurve { exec_plan: ExecPlan::default(), node_type: None, curve }],
        costs: machine.spec.costs.unwrap_or(config.costs),
        standing: machine.standing(now),
        exec_plan: machine.exec_plan.clone(),
        lead_node: machine.held_lead().cloned(),
        held,
        submitted_at: about.map_or(now, |a| a.submitted_at),
        last_change: machine.last_change,
        excluded: about.map(|a| a.excluded.clone()).unwrap_or_default(),
    }
}
