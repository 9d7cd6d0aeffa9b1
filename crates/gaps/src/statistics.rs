//! Statistics of gaps: how long they last, how many nodes come and go together, how often no node is idle.
//!
//! Lengths are counted twice, by gaps and by node-time: most gaps are short, and most of the idle time lies
//! in long ones.

use serde::Serialize;

use super::bins::{AGE_EDGES_SECS, age_bin, upper_edge};

/// Lengths, s, for which the shorter gaps' share of gaps and of idle time is given: one to sixty minutes.
const SHORT_SECS: [i64; 4] = [60, 300, 600, 3600];

/// A node was idle from `start` up to, not including, `end`, s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTime {
    /// First idle second.
    pub start: i64,
    /// The second in which it was taken.
    pub end: i64,
}

/// Quantiles of lengths or sizes. A quantile is the least value that at least this share does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WeightedQuantiles {
    /// A tenth is at most this.
    pub p10: i64,
    /// Half is at most this.
    pub p50: i64,
    /// Nine tenths are at most this.
    pub p90: i64,
    /// All but a hundredth are at most this.
    pub p99: i64,
    /// The largest value.
    pub largest: i64,
}

/// The share of gaps that are shorter than a length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShorterShare {
    /// The length, s.
    pub than_secs: i64,
    /// Share of the number of gaps.
    pub of_gaps: f64,
    /// Share of the idle node-time.
    pub of_node_time: f64,
}

/// Gaps of about the same length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthBin {
    /// Least length, s.
    pub from_secs: f64,
    /// Length below which they stay, s; `None` for the last bin.
    pub to_secs: Option<f64>,
    /// Number of gaps.
    pub gaps: u64,
    /// Node-seconds in them.
    pub node_secs: f64,
}

/// Statistics of the nodes that become idle, or stop being idle, in the same second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockStatistics {
    /// Nodes an hour.
    pub nodes_an_hour: f64,
    /// Moments an hour at which there is at least one.
    pub moments_an_hour: f64,
    /// Nodes at each of these moments; `None` without any.
    pub sizes: Option<WeightedQuantiles>,
}

/// The gaps of a cluster over a span of time. A gap that the span cuts off counts with the length that was
/// seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GapStatistics {
    /// Number of nodes of the cluster.
    pub nodes: usize,
    /// Length of the span, s.
    pub span_secs: f64,
    /// Number of gaps.
    pub gaps: u64,
    /// Number of gaps that the span cut off. They lasted longer.
    pub cut_off: u64,
    /// Idle node-seconds.
    pub idle_node_secs: f64,
    /// Idle nodes on average over time.
    pub idle_nodes_mean: f64,
    /// Most nodes idle at once.
    pub idle_nodes_most: u64,
    /// Share of the time in which no node was idle.
    pub none_idle: f64,
    /// Lengths of gaps, s; `None` without gaps.
    pub length_by_gaps: Option<WeightedQuantiles>,
    /// Length, s, of the gap in which an idle node-second lies; `None` without gaps.
    pub length_by_node_time: Option<WeightedQuantiles>,
    /// Shares of short gaps, for some lengths.
    pub shorter: Vec<ShorterShare>,
    /// Lengths in the bins of the survival model, ascending, all bins.
    pub histogram: Vec<LengthBin>,
    /// Statistics of nodes that become idle.
    pub joins: BlockStatistics,
    /// Statistics of nodes that stop being idle.
    pub leaves: BlockStatistics,
}

