//! How long a job takes to save and exit: by what is known of its program, else of its owner's, else of all.

use std::collections::VecDeque;

use infill_advisor::{Library, stops};
use infill_model::{JobFacts, ProfileKey, Stop, StopEnd};

/// How many stops the site's time is taken from.
const STOPS_REMEMBERED: usize = 50;

/// Fewer stops than this say too little of programs that they are not of.
const STOPS_NEEDED: usize = 5;

/// The last stops of all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SiteStops {
    last: VecDeque<Stop>,
}

impl SiteStops {
    /// Takes one in.
    pub fn note(&mut self, stop: &Stop) {
        self.last.push_back(*stop);
        if self.last.len() > STOPS_REMEMBERED {
            self.last.pop_front();
        }
    }

    /// Seconds in which a job saves and exits; `None` where nothing says so.
    ///
    /// A program that was never stopped may need the whole grace time that its owner gave it: nobody else's
    /// stops speak for it. Of a job that waits, its owner's other programs do, or everybody's.
    pub fn secs(&self, facts: &JobFacts, key: &ProfileKey, library: &Library) -> Option<f64> {
        let own = library.stops(key).iter();
        let alike = library.stops_of(&key.user, Some(&key.name));
        let (least, grace) = (stops::least(own.clone()), facts.claims.grace_secs);
        let measured = stops::believed(own).or_else(|| stops::believed(alike));
        let others = || several(library.stops_of(&key.user, None)).or_else(|| several(self.last.iter()));
        let secs = measured.or(grace).or_else(others)?.max(least);
        // Then it is killed.
        Some(secs.min(grace.unwrap_or(f64::INFINITY)))
    }
}

fn several<'a>(known: impl Iterator<Item = &'a Stop> + Clone) -> Option<f64> {
    let whole = known.clone().filter(|s| s.end != StopEnd::Cut).take(STOPS_NEEDED);
    if whole.count() < STOPS_NEEDED { None } else { stops::believed(known) }
}
