//! On which nodes a job can be, by what it asks for. Jobs that ask for the same share one answer.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use infill_model::{
    Constraint, ExcludedNodes, Job, LendingUnit, Node, NodeName, NodeType, Resources, StartBlocker, UserId,
    hostlist,
};

/// Most work that the wishes of all jobs cost in one look: names that are read, nodes that are looked at, and
/// with them names of nodes that are kept. Some tenths of a second.
const MOST_WORK: usize = 4_000_000;

/// A user's jobs may cost this part of it.
const PART_OF_A_USER: usize = 4;

/// So many characters of a constraint are as much to look at as a node.
const CHARS_A_NODE: usize = 16;

/// What is said of a job that comes after all that.
const TOO_MANY: &str = "too many jobs ask for different --constraint, --exclude or --gres";

/// The work that is left for the wishes of one look.
#[derive(Debug)]
pub(super) struct MatchBudget {
    left: usize,
    of_users: BTreeMap<UserId, usize>,
}

impl Default for MatchBudget {
    fn default() -> Self {
        MatchBudget { left: MOST_WORK, of_users: BTreeMap::new() }
    }
}

impl MatchBudget {
    fn is_spent(&self, user: UserId) -> bool {
        let most = MOST_WORK / PART_OF_A_USER;
        self.left == 0 || self.of_users.get(&user).is_some_and(|spent| *spent >= most)
    }

    fn spend(&mut self, user: UserId, work: usize) {
        self.left = self.left.saturating_sub(work);
        let spent = self.of_users.entry(user).or_default();
        *spent = spent.saturating_add(work);
    }
}

/// `--constraint`, `--exclude`, `--gres`, and how many places of a node a worker takes.
type NodeRequestKey<'a> = (&'a str, &'a str, &'a str, u32);

/// Nodes on which jobs may be, by name, and what is known of where those can be that ask for something.
#[derive(Debug, Default)]
pub(super) struct NodeMatcher<'a> {
    nodes: Vec<&'a Node>,
    known: BTreeMap<NodeRequestKey<'a>, Result<RequestMatches, String>>,
    /// Lists that came of some wish.
    lists: HashSet<ExcludedNodes>,
    all: Option<ExcludedNodes>,
    none: ExcludedNodes,
    /// What the nodes that are not on a list have for each of their places.
    units: BTreeMap<usize, (ExcludedNodes, Vec<LendingUnit>)>,
}

/// Where a job can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeEligibility {
    /// Nodes on which it cannot be.
    pub excluded: ExcludedNodes,
    /// It can be nowhere.
    pub bar: Option<StartBlocker>,
}

/// The places of one wish.
#[derive(Debug)]
struct RequestMatches {
    asked: NodeRequest,
    /// The alternative with the most nodes, once somebody had to know.
    largest: Option<usize>,
    by_alternative: BTreeMap<usize, NodeEligibility>,
}

