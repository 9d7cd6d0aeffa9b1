//! Takes in what Slurm shows of the wings.

use crate::model::{Job, UnixTime, order_in};

use super::effect::{Effect, Outcome};
use super::machine::Machine;
use super::phase::Phase;
use super::settings::SHOW_SECS;
use super::sight::Sight;
use super::worker::Wing;

impl Machine {
    pub(super) fn see_wings(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        for job in &sight.wings {
            self.see_wing(job, now, out);
        }
        self.drop_ended_wings(sight, now, out);
    }

    fn see_wing(&mut self, job: &Job, now: UnixTime, out: &mut Outcome) {
        let order = order_in(&job.comment);
        let known = self.wings.iter_mut().find(|(o, w)| Some(**o) == order || w.job == Some(job.id));
        match known {
            Some((_, wing)) => {
                wing.job = Some(job.id);
                wing.batch_host.clone_from(&job.batch_host);
                wing.seen_running |= job.state.is_running();
                if job.state.is_running() {
                    let nodes = wing.order.nodes.clone();
                    self.keep_limit(job, &nodes, now, out);
                }
            }
            None if self.phase != Phase::Ended => {
                out.notes.push(format!("wing {} belongs to no order of ours: cancelled", job.id));
                self.attempt(Effect::CancelWing { job: job.id }, now, out);
            }
            None => {}
        }
    }

    fn drop_ended_wings(&mut self, sight: &Sight<'_>, now: UnixTime, out: &mut Outcome) {
        let ended: Vec<u64> = self
            .wings
            .iter()
            .filter(|(_, w)| w.job.is_some_and(|id| !sight.wings.iter().any(|j| j.id == id)))
            .filter(|(_, w)| sight.read_at.secs_since(w.ordered_at) > SHOW_SECS)
            .map(|(order, _)| *order)
            .collect();
        for order in ended {
            let Some(wing) = self.wings.remove(&order) else { continue };
            if wing.seen_running && self.is_wanted_and_never_came(&wing) {
                let why = "a wing ended before its agent said hello";
                out.strikes.extend(wing.order.nodes.iter().map(|n| (n.clone(), why.to_owned())));
            }
            self.drop_nodes(&wing.order.nodes, "a wing ended", now);
        }
    }

    fn is_wanted_and_never_came(&self, wing: &Wing) -> bool {
        let nodes = &wing.order.nodes;
        nodes.iter().any(|n| self.wants_wing_on(n)) && !nodes.iter().any(|n| self.workers.contains_key(n))
    }
}
