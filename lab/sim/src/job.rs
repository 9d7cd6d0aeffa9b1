//! A malleable job as it truly is: it makes samples by its curve, and none while it is rescaled.

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
    /// As it is: the job makes no samples for so long, and then goes on at its new size.
    #[default]
    Pause,
    /// As in the published replay: it goes on at its new size at once, and is charged what it would have made
    /// meanwhile at its old size. To start is free, and several changes add up.
    OldRate,
}

/// What saving costs, and what is lost without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointCosts {
    /// Seconds that saving takes.
    pub save_secs: f64,
    /// Seconds between two checkpoints while it runs.
    pub interval_secs: f64,
    /// Seconds that a preempted job has to save: with less than [`CheckpointCosts::save_secs`] it loses what
    /// it did since the last.
    pub grace_secs: f64,
}

/// What somebody submitted.
#[derive(Clone, Debug)]
pub struct SubmittedJob {
    /// The job's name.
    pub name: String,
    /// Jobs that run the same program share a profile of this name.
    pub program: String,
    /// Its true throughput, samples a second.
    pub curve: Arc<ScalingCurve>,
    /// Smallest size.
    pub min_nodes: u32,
    /// Largest size.
    pub max_nodes: u32,
    /// What a sample is worth.
    pub weight: f64,
    /// Its owner; all whose owner nobody knows have the same.
    pub user: Option<String>,
    /// Samples that it has to make; infinite for one that never ends.
    pub budget: f64,
    /// When.
    pub at: i64,
}

/// The last change of a job's nodes, and the pause for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobPause {
    /// When the pause ends.
    pub until: f64,
    /// Why it pauses.
    pub cause: ChangeCause,
    /// What changed.
    change: ChangeKind,
    /// Seconds that this takes.
    pub secs: f64,
}

/// What a job has not saved, and how far its samples are counted.
#[derive(Clone, Copy, Debug)]
struct UnsavedWork {
    /// Samples since the last checkpoint.
    unsaved: f64,
    /// When that was.
    saved_at: f64,
    /// Until when its samples are counted.
    clock: f64,
    /// How its changes are charged.
    accounting: ChangeAccounting,
}

/// A job to be simulated.
#[derive(Clone, Debug)]
pub struct SimJob {
    /// Its id.
    pub id: JobId,
    /// What was submitted.
    pub submitted: SubmittedJob,
    /// Samples that it has made and saved, or not yet lost.
    pub done: f64,
    /// Its nodes, the lead's first.
    pub nodes: Vec<NodeIx>,
    /// Since when it holds no nodes, or holds some.
    pub since: i64,
    /// Its last change by the policy.
    pub last_change: Option<i64>,
    /// Number of its generation.
    pub generation: u64,
    /// Rescales of all kinds after its first start.
    pub rescales: u64,
    /// Node-seconds that its changes cost, as in [`JobScore`](super::JobScore).
    pub(super) changing_secs: f64,
    pub(super) pausing: JobPause,
    books: UnsavedWork,
    /// Those of its nodes that warm up while the others train.
    newcomers: NewcomerSet,
    warming: NewcomerWarmup,
}

/// How the newcomers of a job come to be members.
#[derive(Clone, Copy, Debug, Default)]
struct NewcomerWarmup {
    /// Seconds that each warms up for on its own node; 0 where the command restarts at each change.
    secs: f64,
    /// Seconds for which all pause when some are let in.
    join_secs: f64,
    /// For what they came.
    cause: ChangeCause,
}

impl SimJob {
    /// A job that waits.
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
            books: UnsavedWork { unsaved: 0.0, saved_at: at, clock: at, accounting: ChangeAccounting::Pause },
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

    /// When some of its newcomers are let in.
    pub(crate) fn joins_at(&self) -> Option<f64> {
        self.newcomers.join_at().map(|at| at.max(self.pausing.until))
    }

    /// Samples a second at its present size, once it runs.
    pub fn rate(&self) -> f64 {
        self.submitted.curve.rate(self.member_count())
    }

    /// Whether it is in the middle of a change.
    pub fn is_pausing(&self, now: i64) -> bool {
        self.pausing.until > now as f64
    }

    /// Whether the main queue has taken nodes from it in this very second.
    fn is_forced(&self, now: i64) -> bool {
        self.pausing.cause == ChangeCause::Preemption && self.pausing.until - self.pausing.secs == now as f64
    }

    /// Whether it makes samples.
    pub fn is_running(&self, now: i64) -> bool {
        !self.nodes.is_empty() && !self.is_pausing(now)
    }

    /// When it will have made all its samples as things are; infinite for one that never will.
    pub(crate) fn ends_at(&self) -> f64 {
        match self.rate() {
            rate if rate > 0.0 => {
                self.pausing.until.max(self.books.clock) + (self.submitted.budget - self.done).max(0.0) / rate
            }
            _ => f64::INFINITY,
        }
    }