impl<'a> NodeMatcher<'a> {
    /// Of these nodes, by name.
    pub fn new(nodes: Vec<&'a Node>) -> NodeMatcher<'a> {
        NodeMatcher { nodes, ..NodeMatcher::default() }
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Where a job can be, by what its lead asks for of so many places of a node; `here` is the node that it
    /// is on.
    pub fn match_job(
        &mut self,
        lead: &'a Job,
        block: u32,
        here: Option<&NodeName>,
        budget: &mut MatchBudget,
    ) -> NodeEligibility {
        let wish = (lead.asks.constraint.as_str(), lead.asks.exclude.as_str(), lead.gres.as_str(), block);
        if (wish.0, wish.1, wish.2) == ("", "", "") {
            return NodeEligibility { excluded: self.none.clone(), bar: None };
        }
        if !self.known.contains_key(&wish) {
            if budget.is_spent(lead.user_id) {
                return self.ineligible_everywhere(TOO_MANY);
            }
            let asked = NodeRequest::parse(wish);
            budget.spend(lead.user_id, wish.1.len() + asked.as_ref().map_or(0, |asked| asked.exclude.len()));
            self.known.insert(
                wish,
                asked.map(|asked| RequestMatches { asked, largest: None, by_alternative: BTreeMap::new() }),
            );
        }
        let Some(Ok(answers)) = self.known.get_mut(&wish) else {
            let why = self.known.get(&wish).and_then(|known| known.as_ref().err()).cloned();
            return self.ineligible_everywhere(&why.unwrap_or_default());
        };
        let work = self.nodes.len() * (1 + wish.0.len() / CHARS_A_NODE);
        let alternative =
            answers.choose_alternative(&self.nodes, here, |looks| budget.spend(lead.user_id, work * looks));
        if let Some(known) = answers.by_alternative.get(&alternative) {
            return known.clone();
        }
        if budget.is_spent(lead.user_id) {
            return self.ineligible_everywhere(TOO_MANY);
        }
        budget.spend(lead.user_id, work);
        let excluded: ExcludedNodes = answers.asked.excluded_nodes(alternative, &self.nodes).into();
        // Another wish may have come to the same.
        let excluded = self.lists.get(&excluded).cloned().unwrap_or(excluded);
        self.lists.insert(excluded.clone());
        let nowhere = !self.nodes.is_empty() && excluded.len() == self.nodes.len();
        let bar = nowhere.then(|| StartBlocker::NoNode(answers.asked.text.clone()));
        let places = NodeEligibility { excluded, bar };
        answers.by_alternative.insert(alternative, places.clone());
        places
    }

    /// A job that can be nowhere, for a reason that lies in what it asks for.
    fn ineligible_everywhere(&mut self, why: &str) -> NodeEligibility {
        let nodes = &self.nodes;
        let all = self.all.get_or_insert_with(|| nodes.iter().map(|n| n.name.clone()).collect());
        NodeEligibility { excluded: all.clone(), bar: Some(StartBlocker::Constraint(why.to_owned())) }
    }

    /// The different units of places of nodes that are not on this list.
    pub fn lending_units(&mut self, excluded: &ExcludedNodes) -> &[LendingUnit] {
        let nodes = &self.nodes;
        let found = || {
            let mut units: Vec<LendingUnit> = Vec::new();
            for node in nodes.iter().filter(|n| n.name.is_place()) {
                let Resources { cpus, memory_mib, ref gpus } = node.has;
                let unit = LendingUnit { has_gpu: gpus.total_count() > 0, cpus, memory_mib };
                if !units.contains(&unit) && !excluded.contains(&node.name) {
                    units.push(unit);
                }
            }
            (excluded.clone(), units)
        };
        &self.units.entry(excluded.list_id()).or_insert_with(found).1
    }
}

impl RequestMatches {
    /// The alternative that all nodes of a job shall meet: the one that its lead is in already, else the one
    /// with the most nodes. `looks` is told how many times all nodes were looked at.
    fn choose_alternative(
        &mut self,
        nodes: &[&Node],
        here: Option<&NodeName>,
        looks: impl FnOnce(usize),
    ) -> usize {
        let Some(constraint) = &self.asked.constraint else { return 0 };
        let here = here.and_then(|here| here.single_places().into_iter().next());
        let here =
            here.and_then(|here| nodes.binary_search_by(|n| n.name.cmp(&here)).ok()).map(|at| nodes[at]);
        let meets = |n: &usize| here.is_some_and(|node| constraint.admits_node(*n, &node.features));
        let all = 0..constraint.alternatives();
        if let Some(here) = all.clone().find(meets) {
            return here;
        }
        if all.len() <= 1 {
            return 0;
        }
        *self.largest.get_or_insert_with(|| {
            looks(all.len());
            // The first of those with as many.
            all.rev()
                .max_by_key(|n: &usize| {
                    let asked = &self.asked;
                    nodes.iter().filter(|n| asked.has_all(n)).filter(|node| asked.admits(*n, node)).count()
                })
                .unwrap_or(0)
        })
    }
}

/// What a job asks of its nodes.
#[derive(Debug)]
struct NodeRequest {
    constraint: Option<Constraint>,
    exclude: BTreeSet<NodeName>,
    gres: String,
    /// How many places of a node have that together.
    block: u32,
    /// As the user wrote it.
    text: String,
}

impl NodeRequest {
    /// Or what cannot be understood.
    fn parse((constraint, exclude, gres, block): NodeRequestKey<'_>) -> Result<NodeRequest, String> {
        let options = [("constraint", constraint), ("exclude", exclude), ("gres", gres)];
        let given = options.iter().filter(|(_, value)| !value.is_empty());
        let text = given.map(|(name, value)| format!("--{name}={value}")).collect::<Vec<_>>().join(" ");
        let constraint = Constraint::parse(constraint).map_err(|e| e.to_string())?;
        let exclude = hostlist::expand_hostlist(exclude).map_err(|e| format!("--exclude: {e}"))?;
        Ok(NodeRequest {
            constraint,
            exclude: exclude.into_iter().collect(),
            gres: gres.to_owned(),
            block,
            text,
        })
    }

    /// Nodes that are not what it asks for, by name.
    fn excluded_nodes(&self, alternative: usize, nodes: &[&Node]) -> Vec<NodeName> {
        // Neighbours are mostly of one type.
        let mut last: Option<(&NodeType, bool)> = None;
        let mut out = Vec::new();
        for node in nodes {
            let is_of_use = match last {
                Some((known, is_of_use)) if *known == node.node_type => is_of_use,
                _ => last.insert((&node.node_type, self.has_all(node))).1,
            };
            if !is_of_use || !self.admits(alternative, node) {
                out.push(node.name.clone());
            }
        }
        out
    }

    /// Whether the node has the generic resources.
    fn has_all(&self, node: &Node) -> bool {
        has_gres(&node.node_type, self.block, &self.gres)
    }

    /// Whether it wants to be on this node, if that has what it needs.
    fn admits(&self, alternative: usize, node: &Node) -> bool {
        self.constraint.as_ref().is_none_or(|c| c.admits_node(alternative, &node.features))
            && (self.exclude.is_empty() || !self.exclude.contains(&node.name.host()))
    }
}

/// Whether so many places of this type, or one node, have what `--gres` asks for: `gpu:a100:4/cpu64` has
/// `gpu:2`. What is written in another way is left to Slurm.
fn has_gres(node_type: &NodeType, block: u32, gres: &str) -> bool {
    let offers: Vec<GresSpec<'_>> = node_type
        .as_str()
        .split('/')
        .next()
        .unwrap_or_default()
        .split('+')
        .filter_map(GresSpec::parse)
        .collect();
    gres.split(',').filter_map(GresSpec::parse).all(|wanted| {
        let fits =
            offers.iter().filter(|o| o.name == wanted.name && wanted.kind.is_none_or(|k| o.kind == Some(k)));
        let there = fits.map(|o| o.count).fold(0, u64::saturating_add).saturating_mul(block.max(1).into());
        there >= wanted.count
    })
}

/// `name[:type][:count]`.
struct GresSpec<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    count: u64,
}

impl<'a> GresSpec<'a> {
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

