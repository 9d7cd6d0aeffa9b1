//! Matches jobs' requests to nodes. Jobs with the same request share one result.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use infill_model::{
    Constraint, ExcludedNodes, Job, LendingUnit, Node, NodeName, NodeType, Resources, StartBlocker, UserId,
    hostlist,
};

/// Largest amount of work for all requests in one snapshot, some tenths of a second. A unit of work is a host
/// name that is parsed or a node that is checked; names of nodes that are kept are included.
const MAX_MATCHING_WORK: usize = 4_000_000;

/// The jobs of one user may use one part in this many of [`MAX_MATCHING_WORK`].
const USER_FRACTION: usize = 4;

/// Number of characters of a constraint that take as long to check as a node.
const CHARS_PER_NODE: usize = 16;

/// The reason for a job that was not matched because the budget was used up.
const TOO_MANY: &str = "too many jobs ask for different --constraint, --exclude or --gres";

/// The remaining work for the requests in one snapshot.
#[derive(Debug)]
pub(super) struct MatchBudget {
    left: usize,
    spent_by_user: BTreeMap<UserId, usize>,
}

impl Default for MatchBudget {
    fn default() -> Self {
        MatchBudget { left: MAX_MATCHING_WORK, spent_by_user: BTreeMap::new() }
    }
}

impl MatchBudget {
    fn is_spent(&self, user: UserId) -> bool {
        let users_share = MAX_MATCHING_WORK / USER_FRACTION;
        self.left == 0 || self.spent_by_user.get(&user).is_some_and(|spent| *spent >= users_share)
    }

    fn spend(&mut self, user: UserId, work: usize) {
        self.left = self.left.saturating_sub(work);
        let spent = self.spent_by_user.entry(user).or_default();
        *spent = spent.saturating_add(work);
    }
}

/// A request for nodes as the user wrote it; empty options were not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeRequestKey<'a> {
    /// `--constraint`.
    constraint: &'a str,
    /// `--exclude`.
    exclude: &'a str,
    /// `--gres`.
    gres: &'a str,
    /// Number of places of a node per worker.
    block: u32,
}

/// Matches requests to a set of nodes, and caches the results.
#[derive(Debug, Default)]
pub(super) struct NodeMatcher<'a> {
    /// The nodes, sorted by name.
    nodes: Vec<&'a Node>,
    /// The results for each request, or the reason why it cannot be parsed.
    matches: BTreeMap<NodeRequestKey<'a>, Result<RequestMatches, String>>,
    /// The different lists of excluded nodes, so that equal lists share their memory.
    lists: HashSet<ExcludedNodes>,
    /// The list of all nodes, once needed.
    all: Option<ExcludedNodes>,
    /// The empty list.
    none: ExcludedNodes,
    /// By list of excluded nodes: the different resources per place of the other nodes.
    units: BTreeMap<usize, (ExcludedNodes, Vec<LendingUnit>)>,
}

/// The nodes on which a job can run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeEligibility {
    /// Nodes on which the job cannot run.
    pub excluded: ExcludedNodes,
    /// Why the job cannot run on any node; `None` if it can.
    pub start_blocker: Option<StartBlocker>,
}

/// The results for one request.
#[derive(Debug)]
struct RequestMatches {
    request: NodeRequest,
    /// The alternative of the constraint with the most nodes, once needed.
    largest: Option<usize>,
    by_alternative: BTreeMap<usize, NodeEligibility>,
}

