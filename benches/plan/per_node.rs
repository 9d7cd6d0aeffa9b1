//! The published formulation, with a variable for each job and node, as the reference for comparison.
//!
//! Liu et al., *FreeTrain* (CCGrid 2023; arXiv 2106.12091), as MalleTrain (ICPE 2024) uses it. It maximises
//! Σ_j T_fwd·O_j(n_j) − Σ_j (R_up·u_j + R_dw·d_j)·r_j. A node is in at most one job. A job only grows or only
//! shrinks (|x − c| per node, summed up to |n_j − C_j|). O_j is piecewise linear with a breakpoint at 0.
//! HiGHS has no SOS2, so a binary chooses the segment. Every big-M is the largest possible change.

use std::collections::BTreeMap;

use infill_model::{Gap, MalleableJob};
use infill_planner::plan::{Milp, MilpVariable};

/// Forward time, seconds: among the best in replays of Summit's log.
pub const T_FWD_SECS: f64 = 120.0;

/// The program. Maximises weighted samples.
pub fn write(jobs: &[MalleableJob], nodes: &[Gap]) -> Milp {
    let mut milp = Milp::default();
    let mut users: Vec<Vec<(usize, f64)>> = vec![Vec::new(); nodes.len()];
    for job in jobs {
        let x: Vec<usize> = nodes.iter().map(|_| milp.add_variable(binary(0.0))).collect();
        users.iter_mut().zip(&x).for_each(|(users, x)| users.push((*x, 1.0)));
        sizes(&mut milp, job, &x);
        changes(&mut milp, job, nodes, &x);
    }
    users.into_iter().for_each(|users| milp.add_at_most(users, 1.0));
    milp
}

fn binary(gain: f64) -> MilpVariable {
    MilpVariable { lower: 0.0, upper: 1.0, integer: true, gain }
}

/// Size and rate: a job runs on one segment of its curve (the first is nothing at all), between its two ends.
fn sizes(milp: &mut Milp, job: &MalleableJob, x: &[usize]) {
    let points = breakpoints(job);
    let share = |gain| MilpVariable { lower: 0.0, upper: 1.0, integer: false, gain };
    let gain = |rate: f64| T_FWD_SECS * job.weight * rate;
    let shares: Vec<usize> = points.iter().map(|(_, rate)| milp.add_variable(share(gain(*rate)))).collect();
    milp.add_equality(shares.iter().map(|s| (*s, 1.0)).collect(), 1.0);
    let mut count: Vec<(usize, f64)> = x.iter().map(|x| (*x, 1.0)).collect();
    count.extend(shares.iter().zip(&points).map(|(s, (nodes, _))| (*s, -f64::from(*nodes))));
    milp.add_equality(count, 0.0);
    // Segment 0 is the breakpoint at 0 alone: between 0 and the smallest size there is nothing.
    let segments: Vec<usize> = (1..points.len().max(2)).map(|_| milp.add_variable(binary(0.0))).collect();
    milp.add_equality(segments.iter().map(|s| (*s, 1.0)).collect(), 1.0);
    milp.add_at_most(vec![(shares[0], 1.0), (segments[0], -1.0)], 0.0);
    for (at, point) in shares.iter().enumerate().skip(1) {
        let beside = [at.checked_sub(1), Some(at)].into_iter().flatten().filter(|s| *s > 0);
        let beside = beside.filter_map(|s| segments.get(s)).map(|s| (*s, -1.0));
        milp.add_at_most(std::iter::once((*point, 1.0)).chain(beside).collect(), 0.0);
    }
}

/// (0, 0), then each size of the table with its rate.
fn breakpoints(job: &MalleableJob) -> Vec<(u32, f64)> {
    let curve = job.rates.iter().flat_map(|r| r.curve.points());
    std::iter::once((0, 0.0)).chain(curve.map(|p| (p.nodes, p.rate))).collect()
}

/// Growth, shrink, and no migration: Σ_n |x_n − c_n| = |n − C|.
fn changes(milp: &mut Milp, job: &MalleableJob, nodes: &[Gap], x: &[usize]) {
    let held = job.held.len() as f64;
    let present = present(job);
    let up = milp.add_variable(binary(-job.costs.up_secs * present));
    let down = milp.add_variable(binary(-job.costs.down_secs * present));
    let most = nodes.len() as f64;
    let count = |sign: f64| x.iter().map(move |x| (*x, sign));
    milp.add_at_most(vec![(up, 1.0), (down, 1.0)], 1.0);
    milp.add_at_most(count(1.0).chain([(up, -most)]).collect(), held);
    milp.add_at_most(count(-1.0).chain([(down, -most)]).collect(), -held);
    let moved: Vec<usize> = x.iter().map(|_| milp.add_variable(binary(0.0))).collect();
    for ((x, moved), gap) in x.iter().zip(&moved).zip(nodes) {
        let had = f64::from(u8::from(gap.holder == Some(job.id)));
        milp.add_at_most(vec![(*x, 1.0), (*moved, -1.0)], had);
        milp.add_at_most(vec![(*x, -1.0), (*moved, -1.0)], -had);
        milp.add_at_most(vec![(*moved, 1.0), (*x, -1.0)], had);
        milp.add_at_most(vec![(*moved, 1.0), (*x, 1.0)], 2.0 - had);
    }
    // Σ moved ≤ n − C where it does not shrink, and ≤ C − n where it does not grow.
    let moves = || moved.iter().map(|m| (*m, 1.0));
    milp.add_at_most(moves().chain(count(-1.0)).chain([(down, -2.0 * most)]).collect(), -held);
    milp.add_at_most(moves().chain(count(1.0)).chain([(up, -2.0 * most)]).collect(), held);
}

/// Weighted rate at the present size.
fn present(job: &MalleableJob) -> f64 {
    let rate = job.rates.first().map_or(0.0, |r| r.curve.rate(job.held.len() as u32));
    rate * job.weight
}

/// The optimum of the same problem by counting nodes: a multiple-choice knapsack. It says whether the program
/// is right.
pub fn optimum(jobs: &[MalleableJob], nodes: usize) -> f64 {
    let mut best = vec![0.0; nodes + 1];
    for job in jobs {
        let value = values(job);
        best = (0..=nodes)
            .map(|supply: usize| {
                let fits = value.iter().take_while(|(n, _)| **n as usize <= supply);
                fits.map(|(n, v)| v + best[supply - *n as usize]).fold(f64::NEG_INFINITY, f64::max)
            })
            .collect();
    }
    best[nodes]
}

/// Value of each size.
fn values(job: &MalleableJob) -> BTreeMap<u32, f64> {
    let held = job.held.len() as u32;
    let present = present(job);
    let rate = |n: u32| job.rates.first().map_or(0.0, |r| r.curve.rate(n)) * job.weight;
    let change = |n: u32| match n.cmp(&held) {
        std::cmp::Ordering::Greater => job.costs.up_secs * present,
        std::cmp::Ordering::Less => job.costs.down_secs * present,
        std::cmp::Ordering::Equal => 0.0,
    };
    let sizes = std::iter::once(0).chain(job.sizes.up_to(u32::MAX));
    sizes.map(|n| (n, T_FWD_SECS * rate(n) - change(n))).collect()
}
