//! How fast a model would train, before it ever ran: from its layers' times on one GPU, and from how long
//! collectives take on the site's nodes.
//!
//! The formula is that of Cells in Crius (Xue et al., "Crius: Efficient Scheduling with Cells", section 4).
//! Its pipeline is GPipe's (Huang et al. 2019). The layers are divided into stages in their order, so that
//! the slowest stage takes as little as possible. A step with B micro-batches takes
//!
//! ```text
//! T = max stage · (B − 1) + Σ stages + all-reduce of the gradients
//! ```
//!
//! A stage's seconds are those of its layers, divided by the GPUs that share each, plus their exchanges. The
//! GPUs of a layer need four all-reduces of what the layer passes on, two each way (Megatron-LM, Shoeybi et
//! al. 2019, section 3). Activations go to the next stage, and their gradients come back. A collective that
//! was not measured on this number of ranks or nodes is computed from the nearest ones. The formula ignores
//! overlap and idle times. How wrong such estimates are is learned (`site_speeds`).

use infill_model::{CollectiveOp, LayerProfile, Parallelism, TypeCollectives};

/// The share of its forward pass that checkpointing computes again.
const RECOMPUTED_SHARE: f64 = 1.0;

/// All-reduces of what a layer passes on, among the GPUs that share it.
const EXCHANGES_PER_LAYER: f64 = 4.0;

/// ZeRO-3 gathers parameters for each pass, which adds half to its exchanges (Rajbhandari et al. 2020,
/// section 7).
const ZERO_3_FACTOR: f64 = 1.5;

/// The weight of a doubling of nodes against one of ranks, in the distance to a measured collective.
const NODES_MATTER: f64 = 4.0;

/// The measured times of collectives on nodes of one type.
#[derive(Clone, Copy, Debug)]
pub struct LinkTimes<'a>(pub Option<&'a TypeCollectives>);

impl LinkTimes<'_> {
    /// Seconds of an operation on a tensor of this number of bytes. `None` where it was measured only on one
    /// node and is asked for on several, or the other way round.
    ///
    /// Between measured sizes the time is linear in bytes. A smaller tensor takes as long as the smallest,
    /// and a larger one takes longer in proportion to the largest.
    pub fn collective_secs(&self, op: CollectiveOp, bytes: f64, ranks: u32, nodes: u32) -> Option<f64> {
        if ranks < 2 || bytes <= 0.0 {
            return Some(0.0);
        }
        let similar = self.0?.rows.iter().filter(|row| row.op == op && (row.nodes > 1) == (nodes > 1));
        let distances = similar.clone().map(|row| {
            (doublings_apart(row.ranks, ranks) + NODES_MATTER * doublings_apart(row.nodes, nodes), row)
        });
        let (_, nearest) = distances.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        let group = similar.filter(|row| (row.ranks, row.nodes) == (nearest.ranks, nearest.nodes));
        let mut points: Vec<(f64, f64)> = group.map(|row| (row.bytes as f64, row.secs)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let secs = interpolate_secs(&points, bytes)?;
        Some(secs * sent_share(op, ranks) / sent_share(op, nearest.ranks.max(2)))
    }
}

fn doublings_apart(a: u32, b: u32) -> f64 {
    (f64::from(a.max(1)).log2() - f64::from(b.max(1)).log2()).abs()
}

/// The share of the tensor that each rank sends.
fn sent_share(op: CollectiveOp, ranks: u32) -> f64 {
    match op {
        CollectiveOp::PointToPoint => 1.0,
        _ => f64::from(ranks - 1) / f64::from(ranks),
    }
}

/// Seconds for this number of bytes, from ascending `points` of bytes and seconds; `None` without points.
fn interpolate_secs(points: &[(f64, f64)], bytes: f64) -> Option<f64> {
    let above = points.partition_point(|(b, _)| *b < bytes);
    let Some(below) = above.checked_sub(1) else {
        return points.first().map(|(_, secs)| *secs);
    };
    let (from_bytes, from_secs) = points[below];
    match points.get(above) {
        Some((to_bytes, to_secs)) => {
            Some(from_secs + (to_secs - from_secs) * (bytes - from_bytes) / (to_bytes - from_bytes))
        }
        None => Some(from_secs * bytes / from_bytes),
    }
}

