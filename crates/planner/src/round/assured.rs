//! What owners want of their jobs at the least: sizes that make so many samples count more, by so much that
//! nothing that others gain above their own least outweighs it.
//!
//! Nobody is parked for it: a size counts more only if there are nodes for it while each other job that runs
//! keeps its least. And a rate that cannot be had makes no size count more, so it takes nothing from anybody.

use std::collections::{BTreeMap, BTreeSet};

use super::curves;
use infill_advisor::Subject;
use infill_model::{
    Assured, Curve, CurvePoint, Gaps, JobFacts, JobId, NodeName, NodeType, Prospect, Sizes,
    malleable::RateCurve,
};

/// How many times more than its smallest size each node that a rate takes counts. Others make little more of
/// a node than of their first, and have changes to pay for, too.
const MARGIN: f64 = 3.0;

/// No rate counts more than so many times a node: who waits for very long counts more in the end.
const MOST: f64 = 80.0;

/// Nor does it for the sake of others' shares.
const MOST_MORE: f64 = 1e6;

/// Nodes, or places of such, that there are, and who has them.
pub(super) struct There<'a> {
    types: BTreeMap<&'a NodeName, &'a NodeType>,
    all: BTreeMap<&'a NodeType, u32>,
    /// What each job that runs keeps in any case.
    kept: Vec<(JobId, &'a NodeType, u32)>,
}

impl<'a> There<'a> {
    /// What these gaps are to these jobs.
    pub(super) fn of<'j>(gaps: &'a Gaps, jobs: impl Iterator<Item = &'j JobFacts>) -> Self {
        let types = gaps.gaps.iter().map(|gap| (&gap.node, &gap.node_type)).collect();
        let mut there = There { types, all: BTreeMap::new(), kept: Vec::new() };
        for gap in &gaps.gaps {
            *there.all.entry(&gap.node_type).or_default() += 1;
        }
        there.kept = jobs.filter_map(|job| there.kept_by(job)).collect();
        there
    }

    /// What a job keeps in any case: its least, if it has so much.
    fn kept_by(&self, job: &JobFacts) -> Option<(JobId, &'a NodeType, u32)> {
        let place = &job.place;
        let node_type = *self.types.get(place.held.first()?.node.parts().first()?)?;
        let nodes = job.sizes.min().min(place.held.len() as u32);
        Some((job.job, node_type, nodes.saturating_mul(place.block.max(1))))
    }

    /// How many nodes of a type, or of the one with most, a job can have while others keep their least.
    fn for_job(&self, facts: &JobFacts, node_type: Option<&NodeType>) -> u32 {
        let place = &facts.place;
        let of_type = |t: &NodeType, all: u32| {
            let others = self.kept.iter().filter(|(job, of, _)| *job != facts.job && *of == t);
            all.saturating_sub(others.map(|(.., nodes)| nodes).sum()) / place.block.max(1)
        };
        let suiting = self.all.iter().filter(|(t, _)| node_type.is_none_or(|wanted| **t == wanted));
        let most = suiting.map(|(t, all)| of_type(t, *all)).max().unwrap_or(0);
        most.saturating_add(place.more_of_its_own())
    }
}

/// What the owner of a job wants of it at the least, before waiting and probing raise its rates.
pub(super) struct Wish {
    assured: Assured,
    /// Its rates as they are known.
    known: Vec<RateCurve>,
    /// For each of them the sizes that count more; none where the rate cannot be had.
    sizes: Vec<BTreeSet<u32>>,
}

impl Wish {
    /// The wish of a job. `more`: how many times more than its own node somebody else's may count.
    pub(super) fn of(
        (subject, facts): (&Subject, &JobFacts),
        rates: &[RateCurve],
        there: &There<'_>,
        more: f64,
    ) -> Option<Wish> {
        let rate = facts.claims.at_least?;
        let sizes = &subject.sizes;
        let mut assured = Assured { rate, prospect: Prospect::Unmeasured, bonus: 0.0 };
        let mut raised = vec![BTreeSet::new(); rates.len()];
        let prior = curves::prior(sizes);
        if rates.iter().any(|r| r.curve != prior) {
            let offer =
                |r: &RateCurve| Offer::of(r, sizes, there.for_job(facts, r.node_type.as_ref()), &assured);
            let offers: Vec<Offer> = rates.iter().map(offer).collect();
            assured.prospect = prospect(&offers);
            if let Prospect::Open { needs } = assured.prospect {
                let unit = rates.iter().map(|r| curves::unit_rate(&r.curve, sizes)).fold(0.0, f64::max);
                assured.bonus = (MARGIN * f64::from(needs)).min(MOST) * unit * more.clamp(1.0, MOST_MORE);
            }
            let fits = |offer: Offer| if offer.fits() { offer.sizes } else { BTreeSet::new() };
            raised = offers.into_iter().map(fits).collect();
        }
        Some(Wish { assured, known: rates.to_vec(), sizes: raised })
    }

