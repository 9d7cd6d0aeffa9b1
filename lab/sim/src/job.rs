//! A simulated malleable job: it makes samples by its true curve, and none while it is rescaled.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::newcomers::NewcomerSet;
use super::queue::NodeIx;
pub(crate) use super::score::ChangeCause;
use super::score::SampleLoss;
use infill_model::{ChangeKind, ChangePause, JobId, RescaleCosts, ScalingCurve, UnixTime};

/// How the seconds of a change are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeAccounting {
    /// The job makes no samples during the change, and then continues at its new size.
    #[default]
    Pause,
    /// As in the published replay: the job continues at its new size at once, and loses the samples that it
    /// would have made during the change at its old size. Starting is free, and several changes add up.
    OldRate,
}

/// The costs of saving, and the conditions under which work is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointCosts {
    /// Seconds that saving takes.
    pub save_secs: f64,
    /// Seconds between two checkpoints while it runs.
    pub interval_secs: f64,
    /// Seconds that a preempted job has to save. With less than [`CheckpointCosts::save_secs`] it loses the
    /// work since its last checkpoint.
    pub grace_secs: f64,
}

/// A malleable job as it was submitted.
#[derive(Clone, Debug)]
pub struct SubmittedJob {
    /// The job's name.
    pub name: String,
    /// The name of the profile that all jobs with the same program share.
    pub program: String,
    /// Its true throughput, samples a second.
    pub curve: Arc<ScalingCurve>,
    /// Smallest size, nodes.
    pub min_nodes: u32,
    /// Largest size, nodes.
    pub max_nodes: u32,
    /// What a sample is worth.
    pub weight: f64,
    /// Its owner; `None` if unknown. All jobs with an unknown owner count as one user's.
    pub user: Option<String>,
    /// Samples that it has to make; infinite for a job that never ends.
    pub budget: f64,
    /// When it was submitted, s on the log's clock.
    pub at: i64,
}

/// The last change of a job's nodes, and the pause for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobPause {
    /// When the pause ends.
    pub until: f64,
    /// Why it pauses.
    pub cause: ChangeCause,
    /// The kind of the change.
    change: ChangeKind,
    /// Length of the pause, s.
    pub secs: f64,
}

/// The samples that a job has not saved, and the time up to which its samples are counted.
#[derive(Clone, Copy, Debug)]
struct UnsavedWork {
    /// Samples since the last checkpoint.
    unsaved: f64,
    /// When the last checkpoint was, s.
    saved_at: f64,
    /// The time up to which its samples are counted, s.
    clock: f64,
    /// How its changes are charged.
    accounting: ChangeAccounting,
}

/// The state of a simulated job.
#[derive(Clone, Debug)]
pub struct SimJob {
    /// Its id.
    pub id: JobId,
    /// The job as it was submitted.
    pub submitted: SubmittedJob,
    /// Samples that it has made and not lost.
    pub done: f64,
    /// Its nodes, the lead's first.
    pub nodes: Vec<NodeIx>,
    /// When it last began to hold nodes, or to hold none, s.
    pub since: i64,
    /// When the policy last changed it, s.
    pub last_change: Option<i64>,
    /// Number of its generation.
    pub generation: u64,
    /// Rescales of all kinds after its first start.
    pub rescales: u64,
    /// Node-seconds that its changes cost, as in [`JobScore`](super::JobScore).
    pub(super) changing_secs: f64,
    pub(super) pausing: JobPause,
    unsaved_work: UnsavedWork,
    /// Its nodes that warm up while the others train.
    newcomers: NewcomerSet,
    warming: NewcomerWarmup,
}

/// How the newcomers of a job become members.
#[derive(Clone, Copy, Debug, Default)]
struct NewcomerWarmup {
    /// Seconds for which each warms up on its own node; 0 where the command restarts at each change.
    secs: f64,
    /// Seconds for which all nodes pause when newcomers become members.
    join_secs: f64,
    /// Why the job got the newcomers.
    cause: ChangeCause,
}

