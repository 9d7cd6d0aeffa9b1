//! Applies a snapshot's view of the wings.

use infill_model::{Job, NodeName, UnixTime, WingOrder, order_from_comment};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::observed_job::ObservedJob;
use super::phase::JobPhase;
use super::settings::{LifecycleSettings, SHOW_SECS};
use super::target::non_empty;
use super::worker::Wing;

/// Slurm's reasons for waiting that are temporary and depend on the node, not on the user's limits.
const TEMPORARY_REASONS: [&str; 8] =
    ["", "None", "Priority", "Resources", "Nodes", "ReqNodeNotAvail", "BeginTime", "Cleaning"];

/// Whether a wing that waits for this reason may still start, only late.
fn is_temporary_reason(reason: &str) -> bool {
    let first_word = reason.split([',', '(', '_', ' ']).next().unwrap_or_default();
    TEMPORARY_REASONS.contains(&first_word)
}

impl JobLifecycle {
    /// Applies a snapshot's view of the job's wings.
    pub(super) fn observe_wings(
        &mut self,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        for job in &observed.wings {
            self.observe_wing(job, settings, now, out);
        }
        self.drop_ended_wings(observed, settings, now, out);
    }

    fn observe_wing(
        &mut self,
        job: &Job,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let order = order_from_comment(&job.comment);
        let mut wings = self.wings.iter();
        let known = wings.find(|(number, wing)| Some(**number) == order || wing.job == Some(job.id));
        let known = known.map(|(number, _)| *number);
        match known {
            Some(number) => self.observe_known_wing(number, job, now, out),
            None if self.may_adopt_wing(job) => self.adopt_wing(job, order, settings, now, out),
            None if self.phase != JobPhase::Ended => {
                out.notes.push(format!("wing {} does not belong to any order: cancelled", job.id));
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
        if waits && !is_temporary_reason(&job.state_reason) {
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

    /// Cancels a wing that Slurm has requeued: its order applied to the first start only. Wings do not ask
    /// for a requeue. But from 26.05 on Slurm requeues a job if nodes that were powered on for it do not come
    /// up (`requeue_on_resume_failure`).
    fn handle_requeued_wing(&mut self, number: u64, job: &Job, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("Slurm has requeued wing {}: cancelled", job.id));
        if let Some(wing) = self.wings.remove(&number) {
            self.drop_nodes(&wing.order.nodes, "a wing was requeued", now);
        }
        self.attempt_effect(Effect::CancelWing { job: job.id }, now, out);
    }

    /// Slurm preempts a wing whose agents have missed the notice.
    fn handle_wing_preemption(
        &mut self,
        job: &Job,
        nodes: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if nodes.iter().any(|n| self.workers.contains_key(n)) {
            for node in nodes {
                self.handle_leaving(node, now, out);
            }
            return;
        }
        out.notes.push(format!("Slurm takes wing {} back before its agents have said hello", job.id));
        for node in nodes {
            self.drop_from_target(node);
        }
        self.attempt_effect(Effect::CancelWing { job: job.id }, now, out);
    }

    /// Whether an unknown wing may belong to an order that the store has lost. Before the first plan after a
    /// restart, infill cannot say that the wing is unwanted.
    fn may_adopt_wing(&self, job: &Job) -> bool {
        let has_wings =
            !matches!(self.phase, JobPhase::Queued { .. } | JobPhase::Ending { .. } | JobPhase::Ended);
        has_wings && self.target.is_none() && job.state.is_running()
    }

    /// Takes over a wing that the store has lost.
    fn adopt_wing(
        &mut self,
        job: &Job,
        order: Option<u64>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        out.notes.push(format!("took over wing {}, which is not in the store", job.id));
        // A wing without a number gets one that the store never hands out.
        let number = order.unwrap_or(u64::MAX - u64::from(job.id.0));
        let order = WingOrder {
            number,
            nodes: job.worker_nodes(),
            time_limit_mins: job.time_limit_mins.and_then(|m| u32::try_from(m).ok()).unwrap_or(u32::MAX),
            partition: settings.partition.clone(),
            qos: non_empty(&job.qos),
            account: non_empty(&job.account),
            gres: non_empty(&job.gres),
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

    /// A wing failed on its nodes. The job or the nodes may be at fault.
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

    /// Forgets wings that Slurm no longer shows.
    fn drop_ended_wings(
        &mut self,
        observed: &ObservedJob<'_>,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let ended: Vec<u64> = self
            .wings
            .iter()
            .filter(|(_, w)| w.job.is_some_and(|id| observed.wings.iter().all(|j| j.id != id)))
            .filter(|(_, w)| observed.read_at.secs_since(w.ordered_at) > SHOW_SECS)
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
            if wing.job.is_some_and(|id| observed.out_of_memory.contains(&id)) {
                self.handle_wing_out_of_memory(&wing.order.nodes, now, out);
            }
            self.drop_nodes(&wing.order.nodes, "a wing ended", now);
        }
    }

    /// Slurm has ended a wing on these nodes, with its agents, because it ran out of memory.
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

    /// Whether the job wants a wing whose agents have not said hello.
    fn is_wanted_and_never_came(&self, wing: &Wing) -> bool {
        let nodes = &wing.order.nodes;
        nodes.iter().any(|n| self.wants_wing_on(n)) && !nodes.iter().any(|n| self.workers.contains_key(n))
    }
}
