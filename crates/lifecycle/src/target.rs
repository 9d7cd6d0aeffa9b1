//! Applies the planner's target, and orders missing wings.

use infill_model::{
    Constraint, JobPlan, MIN_TIME_LIMIT_SECS, NodeName, PlanNeeds, PlannedNode, UnixTime, WindowEnd,
    WingOrder,
};

use super::effect::StepOutcome;
use super::job_lifecycle::{JobLifecycle, Target};
use super::phase::JobPhase;
use super::settings::LifecycleSettings;
use super::time_limit::launch_limit_mins;
use super::worker::Wing;

/// What a job needs to know about nodes in order to follow a plan.
#[allow(missing_debug_implementations, reason = "closures cannot be formatted")]
pub struct TargetContext<'a> {
    /// Returns the end of a node's window.
    pub window: &'a dyn Fn(&NodeName) -> WindowEnd,
    /// Whether the job can take a node now, because no other malleable job is still on it.
    pub free: &'a dyn Fn(&NodeName) -> bool,
    /// How soon the limit of a job that is launched on a node now must end, seconds, so that Slurm starts it
    /// (see [`infill_model::BackfillState::startable_secs`]). `None` if only its lease bounds it.
    pub startable_secs: &'a dyn Fn(&NodeName) -> Option<f64>,
    /// Number of wings that all jobs together may still order (`slurm.max_wings`).
    pub wings_left: usize,
}

/// The shortage of a job that could have more wings.
const WING_LIMIT_SHORTAGE: &str = "there are as many wings as slurm.max_wings allows";

/// Hands out wing numbers that were never used before.
pub trait WingNumbers {
    /// The next number; `None` if the store could not reserve more, in which case no wing is ordered.
    fn next_number(&mut self) -> Option<u64>;
}

impl JobLifecycle {
    /// Applies a plan and orders the missing wings.
    pub fn set_target(
        &mut self,
        plan: &JobPlan,
        context: &TargetContext<'_>,
        numbers: &mut dyn WingNumbers,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if matches!(self.phase, JobPhase::Ending { .. } | JobPhase::Ended) {
            return;
        }
        self.apply_plan(plan, context, settings, now);
        if self.outdated_lead_reason().is_some() {
            self.do_without_wings(settings, now);
        }
        if !self.may_order(now) {
            return;
        }
        let missing = self.missing_nodes(context);
        let wings = group_into_wings(missing, context);
        if wings.len() > context.wings_left {
            self.obstacles.shortage = Some(WING_LIMIT_SHORTAGE.to_owned());
        } else if self.obstacles.shortage.as_deref() == Some(WING_LIMIT_SHORTAGE) {
            self.obstacles.shortage = None;
        }
        for wing_nodes in wings.into_iter().take(context.wings_left) {
            let Some(number) = self.fresh_wing_number(numbers) else {
                out.notes.push("no reserved wing numbers are left: no further wing was ordered".to_owned());
                return;
            };
            self.order_wing(number, &wing_nodes, context, settings, now);
        }
    }

    /// Makes `plan` the target, without nodes that the job has just lost.
    fn apply_plan(
        &mut self,
        plan: &JobPlan,
        context: &TargetContext<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
    ) {
        let claim_secs = settings.claim_secs;
        self.target = Some(Target { plan: plan.clone(), blocked: false, claim_secs, ends_by: None });
        if self.generation.lead_absence.is_some() {
            self.plan_without_lead(now);
        }
        // The plan may be older than an agent's report that Slurm takes its node, or than a failure on a
        // node.
        let leaving = self.workers.iter().filter(|(_, w)| w.leaving).map(|(n, _)| n);
        let planned = plan.nodes.iter().map(|p| &p.node);
        let shunned = planned.filter(|n| self.obstacles.trials.is_shunned(n, now));
        let lost: Vec<NodeName> = leaving.chain(shunned).cloned().collect();
        for node in &lost {
            self.drop_from_target(node);
        }
        self.plan_own_nodes_first(now);
        if let Some(Target { plan, blocked, ends_by, .. }) = &mut self.target {
            let first = plan.nodes.first().map(|p| &p.node);
            *blocked = first.is_some_and(|n| !(context.free)(n));
            *ends_by = first.and_then(context.startable_secs).map(|secs| now.plus_secs(secs));
        }
    }

