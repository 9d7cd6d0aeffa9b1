//! Nodes that jobs are kept off, besides those that they ask to avoid. Jobs that are kept off the same nodes
//! share one list.

use rustc_hash::{FxHashMap, FxHashSet};

use super::breaker::Breaker;
use infill_model::{ExcludedNodes, GapSet, JobFacts, JobId, MalleableJob, NodeName, UnixTime, UserId};

/// The exclusions of one round.
pub(super) struct NodeExclusions<'a> {
    gaps: &'a GapSet,
    breaker: &'a Breaker,
    now: UnixTime,
    /// The main jobs that are extended, each with one of its own nodes or places.
    own: Vec<(JobId, NodeName)>,
    owners: FxHashSet<JobId>,
    /// Nodes that the breaker closes to jobs of a user.
    blocked: FxHashMap<UserId, Vec<NodeName>>,
    /// For each key the list that jobs ask to avoid, and the complete list.
    lists: FxHashMap<ExclusionKey, (ExcludedNodes, ExcludedNodes)>,
}

/// Jobs with equal keys have the same excluded nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ExclusionKey {
    /// Identity of the list of nodes that a job asks to avoid.
    asked: usize,
    /// The job's user, where the breaker closes nodes to that user.
    user: Option<UserId>,
    /// The job, where it has own nodes.
    owner: Option<JobId>,
}

impl<'a> NodeExclusions<'a> {
    /// The exclusions of a round with these gaps and jobs.
    pub fn new(gaps: &'a GapSet, facts: &[JobFacts], breaker: &'a Breaker, now: UnixTime) -> Self {
        let mut own = Vec::new();
        for facts in facts {
            own.extend(facts.location.own_places().into_iter().map(|node| (facts.job, node)));
        }
        let owners = own.iter().map(|(job, _)| *job).collect();
        let blocked = FxHashMap::default();
        let lists = FxHashMap::default();
        NodeExclusions { gaps, breaker, now, own, owners, blocked, lists }
    }

    /// All nodes that the job cannot have.
    pub fn excluded_for(&mut self, job: &MalleableJob) -> ExcludedNodes {
        let breaker = self.breaker;
        let now = self.now;
        let blocked = self.blocked.entry(job.user);
        let blocked = blocked.or_insert_with(|| breaker.blocked_to(job.user, now).cloned().collect());
        let key = ExclusionKey {
            asked: job.excluded.list_id(),
            user: (!blocked.is_empty()).then_some(job.user),
            owner: self.owners.get(&job.id).copied(),
        };
        if let Some((_, list)) = self.lists.get(&key) {
            return list.clone();
        }
        let asked_or_blocked = job.excluded.with_nodes(blocked.clone());
        // A place has no places of its own.
        let nodes = asked_or_blocked.iter().filter(|node| !node.is_place());
        let places: Vec<NodeName> = nodes.flat_map(|node| places_on(node, self.gaps)).collect();
        let others = self.own.iter().filter(|(owner, _)| *owner != job.id).map(|(_, node)| node.clone());
        let all = asked_or_blocked.with_nodes(places.into_iter().chain(others));
        // Keeps the list that the key identifies: while it lives, no other list has its identity.
        self.lists.insert(key, (job.excluded.clone(), all.clone()));
        all
    }
}

/// The places of this node that are gaps.
fn places_on(node: &NodeName, gaps: &GapSet) -> impl Iterator<Item = NodeName> {
    let prefix = format!("{node}:");
    let from = gaps.gaps.partition_point(|g| g.node.as_str() < prefix.as_str());
    let names = gaps.gaps.iter().skip(from).map(|g| g.node.clone());
    names.take_while(move |name| name.as_str().starts_with(&prefix))
}
