//! Nodes that jobs are kept from besides those that they ask not to have. Jobs that are kept from the same
//! nodes share one list.

use rustc_hash::{FxHashMap, FxHashSet};

use super::breaker::Breaker;
use infill_model::{ExcludedNodes, GapSet, JobFacts, JobId, MalleableJob, NodeName, UnixTime, UserId};

/// What keeps jobs from nodes in a round.
pub(super) struct NodeExclusions<'a> {
    gaps: &'a GapSet,
    breaker: &'a Breaker,
    now: UnixTime,
    /// Nodes, or places of such, of main jobs that are extended, with the job.
    own: Vec<(JobId, NodeName)>,
    owners: FxHashSet<JobId>,
    /// Nodes that are left alone by jobs of a user.
    blocked: FxHashMap<UserId, Vec<NodeName>>,
    known: FxHashMap<ExclusionKey, (ExcludedNodes, ExcludedNodes)>,
}

/// What tells lists apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ExclusionKey {
    /// The list of what a job asks not to have.
    asked: usize,
    /// Its user, where nodes are left alone for one.
    user: Option<UserId>,
    /// The job, where it has nodes of its own.
    owner: Option<JobId>,
}

impl<'a> NodeExclusions<'a> {
    /// Of a round with these gaps.
    pub fn new(gaps: &'a GapSet, facts: &[JobFacts], breaker: &'a Breaker, now: UnixTime) -> Self {
        let own: Vec<_> = facts
            .iter()
            .flat_map(|j: &JobFacts| {
                j.place.own_places().into_iter().map(|node| (j.job, node)).collect::<Vec<_>>()
            })
            .collect();
        let owners = own.iter().map(|(job, _)| *job).collect();
        let blocked = FxHashMap::default();
        let known = FxHashMap::default();
        NodeExclusions { gaps, breaker, now, own, owners, blocked, known }
    }

    /// All nodes that the job cannot have.
    pub fn excluded_for(&mut self, job: &MalleableJob) -> ExcludedNodes {
        let breaker = self.breaker;
        let now = self.now;
        let blocked = self.blocked.entry(job.user);
        let blocked = blocked.or_insert_with(|| breaker.blocked_to(job.user, now).cloned().collect());
        let kind = ExclusionKey {
            asked: job.excluded.list_id(),
            user: (!blocked.is_empty()).then_some(job.user),
            owner: self.owners.get(&job.id).copied(),
        };
        if let Some((_, known)) = self.known.get(&kind) {
            return known.clone();
        }
        let blocked = blocked.clone();
        let wished = job.excluded.with_nodes(blocked);
        // Of places there are no places.
        let nodes = wished.iter().filter(|node| !node.is_place());
        let places: Vec<NodeName> = nodes.flat_map(|node| places_on(node, self.gaps)).collect();
        let others = self.own.iter().filter(|(owner, _)| *owner != job.id).map(|(_, node)| node.clone());
        let all = wished.with_nodes(places.into_iter().chain(others));
        // With the list that is its number, which no other has as long as it is there.
        self.known.insert(kind, (job.excluded.clone(), all.clone()));
        all
    }
}

/// The gaps that are places on this node.
fn places_on(node: &NodeName, gaps: &GapSet) -> impl Iterator<Item = NodeName> {
    let prefix = format!("{node}:");
    let from = gaps.gaps.partition_point(|g| g.node.as_str() < prefix.as_str());
    let names = gaps.gaps.iter().skip(from).map(|g| g.node.clone());
    names.take_while(move |name| name.as_str().starts_with(&prefix))
}