impl SimJob {
    /// A job without nodes that is submitted now. `sizes` are its smallest and largest number of nodes.
    pub fn new(id: JobId, program: &str, curve: Arc<ScalingCurve>, sizes: (u32, u32), now: i64) -> Self {
        let submitted = SubmittedJob {
            name: program.to_owned(),
            program: program.to_owned(),
            curve,
            min_nodes: sizes.0.max(1),
            max_nodes: sizes.1.max(sizes.0.max(1)),
            weight: 1.0,
            user: None,
            budget: f64::INFINITY,
            at: now,
        };
        let at = now as f64;
        SimJob {
            id,
            submitted,
            done: 0.0,
            nodes: Vec::new(),
            since: now,
            last_change: None,
            generation: 0,
            rescales: 0,
            changing_secs: 0.0,
            pausing: JobPause {
                until: 0.0,
                cause: ChangeCause::Rescale,
                change: ChangeKind::None,
                secs: 0.0,
            },
            unsaved_work: UnsavedWork {
                unsaved: 0.0,
                saved_at: at,
                clock: at,
                accounting: ChangeAccounting::Pause,
            },
            newcomers: NewcomerSet::default(),
            warming: NewcomerWarmup::default(),
        }
    }

    /// Number of nodes.
    pub fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Number of nodes that train.
    pub fn member_count(&self) -> u32 {
        self.size() - self.newcomers.len()
    }

    /// When the next of its newcomers become members, s.
    pub(crate) fn joins_at(&self) -> Option<f64> {
        self.newcomers.join_at().map(|at| at.max(self.pausing.until))
    }

    /// Samples a second at its present size, once it runs.
    pub fn rate(&self) -> f64 {
        self.submitted.curve.rate(self.member_count())
    }

    /// Whether it is in a pause for a change.
    pub fn is_pausing(&self, now: i64) -> bool {
        self.pausing.until > now as f64
    }

    /// Whether the main queue has taken nodes from it in this same second.
    fn is_forced(&self, now: i64) -> bool {
        self.pausing.cause == ChangeCause::Preemption && self.pausing.until - self.pausing.secs == now as f64
    }

    /// Whether it makes samples now.
    pub fn is_running(&self, now: i64) -> bool {
        !self.nodes.is_empty() && !self.is_pausing(now)
    }

    /// When it ends if its nodes stay the same, s; infinite if it never ends.
    pub(crate) fn ends_at(&self) -> f64 {
        match self.rate() {
            rate if rate > 0.0 => {
                self.pausing.until.max(self.unsaved_work.clock)
                    + (self.submitted.budget - self.done).max(0.0) / rate
            }
            _ => f64::INFINITY,
        }
    }

    /// Advances to the time `to`: makes samples, and turns warm newcomers into members.
    pub(super) fn advance_to(&mut self, to: f64, checkpoints: &CheckpointCosts, loss: &mut SampleLoss) {
        while let Some(at) = self.joins_at().filter(|at| *at <= to) {
            self.make_samples(at, checkpoints, loss);
            self.newcomers.join_ready(at);
            let NewcomerWarmup { join_secs, cause, .. } = self.warming;
            self.pausing =
                JobPause { until: at + join_secs, cause, change: ChangeKind::Grow, secs: join_secs };
            self.generation += 1;
            self.rescales += 1;
        }
        self.make_samples(to, checkpoints, loss);
    }

    fn make_samples(&mut self, to: f64, checkpoints: &CheckpointCosts, loss: &mut SampleLoss) {
        let rate = self.rate();
        let runs_from = self.pausing.until.clamp(self.unsaved_work.clock, to.max(self.unsaved_work.clock));
        self.changing_secs += f64::from(self.size()) * (runs_from - self.unsaved_work.clock)
            + f64::from(self.newcomers.len()) * (to - runs_from).max(0.0);
        if rate > 0.0 && to > self.unsaved_work.clock {
            *loss.amount_mut(self.pausing.cause) +=
                self.submitted.weight * rate * (runs_from - self.unsaved_work.clock);
            let samples = rate * (to - runs_from);
            self.done += samples;
            self.unsaved_work.unsaved += samples;
            // The interval counts from the last checkpoint, or from the end of the pause.
            let every = checkpoints.interval_secs.max(1.0);
            let since = to - self.unsaved_work.saved_at.max(self.pausing.until.min(to));
            if since >= every {
                self.unsaved_work.saved_at = to - since % every;
                self.unsaved_work.unsaved = rate * (to - self.unsaved_work.saved_at);
            }
        }
        self.unsaved_work.clock = self.unsaved_work.clock.max(to);
    }

