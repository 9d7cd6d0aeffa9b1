//! Finds mistakes in a script that its format allows.

use std::collections::BTreeSet;

use infill_model::NodeName;

use crate::script::{Hosts, Main, Malleable, Script};

/// Most rounds of a script. A longer golden would not be read.
const MOST_ROUNDS: usize = 40;

/// Most jobs of a script.
const MOST_JOBS: usize = 1000;

impl Script {
    /// Checks whether the script describes something that can happen.
    ///
    /// # Errors
    /// The impossible part, and its place in the script.
    pub fn check(&self) -> Result<(), String> {
        let ascending = self.rounds.is_sorted_by(|a, b| a < b);
        if self.rounds.is_empty() || !ascending || self.rounds.len() > MOST_ROUNDS {
            return Err(format!("rounds: expected 1 to {MOST_ROUNDS} moments, ascending"));
        }
        let known = self.machine()?;
        for (what, hosts) in self.mentioned() {
            if let Some(node) = hosts.0.iter().find(|n| !known.contains(n)) {
                return Err(format!("{what}: {node} is not among the nodes"));
            }
        }
        self.main.iter().try_for_each(Main::check)?;
        self.malleable.iter().try_for_each(Malleable::check)?;
        self.check_orders()?;
        self.check_ids()?;
        self.check_overlaps()
    }

    fn machine(&self) -> Result<BTreeSet<&NodeName>, String> {
        let mut known = BTreeSet::new();
        match self.nodes.iter().flat_map(|n| &n.names.0).find(|n| !known.insert(*n)) {
            Some(twice) => Err(format!("nodes: {twice} is there twice")),
            None if known.is_empty() => Err("nodes: there is none".to_owned()),
            None => Ok(known),
        }
    }

    /// All host lists, with the names of their places.
    fn mentioned(&self) -> Vec<(String, &Hosts)> {
        let mut lists: Vec<(String, &Hosts)> = Vec::new();
        for job in &self.main {
            let planned = job.planned.iter().filter_map(|p| p.nodes.as_ref());
            let all = std::iter::once(&job.nodes).chain(planned);
            lists.extend(all.map(|hosts| (format!("main job {}", job.id), hosts)));
        }
        lists.extend(self.reservations.iter().map(|r| (format!("reservation {}", r.name), &r.nodes)));
        lists.extend(self.states.iter().map(|s| (format!("state {}", s.words), &s.nodes)));
        lists
    }

    fn check_orders(&self) -> Result<(), String> {
        if !self.backfill.is_sorted_by_key(|c| c.from) || !self.orders.is_sorted_by_key(|o| o.from) {
            return Err("backfill, orders: expected in the order of their moments".to_owned());
        }
        if let Some(r) = self.reservations.iter().find(|r| r.start >= r.end) {
            return Err(format!("reservation {}: it ends before it starts", r.name));
        }
        if let Some(s) = self.states.iter().find(|s| s.until.is_some_and(|until| until <= s.from)) {
            return Err(format!("state {}: it ends before it begins", s.words));
        }
        match self.doubts.iter().find(|d| d.until <= d.from) {
            Some(d) => Err(format!("doubt {:?}: it ends before it begins", d.doubt)),
            None => Ok(()),
        }
    }

    fn check_ids(&self) -> Result<(), String> {
        let mut ids = BTreeSet::new();
        let main = self.main.iter().map(|j| j.id);
        let malleable = self.malleable.iter().flat_map(|m| m.ids());
        if let Some(twice) = main.chain(malleable).take(MOST_JOBS).find(|id| !ids.insert(*id)) {
            return Err(format!("job {twice} is there twice"));
        }
        if ids.len() >= MOST_JOBS {
            return Err(format!("there are more than {MOST_JOBS} jobs"));
        }
        Ok(())
    }

    /// Two jobs of the main queue cannot use a node at the same time.
    fn check_overlaps(&self) -> Result<(), String> {
        for (i, a) in self.main.iter().enumerate() {
            for b in &self.main[i + 1..] {
                let Some(start_a) = a.start else { continue };
                let Some(start_b) = b.start else { continue };
                let at_once = start_a < b.ended() && start_b < a.ended();
                if let Some(node) = a.nodes.0.iter().find(|n| at_once && b.nodes.0.contains(n)) {
                    return Err(format!("main jobs {} and {} are on {node} at once", a.id, b.id));
                }
            }
        }
        Ok(())
    }
}

impl Main {
    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("main job {}: {what}", self.id));
        if self.start.is_some_and(|start| start < self.submitted() || start >= self.ended()) {
            return wrong("expected submit ≤ start < ends");
        }
        if !self.planned.is_sorted_by_key(|p| p.from) {
            return wrong("planned: expected in the order of their moments");
        }
        if self.limit_mins == 0 || self.nodes.0.is_empty() {
            return wrong("it needs nodes and a time limit");
        }
        Ok(())
    }
}

impl Malleable {
    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("job {}: {what}", self.id));
        let is_sound = |samples: Option<f64>| samples.is_none_or(|s| s.is_finite() && s > 0.0);
        if !is_sound(self.makes) || !is_sound(self.says) {
            return wrong("makes, says: expected samples, more than none");
        }
        if (self.makes.is_some() || self.says.is_some()) && self.curve.is_none() {
            return wrong("it cannot make samples without a curve");
        }
        Ok(())
    }
}
