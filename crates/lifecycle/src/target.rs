//! Takes in what the planner wants, and orders the wings that are missing.

use infill_model::{
    Constraint, JobPlan, LEAST_LIMIT_SECS, NodeName, PlanNeeds, PlannedNode, UnixTime, WindowEnd, WingOrder,
};

use super::effect::StepOutcome;
use super::job_lifecycle::{JobLifecycle, Target};
use super::phase::JobPhase;
use super::settings::LifecycleSettings;
use super::time_limit::launch_limit_mins;
use super::worker::Wing;

/// What the planner gives to the job anew: nodes whose windows have the same known end make one wing, others
/// one each, because Slurm preempts whole jobs.
#[allow(missing_debug_implementations, reason = "closures have no text")]
pub struct TargetContext<'a> {
    /// Tells the end of a node's window.
    pub window: &'a dyn Fn(&NodeName) -> WindowEnd,
    /// Whether the node can be taken now (nothing of ours is still on it).
    pub free: &'a dyn Fn(&NodeName) -> bool,
    /// Seconds within which a job that is launched on the node now must end by its limit, for Slurm to start
    /// it (see [`infill_model::BackfillState::startable_secs`]); `None` where only its lease bounds it.
    pub startable_secs: &'a dyn Fn(&NodeName) -> Option<f64>,
    /// Wings that all jobs together may still order (`slurm.max_wings`).
    pub wings_left: usize,
}

/// What a job is told that could have had more wings.
const WING_LIMIT_SHORTAGE: &str = "there are as many wings as slurm.max_wings allows";

/// Hands out order numbers that were never used before.
pub trait OrderNumbers {
    /// The next number; `None` when the store could not give more: then nothing is ordered.
    fn next_number(&mut self) -> Option<u64>;
}

impl JobLifecycle {
    /// Takes in what the planner wants and orders the wings that are missing.
    pub fn set_target(
        &mut self,
        plan: &JobPlan,
        ground: &TargetContext<'_>,
        orders: &mut dyn OrderNumbers,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if matches!(self.phase, JobPhase::Ending { .. } | JobPhase::Ended) {
            return;
        }
        self.apply_plan(plan, ground, settings, now);
        if self.outdated_lead_reason().is_some() {
            self.do_without_wings(settings, now);
        }
        if !self.may_order(now) {
            return;
        }
        let missing = self.missing_nodes(ground);
        let blocks = group_into_wings(missing, ground);
        if blocks.len() > ground.wings_left {
            self.obstacles.shortage = Some(WING_LIMIT_SHORTAGE.to_owned());
        } else if self.obstacles.shortage.as_deref() == Some(WING_LIMIT_SHORTAGE) {
            self.obstacles.shortage = None;
        }
        for block in blocks.into_iter().take(ground.wings_left) {
            let Some(number) = self.fresh_order_number(orders) else {
                out.notes.push("no order number to be had: nothing was ordered".to_owned());
                return;
            };
            self.order_wing(number, &block, ground, settings, now);
        }
    }

    fn apply_plan(
        &mut self,
        plan: &JobPlan,
        ground: &TargetContext<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
    ) {
        let claim_secs = settings.claim_secs;
        self.target = Some(Target { plan: plan.clone(), blocked: false, claim_secs, ends_by: None });
        if self.generation.away.is_some() {
            self.plan_without_lead(now);
        }
        // The plan may be older than the last word of an agent whose node Slurm takes, or on whose node the
        // command has failed.
        let leaving = self.workers.iter().filter(|(_, w)| w.leaving).map(|(n, _)| n);
        let planned = plan.nodes.iter().map(|p| &p.node);
        let shunned = planned.filter(|n| self.obstacles.trials.is_shunned(n, now));
        let lost: Vec<NodeName> = leaving.chain(shunned).cloned().collect();
        lost.iter().for_each(|n| self.drop_from_target(n));
        self.plan_own_nodes_first(now);
        if let Some(Target { plan, blocked, ends_by, .. }) = &mut self.target {
            let first = plan.nodes.first().map(|p| &p.node);
            *blocked = first.is_some_and(|n| !(ground.free)(n));
            *ends_by = first.and_then(ground.startable_secs).map(|secs| now.plus_secs(secs));
        }
    }