    /// `n1 big,ib gpu:4`: name, features, generic resources.
    fn nodes(lines: &[&str]) -> Vec<Node> {
        let node = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            let word = |at: usize| words.get(at).copied().unwrap_or_default();
            Node {
                partitions: vec!["infill".to_owned()],
                features: word(1).split(',').map(str::to_owned).collect(),
                ..Node::new(NodeName::new(word(0)), NodeType::new(format!("{}/cpu2", word(2))))
            }
        };
        lines.iter().map(node).collect()
    }

    const NODES: [&str; 5] = ["n1 big,r1 gpu:a100:4", "n2 big,r2 gpu:a100:4", "n3 r2", "n4 r2 gpu:2", "n5"];

    fn lead(constraint: &str, exclude: &str, gres: &str) -> Job {
        let mut lead = Job::new(JobId(7), "infill", BaseState::Pending);
        (lead.asks.constraint, lead.asks.exclude) = (constraint.to_owned(), exclude.to_owned());
        lead.gres = gres.to_owned();
        lead
    }

    /// The nodes that are left, or why none is.
    fn left(lead: &Job, here: Option<&str>) -> String {
        let nodes = nodes(&NODES);
        let mut matcher = NodeMatcher::new(nodes.iter().collect());
        let places =
            matcher.match_job(lead, 1, here.map(NodeName::from).as_ref(), &mut MatchBudget::default());
        let left = nodes.iter().filter(|n| !places.excluded.contains(&n.name)).map(|n| n.name.as_str());
        places.bar.map_or_else(|| left.collect::<Vec<_>>().join(" "), |bar| bar.describe_at(UnixTime(0)))
    }

