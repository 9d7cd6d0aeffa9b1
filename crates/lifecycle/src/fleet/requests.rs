//! What users ask for beside a number of nodes: on which nodes a job cannot be, and what keeps it from
//! starting.

use std::collections::BTreeSet;

use super::entry::Entry;
use super::jobs::Fleet;
use crate::Phase;
use infill_model::{
    Bar, Constraint, Job, Node, NodeName, NodeType, Resources, Snapshot, Unit, UnixTime, Wishes, dependency,
    hostlist,
};

/// Slurm lets a job that it requeues begin after two minutes. A moment that is further off was chosen by a
/// person.
const REQUEUE_DELAY_SECS: f64 = 150.0;

impl Fleet {
    /// Reads what the jobs of a trusted snapshot ask for.
    pub(super) fn read_requests(&mut self, snapshot: &Snapshot) {
        let partition = &self.settings.partition;
        let mine = |n: &&Node| n.partitions.iter().any(|p| p == partition);
        let nodes: Vec<&Node> = snapshot.nodes.iter().filter(mine).collect();
        let is_on_cpus = |n: &&Node| n.name.is_place() && !n.node_type.has_gpus();
        // Where parts of nodes are lent, GPUs are for jobs that ask for them, and the others for those that
        // ask for CPUs.
        let lends_parts = nodes.iter().any(|n| n.name.is_place());
        let (on_cpus, others): (Vec<&Node>, Vec<&Node>) = nodes.into_iter().partition(is_on_cpus);
        let parts = self.parts.clone();
        for (id, entry) in self.jobs.iter_mut().filter(|(_, e)| !e.has_ended()) {
            let Some(lead) = snapshot.job(*id).filter(|j| j.partition == *partition) else { continue };
            let (nodes, what) = match entry.machine.submitted.cpus {
                Some(_) if lends_parts => (&on_cpus, "CPUs of nodes without GPUs"),
                _ => (&others, "GPUs"),
            };
            entry.read_request(lead, nodes, snapshot);
            if lends_parts && nodes.is_empty() && entry.about.bar.is_none() {
                entry.about.bar = Some(Bar::NoNode(what.to_owned()));
            }
            let block =
                Wishes::of(lead).share.zip(parts.as_ref()).map_or(1, |(share, parts)| share.places(parts));
            entry.widen(lead, block, nodes);
        }
    }
}

impl Entry {
    /// A worker that asks for more CPUs or memory than come with its places takes as many as have that.
    /// While the job holds something, that stays.
    fn widen(&mut self, lead: &Job, block: u32, nodes: &[&Node]) {
        let waits = matches!(self.machine.phase, Phase::Queued { .. }) && self.machine.wings.is_empty();
        let Some(wants) = lead.wants.as_ref().filter(|_| waits && lead.state.is_pending()) else { return };
        let mut units: Vec<Unit> = Vec::new();
        for node in nodes.iter().filter(|n| n.name.is_place()) {
            let Resources { cpus, memory_mib, ref gpus } = node.has;
            let unit = Unit { has_gpu: gpus.count() > 0, cpus, memory_mib };
            if !units.contains(&unit) && self.about.excluded.binary_search(&node.name).is_err() {
                units.push(unit);
            }
        }
        let most = units.into_iter().map(|unit| unit.nearest(wants)).max().unwrap_or(1);
        self.machine.submitted.block = most.max(block);
    }

    fn read_request(&mut self, lead: &Job, nodes: &[&Node], snapshot: &Snapshot) {
        let here = self.machine.lead_node();
        let places = Places::of(lead, self.machine.submitted.block, nodes, here);
        self.about.begin = begin(lead, self.about.begin, snapshot.taken_at);
        let reservation = Some(&lead.asks.reservation).filter(|r| !r.is_empty());
        self.about.bar = reservation
            .map(|name| Bar::Reservation(name.clone()))
            .or(places.bar)
            .or_else(|| dependency::unmet(lead, snapshot).map(|what| Bar::Dependency(what.to_owned())))
            .or(self.about.begin.map(Bar::Begin));
        self.about.excluded = places.excluded;
    }
}

