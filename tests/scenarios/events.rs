//! The events of a script between two rounds.

use crate::script::{Main, Malleable, Reserved, Script, State};
use crate::show::{clock, hosts};

/// The effect of an event on the malleable jobs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// No direct effect: infill sees it in the snapshot.
    Seen,
    /// The main queue takes nodes, even if they are in use.
    MainStarts(&'a Main),
    /// Malleable jobs are submitted.
    JobsCome(&'a Malleable),
    /// Malleable jobs end.
    JobsEnd(&'a Malleable),
}

/// An event.
#[derive(Clone, Debug)]
pub struct Happening<'a> {
    /// When.
    pub at: i64,
    /// Its effect.
    pub event: Event<'a>,
    /// Its description.
    pub text: String,
}

/// All events after `from` (or from the beginning) up to `to`, in order.
pub fn between(script: &Script, from: Option<i64>, to: i64) -> Vec<Happening<'_>> {
    let mut all = Vec::new();
    script.main.iter().for_each(|job| of_main_job(job, &mut all));
    script.reservations.iter().for_each(|r| of_reservation(r, &mut all));
    script.states.iter().for_each(|s| of_state(s, &mut all));
    script.malleable.iter().for_each(|m| of_malleable(m, &mut all));
    let seen = |at: i64, text: String| Happening { at, event: Event::Seen, text };
    all.extend(script.backfill.iter().map(|c| seen(c.from, format!("backfill ends with {}", c.exit))));
    all.extend(script.orders.iter().map(|o| seen(o.from, format!("an administrator orders: {:?}", o.order))));
    all.retain(|h| from.is_none_or(|from| h.at > from) && h.at <= to);
    // The sort is stable: ends at a moment come before starts.
    all.sort_by_key(|h| (h.at, matches!(h.event, Event::MainStarts(_))));
    all
}

fn of_main_job<'a>(job: &'a Main, all: &mut Vec<Happening<'a>>) {
    let id = job.id;
    let on = hosts(&job.nodes.0);
    let mut add = |at: i64, event: Event<'a>, text: String| all.push(Happening { at, event, text });
    if job.start != Some(job.submitted()) {
        let nodes = job.nodes.0.len();
        let mins = job.limit_mins;
        add(job.submitted(), Event::Seen, format!("main job {id} is submitted: nodes {nodes}, {mins} min"));
    }
    for planned in &job.planned {
        let place = hosts(&planned.nodes.as_ref().unwrap_or(&job.nodes).0);
        let text = match planned.start {
            Some(start) => format!("backfill plans main job {id} at {} on {place}", clock(start)),
            None => format!("backfill plans no start of main job {id}"),
        };
        add(planned.from, Event::Seen, text);
    }
    if let Some(start) = job.start {
        add(start, Event::MainStarts(job), format!("main job {id} starts on {on}"));
    }
    let text = match job.start {
        Some(start) if job.ended() < start + job.limit_mins as i64 * 60 => {
            format!("main job {id} ends early")
        }
        Some(_) => format!("main job {id} ends"),
        None => format!("main job {id} is cancelled"),
    };
    add(job.ended(), Event::Seen, text);
}

fn of_reservation(r: &Reserved, all: &mut Vec<Happening<'_>>) {
    let mut add = |at: i64, text: String| all.push(Happening { at, event: Event::Seen, text });
    if let Some(from) = r.known_from {
        let start = clock(r.start);
        let end = clock(r.end);
        add(from, format!("reservation {} is made: {} from {start} to {end}", r.name, hosts(&r.nodes.0)));
    }
    add(r.start, format!("reservation {} begins", r.name));
    add(r.end, format!("reservation {} is over", r.name));
}

fn of_state(s: &State, all: &mut Vec<Happening<'_>>) {
    let mut add = |at: i64, text: String| all.push(Happening { at, event: Event::Seen, text });
    add(s.from, format!("{} becomes {}", hosts(&s.nodes.0), s.words));
    if let Some(until) = s.until {
        add(until, format!("{} is no longer {}", hosts(&s.nodes.0), s.words));
    }
}

fn of_malleable<'a>(m: &'a Malleable, all: &mut Vec<Happening<'a>>) {
    let mut add = |at: i64, event: Event<'a>, text: String| all.push(Happening { at, event, text });
    let who = match m.count {
        1 => format!("job {}", m.id),
        count => format!("jobs {} to {}", m.id, m.ids().last().map_or(count, |id| id.0)),
    };
    add(m.submit, Event::JobsCome(m), format!("{who} of {}: submitted, sizes {}", m.user, m.sizes));
    if let Some(ends) = m.ends {
        add(ends, Event::JobsEnd(m), format!("{who} of {}: ended", m.user));
    }
}