    /// Whether the lead's agent is where the planner wants it, and may submit wings.
    fn may_order(&self, now: UnixTime) -> bool {
        let first = self.target.as_ref().and_then(|t| t.plan.nodes.first());
        let lead_is_here = first.is_some_and(|p| self.lead_node() == Some(&p.node))
            && self.workers.values().any(|w| self.is_lead(w) && !w.leaving);
        let in_place = !matches!(self.phase, JobPhase::Requeueing { .. } | JobPhase::Launching { .. });
        lead_is_here && in_place && !self.cannot_order(now)
    }

    /// Leaves to others what its lead's agent is not asked for. If the rest is no size that it may have, the
    /// job waits before it starts the next time, and longer each time: its agent may be as old then.
    fn do_without_wings(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        let held = self.occupied_nodes();
        let Some(Target { plan, .. }) = &mut self.target else { return };
        let leads = plan.nodes.first().map(|p| p.node.clone());
        plan.nodes.retain(|p| held.contains_key(&p.node) || Some(&p.node) == leads.as_ref());
        let nodes = plan.nodes.len() as u32;
        if nodes > 0 && self.allowed_sizes().up_to(nodes).is_empty() && !self.backoff.orders_barred(now) {
            self.backoff.record_refusal(settings, now);
        }
    }

    /// Nodes for which there is no wing yet, that can be taken now, and on which Slurm would start one.
    fn missing_nodes(&self, ground: &TargetContext<'_>) -> Vec<PlannedNode> {
        let held = self.occupied_nodes();
        let wings = self.target.iter().flat_map(|t| t.plan.nodes.iter().skip(1));
        let starts = |n: &NodeName| (ground.startable_secs)(n).is_none_or(|secs| secs >= LEAST_LIMIT_SECS);
        let is_missing = |n: &NodeName| !held.contains_key(n) && (ground.free)(n) && starts(n);
        wings.filter(|p| is_missing(&p.node)).cloned().collect()
    }

    /// A number that none of its wings bears: those that were taken up may come from another store.
    fn fresh_order_number(&self, orders: &mut dyn OrderNumbers) -> Option<u64> {
        std::iter::repeat_with(|| orders.next_number())
            .take(self.wings.len() + 1)
            .find(|number| number.is_none_or(|n| !self.wings.contains_key(&n)))
            .flatten()
    }

    /// What a wing asks for that is to have places of a shared node, where its lead asked for nothing.
    fn place_gres(&self, block: &[PlannedNode]) -> Option<String> {
        let place = block.first().filter(|p| p.node.is_place() && self.submitted.cpus.is_none())?;
        Some(format!("gpu:{}", place.node.single_places().len()))
    }

    /// What a worker of the plan that the job shall run needs of a shared node. Whole nodes are had whole.
    fn plan_needs(&self, block: &[PlannedNode]) -> PlanNeeds {
        let is_place = block.first().is_some_and(|p| p.node.is_place());
        let Some(target) = self.target.as_ref().filter(|_| is_place) else { return PlanNeeds::default() };
        let plan = self.spec.plans.iter().find(|plan| plan.name == target.plan.exec_plan);
        plan.map_or(PlanNeeds::default(), |plan| plan.needs)
    }