/// The nodes of a plan's GPUs, with the same number on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlace {
    /// GPUs of each node.
    pub gpus_a_node: u32,
    /// Number of nodes.
    pub nodes: u32,
}

impl CellPlace {
    /// The number of nodes of a group of neighbouring GPUs.
    fn nodes_of_group(&self, gpus: u32) -> u32 {
        gpus.div_ceil(self.gpus_a_node.max(1)).clamp(1, self.nodes.max(1))
    }
}

/// Seconds of a step of a model with a plan, with `global_batch` samples over all GPUs.
///
/// `None` where too little is known: a collective that the plan needs was not measured, the plan has more
/// stages than layers, or its optimizer runs on CPUs, which a profile of layers does not cover.
pub fn step_secs(
    profile: &LayerProfile,
    links: &LinkTimes<'_>,
    plan: Parallelism,
    place: CellPlace,
    global_batch: f64,
) -> Option<f64> {
    let Parallelism { dp, strategy } = plan;
    let tp = strategy.tp.max(1);
    let pp = strategy.pp.max(1);
    if strategy.offload || pp as usize > profile.layers.len() || dp == 0 {
        return None;
    }
    // A replica computes as many samples at a time as were profiled, or all that it has if they are fewer.
    let samples = global_batch / f64::from(dp);
    let micro = samples.min(f64::from(profile.batch));
    let scale = micro / f64::from(profile.batch);
    let tp_nodes = place.nodes_of_group(tp);
    let recomputed = if strategy.checkpointing { RECOMPUTED_SHARE } else { 0.0 };
    let mut layers: Vec<f64> = Vec::new();
    for layer in &profile.layers {
        let computed = layer.forward_secs * (1.0 + recomputed) + layer.backward_secs;
        let passed = layer.activation_bytes as f64 * scale;
        let exchanged = if layer.parameters == 0 {
            0.0
        } else {
            EXCHANGES_PER_LAYER * links.collective_secs(CollectiveOp::AllReduce, passed, tp, tp_nodes)?
        };
        layers.push(computed * scale / f64::from(tp) + exchanged);
    }
    let ends = stage_ends(&layers, pp as usize);
    let mut longest = 0.0_f64;
    let mut sum = 0.0;
    let mut most_parameters = 0;
    let mut first = 0;
    let next_nodes = if place.nodes > 1 { 2 } else { 1 };
    for (i, end) in ends.iter().enumerate() {
        let passed = profile.layers[end - 1].activation_bytes as f64 * scale / f64::from(tp);
        let is_last = i + 1 == ends.len();
        let passing = if is_last {
            0.0
        } else {
            2.0 * links.collective_secs(CollectiveOp::PointToPoint, passed, 2, next_nodes)?
        };
        let stage = layers[first..*end].iter().sum::<f64>() + passing;
        longest = longest.max(stage);
        sum += stage;
        let parameters: u64 = profile.layers[first..*end].iter().map(|layer| layer.parameters).sum();
        most_parameters = most_parameters.max(parameters);
        first = *end;
    }
    let gradients = most_parameters as f64 / f64::from(tp) * f64::from(profile.element_bytes);
    let zero_factor = if strategy.zero >= 3 { ZERO_3_FACTOR } else { 1.0 };
    let reduced = links.collective_secs(
        CollectiveOp::AllReduce,
        gradients,
        dp,
        place.nodes_of_group(dp.saturating_mul(tp)),
    )?;
    let micro_batches = (samples / micro).max(1.0);
    let total = longest * (micro_batches - 1.0) + sum + zero_factor * reduced;
    (total.is_finite() && total > 0.0).then_some(total)
}

