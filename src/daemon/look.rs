//! What a trusted snapshot changes in the world, and the question that it raises.

use std::collections::{BTreeMap, BTreeSet};

use crate::gaps::{GapContext, Holders, Occupancy, find};
use crate::generation::{Effect, Machine, Outcome, Phase, Sight};
use crate::model::{Gaps, Job, JobId, NodeName, Request, Sizes, Snapshot, UnixTime, lead_of};
use crate::round::Question;

use super::books::{MAX_WAITING_ROWS, put_back};
use super::demand;
use super::rounds::wishes;
use super::world::{About, World};

/// Seconds after which a wing without its lead is cancelled again, if it is still there.
const ORPHAN_RETRY_SECS: f64 = 30.0;

/// A node that goes DRAIN within so many seconds after we left it is held against us. Slurm's own
/// UnkillableStepTimeout is 60 s, and draining follows it.
const BLAME_SECS: f64 = 180.0;

impl World {
    /// Takes in a trusted snapshot that was read from `read_at` on.
    pub fn look(&mut self, snapshot: &Snapshot, read_at: UnixTime, now: UnixTime) {
        let partition = self.config().slurm.partition.clone();
        let ours: Vec<&Job> = snapshot.jobs.iter().filter(|j| j.partition == partition).collect();
        self.meet(&ours, now);
        let mut wings: BTreeMap<JobId, Vec<&Job>> = BTreeMap::new();
        for job in ours.iter().filter(|j| !j.state.is_ended()) {
            if let Some(lead) = lead_of(job).filter(|l| self.same_owner(*l, job)) {
                wings.entry(lead).or_default().push(job);
            }
        }
        for id in self.machines.keys().copied().collect::<Vec<_>>() {
            let lead = snapshot.job(id).filter(|j| j.partition == partition);
            let sight = Sight { lead, wings: wings.remove(&id).unwrap_or_default(), read_at };
            let mut out = Outcome::default();
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.observe(&sight, &self.settings, now, &mut out);
            }
            self.turn(id, now, out);
        }
        self.cancel_orphans(&ours, now);
        self.blame_drains(snapshot, now);
        self.find_gaps(snapshot, now);
        self.advise(wishes(self.control).0, now);
    }

    /// Makes machines for leads that are new.
    fn meet(&mut self, ours: &[&Job], now: UnixTime) {
        let mut unclear = Vec::new();
        for job in ours.iter().filter(|j| !j.state.is_ended()) {
            match Request::of(job) {
                Ok(Some(Request::Lead(sizes))) => self.meet_lead(job, sizes, now),
                Ok(Some(Request::Wing(_))) => {}
                Ok(None) => {}
                Err(e) => unclear.push(format!("job {}: {e}", job.id)),
            }
        }
        if unclear.is_empty() {
            self.problems.remove("requests");
        } else {
            self.problems.insert("requests", unclear.join("; "));
        }
    }

    fn meet_lead(&mut self, job: &Job, sizes: Sizes, now: UnixTime) {
        let submitted_at = job.submit_time.unwrap_or(now);
        // Job ids wrap around: another submission time is another job. A requeue keeps it or moves it on a
        // little.
        let stale = self.machines.get(&job.id).is_some_and(|m| m.phase == Phase::Ended);
        if stale || !self.machines.contains_key(&job.id) {
            tracing::info!(job = %job.id, user = %job.user_name, %sizes, "a malleable job");
            self.machines.insert(job.id, Machine::new(job.id, sizes, now));
            self.about.remove(&job.id);
            self.mark_dirty([job.id]);
        }
        let about = self.about.entry(job.id).or_default();
        about.name.clone_from(&job.name);
        about.user.clone_from(&job.user_name);
        about.user_id = job.user_id.0;
        if about.submitted_at == UnixTime::default() {
            about.submitted_at = submitted_at;
        }
    }

    /// Makes a machine for a lead whose agent is here before any snapshot showed it.
    pub fn adopt(&mut self, job: &Job, now: UnixTime) {
        let known = self.machines.get(&job.id).is_some_and(|m| m.phase != Phase::Ended);
        if !known {
            let sizes = match Request::of(job) {
                Ok(Some(Request::Lead(sizes))) => sizes,
                _ => Sizes::Range { min: 1, max: 1 },
            };
            self.meet_lead(job, sizes, now);
        }
        let about: &mut About = self.about.entry(job.id).or_default();
        about.user_id = job.user_id.0;
    }

    fn same_owner(&self, lead: JobId, wing: &Job) -> bool {
        self.about.get(&lead).is_some_and(|a| a.user_id == wing.user_id.0)
    }

    /// Host at which other nodes reach a node.
    pub fn address(&self, node: &NodeName) -> String {
        let known = self.snapshot.as_ref().and_then(|s| s.node(node)).map(|n| n.address.clone());
        known.filter(|a| !a.is_empty()).unwrap_or_else(|| node.as_str().to_owned())
    }

    /// Cancels wings whose lead has ended or is another user's: nobody else will.
    fn cancel_orphans(&mut self, ours: &[&Job], now: UnixTime) {
        self.orphans.retain(|_, t| now.secs_since(*t) < ORPHAN_RETRY_SECS);
        for wing in ours.iter().filter(|j| !j.state.is_ended()) {
            let Some(lead) = lead_of(wing) else { continue };
            let living = self.machines.get(&lead).is_some_and(|m| m.phase != Phase::Ended);
            if (living && self.same_owner(lead, wing)) || self.orphans.contains_key(&wing.id) {
                continue;
            }
            self.orphans.insert(wing.id, now);
            tracing::info!(job = %lead, wing = %wing.id, "a wing without its lead: cancelled");
            self.send(lead, vec![Effect::CancelWing { job: wing.id }]);
        }
    }

    /// A node that goes DRAIN soon after we left it was probably drained because we left it badly.
    fn blame_drains(&mut self, snapshot: &Snapshot, now: UnixTime) {
        let held: Vec<NodeName> = self.machines.values().flat_map(|m| m.occupied().into_keys()).collect();
        for node in held {
            self.left_at.insert(node, now);
        }
        self.left_at.retain(|_, t| now.secs_since(*t) < BLAME_SECS);
        let drained: Vec<(NodeName, String)> = snapshot
            .nodes
            .iter()
            .filter(|n| n.state.has("DRAIN") && self.left_at.contains_key(&n.name))
            .map(|n| (n.name.clone(), n.reason.clone().unwrap_or_default()))
            .collect();
        for (node, reason) in drained {
            self.left_at.remove(&node);
            let ours = reason.contains("Kill task failed") || reason.contains("Epilog");
            if ours {
                tracing::error!(%node, "went DRAIN after we used it ({reason}): left alone");
                self.breaker.trip(&node, &format!("went DRAIN after we used it ({reason})"), now);
            }
        }
    }

    fn find_gaps(&mut self, snapshot: &Snapshot, now: UnixTime) {
        let partition = self.config().slurm.partition.clone();
        let before = std::mem::take(&mut self.gaps);
        let occupancy = Occupancy::of(snapshot, &partition);
        let ended = self.tracker.observe(&occupancy, &before, now);
        let holders = self.holders();
        let lookahead_secs = self.lookahead_secs(now);
        let context = GapContext {
            config: &self.config().gaps,
            holders: &holders,
            tracker: &self.tracker,
            survival: &self.survival,
            leave_secs: self.leave_secs(),
            lookahead_secs,
        };
        let gaps = find(&occupancy, &context, now);
        let waiting = std::mem::replace(&mut self.ended_gaps, ended);
        let lost = put_back(&mut self.ended_gaps, waiting, MAX_WAITING_ROWS);
        self.lose("gaps", lost);
        self.gaps = self.without_blocked(gaps, now);
        self.gaps_at = now;
    }

    fn lookahead_secs(&mut self, now: UnixTime) -> f64 {
        let living = self.machines.iter().filter(|(_, m)| m.phase != Phase::Ended);
        let submitted = living.filter_map(|(id, _)| Some(self.about.get(id)?.submitted_at));
        self.lookahead.note(submitted);
        let costs = self.living().map(|m| self.costs_of(m, &self.key_of(m.job)));
        self.lookahead.secs(&self.config().gaps, costs, now)
    }

    fn holders(&self) -> Holders {
        self.machines.iter().flat_map(|(id, m)| m.held().into_keys().map(|n| (n, *id))).collect()
    }

    /// Nodes on which any part of a malleable job is or will be in a moment.
    pub fn occupied(&self) -> BTreeMap<NodeName, JobId> {
        self.machines.iter().flat_map(|(id, m)| m.occupied().into_keys().map(|n| (n, *id))).collect()
    }

    /// Nodes of which an agent has said that Slurm takes them back.
    fn leaving(&self) -> BTreeSet<NodeName> {
        let workers = self.machines.values().flat_map(|m| &m.workers);
        workers.filter(|(_, w)| w.leaving).map(|(n, _)| n.clone()).collect()
    }

    /// Takes out the free nodes that the circuit breaker keeps us from.
    fn without_blocked(&self, gaps: Gaps, now: UnixTime) -> Gaps {
        let Gaps { gaps, mut refused } = gaps;
        let (open, blocked): (Vec<_>, Vec<_>) = gaps
            .into_iter()
            .partition(|g| g.holder.is_some() || self.breaker.blocked(&g.node, now).is_none());
        refused.extend(
            blocked
                .into_iter()
                .filter_map(|g| self.breaker.blocked(&g.node, now).map(|why| (g.node, why.into()))),
        );
        refused.sort_by(|a, b| a.0.cmp(&b.0));
        Gaps { gaps: open, refused }
    }

    /// What the planner is to be asked now.
    pub fn question(&self, snapshot: &Snapshot, now: UnixTime) -> Question {
        let (may_grow, drain) = wishes(self.control);
        let notes = crate::gaps::notes(snapshot, &self.config().gaps);
        let holders = self.holders();
        let mut gaps = self.gaps.clone();
        crate::gaps::carried_over(&mut gaps, now.secs_since(self.gaps_at));
        // What happened since the snapshot: nodes given up, nodes promised, nodes that Slurm has taken back.
        let (leaving, occupied) = (self.leaving(), self.occupied());
        let why_not = |n: &NodeName| match occupied.get(n) {
            _ if leaving.contains(n) => Some("Slurm is taking it back".to_owned()),
            Some(job) if !holders.contains_key(n) => Some(format!("job {job} is just leaving it")),
            _ => None,
        };
        let (gone, stay): (Vec<_>, Vec<_>) = gaps.gaps.into_iter().partition(|g| why_not(&g.node).is_some());
        gaps.gaps = stay;
        gaps.refused
            .extend(gone.into_iter().filter_map(|g| why_not(&g.node).map(|why| (g.node, why.into()))));
        gaps.refused.sort_by(|a, b| a.0.cmp(&b.0));
        for gap in &mut gaps.gaps {
            gap.holder = holders.get(&gap.node).copied();
        }
        Question {
            gaps,
            jobs: demand::jobs(self, now),
            at: now,
            may_grow: may_grow && !self.problems.contains_key("store"),
            drain,
            notes,
        }
    }
}