    /// Moves to other nodes because its policy decided so. It loses only time.
    pub(super) fn rescale_to(
        &mut self,
        nodes: Vec<NodeIx>,
        cause: ChangeCause,
        costs: &RescaleCosts,
        now: i64,
        loss: &mut SampleLoss,
    ) {
        self.last_change = Some(now);
        if self.stays_alive(&nodes) {
            return self.rescale_alive(nodes, cause, costs, now);
        }
        let change = change_kind(&self.nodes, &nodes);
        let secs = change.pause_secs(costs);
        if self.unsaved_work.accounting == ChangeAccounting::OldRate {
            return self.charge_change(nodes, secs, cause, now, loss);
        }
        // If the main queue forced it to stop in this same second, it starts once, not twice.
        let is_forced = self.is_forced(now);
        let cause = if is_forced && !self.nodes.is_empty() { ChangeCause::Preemption } else { cause };
        if is_forced && self.pausing.secs > secs {
            self.restart_on(nodes, self.pausing.change, self.pausing.secs, cause, now);
        } else {
            self.restart_on(nodes, change, secs, cause, now);
        }
    }

    /// Whether it stays alive when it moves to these nodes.
    fn stays_alive(&self, to: &[NodeIx]) -> bool {
        self.warming.secs > 0.0
            && !to.is_empty()
            && self.member_count() > 0
            && to.first() == self.nodes.first()
    }

    /// Moves to these nodes while it stays alive. New nodes warm up first. It pauses only if members leave.
    fn rescale_alive(&mut self, nodes: Vec<NodeIx>, cause: ChangeCause, costs: &RescaleCosts, now: i64) {
        let members_leave = self.nodes.iter().any(|n| !self.newcomers.contains(*n) && !nodes.contains(n));
        for node in nodes.iter().filter(|n| !self.nodes.contains(n)) {
            self.newcomers.admit_node(*node, now as f64 + self.warming.secs);
        }
        self.newcomers.retain(&nodes);
        self.warming.join_secs = costs.up_secs;
        self.warming.cause = cause;
        if members_leave {
            let secs = costs.down_secs;
            self.pausing = JobPause { until: now as f64 + secs, cause, change: ChangeKind::Shrink, secs };
            self.generation += 1;
            self.rescales += 1;
        }
        self.nodes = nodes;
    }

    /// Loses nodes to the main queue. If too few are left, it gives up all and waits.
    pub(super) fn lose_nodes(
        &mut self,
        lost: &BTreeSet<NodeIx>,
        has_lead: bool,
        costs: &RescaleCosts,
        checkpoints: &CheckpointCosts,
        now: i64,
        loss: &mut SampleLoss,
    ) {
        if checkpoints.save_secs > checkpoints.grace_secs {
            loss.preemption += self.submitted.weight * self.unsaved_work.unsaved;
            self.done -= self.unsaved_work.unsaved;
        }
        let lead_lost = has_lead
            && lost.len() < self.nodes.len()
            && self.nodes.first().is_some_and(|lead| lost.contains(lead));
        if self.warming.secs > 0.0 && lost.iter().all(|n| self.newcomers.contains(*n)) {
            self.nodes.retain(|n| !lost.contains(n));
            self.newcomers.retain(&self.nodes);
            return;
        }
        let mut left: Vec<NodeIx> = self.nodes.iter().copied().filter(|n| !lost.contains(n)).collect();
        if (left.len() as u32) < self.submitted.min_nodes {
            left.clear();
        }
        let none_trains = self.newcomers.len() > 0 && left.iter().all(|n| self.newcomers.contains(*n));
        let starts = none_trains || (lead_lost && !self.cede_node_to_lead(&mut left, costs, now));
        let change = if starts { ChangeKind::Start } else { ChangeKind::Shrink };
        let secs = change.pause_secs(costs);
        if self.unsaved_work.accounting == ChangeAccounting::OldRate {
            return self.charge_change(left, secs, ChangeCause::Preemption, now, loss);
        }
        self.restart_on(left, change, secs, ChangeCause::Preemption, now);
    }

