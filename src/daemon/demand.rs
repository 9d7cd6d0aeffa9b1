//! From what the daemon knows to what the planner asks for: malleable jobs with weights, rates and standing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::advisor::Subject;
use crate::config::PlannerConfig;
use crate::generation::Machine;
use crate::model::malleable::RateCurve;
use crate::model::{
    Curve, CurvePoint, ExecPlan, HeldNode, Job, MalleableJob, Request, RescaleCosts, Sizes, Standing,
    UnixTime, UserId,
};

use super::world::{About, World};

/// Exponent of the curve of a job of which nothing is known. Few programs scale in proportion; with an exponent of 1 two
/// such jobs would be worth the same however they share the nodes, and the first would keep them all. 0.9 is 81 % of
/// proportional at 8 nodes, as data-parallel training of large models has it.
const PRIOR_EXPONENT: f64 = 0.9;

/// Superlinear starts exist (caches, memory), but not by more.
const MOST_SUPERLINEAR: f64 = 2.0;

/// What was measured is believed up to so many times proportional.
const MOST_MEASURED: f64 = 4.0;

/// Samples a second and node that any program could have: other numbers are no measurement.
const RATES: RangeInclusive<f64> = 1e-9..=1e12;

/// A size that shall be measured seems faster than the fastest by at least this share.
const PROBE_MARGIN: f64 = 0.05;

/// Seconds for which a job waits like any other: jobs that take turns sooner than that train less than they start.
const PATIENCE_SECS: f64 = 300.0;

/// Seconds of waiting beyond that after which the smallest size of a job counts twice.
const BONUS_SECS: f64 = 60.0;

/// A bound, so that a job with a share of next to nothing does not outweigh everything in the end.
const MAX_BONUS: f64 = 100.0;

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
pub fn jobs(world: &World, now: UnixTime) -> Vec<MalleableJob> {
    let subjects = world.subjects(now);
    let mut a_user: BTreeMap<&str, f64> = BTreeMap::new();
    for subject in &subjects {
        *a_user.entry(subject.key.user.as_str()).or_default() += 1.0;
    }
    let config = &world.config().planner;
    let share =
        |user: &str| config.shares.get(user).copied().unwrap_or(1.0) / a_user.get(user).unwrap_or(&1.0);
    let job = |subject: &Subject| {
        let machine = world.machines.get(&subject.job)?;
        Some(malleable(world, machine, subject, share(&subject.key.user), now))
    };
    subjects.iter().filter_map(job).collect()
}

/// What the job declared, else what the configuration says of its profile or name.
pub fn declared(machine: &Machine, about: Option<&About>, config: &PlannerConfig) -> Option<Curve> {
    let profile = machine.spec.profile.as_ref();
    let name = about.map(|a| &a.name);
    let configured = || profile.into_iter().chain(name).find_map(|n| config.curves.get(n));
    let known = machine.spec.curve.as_ref().or_else(configured);
    known.and_then(|c| believed(c, machine.allowed()))
}

/// The curve within what can be believed of a user's own claim: at every size at most [`MOST_SUPERLINEAR`] times what
/// is proportional to the smallest, so that nobody outbids the others by a number.
fn believed(curve: &Curve, sizes: &Sizes) -> Option<Curve> {
    let unit = curve.rate(sizes.min()) / f64::from(sizes.min());
    let points = curve.points().iter().map(|p| CurvePoint {
        nodes: p.nodes,
        rate: p.rate.min(MOST_SUPERLINEAR * unit * f64::from(p.nodes)),
    });
    match (curve.is_default(), RATES.contains(&unit)) {
        (true, _) => Some(curve.clone()),
        (false, true) => Curve::new(points.collect()).ok(),
        (false, false) => None,
    }
}

/// The curve with no size more than [`MOST_MEASURED`] times what is proportional to the smallest: a program may report what
/// it likes.
fn capped(curve: &Curve, sizes: &Sizes) -> Curve {
    let unit = curve.rate(sizes.min()) / f64::from(sizes.min());
    let cap =
        |p: &CurvePoint| CurvePoint { rate: p.rate.min(MOST_MEASURED * unit * f64::from(p.nodes)), ..*p };
    Curve::new(curve.points().iter().map(cap).collect()).unwrap_or_else(|_| curve.clone())
}

/// The curve of a job of which nothing is known: nodes to the power [`PRIOR_EXPONENT`].
fn prior(sizes: &Sizes) -> Curve {
    let doubled = std::iter::successors(Some(sizes.min()), |n| n.checked_mul(2).filter(|n| *n < sizes.max()));
    let sizes: BTreeSet<u32> = doubled.chain([sizes.max()]).collect();
    let point = |nodes: u32| CurvePoint { nodes, rate: f64::from(nodes).powf(PRIOR_EXPONENT) };
    Curve::new(sizes.into_iter().map(point).collect()).unwrap_or_else(|_| Curve::linear())
}

/// How many times more the smallest size of a job counts that has waited for so long: nobody waits for ever because
/// others make a little more of every node.
fn patience_bonus(waited_secs: f64) -> f64 {
    ((waited_secs - PATIENCE_SECS) / BONUS_SECS).clamp(0.0, MAX_BONUS)
}

