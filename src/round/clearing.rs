//! Room for workers that take several places of one node. Smaller workers that run are not moved to make
//! some, so that a larger one might wait for as long as smaller ones run on all nodes. Who has waited for
//! long gets the places of a node: those that are free are kept for it, and those that others hold are left.

use super::curves::PATIENCE_SECS;
use crate::model::{Gap, Gaps, JobId, MalleableJob, NodeName, Refusal, Standing, UnixTime};

/// What it costs that a lead must move, or that a job gets too small to go on, in workers that stop.
const DEAR: u32 = 10;

/// The job that room is made for, and the places that it gets.
#[derive(Debug)]
struct Clearing {
    job: JobId,
    block: u32,
    waited_secs: f64,
    places: Vec<NodeName>,
}

/// Makes room for the job that has waited longest of those whose workers take several places. `waited_secs`:
/// for how long a job has waited; `least_secs`: the shortest window that is worth starting in.
pub(super) fn clear(
    jobs: &mut [MalleableJob],
    gaps: &mut Gaps,
    waited_secs: impl Fn(JobId) -> f64,
    least_secs: f64,
    now: UnixTime,
) {
    let waits = |job: &&MalleableJob| job.block > 1 && job.standing == Standing::Waiting;
    let waited = jobs.iter().filter(waits).map(|job| (waited_secs(job.id), job));
    let longest = waited.filter(|(secs, _)| *secs >= PATIENCE_SECS);
    let Some((waited_secs, job)) = longest.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
    let lasts = |gap: &Gap| gap.usable_until.secs_since(now) >= least_secs;
    let Some(places) = cheapest(job, jobs, gaps, lasts) else { return };
    let clearing = Clearing { job: job.id, block: job.block, waited_secs, places };
    clearing.apply(jobs, gaps);
}

/// The places for as few workers as the job begins with, where that stops the fewest workers of others;
/// `None` if there are too few nodes that have so many.
fn cheapest(
    job: &MalleableJob,
    jobs: &[MalleableJob],
    gaps: &Gaps,
    lasts: impl Fn(&Gap) -> bool,
) -> Option<Vec<NodeName>> {
    let cost = |gap: &Gap| gap.holder.map_or(0, |holder| cost_of_leaving(holder, &gap.node, jobs));
    let there = gaps.gaps.iter().filter(|gap| lasts(gap)).map(|gap| (&gap.node, cost(gap)));
    // Those that somebody is about to be gone from cost nothing more.
    let comes = |why: &Refusal| matches!(why, Refusal::Leaving(_) | Refusal::Departing(_));
    let coming = gaps.refused.iter().filter(|(_, why)| comes(why)).map(|(node, _)| (node, 0));
    let may_be_used = |place: &(&NodeName, u32)| job.excluded.binary_search(place.0).is_err();
    let mut places: Vec<(&NodeName, u32)> = there.chain(coming).filter(may_be_used).collect();
    places.sort_unstable();
    let mut blocks: Vec<(u32, Vec<NodeName>)> = Vec::new();
    for host in places.chunk_by_mut(|a, b| a.0.host() == b.0.host()) {
        host.sort_by_key(|(_, cost)| *cost);
        for block in host.chunks_exact(job.block as usize) {
            let names = block.iter().map(|(node, _)| (*node).clone()).collect();
            blocks.push((block.iter().map(|(_, cost)| cost).sum(), names));
        }
    }
    let least = job.sizes.min() as usize;
    // The first of those that cost as much: the same in each round.
    blocks.sort_by_key(|(cost, _)| *cost);
    (blocks.len() >= least).then(|| blocks.into_iter().take(least).flat_map(|(_, places)| places).collect())
}

fn cost_of_leaving(holder: JobId, place: &NodeName, jobs: &[MalleableJob]) -> u32 {
    let Some(job) = jobs.iter().find(|j| j.id == holder) else { return DEAR };
    let has_lead = job.lead_node.as_ref().is_some_and(|lead| lead.parts().contains(place));
    let is_least = job.held.len() as u32 <= job.sizes.min();
    if has_lead || is_least { DEAR } else { 1 }
}