    #[test]
    fn a_job_cannot_be_where_it_does_not_want_to_be() {
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
                left(&lead(constraint, exclude, gres), None),
                expected,
                "{constraint} {exclude} {gres}"
            );
        }
        assert!(
            left(&lead("", "n[1-", ""), None).starts_with("has a request that infill cannot follow: --exclude")
        );
        // Of alternatives it keeps to the one that it is in.
        assert_eq!(left(&lead("[r1|r2]", "", ""), Some("n1")), "n1");
    }

    #[test]
    fn jobs_that_ask_for_the_same_share_one_list() {
        let nodes = nodes(&NODES);
        let mut matcher = NodeMatcher::new(nodes.iter().collect());
        let mut budget = MatchBudget::default();
        let leads: Vec<Job> = (0..10_000).map(|_| lead("big", "", "gpu:4")).collect();
        // The last one says it in other words.
        let other = lead("", "n[3-5]", "");
        let found: Vec<NodeEligibility> =
            leads.iter().map(|lead| matcher.match_job(lead, 1, None, &mut budget)).collect();
        assert_eq!(budget.left, MOST_WORK - nodes.len(), "the nodes are looked at once");
        let same = matcher.match_job(&other, 1, None, &mut budget);
        assert_eq!(same.excluded.len(), 3);
        let numbers: BTreeSet<usize> = found.iter().chain([&same]).map(|p| p.excluded.list_id()).collect();
        assert_eq!(numbers.len(), 1);
    }

    #[test]
    fn a_user_with_ever_other_wishes_does_not_use_up_the_time_of_all() {
        let nodes = nodes(&NODES);
        let mut matcher = NodeMatcher::new(nodes.iter().collect());
        let mut budget = MatchBudget::default();
        // Each reads a name, and looks at five nodes.
        budget.spend(UserId(7), MOST_WORK / PART_OF_A_USER - 100);
        let of = |user: u32, n: u32| {
            let mut lead = lead("", &format!("x{n}"), "");
            lead.user_id = UserId(user);
            lead
        };
        let leads: Vec<Job> = (0..1000).map(|n| of(7, n)).chain([of(8, 1000), of(7, 0)]).collect();
        let found: Vec<NodeEligibility> =
            leads.iter().map(|lead| matcher.match_job(lead, 1, None, &mut budget)).collect();
        let (theirs, others) = found.split_at(1000);
        let first = theirs.iter().take_while(|places| places.bar.is_none()).count();
        assert!((5..20).contains(&first), "{first} of 1000");
        for places in &theirs[first..] {
            assert_eq!(places.bar, Some(StartBlocker::Constraint(TOO_MANY.to_owned())));
            assert_eq!(places.excluded.len(), nodes.len());
        }
        assert_eq!(
            others.iter().map(|p| &p.bar).collect::<Vec<_>>(),
            [&None, &None],
            "another's, and a known one"
        );
    }

    #[test]
    fn a_block_has_what_its_places_have_together() {
        let place = |kind: &str| has_gres(&NodeType::new(kind), 2, "gpu:2");
        assert!(place("gpu:a100:1/cpu4") && !place("cpu4"));
        assert!(!has_gres(&NodeType::new("gpu:a100:1/cpu4"), 1, "gpu:2"), "one place is not enough");
    }
}