impl GapStatistics {
    /// The statistics of gaps on a cluster of `nodes` nodes from `span.0` to `span.1`, s. Time outside of the
    /// span is ignored. Gaps may come in any order, but those of one node must not overlap. Takes O(n log n)
    /// for n gaps.
    pub fn from_intervals(gaps: &[IdleTime], nodes: usize, span: (i64, i64)) -> GapStatistics {
        let clipped = gaps.iter().map(|g| IdleTime { start: g.start.max(span.0), end: g.end.min(span.1) });
        let gaps: Vec<IdleTime> = clipped.filter(|g| g.start < g.end).collect();
        let mut lengths: Vec<i64> = gaps.iter().map(|g| g.end - g.start).collect();
        lengths.sort_unstable();
        let idle_node_secs = lengths.iter().sum::<i64>() as f64;
        let span_secs = (span.1 - span.0).max(0) as f64;
        let (idle_nodes_most, none_secs) = idle_extremes(&gaps, span);
        let cut_off = gaps.iter().filter(|g| g.start == span.0 || g.end == span.1).count() as u64;
        let joins = gaps.iter().map(|g| g.start).filter(|at| *at > span.0).collect();
        let leaves = gaps.iter().map(|g| g.end).filter(|at| *at < span.1).collect();
        GapStatistics {
            nodes,
            span_secs,
            gaps: lengths.len() as u64,
            cut_off,
            idle_node_secs,
            idle_nodes_mean: ratio_or_zero(idle_node_secs, span_secs),
            idle_nodes_most,
            none_idle: ratio_or_zero(none_secs as f64, span_secs),
            length_by_gaps: WeightedQuantiles::from_ascending(&lengths, |_| 1.0),
            length_by_node_time: WeightedQuantiles::from_ascending(&lengths, |length| length as f64),
            shorter: SHORT_SECS
                .map(|secs| ShorterShare::below_length(&lengths, secs, idle_node_secs))
                .to_vec(),
            histogram: length_histogram(&lengths),
            joins: BlockStatistics::from_moments(joins, span_secs),
            leaves: BlockStatistics::from_moments(leaves, span_secs),
        }
    }
}

impl WeightedQuantiles {
    /// The quantiles of ascending values, each with a weight; `None` without values.
    fn from_ascending(ascending: &[i64], weight: impl Fn(i64) -> f64) -> Option<WeightedQuantiles> {
        let largest = *ascending.last()?;
        let total: f64 = ascending.iter().map(|v| weight(*v)).sum();
        let quantile = |share: f64| weighted_quantile(ascending, &weight, share * total).unwrap_or(largest);
        Some(WeightedQuantiles {
            p10: quantile(0.1),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            largest,
        })
    }
}

/// The first of ascending values at which the sum of the weights reaches `target`.
fn weighted_quantile(ascending: &[i64], weight: impl Fn(i64) -> f64, target: f64) -> Option<i64> {
    let mut sum = 0.0;
    let reached = ascending.iter().find(|v| {
        sum += weight(**v);
        sum >= target
    });
    reached.copied()
}
impl ShorterShare {
    fn below_length(ascending: &[i64], than_secs: i64, node_secs: f64) -> ShorterShare {
        let short = &ascending[..ascending.partition_point(|l| *l < than_secs)];
        let secs = short.iter().sum::<i64>() as f64;
        let of_gaps = ratio_or_zero(short.len() as f64, ascending.len() as f64);
        ShorterShare { than_secs, of_gaps, of_node_time: ratio_or_zero(secs, node_secs) }
    }
}

impl BlockStatistics {
    fn from_moments(mut moments: Vec<i64>, span_secs: f64) -> BlockStatistics {
        moments.sort_unstable();
        let mut sizes: Vec<i64> = moments.chunk_by(|a, b| a == b).map(|same| same.len() as i64).collect();
        sizes.sort_unstable();
        let hours = span_secs / 3600.0;
        BlockStatistics {
            nodes_an_hour: ratio_or_zero(moments.len() as f64, hours),
            moments_an_hour: ratio_or_zero(sizes.len() as f64, hours),
            sizes: WeightedQuantiles::from_ascending(&sizes, |_| 1.0),
        }
    }
}

/// The ratio of two numbers; 0 if the whole is 0.
fn ratio_or_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Most nodes idle at once, and the seconds in which none is.
fn idle_extremes(gaps: &[IdleTime], span: (i64, i64)) -> (u64, i64) {
    let mut changes: Vec<(i64, i64)> = gaps.iter().flat_map(|g| [(g.start, 1), (g.end, -1)]).collect();
    // At the same moment nodes leave before others join, because they are not idle together.
    changes.sort_unstable();
    let mut idle = 0i64;
    let mut most = 0i64;
    let mut none_secs = 0i64;
    let mut last = span.0;
    for (at, change) in changes {
        none_secs += if idle == 0 { at - last } else { 0 };
        idle += change;
        most = most.max(idle);
        last = at;
    }
    (most.unsigned_abs(), none_secs + (span.1 - last).max(0))
}

