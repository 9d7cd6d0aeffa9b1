//! Solves the published program. Because nodes are interchangeable, it is a multiple-choice knapsack: max Σ
//! f_j(n_j), Σ n_j ≤ N. A dynamic program over jobs and nodes solves it exactly, in O(jobs × nodes × largest
//! size).

/// The value of each size of a job: `(nodes, value)`, also for 0 nodes. Sizes ascend.
pub(crate) type SizeValues = Vec<(u32, f64)>;

/// Chooses one size for each job, with the greatest sum of values. Of equal sums it takes the one in which
/// later jobs get less. A job without a size that fits gets 0.
pub(crate) fn solve_knapsack(jobs: &[SizeValues], nodes: u32) -> Vec<u32> {
    let most: u64 = jobs.iter().map(|c| u64::from(c.last().map_or(0, |(n, _)| *n))).sum();
    let nodes = u64::from(nodes).min(most) as usize;
    let mut best = vec![0.0f64; nodes + 1];
    let mut chosen: Vec<Vec<u32>> = Vec::with_capacity(jobs.len());
    for choices in jobs {
        let mut next = vec![f64::NEG_INFINITY; nodes + 1];
        let mut choice = vec![0u32; nodes + 1];
        for (size, value) in choices {
            let size_here = *size as usize;
            for total in size_here..=nodes {
                let sum = best[total - size_here] + value;
                if sum > next[total] {
                    next[total] = sum;
                    choice[total] = *size;
                }
            }
        }
        best = next;
        chosen.push(choice);
    }
    let mut left = nodes;
    let mut sizes = vec![0; jobs.len()];
    for (size, choice) in sizes.iter_mut().zip(&chosen).rev() {
        *size = choice[left];
        left -= *size as usize;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_same_optimum_as_exhaustive_search() {
        let jobs: Vec<SizeValues> = vec![
            vec![(0, 0.0), (1, 3.0), (2, 5.0), (3, 5.5)],
            vec![(0, 0.0), (2, 4.5), (4, 9.0)],
            vec![(0, -1.0), (1, 2.0), (3, 6.5)],
        ];
        for nodes in 0..10 {
            let mut best = f64::NEG_INFINITY;
            for a in &jobs[0] {
                for b in &jobs[1] {
                    for c in &jobs[2] {
                        if a.0 + b.0 + c.0 <= nodes {
                            best = best.max(a.1 + b.1 + c.1);
                        }
                    }
                }
            }
            let sizes = solve_knapsack(&jobs, nodes);
            let value = |k: usize| jobs[k].iter().find(|(n, _)| *n == sizes[k]).map_or(f64::NAN, |(_, v)| *v);
            assert!(sizes.iter().sum::<u32>() <= nodes);
            assert!(((0..3).map(value).sum::<f64>() - best).abs() < 1e-12, "{nodes}: {sizes:?}");
        }
    }
}
