//! How long a job takes to save and exit: by what is known of its program, else of its owner's, else of all;
//! and how much longer among others that save at the same time.

use std::collections::VecDeque;

use infill_advisor::{Library, SharedSaves, stops};
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
    pub fn note(&mut self, program: Option<&ProfileKey>, stop: &GenerationStop, now: UnixTime) {
        self.last.push_back(*stop);
        if self.last.len() > STOPS_REMEMBERED {
            self.last.pop_front();
        }
        self.shared.note(program, stop, now);
    }

    /// The time in which a job saves and exits; `None` where nothing says so. `shared`: whether what was
    /// measured beside other jobs that saved is less alone.
    ///
    /// A program that was never stopped may need the whole grace time that its owner gave it: nobody else's
    /// stops speak for it. Of a job that waits, its owner's other programs do, or everybody's.
    pub fn time(
        &self,
        facts: &JobFacts,
        key: &ProfileKey,
        library: &Library,
        shared: bool,
    ) -> Option<StopTime> {
        let most_secs = facts.claims.grace_secs.unwrap_or(f64::INFINITY);
        let alone_secs = match shared && !self.shared.is_empty() {
            false => [self.secs(facts, key, library, &|stop| *stop)?; 2],
            true => [
                self.secs(facts, key, library, &|stop| self.shared.alone(stop)[0])?,
                self.secs(facts, key, library, &|stop| self.shared.alone(stop)[1])?,
            ],
        };
        Some(StopTime { alone_secs: alone_secs.map(|secs| secs.min(most_secs)), most_secs })
    }

    /// Seconds by stops of which each counts as `alone` says.
    fn secs(
        &self,
        facts: &JobFacts,
        key: &ProfileKey,
        library: &Library,
        alone: &impl Fn(&GenerationStop) -> GenerationStop,
    ) -> Option<f64> {
        let own = library.stops(key).iter().map(alone);
        let alike = library.stops_of(&key.user, Some(&key.name)).map(alone);
        let least = stops::least(own.clone());
        let measured = stops::believed(own).or_else(|| stops::believed(alike));
        let others = || {
            let of_owner = several(library.stops_of(&key.user, None).map(alone));
            of_owner.or_else(|| several(self.last.iter().map(alone)))
        };
        Some(measured.or(facts.claims.grace_secs).or_else(others)?.max(least))
    }
}

fn several(known: impl Iterator<Item = GenerationStop> + Clone) -> Option<f64> {
    let whole = known.clone().filter(|s| s.end != StopOutcome::Cut).take(STOPS_NEEDED);
    if whole.count() < STOPS_NEEDED { None } else { stops::believed(known) }
}