impl<'a> NodeMatcher<'a> {
    /// A matcher for these nodes, which are sorted by name.
    pub fn new(nodes: Vec<&'a Node>) -> NodeMatcher<'a> {
        NodeMatcher { nodes, ..NodeMatcher::default() }
    }

    /// Whether the matcher has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes on which a job with this lead can run. A worker takes `block` places of a node. `lead_node`
    /// is the lead's present node.
    pub fn match_job(
        &mut self,
        lead: &'a Job,
        block: u32,
        lead_node: Option<&NodeName>,
        budget: &mut MatchBudget,
    ) -> NodeEligibility {
        let key = NodeRequestKey {
            constraint: &lead.asks.constraint,
            exclude: &lead.asks.exclude,
            gres: &lead.gres,
            block,
        };
        if key.constraint.is_empty() && key.exclude.is_empty() && key.gres.is_empty() {
            return NodeEligibility { excluded: self.none.clone(), start_blocker: None };
        }
        if !self.matches.contains_key(&key) {
            if budget.is_spent(lead.user_id) {
                return self.ineligible_everywhere(TOO_MANY);
            }
            let request = NodeRequest::parse(key);
            let excluded_names = request.as_ref().map_or(0, |request| request.exclude.len());
            budget.spend(lead.user_id, key.exclude.len() + excluded_names);
            let matches = request.map(|request| RequestMatches {
                request,
                largest: None,
                by_alternative: BTreeMap::new(),
            });
            self.matches.insert(key, matches);
        }
        let Some(Ok(matches)) = self.matches.get_mut(&key) else {
            let why = self.matches.get(&key).and_then(|matches| matches.as_ref().err()).cloned();
            return self.ineligible_everywhere(&why.unwrap_or_default());
        };
        let work = self.nodes.len() * (1 + key.constraint.len() / CHARS_PER_NODE);
        let alternative = matches.choose_alternative(&self.nodes, lead_node, |passes| {
            budget.spend(lead.user_id, work * passes);
        });
        if let Some(eligibility) = matches.by_alternative.get(&alternative) {
            return eligibility.clone();
        }
        if budget.is_spent(lead.user_id) {
            return self.ineligible_everywhere(TOO_MANY);
        }
        budget.spend(lead.user_id, work);
        let excluded: ExcludedNodes = matches.request.excluded_nodes(alternative, &self.nodes).into();
        // Another request may have the same list.
        let excluded = self.lists.get(&excluded).cloned().unwrap_or(excluded);
        self.lists.insert(excluded.clone());
        let excludes_all = !self.nodes.is_empty() && excluded.len() == self.nodes.len();
        let start_blocker = excludes_all.then(|| StartBlocker::NoNode(matches.request.text.clone()));
        let eligibility = NodeEligibility { excluded, start_blocker };
        matches.by_alternative.insert(alternative, eligibility.clone());
        eligibility
    }

    /// The result for a job that cannot run on any node because of its request.
    fn ineligible_everywhere(&mut self, why: &str) -> NodeEligibility {
        let nodes = &self.nodes;
        let all = self.all.get_or_insert_with(|| nodes.iter().map(|n| n.name.clone()).collect());
        NodeEligibility {
            excluded: all.clone(),
            start_blocker: Some(StartBlocker::Constraint(why.to_owned())),
        }
    }

    /// The different resources per place of the nodes that are not excluded.
    pub fn lending_units(&mut self, excluded: &ExcludedNodes) -> &[LendingUnit] {
        let nodes = &self.nodes;
        let entry = self.units.entry(excluded.list_id());
        let (_, units) = entry.or_insert_with(|| (excluded.clone(), find_lending_units(nodes, excluded)));
        units
    }
}

/// The different resources per place of the places in `nodes` that are not excluded.
fn find_lending_units(nodes: &[&Node], excluded: &ExcludedNodes) -> Vec<LendingUnit> {
    let mut units: Vec<LendingUnit> = Vec::new();
    for node in nodes.iter().filter(|n| n.name.is_place()) {
        let Resources { cpus, memory_mib, ref gpus } = node.has;
        let unit = LendingUnit { has_gpu: gpus.total_count() > 0, cpus, memory_mib };
        if !units.contains(&unit) && !excluded.contains(&node.name) {
            units.push(unit);
        }
    }
    units
}

impl RequestMatches {
    /// The alternative of the constraint that all nodes of a job must meet: that of the lead's present node,
    /// or else the one with the most nodes. Calls `on_passes` with the number of passes over all nodes.
    fn choose_alternative(
        &mut self,
        nodes: &[&Node],
        lead_node: Option<&NodeName>,
        on_passes: impl FnOnce(usize),
    ) -> usize {
        let Some(constraint) = &self.request.constraint else { return 0 };
        let alternatives = 0..constraint.alternatives();
        if let Some(lead_node) = find_node(nodes, lead_node)
            && let Some(present) =
                alternatives.clone().find(|index| constraint.admits_node(*index, &lead_node.features))
        {
            return present;
        }
        if alternatives.len() <= 1 {
            return 0;
        }
        if let Some(largest) = self.largest {
            return largest;
        }
        on_passes(alternatives.len());
        let suitable: Vec<&&Node> = nodes.iter().filter(|node| self.request.has_all(node)).collect();
        let mut largest = 0;
        let mut most_nodes = 0;
        // The first of several alternatives with as many nodes wins.
        for index in alternatives {
            let admitted = suitable.iter().filter(|node| self.request.admits(index, node)).count();
            if admitted > most_nodes {
                largest = index;
                most_nodes = admitted;
            }
        }
        self.largest = Some(largest);
        largest
    }
}

/// The node of this name, or the node of its first place. `nodes` are sorted by name.
fn find_node<'a>(nodes: &[&'a Node], name: Option<&NodeName>) -> Option<&'a Node> {
    let first_place = name?.single_places().into_iter().next()?;
    let index = nodes.binary_search_by(|node| node.name.cmp(&first_place)).ok()?;
    Some(nodes[index])
}