    fn order_wing(
        &mut self,
        number: u64,
        block: &[PlannedNode],
        ground: &TargetContext<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
    ) {
        let lease = block.iter().map(|p| p.lease_until).min().unwrap_or(now);
        let startable_secs = block.iter().filter_map(|p| (ground.startable_secs)(&p.node)).reduce(f64::min);
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let needs = self.plan_needs(block);
        let asked = some(&self.submitted.gres);
        let of_place = self.place_gres(block);
        // What a main job has of its node, wings have of theirs, however it asked for that.
        let gres = if self.is_extension() { of_place.or(asked) } else { asked.or(of_place) };
        let order = WingOrder {
            order: number,
            nodes: block.iter().map(|p| p.node.clone()).collect(),
            // None is ordered where Slurm would start none.
            time_limit_mins: launch_limit_mins(lease.secs_since(now), startable_secs).unwrap_or(1),
            partition: settings.partition.clone(),
            // The QOS of a main job is none for wings.
            qos: settings.qos.clone().or_else(|| some(&self.submitted.qos).filter(|_| !self.is_extension())),
            account: some(&self.submitted.account),
            gres,
            cpus: needs.cpus.or(self.submitted.cpus),
            memory_mib: needs.memory_mib,
            constraint: some(&self.submitted.nodes.constraint).filter(|c| Constraint::is_simple(c)),
            exclude: some(&self.submitted.nodes.exclude),
        };
        let wing = Wing {
            order,
            ordered_at: now,
            job: None,
            batch_host: None,
            seen_running: false,
            configuring: false,
        };
        self.wings.insert(number, wing);
    }
}

/// Groups new nodes into wings: one for each known window end, one for each node without. If that were more
/// than may be ordered, nodes without share: half of what is left is for this job, the rest for others.
fn group_into_wings(missing: Vec<PlannedNode>, ground: &TargetContext<'_>) -> Vec<Vec<PlannedNode>> {
    let mut known: Vec<(UnixTime, Vec<PlannedNode>)> = Vec::new();
    let mut open = Vec::new();
    // Each place of a shared node is a Slurm job of its own: a main job takes no more than it needs, and
    // Slurm shrinks no job by a GPU.
    let (places, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(|p| p.node.is_place());
    for p in missing {
        match (ground.window)(&p.node) {
            WindowEnd::Known { at, .. } => match known.iter_mut().find(|(end, _)| *end == at) {
                Some((_, block)) => block.push(p),
                None => known.push((at, vec![p])),
            },
            WindowEnd::Unknown => open.push(p),
        }
    }
    let enough = known.len() + open.len() <= ground.wings_left;
    let share = if enough { open.len() } else { (ground.wings_left / 2).saturating_sub(known.len()) };
    let together = open.len().div_ceil(share.max(1)).max(1);
    let mut out: Vec<Vec<PlannedNode>> = open.chunks(together).map(<[PlannedNode]>::to_vec).collect();
    out.extend(known.into_iter().map(|(_, block)| block));
    out.extend(places.into_iter().map(|place| vec![place]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobId, WindowCause};

    #[test]
    fn parts_of_one_host_get_one_wing_each_also_with_the_same_end() {
        let at = UnixTime(900);
        let cause = WindowCause::PlannedJob(JobId(9));
        let window = move |node: &NodeName| match node.matches_name("n9") {
            true => WindowEnd::Unknown,
            false => WindowEnd::Known { at, cause: cause.clone() },
        };
        let ground = TargetContext {
            window: &window,
            free: &|_| true,
            startable_secs: &|_| None,
            wings_left: usize::MAX,
        };
        let wings = |names: &[&str]| {
            let wings = group_into_wings(
                names
                    .iter()
                    .map(|name: &&str| PlannedNode { node: NodeName::new(name), lease_until: at })
                    .collect(),
                &ground,
            );
            wings
                .into_iter()
                .map(|wing: Vec<PlannedNode>| {
                    wing.iter().map(|p| p.node.to_string()).collect::<Vec<_>>().join(" ")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(wings(&["n1:0", "n1:1", "n9:0", "n9:1"]), ["n1:0", "n1:1", "n9:0", "n9:1"]);
        assert_eq!(wings(&["n1:0+1", "n1:2+3"]), ["n1:0+1", "n1:2+3"], "a worker of several has one");
        assert_eq!(wings(&["n1", "n2", "n9"]), ["n9", "n1 n2"], "whole nodes of the same end share one");
    }
}
