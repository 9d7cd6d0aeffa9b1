//! Free slots by switch: the seats of a job go where it spans the fewest leaves.
//!
//! A seat needed through `q` steps may take a slot that lasts through more of them only while enough such
//! slots stay for seats that need them: for each number of steps what is free, less what is still wanted, is
//! the slack. Windows being nested, no seat goes without a slot that had one, in whatever order jobs come.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::seeker::Seeker;
use crate::plan::space::decision::Space;
use infill_model::{NodeName, SwitchId, Topology};

/// Most leaves of a kind that are looked at for some seats: with more of them, one that is as good is among
/// these.
const CANDIDATES: usize = 24;

/// Free slots of one type on one leaf.
#[derive(Clone, Debug)]
struct Leaf {
    node_type: usize,
    /// The switches above it and itself, the topmost first; none for slots that hang on none that is known,
    /// which are together here though they are not near each other.
    path: Vec<SwitchId>,
    /// Free slots by the number of steps that they last through, the least stable first.
    by_lasts: Vec<Vec<usize>>,
    /// How many these are.
    free: usize,
    /// The place of its most stable slot among all.
    rank: usize,
}

/// Leaves by how many slots are free there, and how stable these are: (free, rank, leaf).
type BySize = BTreeSet<(usize, usize, usize)>;

/// All free slots on which jobs may start.
#[derive(Clone, Debug)]
pub(crate) struct Near<'t> {
    topology: &'t Topology,
    leaves: Vec<Leaf>,
    /// Those on which slots are free, by type.
    by_size: Vec<BySize>,
    /// The place of each switch's leaf of a type; without a switch, of the slots that hang on none.
    places: FxHashMap<(Option<SwitchId>, usize), usize>,
    /// The leaf of each slot, if it was free.
    leaf_of: Vec<Option<usize>>,
    /// By type and number of steps.
    slack: Vec<Vec<i64>>,
}

/// What a job wants of a leaf: how many of its seats are needed through each number of steps.
type Needs = [usize];

/// How many of a leaf's slots of each class go to how many seats of each: (need, lasts, count).
type Match = Vec<(usize, usize, usize)>;

/// How many free slots of a class of a leaf a job must avoid: (leaf, lasts) → count.
type Avoided = FxHashMap<(usize, usize), usize>;

/// A job that looks for seats.
struct Search<'s> {
    seeker: Seeker<'s>,
    /// Its seats that have no slot yet, by the steps that they are needed through.
    needs: Vec<usize>,
    avoided: Avoided,
    /// Leaf switches that it was on and that were not asked yet.
    own: BTreeSet<SwitchId>,
    /// The switches that are above all of its leaves, the topmost first.
    above: Option<Vec<SwitchId>>,
}

impl Search<'_> {
    fn wanted(&self) -> usize {
        self.needs.iter().sum()
    }

    /// It is on this leaf.
    fn choose(&mut self, path: &[SwitchId]) {
        if !path.is_empty() {
            let shared = self.nearness(path);
            self.above = Some(path[..shared].to_vec());
        }
    }

    /// How near a leaf is: the number of switches above it that are above all of the job's leaves, too.
    fn nearness(&self, path: &[SwitchId]) -> usize {
        let above = self.above.as_deref().unwrap_or(path);
        above.iter().zip(path).take_while(|(a, b)| a == b).count()
    }
}