/// A job's request for nodes.
#[derive(Debug)]
struct NodeRequest {
    constraint: Option<Constraint>,
    exclude: BTreeSet<NodeName>,
    gres: String,
    /// Number of places of a node that must have `gres` together.
    block: u32,
    /// The request as the user wrote it.
    text: String,
}

impl NodeRequest {
    /// Parses a request. An error names the part that is not understood.
    fn parse(key: NodeRequestKey<'_>) -> Result<NodeRequest, String> {
        let options = [("constraint", key.constraint), ("exclude", key.exclude), ("gres", key.gres)];
        let given = options.iter().filter(|(_, value)| !value.is_empty());
        let text = given.map(|(name, value)| format!("--{name}={value}")).collect::<Vec<_>>().join(" ");
        let constraint = Constraint::parse(key.constraint).map_err(|e| e.to_string())?;
        let exclude = hostlist::expand_hostlist(key.exclude).map_err(|e| format!("--exclude: {e}"))?;
        Ok(NodeRequest {
            constraint,
            exclude: exclude.into_iter().collect(),
            gres: key.gres.to_owned(),
            block: key.block,
            text,
        })
    }

    /// Names of the nodes that do not match the request, in the order of `nodes`.
    fn excluded_nodes(&self, alternative: usize, nodes: &[&Node]) -> Vec<NodeName> {
        // Neighbouring nodes mostly have the same type, so the last check is reused.
        let mut last: Option<(&NodeType, bool)> = None;
        let mut excluded = Vec::new();
        for node in nodes {
            let has_gres = match last {
                Some((node_type, has_gres)) if *node_type == node.node_type => has_gres,
                _ => last.insert((&node.node_type, self.has_all(node))).1,
            };
            if !has_gres || !self.admits(alternative, node) {
                excluded.push(node.name.clone());
            }
        }
        excluded
    }

    /// Whether the node has the requested generic resources.
    fn has_all(&self, node: &Node) -> bool {
        has_gres(&node.node_type, self.block, &self.gres)
    }

    /// Whether constraint and exclusions allow this node.
    fn admits(&self, alternative: usize, node: &Node) -> bool {
        self.constraint.as_ref().is_none_or(|c| c.admits_node(alternative, &node.features))
            && (self.exclude.is_empty() || !self.exclude.contains(&node.name.host()))
    }
}