fn length_histogram(lengths: &[i64]) -> Vec<LengthBin> {
    let mut bins: Vec<LengthBin> = Vec::new();
    for (i, from_secs) in AGE_EDGES_SECS.into_iter().enumerate() {
        let to_secs = Some(upper_edge(i)).filter(|to| to.is_finite());
        bins.push(LengthBin { from_secs, to_secs, gaps: 0, node_secs: 0.0 });
    }
    for length in lengths {
        if let Some(bin) = bins.get_mut(age_bin(*length as f64)) {
            bin.gaps += 1;
            bin.node_secs += *length as f64;
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(start: i64, end: i64) -> IdleTime {
        IdleTime { start, end }
    }

    #[test]
    fn figures_of_four_gaps() {
        // Two nodes join together at 100. One gap is there from the start, and one is cut off by the end.
        let gaps = [gap(100, 110), gap(100, 400), gap(-50, 40), gap(500, 9999)];
        let found = GapStatistics::from_intervals(&gaps, 8, (0, 1000));
        assert_eq!((found.gaps, found.cut_off, found.idle_nodes_most), (4, 2, 2));
        assert_eq!(found.idle_node_secs, 10.0 + 300.0 + 40.0 + 500.0);
        assert_eq!(found.idle_nodes_mean, 0.85);
        assert_eq!(found.none_idle, (60.0 + 100.0) / 1000.0);
        let by_gaps = WeightedQuantiles { p10: 10, p50: 40, p90: 500, p99: 500, largest: 500 };
        assert_eq!(found.length_by_gaps, Some(by_gaps));
        let by_node_time = WeightedQuantiles { p10: 300, p50: 500, p90: 500, p99: 500, largest: 500 };
        assert_eq!(found.length_by_node_time, Some(by_node_time));
        assert_eq!(
            found.shorter[0],
            ShorterShare { than_secs: 60, of_gaps: 0.5, of_node_time: 50.0 / 850.0 }
        );
        // A gap of exactly this length is not shorter.
        assert_eq!(
            found.shorter[1],
            ShorterShare { than_secs: 300, of_gaps: 0.5, of_node_time: 50.0 / 850.0 }
        );
    }

    #[test]
    fn blocks_are_nodes_of_one_second() {
        let gaps = [gap(100, 110), gap(100, 400), gap(0, 40), gap(500, 3600)];
        let found = GapStatistics::from_intervals(&gaps, 8, (0, 3600));
        // A node that was idle at the start did not join, and one that is idle at the end did not leave.
        assert_eq!((found.joins.nodes_an_hour, found.joins.moments_an_hour), (3.0, 2.0));
        assert_eq!(found.joins.sizes, Some(WeightedQuantiles { p10: 1, p50: 1, p90: 2, p99: 2, largest: 2 }));
        assert_eq!((found.leaves.nodes_an_hour, found.leaves.moments_an_hour), (3.0, 3.0));
    }

    #[test]
    fn a_bin_holds_its_lower_edge() {
        let bins =
            GapStatistics::from_intervals(&[gap(0, 29), gap(0, 30), gap(0, 59), gap(0, 60)], 4, (-1, 100))
                .histogram;
        let counts: Vec<u64> = bins.iter().map(|b| b.gaps).collect();
        assert_eq!(counts[..4], [1, 2, 1, 0]);
        assert_eq!((bins[1].from_secs, bins[1].to_secs, bins[1].node_secs), (30.0, Some(60.0), 89.0));
        assert_eq!((bins.len(), bins[12].to_secs), (AGE_EDGES_SECS.len(), None));
    }

    #[test]
    fn gaps_one_after_the_other_are_never_idle_at_once() {
        let found = GapStatistics::from_intervals(&[gap(0, 50), gap(50, 100)], 2, (0, 100));
        assert_eq!((found.idle_nodes_most, found.none_idle), (1, 0.0));
    }

    #[test]
    fn no_gaps_give_zeros() {
        for span in [(0, 1000), (5, 5), (9, 3)] {
            let found = GapStatistics::from_intervals(&[gap(2000, 3000)], 8, span);
            assert_eq!((found.gaps, found.idle_nodes_mean, found.length_by_gaps), (0, 0.0, None));
            assert!(found.joins.nodes_an_hour == 0.0 && found.shorter[0].of_gaps == 0.0, "{found:?}");
        }
        assert_eq!(GapStatistics::from_intervals(&[], 8, (0, 1000)).none_idle, 1.0);
    }
}