    /// Gives the node of the last member to the lead, which returns there as a newcomer while the other
    /// members continue to train. Returns false if there are not two members that are left.
    fn cede_node_to_lead(&mut self, left: &mut Vec<NodeIx>, costs: &RescaleCosts, now: i64) -> bool {
        let members = left.iter().filter(|node| !self.newcomers.contains(**node)).count();
        if self.warming.secs <= 0.0 || members <= 1 {
            return false;
        }
        let Some(last_member) = left.iter().rposition(|node| !self.newcomers.contains(*node)) else {
            return false;
        };
        let ceded = left.remove(last_member);
        left.insert(0, ceded);
        self.newcomers.admit_node(ceded, now as f64 + costs.start_secs);
        self.warming.join_secs = costs.up_secs;
        self.warming.cause = ChangeCause::Preemption;
        true
    }

    fn charge_change(
        &mut self,
        nodes: Vec<NodeIx>,
        secs: f64,
        cause: ChangeCause,
        now: i64,
        loss: &mut SampleLoss,
    ) {
        let lost = secs * self.rate();
        self.changing_secs += secs * f64::from(self.size());
        *loss.amount_mut(cause) += self.submitted.weight * lost;
        self.done -= lost;
        self.restart_on(nodes, ChangeKind::None, 0.0, cause, now);
    }

    fn restart_on(
        &mut self,
        nodes: Vec<NodeIx>,
        change: ChangeKind,
        secs: f64,
        cause: ChangeCause,
        now: i64,
    ) {
        if self.nodes.is_empty() != nodes.is_empty() {
            self.since = now;
        }
        self.rescales += u64::from(self.generation > 0);
        self.generation += 1;
        self.unsaved_work.unsaved = 0.0;
        self.unsaved_work.saved_at = now as f64;
        let until = now as f64 + if nodes.is_empty() { 0.0 } else { secs };
        self.pausing = JobPause { until, cause, change, secs };
        self.nodes = nodes;
        self.newcomers.retain(&self.nodes);
        if change == ChangeKind::Start {
            self.newcomers.clear();
        }
    }

    /// Makes it stay alive over changes: each newcomer warms up for `secs` seconds on its own node. With 0 it
    /// restarts at each change.
    pub(super) fn with_warmup(mut self, secs: f64) -> Self {
        self.warming.secs = secs;
        self
    }

    /// The pause of its last change, in the planner's form; `None` if that took no time.
    pub fn last_pause(&self) -> Option<ChangePause> {
        let began = UnixTime((self.pausing.until - self.pausing.secs).round() as i64);
        (self.pausing.secs > 0.0).then_some(ChangePause { since: began, change: self.pausing.change })
    }

    /// Sets how its changes are charged.
    pub(super) fn with_accounting(mut self, accounting: ChangeAccounting) -> Self {
        self.unsaved_work.accounting = accounting;
        self
    }

    /// The moment of its last change, in the planner's form.
    pub(crate) fn changed_at(&self) -> Option<UnixTime> {
        self.last_change.map(UnixTime)
    }
}

/// The kind of a change, which is the same for all policies. Giving up all nodes takes no time, because a job
/// without nodes has no samples to lose.
fn change_kind(from: &[NodeIx], to: &[NodeIx]) -> ChangeKind {
    ChangeKind::between_sizes(from.len() as u32, to.len() as u32, false)
}