impl Clearing {
    fn apply(self, jobs: &mut [MalleableJob], gaps: &mut Gaps) {
        let Clearing { job, block, waited_secs, mut places } = self;
        places.sort();
        let is_held = |gap: &Gap| gap.holder.is_some() && places.binary_search(&gap.node).is_ok();
        let left: Vec<NodeName> = gaps.gaps.iter().filter(|g| is_held(g)).map(|g| g.node.clone()).collect();
        gaps.gaps.retain(|gap| left.binary_search(&gap.node).is_err());
        let why = format!(
            "is kept for job {job}, which has waited {waited_secs:.0} s for {block} places of one node together"
        );
        gaps.refused.extend(left.into_iter().map(|node| (node, Refusal::Said(why.clone()))));
        gaps.refused.sort_by(|a, b| a.0.cmp(&b.0));
        for other in jobs.iter_mut().filter(|other| other.id != job) {
            other.excluded.extend(places.iter().cloned());
            other.excluded.sort_unstable();
            other.excluded.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::malleable::RateCurve;
    use crate::model::{Curve, ExecPlan, HeldNode, NodeType, RescaleCosts, Sizes, UserId, WindowEnd};

    const NOW: UnixTime = UnixTime(1000);

    /// `ID SIZES BLOCK NODE,NODE`: the lead's node first, or nothing for a job that waits.
    fn job(text: &str) -> MalleableJob {
        let words: Vec<&str> = text.split(' ').collect();
        let id = JobId(words[0].parse().expect("an id"));
        let held: Vec<NodeName> =
            words.get(3).into_iter().flat_map(|w| w.split(',')).map(NodeName::new).collect();
        let rate = RateCurve { exec_plan: ExecPlan::default(), node_type: None, curve: Curve::linear() };
        MalleableJob {
            id,
            user: UserId(1),
            weight: 1.0,
            sizes: Sizes::parse(words[1]).expect("sizes"),
            block: words[2].parse().expect("a block"),
            rates: vec![rate],
            costs: RescaleCosts { up_secs: 1.0, down_secs: 1.0, start_secs: 1.0 },
            reluctance: 1.0,
            standing: if held.is_empty() { Standing::Waiting } else { Standing::Running },
            exec_plan: ExecPlan::default(),
            lead_node: held.first().cloned(),
            lead_away: false,
            held: held.into_iter().map(|node| HeldNode { node, slurm_job: id }).collect(),
            submitted_at: NOW,
            last_change: None,
            stay_secs: 0.0,
            excluded: Vec::new(),
        }
    }

    /// Four places of `n1` and `n2` each, those that somebody has held by that job.
    fn gaps(jobs: &[MalleableJob]) -> Gaps {
        let names = ["n1", "n2"].map(NodeName::new);
        let gap = |node: NodeName| Gap {
            holder: jobs.iter().find(|j| j.held.iter().any(|h| h.node.parts().contains(&node))).map(|j| j.id),
            node,
            node_type: NodeType::new("gpu:1/cpu4"),
            since: NOW,
            end: WindowEnd::Unknown,
            vacate_by: None,
            usable_until: NOW + 300,
            expected_secs: 300.0,
        };
        let places = names.iter().flat_map(|name| (0..4).map(|gpu| gap(name.place(gpu))));
        Gaps { gaps: places.collect(), refused: Vec::new() }
    }

    /// What is kept for whom, and what others must keep off.
    fn cleared(mut jobs: Vec<MalleableJob>, mut gaps: Gaps, waited_secs: f64) -> String {
        clear(&mut jobs, &mut gaps, |job| waited_secs + f64::from(job.0), 60.0, NOW);
        let kept = gaps.refused.iter().map(|(node, why)| format!("{node} {why}"));
        let off = |j: &MalleableJob| j.excluded.iter().map(NodeName::as_str).collect::<Vec<_>>().join(",");
        kept.chain(jobs.iter().map(|j| format!("{}: not {}", j.id, off(j)))).collect::<Vec<_>>().join("\n")
    }

    /// All places are held by 1 and 2; 9 waits for two of one node.
    fn full() -> Vec<MalleableJob> {
        ["1 1-8 1 n1:0,n1:1,n1:2,n2:1", "2 1-8 1 n2:0,n1:3,n2:2,n2:3", "9 1-4 2"].map(job).into()
    }

    #[test]
    fn who_has_waited_for_long_gets_the_places_that_stop_the_fewest() {
        assert_eq!(
            cleared(full(), gaps(&full()), 100.0),
            "1: not \n2: not \n9: not ",
            "it has not waited for long"
        );
        insta::assert_snapshot!(cleared(full(), gaps(&full()), 300.0), @r"
        n1:1 is kept for job 9, which has waited 309 s for 2 places of one node together
        n1:2 is kept for job 9, which has waited 309 s for 2 places of one node together
        1: not n1:1,n1:2
        2: not n1:1,n1:2
        9: not 
        ");
    }

    #[test]
    fn what_is_free_or_about_to_be_is_taken_first() {
        let mut some = gaps(&full());
        some.gaps.iter_mut().filter(|g| g.node.as_str() == "n2:3").for_each(|g| g.holder = None);
        let text = cleared(full(), some.clone(), 300.0);
        assert!(
            text.starts_with("n2:1 is kept") && text.contains("9: not") && text.contains("1: not n2:1,n2:3"),
            "{text}"
        );
        // Somebody is leaving the place beside it: nobody else has to.
        some.gaps.retain(|g| g.node.as_str() != "n2:2");
        some.refused.push((NodeName::new("n2:2"), Refusal::Departing(JobId(2))));
        insta::assert_snapshot!(cleared(full(), some, 300.0), @r"
        n2:2 job 2 is just leaving it
        1: not n2:2,n2:3
        2: not n2:2,n2:3
        9: not 
        ");
    }

    #[test]
    fn jobs_that_would_have_to_stop_come_last_and_too_few_nodes_clear_nothing() {
        // Of n1 leads would have to move, and of n2 a job would be too small.
        let texts =
            ["1 1-8 1 n1:0,n1:1", "2 2-8 1 n2:0,n2:1", "3 1-8 1 n1:3,n2:2,n2:3", "4 1 1 n1:2", "9 1-4 2"];
        let jobs: Vec<MalleableJob> = texts.map(job).into();
        let text = cleared(jobs.clone(), gaps(&jobs), 300.0);
        assert!(
            text.starts_with("n2:2 is kept") && text.contains("n2:3 is kept") && !text.contains("n1"),
            "{text}"
        );
        let mut larger = jobs.clone();
        larger[4] = job("9 3-4 4");
        assert!(!cleared(larger, gaps(&jobs), 300.0).contains("is kept"), "there are two nodes");
    }
}