    /// Whether the lead's agent is on the planned node and may submit wings.
    fn may_order(&self, now: UnixTime) -> bool {
        let first = self.target.as_ref().and_then(|t| t.plan.nodes.first());
        let lead_is_here = first.is_some_and(|p| self.lead_node() == Some(&p.node))
            && self.workers.values().any(|w| self.is_lead(w) && !w.leaving);
        let is_moving = matches!(self.phase, JobPhase::Requeueing { .. } | JobPhase::Launching { .. });
        lead_is_here && !is_moving && !self.cannot_order(now)
    }

    /// Gives up planned nodes that would need new wings, because the lead's agent cannot order any. If the
    /// remaining number of nodes is not an allowed size, the job waits before its next start. It waits longer
    /// each time, since its agent may then still be too old.
    fn do_without_wings(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        let occupied = self.occupied_nodes();
        let Some(Target { plan, .. }) = &mut self.target else { return };
        let lead = plan.nodes.first().map(|p| p.node.clone());
        plan.nodes.retain(|p| occupied.contains_key(&p.node) || Some(&p.node) == lead.as_ref());
        let nodes = plan.nodes.len() as u32;
        if nodes > 0 && self.allowed_sizes().up_to(nodes).is_empty() && !self.backoff.orders_barred(now) {
            self.backoff.record_refusal(settings, now);
        }
    }

    /// Planned nodes without a wing that the job can take now, and on which Slurm would start a wing.
    fn missing_nodes(&self, context: &TargetContext<'_>) -> Vec<PlannedNode> {
        let occupied = self.occupied_nodes();
        let for_wings = self.target.iter().flat_map(|t| t.plan.nodes.iter().skip(1));
        let missing = for_wings.filter(|planned| {
            let node = &planned.node;
            let would_start = (context.startable_secs)(node).is_none_or(|secs| secs >= MIN_TIME_LIMIT_SECS);
            !occupied.contains_key(node) && (context.free)(node) && would_start
        });
        missing.cloned().collect()
    }

