//! The administrator's limits on jobs and users, at a moment.

use std::borrow::Cow;

use super::RoundState;
use crate::plan::SiteLimits;
use crate::round::usable_gaps::UsableGaps;
use crate::round::user_limits::{self, LimitContext};
use infill_model::{JobFacts, UnixTime};

impl RoundState {
    /// The jobs with the sizes and states that the administrator's limits allow.
    pub(super) fn limited_jobs<'f>(&self, facts: &'f [JobFacts], now: UnixTime) -> Cow<'f, [JobFacts]> {
        let context = LimitContext { limits: &self.nodes.site_limits, now };
        let rotation = &self.priorities.rotation;
        let mut gaps = UsableGaps::new(&self.gaps);
        user_limits::within_limits(
            facts,
            context,
            |facts| gaps.count_for(facts),
            |job| rotation.position_behind(job).is_some(),
        )
    }

    /// The administrator's limits, and the own nodes of main jobs, which do not count.
    pub(super) fn limits_with_own(&self, facts: &[JobFacts]) -> SiteLimits {
        let own = facts.iter().flat_map(|facts| facts.location.own_places()).collect();
        SiteLimits { own, ..self.nodes.site_limits.clone() }
    }
}
