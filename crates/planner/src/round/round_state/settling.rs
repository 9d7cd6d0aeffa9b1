//! Whose turn it is, and what is promised, for the jobs and nodes of a look.

use rustc_hash::FxHashMap;

use super::RoundState;
use crate::round::demand;
use crate::round::priorities::JobPriorities;
use crate::round::rotation::{NodeClaim, UserShares};
use crate::round::round_input::RoundConstraints;
use infill_model::{Gap, GapSet, JobFacts, NodeType, PlanningObjective, UnixTime};

impl RoundState {
    /// Settles whose turn it is to hold nodes.
    pub(super) fn settle_turns(&mut self, jobs: &[JobFacts], now: UnixTime) {
        let claims = self.node_claims(jobs, now);
        // Jobs that wings extend have no turns. Turns do not get what such a job was promised, either.
        let mut places = self.gaps.gaps.len() as u32;
        for facts in jobs.iter().filter(|facts| !facts.place.own.is_empty()) {
            let promised = self.turns.promises.promised_places(facts).unwrap_or(0);
            places = places.saturating_sub(promised.saturating_sub(facts.place.block.max(1)));
        }
        let JobPriorities { usage, rotation, .. } = &mut self.turns;
        let planner = &self.config.planner;
        let share = |user: &str| planner.user_share(user);
        let user_shares = UserShares { share: &share, used_secs: &|user| usage.used_by(user) };
        rotation.settle_turns(&claims, places, &user_shares, now);
    }

    /// Notes what jobs are promised, so that nobody who comes later takes a promise away.
    pub(super) fn settle_guarantees(&mut self, jobs: &[JobFacts], now: UnixTime) {
        let any = jobs.iter().any(|facts| facts.claims.at_least.is_some());
        let asked = if any { self.round_input(jobs, RoundConstraints::FREE, now).jobs } else { Vec::new() };
        self.turns.promises.record_guarantees(&asked, now);
    }

    /// The jobs that want nodes, or have some. One for whom there are too few, whoever has them, keeps nobody
    /// from a turn.
    fn node_claims<'j>(&self, jobs: &'j [JobFacts], now: UnixTime) -> Vec<NodeClaim<'j>> {
        let mut suiting = SuitableGaps { gaps: &self.gaps, known: FxHashMap::default() };
        let mut claims = Vec::with_capacity(jobs.len());
        let ends_soon = self.config.planner.objective == PlanningObjective::Completion;
        let types = ends_soon.then(|| demand::gap_types(&self.gaps));
        for facts in jobs.iter().filter(|facts| !facts.ending && facts.place.own.is_empty()) {
            let key = self.profile_key(&facts.program, facts.place.lead_now.as_ref());
            let left_secs = types.as_ref().and_then(|types: &Vec<NodeType>| {
                self.remaining_work_on(facts, types).0.known_remaining_secs()
            });
            let promised_places = self.turns.promises.promised_places(facts);
            let costs = self.rescale_costs(facts, &key);
            let mut claim = NodeClaim { facts, may_start: false, costs, left_secs, promised_places };
            claim.may_start =
                demand::may_start(&facts.standing, now) && claim.min_places() <= suiting.count_for(facts);
            claims.push(claim);
        }
        claims
    }
}

/// How many gaps suit each job. Jobs that ask for the same share one answer.
struct SuitableGaps<'g> {
    gaps: &'g GapSet,
    /// By what they ask for: the number of the list of nodes that they avoid, and whether they run on CPUs.
    known: FxHashMap<(usize, bool), u32>,
}

impl SuitableGaps<'_> {
    /// Nodes, or places of such, on which the job could be if nobody else had them.
    fn count_for(&mut self, facts: &JobFacts) -> u32 {
        let gaps = self.gaps;
        let excluded = &facts.excluded;
        let on_cpus = facts.program.on_cpus;
        // Parts of nodes with GPUs and of others are for those who ask for them.
        let is_of_kind = |gap: &Gap| !gap.node.is_place() || gap.node_type.has_gpus() != on_cpus;
        *self.known.entry((excluded.list_id(), on_cpus)).or_insert_with(|| {
            gaps.gaps.iter().filter(|gap: &&Gap| is_of_kind(gap) && !excluded.contains(&gap.node)).count()
                as u32
        })
    }
}
