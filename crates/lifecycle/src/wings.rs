//! Takes in what Slurm shows of the wings.

use infill_model::{Job, NodeName, UnixTime, WingOrder, order_from_comment};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::observed_job::ObservedJob;
use super::phase::JobPhase;
use super::settings::{LifecycleSettings, SHOW_SECS};
use super::worker::Wing;

/// Reasons to wait that are of the moment and of the node, and say nothing of what the user may have.
const PASSING: [&str; 8] =
    ["", "None", "Priority", "Resources", "Nodes", "ReqNodeNotAvail", "BeginTime", "Cleaning"];

/// Whether a wing that waits for this reason is no worse than late.
fn is_passing_reason(reason: &str) -> bool {
    let word = reason.split([',', '(', '_', ' ']).next().unwrap_or_default();
    PASSING.contains(&word)
}

impl JobLifecycle {
    pub(super) fn observe_wings(
        &mut self,
        sight: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        for job in &sight.wings {
            self.observe_wing(job, settings, now, out);
        }
        self.drop_ended_wings(sight, settings, now, out);
    }

    fn observe_wing(
        &mut self,
        job: &Job,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let order = order_from_comment(&job.comment);
        let known = self
            .wings
            .iter()
            .find(|(o, w): &(&u64, &Wing)| Some(**o) == order || w.job == Some(job.id))
            .map(|(o, _)| *o);
        match known {
            Some(number) => self.observe_known_wing(number, job, now, out),
            None if self.may_adopt_wing(job) => self.adopt_wing(job, order, settings, now, out),
            None if self.phase != JobPhase::Ended => {
                out.notes.push(format!("wing {} belongs to no order of ours: cancelled", job.id));
                self.attempt_effect(Effect::CancelWing { job: job.id }, now, out);
            }
            None => {}
        }
    }

    fn observe_known_wing(&mut self, number: u64, job: &Job, now: UnixTime, out: &mut StepOutcome) {
        if job.state.is_pending() && job.asks.requeues > 0 {
            self.handle_requeued_wing(number, job, now, out);
            return;
        }
        let Some(wing) = self.wings.get_mut(&number) else { return };
        wing.job = Some(job.id);
        wing.batch_host.clone_from(&job.batch_host);
        wing.configuring = job.state.flags.contains("CONFIGURING");
        wing.seen_running |= job.state.is_running() && !wing.configuring;
        let waits = job.state.is_pending() && now.secs_since(wing.ordered_at) > SHOW_SECS;
        if waits && !is_passing_reason(&job.state_reason) {
            let why = format!("Slurm keeps its wings waiting: {}", job.state_reason);
            self.obstacles.shortage = Some(why);
        }
        if job.state.is_running() {
            let nodes = wing.order.nodes.clone();
            self.renew_wing_limit(job, &nodes, now, out);
            if self.missed_preemption_notice(job, now) {
                self.handle_wing_preemption(job, &nodes, now, out);
            }
        }
    }

    /// A wing asks for no requeue. From 26.05 on Slurm requeues it all the same where the nodes that were
    /// switched on for it do not come up (`requeue_on_resume_failure`). Its order was for then: it is over.
    fn handle_requeued_wing(&mut self, number: u64, job: &Job, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("Slurm has requeued wing {}: cancelled", job.id));
        if let Some(wing) = self.wings.remove(&number) {
            self.drop_nodes(&wing.order.nodes, "a wing was requeued", now);
        }
        self.attempt_effect(Effect::CancelWing { job: job.id }, now, out);
    }

    fn handle_wing_preemption(
        &mut self,
        job: &Job,
        nodes: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if nodes.iter().any(|n| self.workers.contains_key(n)) {
            nodes.iter().for_each(|n| self.handle_leaving(n, now, out));
            return;
        }
        out.notes.push(format!("Slurm takes wing {} back, and nobody there has heard of it", job.id));
        nodes.iter().for_each(|n| self.drop_from_target(n));
        self.attempt_effect(Effect::CancelWing { job: job.id }, now, out);
    }

    /// Whether a wing that is not known may be one whose order the store has lost: until the planner has
    /// spoken, nobody can say that it is not wanted.
    fn may_adopt_wing(&self, job: &Job) -> bool {
        let lives =
            !matches!(self.phase, JobPhase::Queued { .. } | JobPhase::Ending { .. } | JobPhase::Ended);
        lives && self.target.is_none() && job.state.is_running()
    }

    fn adopt_wing(
        &mut self,
        job: &Job,
        order: Option<u64>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        out.notes.push(format!("took up wing {}, of which nothing was stored", job.id));
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        // One that names no order gets a number that none was ever given.
        let number = order.unwrap_or(u64::MAX - u64::from(job.id.0));
        let order = WingOrder {
            order: number,
            nodes: job.worker_nodes(),
            time_limit_mins: job.time_limit_mins.and_then(|m| u32::try_from(m).ok()).unwrap_or(u32::MAX),
            partition: settings.partition.clone(),
            qos: some(&job.qos),
            account: some(&job.account),
            gres: some(&job.gres),
            cpus: self.submitted.cpus,
            memory_mib: None,
            constraint: None,
            exclude: None,
        };
        let batch_host = job.batch_host.clone();
        let wing = Wing {
            order,
            ordered_at: now,
            job: Some(job.id),
            batch_host,
            seen_running: true,
            configuring: false,
        };
        self.wings.insert(number, wing);
    }

    /// A wing came to nothing on nodes that it held. That may be the job's fault as well as theirs.
    pub(super) fn handle_failed_wing(
        &mut self,
        wing: &Wing,
        why: &str,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        for node in &wing.order.nodes {
            self.obstacles.trials.shun_node(node, now);
            out.strikes.push((node.clone(), why.to_owned()));
        }
        self.backoff.record_wing_failure(settings, now);
    }

    fn drop_ended_wings(
        &mut self,
        sight: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let ended: Vec<u64> = self
            .wings
            .iter()
            .filter(|(_, w)| w.job.is_some_and(|id| !sight.wings.iter().any(|j| j.id == id)))
            .filter(|(_, w)| sight.read_at.secs_since(w.ordered_at) > SHOW_SECS)
            .map(|(order, _)| *order)
            .collect();
        for order in ended {
            let Some(wing) = self.wings.remove(&order) else { continue };
            if wing.seen_running && self.is_wanted_and_never_came(&wing) {
                self.handle_failed_wing(
                    &wing,
                    "a wing ended before its agent said hello",
                    settings,
                    now,
                    out,
                );
            }
            if wing.job.is_some_and(|id| sight.out_of_memory.contains(&id)) {
                self.handle_wing_out_of_memory(&wing.order.nodes, now, out);
            }
            self.drop_nodes(&wing.order.nodes, "a wing ended", now);
        }
    }

    /// Slurm has ended a wing on these nodes for lack of memory, agent and all.
    fn handle_wing_out_of_memory(&mut self, nodes: &[NodeName], now: UnixTime, out: &mut StepOutcome) {
        let members = self.phase.members().len();
        if !self.phase.involved_nodes().any(|member| nodes.contains(member)) {
            return;
        }
        out.notes.push("Slurm has ended a wing that ran out of memory".to_owned());
        self.obstacles.trials.record_overflow();
        if self.survives_loss(nodes, now) && self.has_alternative(members) {
            let why = self.record_overflow(members, out);
            out.notes.push(why);
        }
    }

    fn is_wanted_and_never_came(&self, wing: &Wing) -> bool {
        let nodes = &wing.order.nodes;
        nodes.iter().any(|n| self.wants_wing_on(n)) && !nodes.iter().any(|n| self.workers.contains_key(n))
    }
}