/// The end of each of `count` stages, so that the slowest takes as little as possible. Layers stay in their
/// order, and each stage has at least one.
///
/// The method is dynamic programming: the best slowest stage for the first `n` layers in `k` stages follows
/// from those in `k − 1`.
pub fn stage_ends(layers: &[f64], count: usize) -> Vec<usize> {
    let count = count.clamp(1, layers.len().max(1));
    let mut sums = vec![0.0];
    layers.iter().for_each(|secs| sums.push(sums[sums.len() - 1] + secs));
    let mut best: Vec<f64> = sums.clone();
    let mut began: Vec<Vec<usize>> = Vec::new();
    for k in 1..count {
        let mut next = vec![f64::INFINITY; sums.len()];
        let mut from = vec![0; sums.len()];
        for n in k + 1..sums.len() {
            for m in k..n {
                let slowest = best[m].max(sums[n] - sums[m]);
                if slowest < next[n] {
                    next[n] = slowest;
                    from[n] = m;
                }
            }
        }
        best = next;
        began.push(from);
    }
    let mut ends = vec![layers.len()];
    for from in began.iter().rev() {
        ends.push(from[ends[ends.len() - 1]]);
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{CollectiveRow, ParallelStrategy, ProfiledLayer, UnixTime};

    const MIB: u64 = 1 << 20;

    fn table() -> TypeCollectives {
        let row = |op, bytes, ranks, nodes, secs| CollectiveRow { op, bytes, ranks, nodes, secs };
        let all = CollectiveOp::AllReduce;
        let one = CollectiveOp::PointToPoint;
        let rows = vec![
            row(all, MIB, 2, 1, 0.001),
            row(all, 3 * MIB, 2, 1, 0.002),
            row(all, MIB, 4, 2, 0.010),
            row(one, MIB, 2, 1, 0.0005),
            row(one, MIB, 2, 2, 0.004),
        ];
        TypeCollectives { node_type: "a100".to_owned(), imported_at: UnixTime(0), rows }
    }

    /// Four layers of 10, 20, 30 and 40 ms for 4 samples, each passing on a MiB.
    fn profile() -> LayerProfile {
        let layer = |ms: f64| ProfiledLayer {
            forward_secs: ms / 3000.0,
            backward_secs: ms / 1500.0,
            parameters: MIB,
            activation_bytes: MIB,
        };
        let layers = [10.0, 20.0, 30.0, 40.0].map(layer).to_vec();
        LayerProfile { version: 1, device: "a100".to_owned(), batch: 4, element_bytes: 2, layers }
    }

    fn secs(dp: u32, strategy: ParallelStrategy, nodes: u32, gpus_a_node: u32, batch: f64) -> Option<f64> {
        let table = table();
        let plan = Parallelism { dp, strategy };
        step_secs(&profile(), &LinkTimes(Some(&table)), plan, CellPlace { gpus_a_node, nodes }, batch)
    }

    fn assert_close(secs: Option<f64>, expected: f64) {
        assert!(secs.is_some_and(|secs| (secs / expected - 1.0).abs() < 1e-9), "{secs:?}, {expected}");
    }

    #[test]
    fn one_gpu_takes_the_sum_of_the_layers() {
        assert_close(secs(1, ParallelStrategy::default(), 1, 1, 4.0), 0.1);
        // Three times the profiled batch takes three times as long, and half of it half as long.
        assert_close(secs(1, ParallelStrategy::default(), 1, 1, 12.0), 0.3);
        assert_close(secs(1, ParallelStrategy::default(), 1, 1, 2.0), 0.05);
        // The forward pass, a third of the time, is computed again.
        assert_close(
            secs(1, ParallelStrategy { checkpointing: true, ..ParallelStrategy::default() }, 1, 1, 4.0),
            0.1 * 4.0 / 3.0,
        );
    }

    #[test]
    fn data_parallel_adds_the_all_reduce_of_the_gradients() {
        // Two replicas of four samples; 4 Mi parameters of 2 bytes: 8 MiB at 0.002 s for 3 MiB.
        assert_close(secs(2, ParallelStrategy::default(), 1, 2, 8.0), 0.1 + 0.002 * 8.0 / 3.0);
        assert_close(
            secs(2, ParallelStrategy { zero: 3, ..ParallelStrategy::default() }, 1, 2, 8.0),
            0.1 + 1.5 * 0.002 * 8.0 / 3.0,
        );
        // Over two nodes it was measured with four ranks only, 10 ms a MiB. Each rank sends 1/2 instead of
        // 3/4.
        assert_close(secs(2, ParallelStrategy::default(), 2, 1, 8.0), 0.1 + 8.0 * 0.010 * (0.5 / 0.75));
    }

    #[test]
    fn a_pipeline_takes_its_slowest_stage_for_all_but_one_micro_batch() {
        // Stages of 10 + 20 + 30 and of 40 ms; a MiB to the next stage and back takes 2 · 0.5 ms; three
        // micro-batches.
        let strategy = ParallelStrategy { pp: 2, ..ParallelStrategy::default() };
        assert_close(secs(1, strategy, 1, 2, 12.0), 0.061 * 2.0 + 0.061 + 0.040);
        assert_close(secs(1, strategy, 2, 1, 12.0), 0.068 * 2.0 + 0.068 + 0.040);
    }

    #[test]
    fn tensor_parallel_divides_layers_and_exchanges_what_they_pass_on() {
        // Four layers of half the time, each with four all-reduces of a MiB: 1 ms each.
        assert_close(
            secs(1, ParallelStrategy { tp: 2, ..ParallelStrategy::default() }, 1, 2, 4.0),
            0.05 + 4.0 * 4.0 * 0.001,
        );
    }

    #[test]
    fn unknown_plans_are_not_estimated() {
        let plain = ParallelStrategy::default();
        assert_eq!(secs(1, ParallelStrategy { pp: 5, ..plain }, 1, 8, 4.0), None, "more stages than layers");
        assert_eq!(secs(1, ParallelStrategy { offload: true, ..plain }, 1, 1, 4.0), None);
        let plan = Parallelism { dp: 2, strategy: plain };
        let place = CellPlace { gpus_a_node: 2, nodes: 1 };
        assert_eq!(step_secs(&profile(), &LinkTimes(None), plan, place, 8.0), None, "no table");
        let alone = Parallelism { dp: 1, strategy: plain };
        assert!(step_secs(&profile(), &LinkTimes(None), alone, place, 8.0).is_some(), "needs none");
    }

    #[test]
    fn times_between_measured_sizes_are_interpolated() {
        let table = table();
        let links = LinkTimes(Some(&table));
        let all_reduce = |mib: f64| links.collective_secs(CollectiveOp::AllReduce, mib * MIB as f64, 2, 1);
        assert_close(all_reduce(2.0), 0.0015);
        assert_close(all_reduce(0.1), 0.001);
        assert_close(all_reduce(6.0), 0.004);
        assert_eq!(links.collective_secs(CollectiveOp::AllGather, 1.0, 2, 1), None, "it was not measured");
        assert_eq!(
            links.collective_secs(CollectiveOp::AllGather, 1.0, 1, 1),
            Some(0.0),
            "one rank has no partner"
        );
    }

    #[test]
    fn stages_are_as_even_as_possible() {
        assert_eq!(stage_ends(&[10.0, 20.0, 30.0, 40.0], 2), [3, 4]);
        assert_eq!(stage_ends(&[40.0, 30.0, 20.0, 10.0], 2), [1, 4]);
        assert_eq!(stage_ends(&[1.0; 6], 3), [2, 4, 6]);
        assert_eq!(stage_ends(&[5.0, 1.0, 1.0, 1.0], 4), [1, 2, 3, 4]);
        assert_eq!(stage_ends(&[1.0, 2.0], 1), [2]);
        // Compared with all ways to divide seven layers into three stages.
        let layers = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0];
        let slowest = |ends: &[usize]| {
            let begins = std::iter::once(0).chain(ends.iter().copied());
            begins.zip(ends).map(|(a, b)| layers[a..*b].iter().sum::<f64>()).fold(0.0, f64::max)
        };
        let ways = (1..6).flat_map(|a| (a + 1..7).map(move |b| [a, b, 7]));
        let least = ways.map(|ends| slowest(&ends)).fold(f64::INFINITY, f64::min);
        assert_eq!(slowest(&stage_ends(&layers, 3)), least);
    }
}