/// Whether `block` places of this type, or one node, have the resources of `--gres`. For example,
/// `gpu:a100:4/cpu64` has `gpu:2`. Resources in any other form are left to Slurm.
fn has_gres(node_type: &NodeType, block: u32, gres: &str) -> bool {
    let offered = node_type.as_str().split('/').next().unwrap_or_default();
    let offered: Vec<GresSpec<'_>> = offered.split('+').filter_map(GresSpec::parse).collect();
    gres.split(',').filter_map(GresSpec::parse).all(|requested| {
        let matching = offered.iter().filter(|offer| {
            offer.name == requested.name && requested.kind.is_none_or(|kind| offer.kind == Some(kind))
        });
        let per_place = matching.map(|offer| offer.count).fold(0, u64::saturating_add);
        per_place.saturating_mul(block.max(1).into()) >= requested.count
    })
}

/// A generic resource: `name[:type][:count]`.
struct GresSpec<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    count: u64,
}

impl<'a> GresSpec<'a> {
    /// Parses one resource; `None` for any other form.
    fn parse(text: &'a str) -> Option<GresSpec<'a>> {
        let parts: Vec<&str> = text.trim().split(':').collect();
        let (name, kind, count) = match parts[..] {
            [name, kind, count] => (name, Some(kind), count.parse().ok()?),
            [name, last] => match last.parse() {
                Ok(count) => (name, None, count),
                Err(_) => (name, Some(last), 1),
            },
            [name] if !name.is_empty() => (name, None, 1),
            _ => return None,
        };
        Some(GresSpec { name, kind, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobId, UnixTime};

    /// Parses nodes from lines such as `n1 big,ib gpu:4`: name, features, generic resources.
    fn nodes(lines: &[&str]) -> Vec<Node> {
        lines.iter().map(|line| node(line)).collect()
    }

    fn node(line: &str) -> Node {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let features = words.next().unwrap_or_default();
        let gres = words.next().unwrap_or_default();
        Node {
            partitions: vec!["infill".to_owned()],
            features: features.split(',').map(str::to_owned).collect(),
            ..Node::new(NodeName::new(name), NodeType::new(format!("{gres}/cpu2")))
        }
    }

    const NODES: [&str; 5] = ["n1 big,r1 gpu:a100:4", "n2 big,r2 gpu:a100:4", "n3 r2", "n4 r2 gpu:2", "n5"];

    fn lead(constraint: &str, exclude: &str, gres: &str) -> Job {
        let mut lead = Job::new(JobId(7), "infill", BaseState::Pending);
        lead.asks.constraint = constraint.to_owned();
        lead.asks.exclude = exclude.to_owned();
        lead.gres = gres.to_owned();
        lead
    }

    /// The suitable nodes of [`NODES`], or why there are none.
    fn suitable_nodes(lead: &Job, lead_node: Option<&str>) -> String {
        let nodes = nodes(&NODES);
        let mut matcher = NodeMatcher::new(nodes.iter().collect());
        let lead_node = lead_node.map(NodeName::from);
        let eligibility = matcher.match_job(lead, 1, lead_node.as_ref(), &mut MatchBudget::default());
        if let Some(blocker) = eligibility.start_blocker {
            return blocker.describe_at(UnixTime(0));
        }
        let suitable = nodes.iter().filter(|node| !eligibility.excluded.contains(&node.name));
        suitable.map(|node| node.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nodes_must_match_constraint_exclusions_and_gres() {
        let cases = [
            (("", "", ""), "n1 n2 n3 n4 n5"),
            (("big", "", ""), "n1 n2"),
            (("big&r2", "", ""), "n2"),
            (("", "n[1-3]", ""), "n4 n5"),
            (("r1|r2", "n2", ""), "n1 n3 n4"),
            (("", "", "gpu:4"), "n1 n2"),
            (("", "", "gpu:2"), "n1 n2 n4"),
            (("", "", "gpu:a100:1"), "n1 n2"),
            (("", "", "gpu:a100"), "n1 n2"),
            (("r2", "", "gpu:1"), "n2 n4"),
            (("[r1|r2]", "", ""), "n2 n3 n4"),
            (("big&[r1|r2]", "", ""), "n1"),
            (("r3", "", ""), "asks for --constraint=r3, and no node of the partition has that"),
            (
                ("r1", "n1", ""),
                "asks for --constraint=r1 --exclude=n1, and no node of the partition has that",
            ),
            (("", "", "gpu:8"), "asks for --gres=gpu:8, and no node of the partition has that"),
            (
                ("!big", "", ""),
                "has a request that infill cannot follow: --constraint=!big, which infill does not understand at character 1",
            ),
        ];
        for ((constraint, exclude, gres), expected) in cases {
            assert_eq!(
                suitable_nodes(&lead(constraint, exclude, gres), None),
                expected,
                "{constraint} {exclude} {gres}"
            );
        }
        let unparsable = suitable_nodes(&lead("", "n[1-", ""), None);
        assert!(unparsable.starts_with("has a request that infill cannot follow: --exclude"), "{unparsable}");
        // The job keeps the alternative of its lead's node.
        assert_eq!(suitable_nodes(&lead("[r1|r2]", "", ""), Some("n1")), "n1");
    }

    #[test]
    fn jobs_with_equivalent_requests_share_one_list() {
        let nodes = nodes(&NODES);
        let mut matcher = NodeMatcher::new(nodes.iter().collect());
        let mut budget = MatchBudget::default();
        let leads: Vec<Job> = (0..10_000).map(|_| lead("big", "", "gpu:4")).collect();
        // This one excludes the same nodes by another option.
        let other = lead("", "n[3-5]", "");
        let found: Vec<NodeEligibility> =
            leads.iter().map(|lead| matcher.match_job(lead, 1, None, &mut budget)).collect();
        assert_eq!(budget.left, MAX_MATCHING_WORK - nodes.len(), "the nodes are checked once");
        let same = matcher.match_job(&other, 1, None, &mut budget);
        assert_eq!(same.excluded.len(), 3);
        let lists: BTreeSet<usize> = found.iter().chain([&same]).map(|p| p.excluded.list_id()).collect();
        assert_eq!(lists.len(), 1);
    }

    #[test]
    fn many_different_requests_of_one_user_do_not_use_up_the_budget_of_others() {
        fn lead_of(user: u32, excluded: u32) -> Job {
            let mut lead = lead("", &format!("x{excluded}"), "");
            lead.user_id = UserId(user);
            lead
        }
        let nodes = nodes(&NODES);
        let mut matcher = NodeMatcher::new(nodes.iter().collect());
        let mut budget = MatchBudget::default();
        // Each request costs a parsed name and five checked nodes.
        budget.spend(UserId(7), MAX_MATCHING_WORK / USER_FRACTION - 100);
        let last = [lead_of(8, 1000), lead_of(7, 0)];
        let leads: Vec<Job> = (0..1000).map(|n| lead_of(7, n)).chain(last).collect();
        let found: Vec<NodeEligibility> =
            leads.iter().map(|lead| matcher.match_job(lead, 1, None, &mut budget)).collect();
        let (first_users, others) = found.split_at(1000);
        let matched =
            first_users.iter().take_while(|eligibility| eligibility.start_blocker.is_none()).count();
        assert!((5..20).contains(&matched), "{matched} of 1000");
        for eligibility in &first_users[matched..] {
            assert_eq!(eligibility.start_blocker, Some(StartBlocker::Constraint(TOO_MANY.to_owned())));
            assert_eq!(eligibility.excluded.len(), nodes.len());
        }
        assert_eq!(others[0].start_blocker, None, "another user's request");
        assert_eq!(others[1].start_blocker, None, "a request that was matched before");
    }

    #[test]
    fn a_block_has_the_resources_of_all_its_places() {
        let gpu_type = NodeType::new("gpu:a100:1/cpu4");
        assert!(has_gres(&gpu_type, 2, "gpu:2"));
        assert!(!has_gres(&NodeType::new("cpu4"), 2, "gpu:2"));
        assert!(!has_gres(&gpu_type, 1, "gpu:2"), "one place is not enough");
    }
}
