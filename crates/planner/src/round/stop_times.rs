//! How long a job takes to save and exit: by what is known of its program, else of its owner's, else of all;
//! and how much longer among others that save at the same time.

use std::collections::VecDeque;

use infill_advisor::{JobAdvisor, SharedSaves, stops};
use infill_gaps::StopTime;
use infill_model::{GenerationStop, JobFacts, ProfileKey, StopOutcome, UnixTime};

/// How many stops the site's time is taken from.
const STOPS_REMEMBERED: usize = 50;

/// Fewer stops than this say too little of programs that they are not of.
const STOPS_NEEDED: usize = 5;

/// The last stops of all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SiteStops {
    last: VecDeque<GenerationStop>,
    /// Which of them overlapped, and what that says.
    pub shared: SharedSaves,
}

impl SiteStops {
    /// Takes one in, and of which program it was, if that is known for good.
    pub fn record_stop(&mut self, program: Option<&ProfileKey>, stop: &GenerationStop, now: UnixTime) {
        self.last.push_back(*stop);
        if self.last.len() > STOPS_REMEMBERED {
            self.last.pop_front();
        }
        self.shared.record_stop(program, stop, now);
    }

    /// The time in which a job saves and exits; `None` where nothing says so. `shared`: whether what was
    /// measured beside other jobs that saved is less alone.
    ///
    /// A program that was never stopped may need the whole grace time that its owner gave it: nobody else's
    /// stops speak for it. Of a job that waits, its owner's other programs do, or everybody's.
    pub fn stop_time(
        &self,
        facts: &JobFacts,
        key: &ProfileKey,
        library: &JobAdvisor,
        shared: bool,
    ) -> Option<StopTime> {
        let most_secs = facts.claims.grace_secs.unwrap_or(f64::INFINITY);
        let alone_secs = match shared && !self.shared.is_empty() {
            false => [self.stop_secs(facts, key, library, &|stop| *stop)?; 2],
            true => [
                self.stop_secs(facts, key, library, &|stop| self.shared.alone_stops(stop)[0])?,
                self.stop_secs(facts, key, library, &|stop| self.shared.alone_stops(stop)[1])?,
            ],
        };
        Some(StopTime { alone_secs: alone_secs.map(|secs| secs.min(most_secs)), most_secs })
    }

    /// Seconds by stops of which each counts as `alone` says.
    fn stop_secs(
        &self,
        facts: &JobFacts,
        key: &ProfileKey,
        library: &JobAdvisor,
        alone: &impl Fn(&GenerationStop) -> GenerationStop,
    ) -> Option<f64> {
        let own = library.profile_stops(key).iter().map(alone);
        let alike = library.user_stops(&key.user, Some(&key.name)).map(alone);
        let least = stops::min_stop_secs(own.clone());
        let measured = stops::believed_stop_secs(own).or_else(|| stops::believed_stop_secs(alike));
        Some(
            measured
                .or(facts.claims.grace_secs)
                .or_else(|| {
                    let of_owner = time_of_several(library.user_stops(&key.user, None).map(alone));
                    of_owner.or_else(|| time_of_several(self.last.iter().map(alone)))
                })?
                .max(least),
        )
    }
}

fn time_of_several(known: impl Iterator<Item = GenerationStop> + Clone) -> Option<f64> {
    let whole = known.clone().filter(|s| s.end != StopOutcome::Cut).take(STOPS_NEEDED);
    if whole.count() < STOPS_NEEDED { None } else { stops::believed_stop_secs(known) }
}