impl<'t> Near<'t> {
    /// Those that are not taken; `None` where all hang on one leaf, or nothing is known of switches.
    pub fn new(space: &Space<'t>, taken: &[bool]) -> Option<Near<'t>> {
        let topology = space.problem.topology.filter(|topology| !topology.is_empty())?;
        let (classes, types) = (space.steps.len() + 1, space.types.len());
        let mut near = Near {
            topology,
            leaves: Vec::new(),
            by_size: vec![BySize::new(); types],
            places: FxHashMap::default(),
            leaf_of: vec![None; space.slots.len()],
            slack: vec![vec![0; classes]; types],
        };
        for (rank, number) in space.by_stability().iter().enumerate().rev() {
            let slot = &space.slots[*number];
            if taken[*number] || !slot.startable {
                continue;
            }
            let at = near.place(topology.leaf(&slot.gap.node), slot.node_type, classes);
            let leaf = &mut near.leaves[at];
            leaf.by_lasts[slot.lasts].push(*number);
            (leaf.free, leaf.rank) = (leaf.free + 1, rank);
            near.leaf_of[*number] = Some(at);
            near.slack[slot.node_type][..=slot.lasts].iter_mut().for_each(|slack| *slack += 1);
        }
        for (at, leaf) in near.leaves.iter().enumerate().filter(|(_, leaf)| !leaf.path.is_empty()) {
            near.by_size[leaf.node_type].insert((leaf.free, leaf.rank, at));
        }
        (near.leaves.len() > 1).then_some(near)
    }

    /// The leaf of a switch and a type.
    fn place(&mut self, switch: Option<SwitchId>, node_type: usize, classes: usize) -> usize {
        let (topology, leaves) = (self.topology, &mut self.leaves);
        *self.places.entry((switch, node_type)).or_insert_with(|| {
            let mut path: Vec<SwitchId> = switch.into_iter().flat_map(|leaf| topology.path(leaf)).collect();
            path.reverse();
            let by_lasts = vec![Vec::new(); classes];
            leaves.push(Leaf { node_type, path, by_lasts, free: 0, rank: 0 });
            leaves.len() - 1
        })
    }

    /// Counts a seat that will be looked for.
    pub(crate) fn expect_seat(&mut self, node_type: usize, steps: usize) {
        self.slack[node_type][..=steps].iter_mut().for_each(|slack| *slack -= 1);
    }

    /// Slots for the seats of a job, which are needed through so many steps each; fewer where it must avoid
    /// too many. `kept` are the slots that it has.
    pub fn take(
        &mut self,
        space: &Space<'_>,
        seeker: Seeker<'_>,
        seats: &[usize],
        kept: &[usize],
    ) -> Vec<usize> {
        let mut search = Search {
            seeker,
            needs: vec![0; space.steps.len() + 1],
            avoided: self.avoided(space, seeker),
            own: BTreeSet::new(),
            above: None,
        };
        seats.iter().for_each(|steps| search.needs[*steps] += 1);
        let leaves = kept.iter().filter_map(|slot| self.topology.leaf(&space.slots[*slot].gap.node));
        search.own = leaves.collect();
        for leaf in search.own.clone() {
            let mut path: Vec<SwitchId> = self.topology.path(leaf).collect();
            path.reverse();
            search.choose(&path);
        }
        let mut found = Vec::with_capacity(seats.len());
        while let Some(at) = self.best(&search) {
            for (need, lasts, count) in self.matched(&search, at) {
                search.needs[need] -= count;
                found.extend(self.give(space, seeker, at, (need, lasts), count));
            }
            // A leaf that has given what it could gives no more.
            let path = &self.leaves[at].path;
            if let Some(leaf) = path.last() {
                search.own.remove(leaf);
            }
            search.choose(path);
        }
        for need in (0..search.needs.len()).rev() {
            found.extend((0..search.needs[need]).map_while(|_| self.longest(space, seeker, need)));
        }
        found
    }

    /// Takes the slot that lasts longest, for a seat that got none so far.
    fn longest(&mut self, space: &Space<'_>, seeker: Seeker<'_>, need: usize) -> Option<usize> {
        let usable = |number: &usize| seeker.may_sit(&space.slots[*number]);
        let of_leaf = |(at, leaf): (usize, &Leaf)| {
            let lasts =
                (0..leaf.by_lasts.len()).rev().find(|lasts| leaf.by_lasts[*lasts].iter().any(usable))?;
            (leaf.node_type == seeker.spec.node_type).then_some((lasts, std::cmp::Reverse(leaf.rank), at))
        };
        let (lasts, _, at) = self.leaves.iter().enumerate().filter_map(of_leaf).max()?;
        self.give(space, seeker, at, (need.min(lasts), lasts), 1).pop()
    }

    /// How many free slots of each leaf and class the job must avoid.
    fn avoided(&self, space: &Space<'_>, seeker: Seeker<'_>) -> Avoided {
        let parts = seeker.job.lead_node.iter().flat_map(NodeName::parts);
        let nodes = seeker.job.excluded.iter().cloned().chain(parts);
        let avoids = |number: &usize| !seeker.may_sit(&space.slots[*number]);
        let slots: BTreeSet<usize> = nodes.filter_map(|node| space.slot(&node)).filter(avoids).collect();
        let mut avoided = FxHashMap::default();
        for number in slots {
            if let Some(at) = self.leaf_of[number] {
                *avoided.entry((at, space.slots[number].lasts)).or_insert(0) += 1;
            }
        }
        avoided
    }

    /// The leaf that is best for some of a job's seats: one that it is on already, else the tightest that
    /// takes all, else the smallest with which no more leaves are needed than with the largest; of equal ones
    /// the nearest, then the most stable. Last come slots that hang on no switch that is known.
    fn best(&self, search: &Search<'_>) -> Option<usize> {
        let wanted = search.wanted();
        if wanted == 0 {
            return None;
        }
        let takes = |at: usize| self.matched(search, at).iter().map(|(.., count)| count).sum::<usize>();
        let node_type = search.seeker.spec.node_type;
        let own = search.own.iter().filter_map(|leaf| self.places.get(&(Some(*leaf), node_type)).copied());
        let own = own.map(|at| (takes(at), std::cmp::Reverse(at))).max().filter(|(takes, _)| *takes > 0);
        if let Some((_, std::cmp::Reverse(at))) = own {
            return Some(at);
        }
        self.tightest(search, wanted, &takes)
            .or_else(|| self.tightest(search, self.least_of_them(search, wanted, &takes)?, &takes))
            .or_else(|| self.places.get(&(None, node_type)).copied().filter(|at| takes(*at) > 0))
    }

    /// The smallest leaf that takes so many; of several of that size the nearest, then the most stable.
    fn tightest(&self, search: &Search<'_>, least: usize, takes: &impl Fn(usize) -> usize) -> Option<usize> {
        let by_size = &self.by_size[search.seeker.spec.node_type];
        let mut found: Option<(usize, usize, usize)> = None;
        for (free, _, at) in by_size.range((least, 0, 0)..).take(CANDIDATES) {
            if found.is_some_and(|(size, ..)| *free > size) {
                break;
            }
            let near = search.nearness(&self.leaves[*at].path);
            if takes(*at) >= least && found.is_none_or(|(_, nearest, _)| near > nearest) {
                found = Some((*free, near, *at));
            }
        }
        found.map(|(.., at)| at)
    }

    /// The fewest seats that a leaf must take so that no more leaves are needed than with the largest first:
    /// as many as it takes, where more leaves are needed than are looked at; one, where not all find a place.
    /// `None` where no leaf takes any.
    fn least_of_them(
        &self,
        search: &Search<'_>,
        wanted: usize,
        takes: &impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let by_size = &self.by_size[search.seeker.spec.node_type];
        let mut most: Vec<usize> = by_size.iter().rev().take(CANDIDATES).map(|(.., at)| takes(*at)).collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        let (mut left, largest) = (wanted, most.first().copied().filter(|takes| *takes > 0)?);
        for takes in most {
            if takes >= left {
                return Some(left);
            }
            left -= takes;
        }
        Some(if by_size.len() > CANDIDATES { largest } else { 1 })
    }

    /// Which seats get which slots of a leaf: each the first to end of those that may go to it.
    fn matched(&self, search: &Search<'_>, at: usize) -> Match {
        let (leaf, needs): (&Leaf, &Needs) = (&self.leaves[at], &search.needs);
        let avoided = |lasts: usize| search.avoided.get(&(at, lasts)).copied().unwrap_or(0);
        let mut slack = self.slack[leaf.node_type].clone();
        let mut used = vec![0; slack.len()];
        let mut matched = Vec::new();
        for need in (0..needs.len()).rev().filter(|need| needs[*need] > 0) {
            let mut wanted = needs[need];
            for lasts in need..slack.len() {
                let free = leaf.by_lasts[lasts].len().saturating_sub(avoided(lasts) + used[lasts]);
                if free == 0 || wanted == 0 {
                    continue;
                }
                // Seats of these very steps are part of the slack; longer ones must spare the slot.
                let spare =
                    slack[need + 1..=lasts].iter().min().map_or(usize::MAX, |least| (*least).max(0) as usize);
                let count = wanted.min(free).min(spare);
                if count > 0 {
                    slack[need + 1..=lasts].iter_mut().for_each(|slack| *slack -= count as i64);
                    (used[lasts], wanted) = (used[lasts] + count, wanted - count);
                    matched.push((need, lasts, count));
                }
            }
        }
        matched
    }

    /// Takes the most stable slots of a class.
    fn give(
        &mut self,
        space: &Space<'_>,
        seeker: Seeker<'_>,
        at: usize,
        (need, lasts): (usize, usize),
        count: usize,
    ) -> Vec<usize> {
        let leaf = &mut self.leaves[at];
        self.by_size[leaf.node_type].remove(&(leaf.free, leaf.rank, at));
        let class = &mut leaf.by_lasts[lasts];
        let (mut given, mut passed) = (Vec::with_capacity(count), Vec::new());
        while given.len() < count
            && let Some(number) = class.pop()
        {
            let sits = seeker.may_sit(&space.slots[number]);
            if sits { given.push(number) } else { passed.push(number) }
        }
        class.extend(passed.into_iter().rev());
        given.iter().for_each(|number| self.leaf_of[*number] = None);
        leaf.free -= given.len();
        if leaf.free > 0 && !leaf.path.is_empty() {
            self.by_size[leaf.node_type].insert((leaf.free, leaf.rank, at));
        }
        let slack = &mut self.slack[leaf.node_type];
        slack[need + 1..=lasts].iter_mut().for_each(|slack| *slack -= given.len() as i64);
        given
    }

    /// Links of a job's ring of nodes that go from leaf to leaf, if it has these slots.
    pub(crate) fn crossings(&self, space: &Space<'_>, slots: impl Iterator<Item = usize>) -> usize {
        let nodes: Vec<&NodeName> = slots.map(|slot| &space.slots[slot].gap.node).collect();
        match self.topology.spans(nodes) {
            1 => 0,
            leaves => leaves,
        }
    }
}