    /// A number that no wing of the job has. A wing that was taken over may have a number from another
    /// store.
    fn fresh_wing_number(&self, numbers: &mut dyn WingNumbers) -> Option<u64> {
        // The store's numbers differ, so at most one per wing can be in use.
        for _ in 0..=self.wings.len() {
            let number = numbers.next_number()?;
            if !self.wings.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    /// `--gres` of a wing on GPU places, for a lead that did not ask for GPUs; `None` for other wings.
    fn place_gres(&self, wing_nodes: &[PlannedNode]) -> Option<String> {
        let place = wing_nodes.first().filter(|p| p.node.is_place() && self.submitted.cpus.is_none())?;
        Some(format!("gpu:{}", place.node.single_places().len()))
    }

    /// CPUs and memory that a worker of the target's execution plan needs on a shared node. A wing on whole
    /// nodes gets all of them and needs no request.
    fn plan_needs(&self, wing_nodes: &[PlannedNode]) -> PlanNeeds {
        let is_place = wing_nodes.first().is_some_and(|p| p.node.is_place());
        let Some(target) = self.target.as_ref().filter(|_| is_place) else { return PlanNeeds::default() };
        let plan = self.spec.plans.iter().find(|plan| plan.name == target.plan.exec_plan);
        plan.map_or(PlanNeeds::default(), |plan| plan.needs)
    }

    /// Orders a wing with this number on these nodes.
    fn order_wing(
        &mut self,
        number: u64,
        wing_nodes: &[PlannedNode],
        context: &TargetContext<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
    ) {
        let lease = wing_nodes.iter().map(|p| p.lease_until).min().unwrap_or(now);
        let startable_secs = wing_nodes.iter().filter_map(|p| (context.startable_secs)(&p.node));
        let startable_secs = startable_secs.reduce(f64::min);
        let needs = self.plan_needs(wing_nodes);
        let requested_gres = non_empty(&self.submitted.gres);
        let place_gres = self.place_gres(wing_nodes);
        // Wings of a main job get the same share of their nodes as the main job has, however it asked for it.
        let gres = if self.is_extended_main_job() {
            place_gres.or(requested_gres)
        } else {
            requested_gres.or(place_gres)
        };
        // The QOS of a main job does not apply to its wings.
        let lead_qos = if self.is_extended_main_job() { None } else { non_empty(&self.submitted.qos) };
        let order = WingOrder {
            number,
            nodes: wing_nodes.iter().map(|p| p.node.clone()).collect(),
            // `missing_nodes` excludes nodes on which Slurm would not start a wing.
            time_limit_mins: launch_limit_mins(lease.secs_since(now), startable_secs).unwrap_or(1),
            partition: settings.partition.clone(),
            qos: settings.qos.clone().or(lead_qos),
            account: non_empty(&self.submitted.account),
            gres,
            cpus: needs.cpus.or(self.submitted.cpus),
            memory_mib: needs.memory_mib,
            constraint: non_empty(&self.submitted.nodes.constraint).filter(|c| Constraint::is_simple(c)),
            exclude: non_empty(&self.submitted.nodes.exclude),
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

/// A copy of the text; `None` if it is empty.
pub(super) fn non_empty(text: &str) -> Option<String> {
    if text.is_empty() { None } else { Some(text.to_owned()) }
}

/// Groups missing nodes into wings. Slurm preempts whole jobs, so nodes whose windows have the same known end
/// form one wing, and each node without a known end forms its own. If these were more wings than may be
/// ordered, nodes without a known end share wings: this job then takes half of the wings that are left, and
/// leaves the rest to others.
fn group_into_wings(missing: Vec<PlannedNode>, context: &TargetContext<'_>) -> Vec<Vec<PlannedNode>> {
    let mut by_end: Vec<(UnixTime, Vec<PlannedNode>)> = Vec::new();
    let mut without_end = Vec::new();
    // Each place of a shared node is its own Slurm job. So a main job takes only as many as it needs: Slurm
    // cannot shrink a job by a GPU.
    let (places, whole_nodes): (Vec<_>, Vec<_>) = missing.into_iter().partition(|p| p.node.is_place());
    for planned in whole_nodes {
        match (context.window)(&planned.node) {
            WindowEnd::Known { at, .. } => match by_end.iter_mut().find(|(end, _)| *end == at) {
                Some((_, nodes)) => nodes.push(planned),
                None => by_end.push((at, vec![planned])),
            },
            WindowEnd::Unknown => without_end.push(planned),
        }
    }
    let fits = by_end.len() + without_end.len() <= context.wings_left;
    let wings_without_end =
        if fits { without_end.len() } else { (context.wings_left / 2).saturating_sub(by_end.len()) };
    let nodes_per_wing = without_end.len().div_ceil(wings_without_end.max(1)).max(1);
    let mut wings: Vec<Vec<PlannedNode>> =
        without_end.chunks(nodes_per_wing).map(<[PlannedNode]>::to_vec).collect();
    wings.extend(by_end.into_iter().map(|(_, nodes)| nodes));
    wings.extend(places.into_iter().map(|place| vec![place]));
    wings
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
        let context = TargetContext {
            window: &window,
            free: &|_| true,
            startable_secs: &|_| None,
            wings_left: usize::MAX,
        };
        let wings = |names: &[&str]| {
            let wings = group_into_wings(
                names.iter().map(|name| PlannedNode { node: NodeName::new(name), lease_until: at }).collect(),
                &context,
            );
            wings
                .into_iter()
                .map(|wing| wing.iter().map(|p| p.node.to_string()).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(wings(&["n1:0", "n1:1", "n9:0", "n9:1"]), ["n1:0", "n1:1", "n9:0", "n9:1"]);
        assert_eq!(wings(&["n1:0+1", "n1:2+3"]), ["n1:0+1", "n1:2+3"], "a worker of several has one");
        assert_eq!(wings(&["n1", "n2", "n9"]), ["n9", "n1 n2"], "whole nodes of the same end share one");
    }
}
