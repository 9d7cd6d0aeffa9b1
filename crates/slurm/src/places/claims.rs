//! Which places planned starts claim.
//!
//! Backfill's plan names nodes, and on each the job takes what it asked for. By then the main jobs will be
//! gone whose time is over. What is still missing of CPUs, memory or GPUs is had from ours: those that leave
//! anyway, then the youngest; and free places that lose their share by it are no places any more.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::lent_node::{LentNode, NodeOccupant, PlaceIndex};
use infill_model::{Job, JobId, NodeName, Resources, UnixTime};

/// The places that each planned start claims, of those on which no main job is. Jobs that start earlier come
/// first; each place is claimed once.
pub(super) fn planned_claims(
    lent: &[LentNode],
    index: &FxHashMap<NodeName, usize>,
    jobs: &[Job],
    partition: &str,
) -> BTreeMap<JobId, Vec<PlaceIndex>> {
    let waits = jobs.iter().filter(|j| j.waits_in_main_queue(partition) && !j.scheduled_nodes.is_empty());
    let mut planned: Vec<(UnixTime, &Job)> = waits.filter_map(|j| Some((j.start_time?, j))).collect();
    planned.sort_by_key(|(at, job)| (*at, job.id));
    let mut grounds: FxHashMap<usize, NodeClaims<'_>> = FxHashMap::default();
    let mut claims: BTreeMap<JobId, Vec<PlaceIndex>> = BTreeMap::new();
    for (at, job) in planned {
        for node in job.scheduled_nodes.iter().filter_map(|n| index.get(n).copied()) {
            let ground = grounds.entry(node).or_insert_with(|| NodeClaims::for_node(&lent[node]));
            let taken = ground.claim_places(job.wants.as_ref(), at);
            if !taken.is_empty() {
                claims.entry(job.id).or_default().extend(taken.into_iter().map(|gpu| (node, gpu)));
            }
        }
    }
    claims
}

/// CPUs, memory and GPUs, of which there may be less than nothing.
#[derive(Clone, Copy, Default)]
struct SignedResources {
    cpus: i64,
    memory_mib: i64,
    gpus: i64,
}

impl SignedResources {
    fn from_resources(r: &Resources) -> SignedResources {
        let memory_mib = i64::try_from(r.memory_mib).unwrap_or(i64::MAX / 4);
        SignedResources { cpus: r.cpus.into(), memory_mib, gpus: r.gpus.total_count().into() }
    }

    fn minus(self, other: SignedResources) -> SignedResources {
        SignedResources {
            cpus: self.cpus.saturating_sub(other.cpus),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }

    fn is_debt(self) -> bool {
        self.cpus < 0 || self.memory_mib < 0 || self.gpus < 0
    }
}

/// One node, and what planned starts have claimed of it so far.
struct NodeClaims<'a> {
    lent: &'a LentNode,
    /// What they take.
    claimed: SignedResources,
    /// Jobs of ours that make room.
    leaving: Vec<JobId>,
    /// Places that are claimed.
    spoken: Vec<bool>,
}

impl<'a> NodeClaims<'a> {
    fn for_node(lent: &'a LentNode) -> NodeClaims<'a> {
        NodeClaims {
            lent,
            claimed: SignedResources::default(),
            leaving: Vec::new(),
            spoken: vec![false; lent.on.len()],
        }
    }

    /// The places that a job claims which starts at this moment and wants this of the node, or all of it.
    fn claim_places(&mut self, wants: Option<&Resources>, at: UnixTime) -> Vec<usize> {
        let before = self.spoken.clone();
        let wants = SignedResources::from_resources(wants.unwrap_or(&self.lent.node.has));
        while self.remaining_at(at).minus(wants).is_debt() {
            let ours = self.lent.holders.iter().filter(|h| h.ours && !self.leaving.contains(&h.job));
            // Who leaves anyway makes room before anybody else does.
            let first = ours.map(|h| (h.leaves, h.job)).max();
            let Some((_, first)) = first else { break };
            self.leaving.push(first);
            for (on, spoken) in self.lent.on.iter().zip(&mut self.spoken) {
                *spoken |= *on == Some(first);
            }
        }
        let SignedResources { cpus, memory_mib, gpus } = wants;
        self.claimed.cpus = self.claimed.cpus.saturating_add(cpus);
        self.claimed.memory_mib = self.claimed.memory_mib.saturating_add(memory_mib);
        self.claimed.gpus = self.claimed.gpus.saturating_add(gpus);
        self.claim_unusable_places(at);
        (0..self.spoken.len()).filter(|gpu| self.spoken[*gpu] && !before[*gpu]).collect()
    }

    /// Whether a job is on the node at this moment.
    fn is_present_at(&self, holder: &NodeOccupant, at: UnixTime) -> bool {
        let ends = !holder.ours && holder.end.is_some_and(|end| end <= at);
        !ends && !self.leaving.contains(&holder.job)
    }

    /// What is left at this moment.
    fn remaining_at(&self, at: UnixTime) -> SignedResources {
        let has = &self.lent.node.has;
        let holders = self.lent.holders.iter().filter(|h| self.is_present_at(h, at));
        let held = holders.map(|h| SignedResources::from_resources(h.holds.as_ref().unwrap_or(has)));
        held.fold(SignedResources::from_resources(has), SignedResources::minus).minus(self.claimed)
    }

    /// How many places what is left makes.
    fn usable_places(&self, at: UnixTime) -> i64 {
        let left = self.remaining_at(at);
        let unit = self.lent.unit;
        let mib = i64::try_from(unit.memory_mib).unwrap_or(i64::MAX);
        let memory = if mib > 0 { left.memory_mib / mib } else { i64::MAX };
        let gpus = if unit.has_gpu { left.gpus } else { i64::MAX };
        gpus.min(left.cpus / i64::from(unit.cpus.max(1))).min(memory).max(0)
    }

    /// Claims as many free places as are more than what is left makes. Those on which a main job still is
    /// need not be claimed: nobody is sent there.
    fn claim_unusable_places(&mut self, at: UnixTime) {
        let stayer = |job: JobId| self.lent.holders.iter().any(|h| h.job == job && self.is_present_at(h, at));
        let empty = |gpu: usize| self.lent.on[gpu].is_none_or(|job| !stayer(job));
        let all: Vec<usize> = (0..self.lent.on.len()).filter(|gpu| empty(*gpu)).collect();
        let beyond = all.len() as i64 - self.usable_places(at);
        let others = all.iter().filter(|gpu| self.spoken[**gpu] || !self.lent.is_free(**gpu)).count() as i64;
        let more = usize::try_from(beyond - others).unwrap_or(0);
        let free = all.into_iter().rev().filter(|gpu| self.lent.is_free(*gpu) && !self.spoken[*gpu]);
        let claimed: Vec<usize> = free.take(more).collect();
        claimed.into_iter().for_each(|gpu| self.spoken[gpu] = true);
    }
}