    /// Lets time pass.
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
        let runs_from = self.pausing.until.clamp(self.books.clock, to.max(self.books.clock));
        self.changing_secs += f64::from(self.size()) * (runs_from - self.books.clock)
            + f64::from(self.newcomers.len()) * (to - runs_from).max(0.0);
        if rate > 0.0 && to > self.books.clock {
            *loss.amount_mut(self.pausing.cause) +=
                self.submitted.weight * rate * (runs_from - self.books.clock);
            let samples = rate * (to - runs_from);
            self.done += samples;
            self.books.unsaved += samples;
            // Counted from the last checkpoint, or from its start, whatever else happens in between.
            let every = checkpoints.interval_secs.max(1.0);
            let since = to - self.books.saved_at.max(self.pausing.until.min(to));
            if since >= every {
                self.books.saved_at = to - since % every;
                self.books.unsaved = rate * (to - self.books.saved_at);
            }
        }
        self.books.clock = self.books.clock.max(to);
    }

    /// Goes over to other nodes by its policy's will. Nothing is lost but time.
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
        if self.books.accounting == ChangeAccounting::OldRate {
            return self.charge_change(nodes, secs, cause, now, loss);
        }
        // Forced to stop in this very second: it starts once, not twice.
        let forced = self.is_forced(now);
        let cause = if forced && !self.nodes.is_empty() { ChangeCause::Preemption } else { cause };
        let (change, secs) = if forced && self.pausing.secs > secs {
            (self.pausing.change, self.pausing.secs)
        } else {
            (change, secs)
        };
        self.restart_on(nodes, (change, secs), cause, now);
    }

    /// Whether it stays alive when it goes over to these nodes.
    fn stays_alive(&self, to: &[NodeIx]) -> bool {
        self.warming.secs > 0.0
            && !to.is_empty()
            && self.member_count() > 0
            && to.first() == self.nodes.first()
    }

    /// Goes over to these nodes alive: new ones warm up first, and only those that train and go stop.
    fn rescale_alive(&mut self, nodes: Vec<NodeIx>, cause: ChangeCause, costs: &RescaleCosts, now: i64) {
        let some_go = self.nodes.iter().any(|n: &NodeIx| !self.newcomers.contains(*n) && !nodes.contains(n));
        for node in nodes.iter().filter(|n| !self.nodes.contains(n)) {
            self.newcomers.admit_node(*node, now as f64 + self.warming.secs);
        }
        self.newcomers.retain(&nodes);
        (self.warming.join_secs, self.warming.cause) = (costs.up_secs, cause);
        if some_go {
            let secs = costs.down_secs;
            self.pausing = JobPause { until: now as f64 + secs, cause, change: ChangeKind::Shrink, secs };
            self.generation += 1;
            self.rescales += 1;
        }
        self.nodes = nodes;
    }

    /// Loses nodes to the main queue. Too few left: it must wait.
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
            loss.preemption += self.submitted.weight * self.books.unsaved;
            self.done -= self.books.unsaved;
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
        if self.books.accounting == ChangeAccounting::OldRate {
            return self.charge_change(left, secs, ChangeCause::Preemption, now, loss);
        }
        self.restart_on(left, (change, secs), ChangeCause::Preemption, now);
    }

    /// Of those that are left, one that trains gives its node up for the lead, which comes back there as a
    /// newcomer, while the others train on. Says whether that is so.
    fn cede_node_to_lead(&mut self, left: &mut Vec<NodeIx>, costs: &RescaleCosts, now: i64) -> bool {
        let trains = |n: &NodeIx| !self.newcomers.contains(*n);
        let stays = self.warming.secs > 0.0 && left.iter().filter(|n| trains(n)).count() > 1;
        let place = left.iter().rposition(trains).filter(|_| stays);
        let Some(place) = place.map(|at| left.remove(at)) else { return false };
        left.insert(0, place);
        self.newcomers.admit_node(place, now as f64 + costs.start_secs);
        (self.warming.join_secs, self.warming.cause) = (costs.up_secs, ChangeCause::Preemption);
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
        self.restart_on(nodes, (ChangeKind::None, 0.0), cause, now);
    }

    fn restart_on(
        &mut self,
        nodes: Vec<NodeIx>,
        (change, secs): (ChangeKind, f64),
        cause: ChangeCause,
        now: i64,
    ) {
        if self.nodes.is_empty() != nodes.is_empty() {
            self.since = now;
        }
        self.rescales += u64::from(self.generation > 0);
        self.generation += 1;
        (self.books.unsaved, self.books.saved_at) = (0.0, now as f64);
        let until = now as f64 + if nodes.is_empty() { 0.0 } else { secs };
        self.pausing = JobPause { until, cause, change, secs };
        self.nodes = nodes;
        self.newcomers.retain(&self.nodes);
        if change == ChangeKind::Start {
            self.newcomers.clear();
        }
    }

    /// Stays alive over changes: each newcomer warms up for so many seconds, on its own node; 0: it restarts.
    pub(super) fn with_warmup(mut self, secs: f64) -> Self {
        self.warming.secs = secs;
        self
    }

    /// The pause of its last change, as the planner knows it.
    pub fn last_pause(&self) -> Option<ChangePause> {
        let began = UnixTime((self.pausing.until - self.pausing.secs).round() as i64);
        (self.pausing.secs > 0.0).then_some(ChangePause { since: began, change: self.pausing.change })
    }

    /// Charges its changes in this way.
    pub(super) fn with_accounting(mut self, accounting: ChangeAccounting) -> Self {
        self.books.accounting = accounting;
        self
    }

    /// The moment of its last change, as the planner knows it.
    pub(crate) fn changed_at(&self) -> Option<UnixTime> {
        self.last_change.map(UnixTime)
    }
}

/// What kind of change it is: the same for all policies. To give up everything takes no seconds, for there
/// are no samples to be lost.
fn change_kind(from: &[NodeIx], to: &[NodeIx]) -> ChangeKind {
    ChangeKind::between_sizes(from.len() as u32, to.len() as u32, false)
}
