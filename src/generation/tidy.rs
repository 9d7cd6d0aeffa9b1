//! Gives back wings that nobody wants any more, and those that never came.

use std::collections::BTreeSet;

use crate::model::{JobId, NodeName, UnixTime};

use super::effect::{Effect, Outcome};
use super::machine::Machine;
use super::phase::Phase;
use super::settings::Settings;
use super::worker::Wing;

impl Machine {
    pub(super) fn tidy_wings(&mut self, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        let members: BTreeSet<NodeName> = self.phase.members().iter().cloned().collect();
        for number in self.wings.keys().copied().collect::<Vec<_>>() {
            let Some(wing) = self.wings.get(&number).cloned() else { continue };
            if wing.order.nodes.iter().any(|n| members.contains(n)) {
                continue;
            }
            let late = now.secs_since(wing.ordered_at) > settings.wing_start_secs;
            match wing.job {
                Some(job) => self.tidy_wing(number, &wing, job, late, now, out),
                None => self.tidy_order(number, &wing, late),
            }
        }
    }

    /// Nodes of the wing that the job still wants.
    fn kept(&self, wing: &Wing) -> Vec<NodeName> {
        let all_go = matches!(self.phase, Phase::Ending { .. } | Phase::Ended)
            || (self.phase.is_queued() && self.target.is_none());
        wing.order.nodes.iter().filter(|n| !all_go && self.wants_wing_on(n)).cloned().collect()
    }

    /// Not submitted yet: an order that nobody wants, or that nobody took, is simply withdrawn.
    fn tidy_order(&mut self, number: u64, wing: &Wing, late: bool) {
        if late || self.kept(wing).is_empty() {
            self.wings.remove(&number);
            wing.order.nodes.iter().for_each(|n| self.untarget(n));
        }
    }

    fn tidy_wing(
        &mut self,
        number: u64,
        wing: &Wing,
        job: JobId,
        late: bool,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        let nodes = &wing.order.nodes;
        let keep = self.kept(wing);
        let stuck = late && !keep.iter().all(|n| self.workers.contains_key(n));
        let on_host = wing.batch_host.as_ref().is_none_or(|h| keep.contains(h));
        if stuck {
            self.note_stuck(wing, job, out);
        }
        if keep.is_empty() || stuck || !on_host {
            nodes.iter().for_each(|n| self.untarget(n));
            self.attempt(Effect::CancelWing { job }, now, out);
        } else if keep.len() < nodes.len() {
            self.attempt(Effect::ShrinkWing { job, keep: keep.clone() }, now, out);
            nodes.iter().filter(|n| !keep.contains(n)).for_each(|n| drop(self.workers.remove(n)));
            if let Some(w) = self.wings.get_mut(&number) {
                w.order.nodes = keep;
            }
        }
    }

    /// A wing that waited in the queue met a limit or the main queue; one that ran met something on its
    /// nodes.
    fn note_stuck(&self, wing: &Wing, job: JobId, out: &mut Outcome) {
        out.notes.push(format!("wing {job} did not come up in time: cancelled"));
        if wing.seen_running {
            let strike = |n: &NodeName| (n.clone(), "a wing did not come up".to_owned());
            out.strikes.extend(wing.order.nodes.iter().map(strike));
        }
    }
}