/// When the job may begin, if its owner has put that off.
fn begin(lead: &Job, before: Option<UnixTime>, now: UnixTime) -> Option<UnixTime> {
    let at = lead.asks.begin.filter(|at| *at > now)?;
    let chosen = lead.asks.requeues == 0 || before == Some(at) || at.secs_since(now) > REQUEUE_DELAY_SECS;
    chosen.then_some(at)
}

/// Where a job can be.
#[derive(Debug, Default, PartialEq)]
struct Places {
    /// Nodes on which it cannot be, sorted.
    excluded: Vec<NodeName>,
    /// It can be nowhere.
    bar: Option<Bar>,
}

impl Places {
    /// By what the lead asks for of so many places of a node, of these nodes; `here` is the node that it is
    /// on.
    fn of(lead: &Job, block: u32, nodes: &[&Node], here: Option<&NodeName>) -> Places {
        let asked = match Asked::of(lead, block) {
            Ok(asked) => asked,
            Err(why) => {
                let excluded = nodes.iter().map(|n| n.name.clone()).collect();
                return Places { excluded, bar: Some(Bar::Constraint(why)) };
            }
        };
        let Some(asked) = asked else { return Places::default() };
        let alternative = asked.alternative(nodes, here);
        // Neighbours are mostly of one type.
        let mut last: Option<(&NodeType, bool)> = None;
        let mut is_of_use = |node_type| match last {
            Some((known, is_of_use)) if known == node_type => is_of_use,
            _ => last.insert((node_type, has_gres(node_type, block, &asked.gres))).1,
        };
        let out = nodes.iter().filter(|n| !is_of_use(&n.node_type) || !asked.admits(alternative, n));
        let excluded: Vec<NodeName> = out.map(|n| n.name.clone()).collect();
        let nowhere = !nodes.is_empty() && excluded.len() == nodes.len();
        Places { excluded, bar: nowhere.then_some(Bar::NoNode(asked.text)) }
    }
}

/// What a job asks of its nodes.
#[derive(Debug)]
struct Asked {
    constraint: Option<Constraint>,
    exclude: BTreeSet<NodeName>,
    gres: String,
    /// How many places of a node have that together.
    block: u32,
    /// As the user wrote it.
    text: String,
}

impl Asked {
    /// `Ok(None)` if every node will do; or what cannot be understood.
    fn of(lead: &Job, block: u32) -> Result<Option<Asked>, String> {
        let asks = &lead.asks;
        let constraint = Constraint::parse(&asks.constraint).map_err(|e| e.to_string())?;
        let exclude = hostlist::expand(&asks.exclude).map_err(|e| format!("--exclude: {e}"))?;
        if constraint.is_none() && exclude.is_empty() && lead.gres.is_empty() {
            return Ok(None);
        }
        let options = [("constraint", &asks.constraint), ("exclude", &asks.exclude), ("gres", &lead.gres)];
        let given = options.iter().filter(|(_, value)| !value.is_empty());
        let text = given.map(|(name, value)| format!("--{name}={value}")).collect::<Vec<_>>().join(" ");
        let (exclude, gres) = (exclude.into_iter().collect(), lead.gres.clone());
        Ok(Some(Asked { constraint, exclude, gres, block, text }))
    }

