//! The time steps of the horizon. They end at moments at which windows end.
//!
//! A node counts only in the steps that it lasts through to their end, so a plan never counts on a node past
//! its window. With fewer steps than distinct window ends, each node loses the time from the last step's end
//! before its own end. The step ends are chosen so that the fewest node-seconds are lost.

use std::collections::BTreeMap;

use super::problem::PlanningProblem;
use infill_model::UnixTime;

/// Shortest step, seconds: about one round. What ends sooner cannot be acted on separately, so jobs leave it
/// now.
pub(crate) const SHORTEST_STEP_SECS: f64 = 5.0;

/// The largest number of distinct window ends before step ends are chosen. More are rounded down to a grid,
/// which at a horizon of half an hour costs a node 10 s on average.
const MAX_DISTINCT_ENDS: usize = 96;

/// The steps of a round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimeSteps {
    now: UnixTime,
    ends: Vec<UnixTime>,
}

impl TimeSteps {
    /// Chooses the steps for a problem: at most `max_steps`, none when no node is usable.
    ///
    /// With two steps or more, the first step ends no later than the first held node. So what a job holds
    /// always lasts through step 0 unless the job must leave it now. Rounding never makes a job leave a node.
    pub fn from_problem(problem: &PlanningProblem<'_>) -> Self {
        let horizon = problem.config.horizon_secs.max(SHORTEST_STEP_SECS).floor();
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        let mut first_held: Option<i64> = None;
        for gap in &problem.gaps.gaps {
            let secs = gap.usable_until.secs_since(problem.now).min(horizon);
            if secs < SHORTEST_STEP_SECS {
                continue;
            }
            let end = secs as i64;
            *counts.entry(end).or_insert(0) += 1;
            if gap.holder.is_some() {
                first_held = Some(first_held.map_or(end, |first| first.min(end)));
            }
        }
        let ends = coarsen_ends(counts, first_held);
        let ends = choose_ends(ends, first_held, problem.config.max_steps as usize);
        TimeSteps { now: problem.now, ends: ends.into_iter().map(|e| problem.now + e).collect() }
    }

    /// Ends of the steps, ascending.
    pub fn ends(&self) -> &[UnixTime] {
        &self.ends
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no step, because no node is usable.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Length of a step, seconds; 0 for a step that does not exist.
    pub fn secs(&self, step: usize) -> f64 {
        let start = match step.checked_sub(1) {
            Some(before) => self.ends.get(before).copied(),
            None => Some(self.now),
        };
        match (start, self.ends.get(step)) {
            (Some(start), Some(end)) => end.secs_since(start),
            _ => 0.0,
        }
    }

    /// Seconds of all steps together.
    pub fn total_secs(&self) -> f64 {
        self.ends.last().map_or(0.0, |end| end.secs_since(self.now))
    }

    /// The number of steps, from the first, through which a node lasts that is usable until `until`.
    pub fn steps_through(&self, until: UnixTime) -> usize {
        self.ends.partition_point(|end| *end <= until)
    }
}

/// Rounds the ends down to a grid when there are too many. Keeps `first` as it is.
fn coarsen_ends(counts: BTreeMap<i64, i64>, first: Option<i64>) -> Vec<(i64, i64)> {
    let last = counts.keys().next_back().copied().unwrap_or(0);
    if counts.len() <= MAX_DISTINCT_ENDS {
        return counts.into_iter().collect();
    }
    let grid = (last / MAX_DISTINCT_ENDS as i64).max(1);
    let shortest = SHORTEST_STEP_SECS as i64;
    let mut coarse = BTreeMap::new();
    for (end, count) in counts {
        let kept = first == Some(end);
        let rounded = if kept || end == last { end } else { (end / grid * grid).max(shortest) };
        *coarse.entry(rounded).or_insert(0) += count;
    }
    coarse.into_iter().collect()
}

/// Chooses at most `most` of the `ends`, which are pairs of an end and its number of nodes. The choice
/// maximises the sum over nodes of the largest chosen end that is not past the node's own end. A dynamic
/// program from the last end to the first.
fn choose_ends(ends: Vec<(i64, i64)>, first: Option<i64>, most: usize) -> Vec<i64> {
    let n = ends.len();
    let most = most.max(1);
    if n <= most {
        return ends.into_iter().map(|(end, _)| end).collect();
    }
    let mut before = vec![0; n + 1];
    for (i, (_, count)) in ends.iter().enumerate() {
        before[i + 1] = before[i] + count;
    }
    // best[k][i]: the greatest sum over the nodes from end i on, when i is chosen and at most k more follow.
    // next[k][i]: the end that follows i in that choice.
    let mut best = vec![vec![0i64; n]; most];
    let mut next = vec![vec![n; n]; most];
    for k in 0..most {
        for i in (0..n).rev() {
            best[k][i] = ends[i].0 * (before[n] - before[i]);
            for m in i + 1..if k == 0 { i + 1 } else { n } {
                let sum = ends[i].0 * (before[m] - before[i]) + best[k - 1][m];
                if sum > best[k][i] {
                    best[k][i] = sum;
                    next[k][i] = m;
                }
            }
        }
    }
    // A single step cannot end at the first held node's end.
    let first = first.filter(|_| most > 1).unwrap_or(i64::MAX);
    let starts = (0..n).filter(|i| ends[*i].0 <= first);
    let mut at = starts.max_by_key(|i| (best[most - 1][*i], n - i)).unwrap_or(0);
    let mut chosen = Vec::new();
    for k in (0..most).rev() {
        chosen.push(ends[at].0);
        at = next[k][at];
        if at >= n {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ends: &[(i64, i64)], first: Option<i64>, most: usize, expect: &[i64]) {
        assert_eq!(choose_ends(ends.to_vec(), first, most), expect, "{ends:?} {first:?} {most}");
    }

    #[test]
    fn the_ends_that_lose_the_fewest_node_seconds_are_chosen() {
        check(&[], None, 3, &[]);
        check(&[(100, 1), (200, 1)], None, 3, &[100, 200]);
        check(&[(100, 1), (200, 1)], None, 1, &[100]);
        check(&[(100, 1), (201, 1)], None, 1, &[201]);
        check(&[(100, 9), (200, 1)], None, 1, &[100]);
        check(&[(60, 1), (100, 5), (110, 1), (1800, 4)], None, 2, &[100, 1800]);
        check(&[(60, 1), (100, 5), (110, 1), (1800, 4)], Some(60), 2, &[60, 1800]);
        check(&[(60, 1), (100, 5), (110, 1), (1800, 4)], Some(110), 2, &[100, 1800]);
        check(&[(60, 1), (100, 5), (110, 1), (1800, 4)], Some(60), 1, &[1800]);
    }
}
