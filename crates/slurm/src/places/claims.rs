//! Computes which places planned starts claim.
//!
//! Backfill's plan names nodes, and on each node the job takes what it asked for. By then, main jobs whose
//! time limit is over will be gone. If CPUs, memory or GPUs are still missing, malleable jobs give them:
//! first jobs that are leaving anyway, then the youngest. Free places that lose their share are claimed too.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::lent_node::{LentNode, NodeOccupant, PlaceIndex};
use infill_model::{Job, JobId, NodeName, Resources, UnixTime};

/// The places that each planned start claims, among those without a main job. Jobs that start earlier claim
/// first; each place is claimed once.
pub(super) fn planned_claims(
    lent: &[LentNode],
    index: &FxHashMap<NodeName, usize>,
    jobs: &[Job],
    partition: &str,
) -> BTreeMap<JobId, Vec<PlaceIndex>> {
    let waiting = jobs.iter().filter(|j| j.waits_in_main_queue(partition) && !j.scheduled_nodes.is_empty());
    let mut planned: Vec<(UnixTime, &Job)> = waiting.filter_map(|j| Some((j.start_time?, j))).collect();
    planned.sort_by_key(|(at, job)| (*at, job.id));
    let mut claims_by_node: FxHashMap<usize, NodeClaims<'_>> = FxHashMap::default();
    let mut claims: BTreeMap<JobId, Vec<PlaceIndex>> = BTreeMap::new();
    for (at, job) in planned {
        for node in job.scheduled_nodes.iter().filter_map(|n| index.get(n).copied()) {
            let node_claims = claims_by_node.entry(node).or_insert_with(|| NodeClaims::for_node(&lent[node]));
            let taken = node_claims.claim_places(job.wants.as_ref(), at);
            if !taken.is_empty() {
                claims.entry(job.id).or_default().extend(taken.into_iter().map(|gpu| (node, gpu)));
            }
        }
    }
    claims
}

/// CPUs, memory and GPUs, which may be negative.
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

/// One node, and what planned starts have claimed on it so far.
struct NodeClaims<'a> {
    lent: &'a LentNode,
    /// The resources that these starts take.
    claimed: SignedResources,
    /// The malleable jobs that have to leave for them.
    leaving: Vec<JobId>,
    /// Whether each place is claimed.
    is_claimed: Vec<bool>,
}

impl<'a> NodeClaims<'a> {
    fn for_node(lent: &'a LentNode) -> NodeClaims<'a> {
        NodeClaims {
            lent,
            claimed: SignedResources::default(),
            leaving: Vec::new(),
            is_claimed: vec![false; lent.on.len()],
        }
    }

    /// Claims the places for a job that starts at this moment. It wants these resources of the node, or with
    /// `None` all of it. Returns the places that were not claimed before.
    fn claim_places(&mut self, wants: Option<&Resources>, at: UnixTime) -> Vec<usize> {
        let claimed_before = self.is_claimed.clone();
        let wants = SignedResources::from_resources(wants.unwrap_or(&self.lent.node.has));
        while self.remaining_at(at).minus(wants).is_debt() {
            let stays = self.lent.holders.iter().filter(|h| h.ours && !self.leaving.contains(&h.job));
            // A job that leaves anyway goes first, then the youngest.
            let next = stays.map(|h| (h.leaves, h.job)).max();
            let Some((_, next_to_leave)) = next else { break };
            self.leaving.push(next_to_leave);
            for (on, is_claimed) in self.lent.on.iter().zip(&mut self.is_claimed) {
                *is_claimed |= *on == Some(next_to_leave);
            }
        }
        let SignedResources { cpus, memory_mib, gpus } = wants;
        self.claimed.cpus = self.claimed.cpus.saturating_add(cpus);
        self.claimed.memory_mib = self.claimed.memory_mib.saturating_add(memory_mib);
        self.claimed.gpus = self.claimed.gpus.saturating_add(gpus);
        self.claim_unusable_places(at);
        (0..self.is_claimed.len()).filter(|gpu| self.is_claimed[*gpu] && !claimed_before[*gpu]).collect()
    }

    /// Whether an occupant is still on the node at this moment.
    fn is_present_at(&self, holder: &NodeOccupant, at: UnixTime) -> bool {
        let has_ended = !holder.ours && holder.end.is_some_and(|end| end <= at);
        !has_ended && !self.leaving.contains(&holder.job)
    }

    /// Whether no job that is still on the node at this moment has this place.
    fn is_vacant_at(&self, gpu: usize, at: UnixTime) -> bool {
        let Some(job) = self.lent.on[gpu] else { return true };
        !self.lent.holders.iter().any(|holder| holder.job == job && self.is_present_at(holder, at))
    }

    /// The resources that neither occupants nor claims take at this moment.
    fn remaining_at(&self, at: UnixTime) -> SignedResources {
        let has = &self.lent.node.has;
        let holders = self.lent.holders.iter().filter(|h| self.is_present_at(h, at));
        let held = holders.map(|h| SignedResources::from_resources(h.holds.as_ref().unwrap_or(has)));
        held.fold(SignedResources::from_resources(has), SignedResources::minus).minus(self.claimed)
    }

    /// Number of places that the remaining resources suffice for.
    fn usable_places(&self, at: UnixTime) -> i64 {
        let left = self.remaining_at(at);
        let unit = self.lent.unit;
        let mib = i64::try_from(unit.memory_mib).unwrap_or(i64::MAX);
        let memory = if mib > 0 { left.memory_mib / mib } else { i64::MAX };
        let gpus = if unit.has_gpu { left.gpus } else { i64::MAX };
        gpus.min(left.cpus / i64::from(unit.cpus.max(1))).min(memory).max(0)
    }

    /// Claims the free places for which the remaining resources do not suffice. Places that a main job still
    /// has need no claim: infill sends no job there.
    fn claim_unusable_places(&mut self, at: UnixTime) {
        let vacant: Vec<usize> = (0..self.lent.on.len()).filter(|gpu| self.is_vacant_at(*gpu, at)).collect();
        let unusable = vacant.len() as i64 - self.usable_places(at);
        let unavailable =
            vacant.iter().filter(|gpu| self.is_claimed[**gpu] || !self.lent.is_free(**gpu)).count() as i64;
        let to_claim = usize::try_from(unusable - unavailable).unwrap_or(0);
        let free = vacant.into_iter().rev().filter(|gpu| self.lent.is_free(*gpu) && !self.is_claimed[*gpu]);
        let claimed: Vec<usize> = free.take(to_claim).collect();
        for gpu in claimed {
            self.is_claimed[gpu] = true;
        }
    }
}