    /// The alternative that all nodes of the job shall meet: the one that its lead is in already, else the
    /// one with the most nodes.
    fn alternative(&self, nodes: &[&Node], here: Option<&NodeName>) -> usize {
        let Some(constraint) = &self.constraint else { return 0 };
        let here = here.and_then(|here| here.parts().into_iter().next());
        let here = nodes.iter().find(|n| Some(&n.name) == here.as_ref());
        let meets = |n: &usize| here.is_some_and(|node| constraint.admits(*n, &node.features));
        let has_all = |node: &Node| has_gres(&node.node_type, self.block, &self.gres);
        let size = |n: &usize| nodes.iter().filter(|node| has_all(node) && self.admits(*n, node)).count();
        let all = || 0..constraint.alternatives();
        // The first of those with as many.
        all().find(meets).or_else(|| all().rev().max_by_key(size)).unwrap_or(0)
    }

    /// Whether it wants to be on this node, if that has what it needs.
    fn admits(&self, alternative: usize, node: &Node) -> bool {
        self.constraint.as_ref().is_none_or(|c| c.admits(alternative, &node.features))
            && (self.exclude.is_empty() || !self.exclude.contains(&node.name.host()))
    }
}

/// Whether so many places of this type, or one node, have what `--gres` asks for: `gpu:a100:4/cpu64` has
/// `gpu:2`. What is written in another way is left to Slurm.
fn has_gres(node_type: &NodeType, block: u32, gres: &str) -> bool {
    let offers: Vec<Gres<'_>> =
        node_type.as_str().split('/').next().unwrap_or_default().split('+').filter_map(Gres::of).collect();
    gres.split(',').filter_map(Gres::of).all(|wanted| {
        let fits =
            offers.iter().filter(|o| o.name == wanted.name && wanted.kind.is_none_or(|k| o.kind == Some(k)));
        let there = fits.map(|o| o.count).fold(0, u64::saturating_add).saturating_mul(block.max(1).into());
        there >= wanted.count
    })
}

/// `name[:type][:count]`.
struct Gres<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    count: u64,
}

impl<'a> Gres<'a> {
    fn of(text: &'a str) -> Option<Gres<'a>> {
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
        Some(Gres { name, kind, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobId};

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
        let nodes: Vec<&Node> = nodes.iter().collect();
        let places = Places::of(lead, 1, &nodes, here.map(NodeName::from).as_ref());
        assert!(places.excluded.is_sorted());
        let left = nodes.iter().filter(|n| !places.excluded.contains(&n.name)).map(|n| n.name.as_str());
        places.bar.map_or_else(|| left.collect::<Vec<_>>().join(" "), |bar| bar.at(UnixTime(0)))
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
                "asks for what infill cannot follow: --constraint=!big, which is not understood at character 1",
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
            left(&lead("", "n[1-", ""), None).starts_with("asks for what infill cannot follow: --exclude")
        );
        // Of alternatives it keeps to the one that it is in.
        assert_eq!(left(&lead("[r1|r2]", "", ""), Some("n1")), "n1");
    }

    #[test]
    fn a_block_has_what_its_places_have_together() {
        let place = |kind: &str| has_gres(&NodeType::new(kind), 2, "gpu:2");
        assert!(place("gpu:a100:1/cpu4") && !place("cpu4"));
        assert!(!has_gres(&NodeType::new("gpu:a100:1/cpu4"), 1, "gpu:2"), "one place is not enough");
    }

    #[test]
    fn a_moment_to_begin_is_told_from_the_delay_of_a_requeue() {
        let now = UnixTime(1000);
        let begin = |at: i64, requeues, before: Option<i64>| {
            let mut lead = lead("", "", "");
            (lead.asks.begin, lead.asks.requeues) = (Some(UnixTime(at)), requeues);
            begin(&lead, before.map(UnixTime), now).map(|t| t.0)
        };
        assert_eq!(begin(900, 0, None), None);
        assert_eq!(begin(1020, 0, None), Some(1020));
        assert_eq!(begin(1120, 1, None), None);
        assert_eq!(begin(1600, 1, None), Some(1600));
        assert_eq!(begin(1020, 1, Some(1020)), Some(1020));
        assert_eq!(begin(1020, 1, Some(1600)), None);
    }
}
