//! What Slurm and the agents say of the malleable jobs, as candidates for a round.

use crate::advisor::Subject;
use crate::config::PlannerConfig;
use crate::generation::{Machine, Phase};
use crate::model::{Curve, HeldNode, MalleableJob, RescaleCosts, UnixTime, UserId};
use crate::round::{Candidate, curves, demand};

use super::world::{About, World};

/// What the job declared, else what the configuration says of its profile or name.
pub fn declared(machine: &Machine, about: Option<&About>, config: &PlannerConfig) -> Option<Curve> {
    let profile = machine.spec.profile.as_ref();
    let name = about.map(|a| &a.name);
    let configured = || profile.into_iter().chain(name).find_map(|n| config.curves.get(n));
    let known = machine.spec.curve.as_ref().or_else(configured);
    known.and_then(|c| curves::believed(c, machine.allowed()))
}

/// All malleable jobs that have not ended, as the planner sees them.
pub fn jobs(world: &World, now: UnixTime) -> Vec<MalleableJob> {
    let candidate =
        |subject: Subject| Some(candidate(world, world.machines.get(&subject.job)?, subject, now));
    let candidates = world.subjects(now).into_iter().filter_map(candidate).collect();
    demand::jobs(candidates, &world.library, &world.gaps, &world.config().planner, now)
}

fn candidate(world: &World, machine: &Machine, subject: Subject, now: UnixTime) -> Candidate {
    let about = world.about.get(&machine.job);
    let held = machine.held().into_iter().map(|(node, slurm_job)| HeldNode { node, slurm_job });
    Candidate {
        pause_secs: pause_secs(machine, &subject.costs, now),
        subject,
        user: UserId(about.map_or(0, |a| a.user_id)),
        standing: machine.standing(now),
        since: machine.since,
        held: held.collect(),
        lead_node: machine.held_lead().cloned(),
        exec_plan: machine.generation.exec_plan.clone(),
        submitted_at: about.map_or(now, |a| a.submitted_at),
        last_change: machine.rescaled_at,
        excluded: about.map(|a| a.excluded.clone()).unwrap_or_default(),
    }
}

/// Seconds for which a job that was just started again will still make no samples, by what a start has cost.
fn pause_secs(machine: &Machine, costs: &RescaleCosts, now: UnixTime) -> f64 {
    match machine.phase {
        Phase::Running { .. } => (costs.down_secs - now.secs_since(machine.since)).max(0.0),
        _ => 0.0,
    }
}
