//! What a round is told of the jobs.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::jobs::Fleet;
use crate::generation::{Machine, Phase};
use crate::model::{HeldNode, JobId, NodeName, Standing, UnixTime, UserId};
use crate::round::{Claims, JobFacts, Place};

impl Fleet {
    /// The jobs that have not ended, as they are now.
    pub fn facts(&self, now: UnixTime) -> Vec<JobFacts> {
        self.jobs.values().filter(|e| !e.has_ended()).map(|e| e.facts(now)).collect()
    }

    /// One job as it is now.
    pub fn facts_of(&self, job: JobId, now: UnixTime) -> Option<JobFacts> {
        self.jobs.get(&job).map(|e| e.facts(now))
    }
}

impl Entry {
    fn facts(&self, now: UnixTime) -> JobFacts {
        let (machine, about) = (&self.machine, &self.about);
        let standing = machine.standing(now);
        let running = match &machine.phase {
            Phase::Running { members } if standing == Standing::Running => Some(members.len() as u32),
            _ => None,
        };
        JobFacts {
            job: machine.job,
            user: UserId(about.user_id),
            program: self.program(),
            sizes: machine.allowed().clone(),
            claims: Claims { curve: machine.spec.curve.clone(), costs: machine.spec.costs },
            standing,
            since: machine.since,
            running,
            place: place(machine),
            exec_plan: machine.generation.exec_plan.clone(),
            pause: self.pause.filter(|_| self.runs()),
            submitted_at: about.submitted_at,
            last_change: machine.rescaled_at,
            excluded: Vec::new(),
            ending: matches!(machine.phase, Phase::Ending { .. }),
        }
    }
}

fn place(machine: &Machine) -> Place {
    let held: BTreeMap<NodeName, JobId> = machine.held();
    let left = machine.occupied().into_keys().filter(|n| !held.contains_key(n)).collect();
    let taken = machine.workers.iter().filter(|(_, w)| w.leaving).map(|(n, _)| n.clone());
    Place {
        lead: machine.held_lead().cloned(),
        lead_now: machine.lead_node().cloned(),
        left,
        taken: taken.collect(),
        held: held.into_iter().map(|(node, slurm_job)| HeldNode { node, slurm_job }).collect(),
    }
}