/// The curve with `bonus` times the rate at the smallest size added at every size.
fn with_bonus(curve: &Curve, sizes: &Sizes, bonus: f64) -> Curve {
    let (min, max) = (sizes.min(), sizes.max());
    let inner = curve.points().iter().map(|p| p.nodes).filter(|n| (min..max).contains(n));
    let nodes: BTreeSet<u32> = inner.chain([min, max]).collect();
    let raised = |nodes: u32| CurvePoint { nodes, rate: curve.rate(nodes) + bonus * curve.rate(min) };
    Curve::new(nodes.into_iter().map(raised).collect()).unwrap_or_else(|_| curve.clone())
}

/// The curve that makes the planner bring a running job to the size that the advisor wants to measure: there it seems a
/// little faster than anywhere else, by what the change costs. The advisor has weighed what is lost meanwhile.
fn with_probe(curve: &Curve, nodes: u32, costs: &RescaleCosts, config: &PlannerConfig) -> Curve {
    let fastest = curve.points().iter().map(|p| p.rate).fold(0.0, f64::max);
    let changes = costs.up_secs.max(costs.down_secs) / config.horizon_secs;
    let wanted = fastest * (1.0 + PROBE_MARGIN + config.hysteresis + 2.0 * changes);
    let others = curve.points().iter().filter(|p| p.nodes != nodes).copied();
    let points = others.chain([CurvePoint { nodes, rate: wanted }]).collect();
    Curve::new(points).unwrap_or_else(|_| curve.clone())
}

fn malleable(world: &World, machine: &Machine, subject: &Subject, share: f64, now: UnixTime) -> MalleableJob {
    let config = &world.config().planner;
    let about = world.about.get(&machine.job);
    let (standing, sizes) = (machine.standing(now), machine.allowed());
    let mut rates = world.library.rates(subject);
    for rate in &mut rates {
        rate.curve = capped(&rate.curve, sizes);
    }
    if rates.is_empty() {
        let curve = prior(sizes);
        rates.push(RateCurve { exec_plan: ExecPlan::default(), node_type: None, curve });
    }
    // Jobs count their samples in different units. A node-second at its smallest size weighs the same for all.
    let unit = rates.first().map_or(0.0, |r| r.curve.rate(sizes.min()) / f64::from(sizes.min().max(1)));
    let weight = if unit > 0.0 { share / unit } else { share };
    let bonus = patience_bonus(now.secs_since(machine.since));
    let held = machine.held();
    let free = world.gaps.gaps.iter().filter(|g| g.holder.is_none()).count();
    // It never takes another job's node.
    let probe = world.library.probe_of(machine.job).filter(|n| *n as usize <= held.len() + free);
    for rate in &mut rates {
        rate.curve = match (&standing, probe) {
            (Standing::Waiting, _) => with_bonus(&rate.curve, sizes, bonus),
            (_, Some(nodes)) => with_probe(&rate.curve, nodes, &subject.costs, config),
            _ => continue,
        };
    }
    let held = held.into_iter().map(|(node, slurm_job)| HeldNode { node, slurm_job }).collect();
    MalleableJob {
        id: machine.job,
        user: UserId(about.map_or(0, |a| a.user_id)),
        weight,
        sizes: sizes.clone(),
        rates,
        costs: subject.costs,
        standing,
        exec_plan: machine.exec_plan.clone(),
        lead_node: machine.held_lead().cloned(),
        held,
        submitted_at: about.map_or(now, |a| a.submitted_at),
        last_change: machine.last_change.filter(|_| !world.library.is_probing(machine.job, now)),
        excluded: about.map(|a| a.excluded.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_job_counts_more_at_every_size_by_the_same() {
        let sizes = Sizes::parse("2-8").unwrap();
        for curve in [Curve::linear(), Curve::parse("1:10,2:18,4:30").unwrap(), prior(&sizes)] {
            let raised = with_bonus(&curve, &sizes, patience_bonus(PATIENCE_SECS + 30.0));
            for n in 2..=8 {
                let want = curve.rate(n) + 0.5 * curve.rate(2);
                assert!((raised.rate(n) - want).abs() < 1e-9, "{curve} at {n}");
            }
        }
        assert_eq!((patience_bonus(PATIENCE_SECS - 5.0), patience_bonus(1e12)), (0.0, MAX_BONUS));
    }

    #[test]
    fn a_claim_is_believed_within_bounds() {
        let sizes = Sizes::parse("1-8").unwrap();
        let claim = |text: &str| believed(&Curve::parse(text).unwrap(), &sizes).map(|c| c.to_string());
        assert_eq!(claim("1:10,2:25").as_deref(), Some("1:10,2:25"));
        assert_eq!(claim("1:1,2:1000000").as_deref(), Some("1:1,2:4"));
        assert_eq!(claim("1:1e-300,2:1e300"), None);
    }

    #[test]
    fn the_prior_is_concave_at_the_sizes_that_there_are() {
        assert_eq!(prior(&Sizes::parse("3").unwrap()).points().len(), 1);
        let curve = prior(&Sizes::parse("1-8").unwrap());
        assert!((curve.rate(8) - 6.498).abs() < 1e-3);
        assert!(curve.rate(8) - curve.rate(4) < curve.rate(4));
    }
}
