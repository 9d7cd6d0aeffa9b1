//! Settles turns and promises for the jobs and gaps of a snapshot.

use super::RoundState;
use crate::round::demand;
use crate::round::priorities::JobPriorities;
use crate::round::rotation::{NodeClaim, UserShares};
use crate::round::round_input::RoundConstraints;
use crate::round::usable_gaps::UsableGaps;
use infill_model::{JobFacts, PlanningObjective, UnixTime};

impl RoundState {
    /// Settles whose turn it is to hold nodes.
    pub(super) fn settle_turns(&mut self, jobs: &[JobFacts], now: UnixTime) {
        let claims = self.node_claims(jobs, now);
        // Jobs that wings extend have no turns. Turns do not get what such a job was promised, either.
        let mut places = self.gaps.gaps.len() as u32;
        for facts in jobs.iter().filter(|facts| !facts.location.own.is_empty()) {
            let promised = self.priorities.promises.promised_places(facts).unwrap_or(0);
            places = places.saturating_sub(promised.saturating_sub(facts.location.places_per_node.max(1)));
        }
        let JobPriorities { usage, rotation, .. } = &mut self.priorities;
        let planner = &self.config.planner;
        let user_shares =
            UserShares { share: &|user| planner.user_share(user), used_secs: &|user| usage.used_by(user) };
        rotation.settle_turns(&claims, places, &user_shares, now);
    }

    /// Records what jobs are promised, so that jobs that come later take no promise away.
    pub(super) fn settle_guarantees(&mut self, jobs: &[JobFacts], now: UnixTime) {
        let any = jobs.iter().any(|facts| facts.declaration.at_least.is_some());
        let jobs = if any { self.round_input(jobs, RoundConstraints::FREE, now).jobs } else { Vec::new() };
        self.priorities.promises.record_guarantees(&jobs, now);
    }

    /// The jobs that want nodes, or hold some. A job for which too few nodes exist, whichever jobs hold them,
    /// keeps no other job from a turn.
    fn node_claims<'j>(&self, jobs: &'j [JobFacts], now: UnixTime) -> Vec<NodeClaim<'j>> {
        let mut usable = UsableGaps::new(&self.gaps);
        let mut claims = Vec::with_capacity(jobs.len());
        let ends_soon = self.config.planner.objective == PlanningObjective::Completion;
        let types = ends_soon.then(|| demand::gap_types(&self.gaps));
        for facts in jobs.iter().filter(|facts| !facts.ending && facts.location.own.is_empty()) {
            let key = self.profile_key(&facts.program, facts.location.lead_now.as_ref());
            let left_secs = types
                .as_ref()
                .and_then(|types| self.remaining_work_on(facts, types).0.known_remaining_secs());
            let promised_places = self.priorities.promises.promised_places(facts);
            let costs = self.rescale_costs(facts, &key);
            let mut claim = NodeClaim { facts, may_start: false, costs, left_secs, promised_places };
            claim.may_start = demand::may_start(&facts.scheduling_state, now)
                && claim.min_places() <= usable.count_for(facts).all;
            claims.push(claim);
        }
        claims
    }
}
