//! Whose turn it is, for the jobs and nodes of a look.

use super::Scene;
use crate::round::demand;
use crate::round::rotation::{Claim, Standings};
use crate::round::turns::Turns;
use infill_model::{JobFacts, Objective, UnixTime};

impl Scene {
    fn claim<'j>(&self, facts: &'j JobFacts, now: UnixTime) -> Claim<'j> {
        let key = self.key(&facts.program, facts.place.lead_now.as_ref());
        Claim { facts, may_start: demand::may_start(&facts.standing, now), costs: self.costs(facts, &key) }
    }

    /// Settles whose turn it is to hold nodes. Where jobs shall end soon, they come by that.
    pub(super) fn settle_turns(&mut self, jobs: &[JobFacts], now: UnixTime) {
        if self.config.planner.objective != Objective::Throughput {
            return;
        }
        let is_in = |facts: &&JobFacts| !facts.ending && facts.place.own.is_empty();
        let claims: Vec<Claim<'_>> = jobs.iter().filter(is_in).map(|facts| self.claim(facts, now)).collect();
        let places = self.gaps.gaps.len() as u32;
        let Turns { usage, rotation, .. } = &mut self.turns;
        let shares = &self.config.planner.shares;
        let share = |user: &str| shares.get(user).copied().unwrap_or(1.0);
        let standings = Standings { share: &share, used_secs: &|user| usage.of(user) };
        rotation.settle(&claims, places, &standings, now);
    }
}
