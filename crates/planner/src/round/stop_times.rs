//! How long a job takes to save and exit: by the stops of its program, else of its owner's programs, else of
//! all. And how much longer it takes while other jobs save.

use std::collections::VecDeque;

use infill_advisor::{ContentionEstimator, JobAdvisor, stops};
use infill_gaps::StopTime;
use infill_model::{GenerationStop, JobFacts, ProfileKey, StopOutcome, UnixTime};

/// Number of stops of the whole site that are remembered.
const STOPS_REMEMBERED: usize = 50;

/// With fewer stops than this, stops of other programs say too little.
const STOPS_NEEDED: usize = 5;

/// The last stops of all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SiteStops {
    last: VecDeque<GenerationStop>,
    /// Stops that overlapped, and what is learned from them.
    pub shared: ContentionEstimator,
}

impl SiteStops {
    /// Records a stop. `program` is its signature if that is known for certain.
    pub fn record_stop(&mut self, program: Option<&ProfileKey>, stop: &GenerationStop, now: UnixTime) {
        self.last.push_back(*stop);
        if self.last.len() > STOPS_REMEMBERED {
            self.last.pop_front();
        }
        self.shared.record_stop(program, stop, now);
    }

    /// The time in which a job saves and exits; `None` where nothing tells it. `shared` says that times
    /// measured while other jobs saved count as shorter.
    ///
    /// A program that was never stopped may need the whole grace time that its owner gave it, whatever other
    /// programs need. Without a grace time, stops of the owner's other programs count, or else those of all.
    pub fn stop_time(
        &self,
        facts: &JobFacts,
        key: &ProfileKey,
        advisor: &JobAdvisor,
        shared: bool,
    ) -> Option<StopTime> {
        let most_secs = facts.declaration.grace_secs.unwrap_or(f64::INFINITY);
        let alone_secs = if shared && !self.shared.is_empty() {
            [
                self.stop_secs(facts, key, advisor, &|stop| self.shared.alone_stops(stop)[0])?,
                self.stop_secs(facts, key, advisor, &|stop| self.shared.alone_stops(stop)[1])?,
            ]
        } else {
            [self.stop_secs(facts, key, advisor, &|stop| *stop)?; 2]
        };
        Some(StopTime { alone_secs: alone_secs.map(|secs| secs.min(most_secs)), most_secs })
    }

    /// Seconds that the remembered stops tell, each as `alone` converts it.
    fn stop_secs(
        &self,
        facts: &JobFacts,
        key: &ProfileKey,
        advisor: &JobAdvisor,
        alone: &impl Fn(&GenerationStop) -> GenerationStop,
    ) -> Option<f64> {
        let own = advisor.profile_stops(key).iter().map(alone);
        let same_name = advisor.user_stops(&key.user, Some(&key.name)).map(alone);
        let shortest = stops::min_stop_secs(own.clone());
        let measured = stops::believed_stop_secs(own).or_else(|| stops::believed_stop_secs(same_name));
        let of_program = measured.or(facts.declaration.grace_secs);
        let secs = of_program
            .or_else(|| secs_of_several(advisor.user_stops(&key.user, None).map(alone)))
            .or_else(|| secs_of_several(self.last.iter().map(alone)))?;
        Some(secs.max(shortest))
    }
}

/// The time that these stops tell; `None` if too few of them ended by themselves.
fn secs_of_several(stops: impl Iterator<Item = GenerationStop> + Clone) -> Option<f64> {
    let whole = stops.clone().filter(|s| s.end != StopOutcome::Cut).take(STOPS_NEEDED);
    if whole.count() < STOPS_NEEDED { None } else { stops::believed_stop_secs(stops) }
}