    /// Makes the sizes that it is about count more; these are the rates that it was made for, raised or not.
    pub(super) fn grant(self, rates: &mut [RateCurve], sizes: &Sizes) -> Assured {
        for ((rate, known), raised) in rates.iter_mut().zip(&self.known).zip(&self.sizes) {
            if !raised.is_empty() {
                rate.curve = stepped(&rate.curve, &known.curve, sizes, &self.assured);
            }
        }
        self.assured
    }
}

/// What one execution plan on one type of nodes has for a wish.
struct Offer {
    /// Sizes that make so many samples.
    sizes: BTreeSet<u32>,
    /// Nodes that there are for it.
    there: u32,
    /// The most samples that any of its sizes makes.
    most: f64,
}

impl Offer {
    fn of(rate: &RateCurve, sizes: &Sizes, there: u32, assured: &Assured) -> Self {
        let all = sizes.up_to(u32::MAX);
        Offer {
            there,
            most: all.iter().map(|n| rate.rate(*n)).fold(0.0, f64::max),
            sizes: all.into_iter().filter(|n| assured.is_met_by(rate.rate(*n))).collect(),
        }
    }

    fn fits(&self) -> bool {
        self.sizes.first().is_some_and(|needs| *needs <= self.there)
    }
}

/// Whether the rate can be had, by the best of the offers.
fn prospect(offers: &[Offer]) -> Prospect {
    let least = |offer: &Offer| Some((*offer.sizes.first()?, offer.there));
    if let Some((needs, _)) = offers.iter().filter(|o| o.fits()).filter_map(least).min() {
        return Prospect::Open { needs };
    }
    match offers.iter().filter_map(least).min_by_key(|(needs, there)| needs.saturating_sub(*there)) {
        Some((needs, there)) => Prospect::TooFew { needs, there },
        None => Prospect::TooSlow { most: offers.iter().map(|o| o.most).fold(0.0, f64::max) },
    }
}

/// The curve with the bonus at every size of which it is known to make what is assured.
fn stepped(curve: &Curve, known: &Curve, sizes: &Sizes, assured: &Assured) -> Curve {
    let meets = |n: u32| assured.is_met_by(known.rate(n));
    let all = sizes.up_to(u32::MAX);
    let turns = all.windows(2).filter(|pair| meets(pair[0]) != meets(pair[1])).flatten().copied();
    let inner = curve.points().iter().map(|p| p.nodes).filter(|n| (sizes.min()..=sizes.max()).contains(n));
    let nodes: BTreeSet<u32> = turns.chain(inner).chain([sizes.min(), sizes.max()]).collect();
    let bonus = |n: u32| if meets(n) { assured.bonus } else { 0.0 };
    let points = nodes.into_iter().map(|nodes| CurvePoint { nodes, rate: curve.rate(nodes) + bonus(nodes) });
    Curve::new(points.collect()).unwrap_or_else(|_| curve.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_make_so_many_count_more_by_the_same() {
        let sizes = Sizes::parse("1-16").unwrap();
        let assured = Assured { rate: 33.0, prospect: Prospect::Open { needs: 5 }, bonus: 150.0 };
        for (text, raised) in [("1:10,2:19,4:32,8:60,16:20", 5..=13), ("1:33,16:40", 1..=16)] {
            let curve = Curve::parse(text).unwrap();
            let stepped = stepped(&curve, &curve, &sizes, &assured);
            for n in 1..=16 {
                let more = if raised.contains(&n) { 150.0 } else { 0.0 };
                assert!((stepped.rate(n) - curve.rate(n) - more).abs() < 1e-9, "{text} at {n}");
                assert!((assured.known(stepped.rate(n)) - curve.rate(n)).abs() < 1e-9, "{text} at {n}");
            }
        }
    }

    #[test]
    fn the_nearest_offer_speaks() {
        let offer =
            |sizes: &[u32], there, most| Offer { sizes: sizes.iter().copied().collect(), there, most };
        let cases: [(Vec<Offer>, Prospect); 4] = [
            (vec![offer(&[6, 7], 8, 70.0), offer(&[4, 5], 3, 90.0)], Prospect::Open { needs: 6 }),
            (vec![offer(&[6, 7], 5, 70.0), offer(&[4], 1, 90.0)], Prospect::TooFew { needs: 6, there: 5 }),
            (vec![offer(&[], 5, 30.0), offer(&[], 9, 31.0)], Prospect::TooSlow { most: 31.0 }),
            (vec![], Prospect::TooSlow { most: 0.0 }),
        ];
        for (offers, expected) in cases {
            assert_eq!(prospect(&offers), expected);
        }
    }
}
