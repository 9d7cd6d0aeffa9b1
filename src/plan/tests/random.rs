//! Random worlds: the checker passes every plan, and an unchanged world is left alone.

use super::*;

/// A small generator, so that a seed means the same world for ever (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// A random world with at most so many jobs and nodes.
pub(super) fn world(seed: u64, jobs: u64, nodes: u64) -> World {
    let mut random = Random(seed);
    let r = &mut random;
    let mut world = World::new("", &[]);
    let types: &[&str] = if r.chance(30) { &["a", "b"] } else { &["a"] };
    for n in 0..r.below(nodes + 1) {
        let secs = r.pick(&[-20, 0, 3, 20, 70, 130, 131, 300, 600, 900, 1800, 5000]);
        let unknown = if r.chance(30) { "?" } else { "" };
        world.gaps.gaps.push(gap(&format!("n{n:02}:{secs}:{}{unknown}", r.pick(types))));
    }
    let mut free: Vec<NodeName> = world.gaps.gaps.iter().map(|g| g.node.clone()).collect();
    free.push(NodeName::from("gone"));
    for id in 1..=r.below(jobs + 1) {
        world.jobs.push(random_job(r, id as u32, &mut free, types));
    }
    world.set_holders();
    world.config.max_steps = 1 + r.below(6) as u32;
    world.config.max_changes = r.pick(&[0, 1, 3, 20]);
    world.config.hysteresis = r.pick(&[0.0, 0.02, 0.1]);
    world.min_window_secs = r.pick(&[0.0, 60.0]);
    world.may_grow = !r.chance(10);
    world.drain = r.chance(5);
    world
}

fn random_job(r: &mut Random, id: u32, free: &mut Vec<NodeName>, types: &[&str]) -> MalleableJob {
    let sizes = r.pick(&["1-4", "1-8", "2-6", "1,2,4,8", "3", "2-40", "4-12"]);
    let curve = r.pick(&["linear", "1:10,2:19,4:35,8:60", "1:5,2:9,3:8", "2:100,8:150", "1:3,16:40"]);
    let mut job = job(&format!("{id} {sizes} {curve}"));
    job.weight = r.pick(&[1.0, 1.0, 0.5, 2.0]);
    job.submitted_at = NOW + -(r.below(1000) as i64);
    if r.chance(25) {
        let node_type = Some(NodeType::new(r.pick(types)));
        let exec_plan = ExecPlan(r.pick(&["default", "other"]).to_owned());
        job.rates.push(RateCurve { exec_plan, node_type, curve: Curve::parse("1:7,4:30").unwrap() });
    }
    if r.chance(30) {
        job.costs.start_secs = r.pick(&[0.0, 5.0, 60.0, 200.0]);
        job.costs.down_secs = r.pick(&[0.0, 12.0, 30.0]);
    }
    if r.chance(60) {
        for _ in 0..r.pick(&[1, 1, 2, 3, 4, 5]) {
            if !free.is_empty() {
                let node = free.swap_remove(r.below(free.len() as u64) as usize);
                job.held.push(HeldNode { node, slurm_job: JobId(id) });
            }
        }
    }
    if let Some(first) = job.held.first() {
        job.lead_node = Some(first.node.clone());
        job.standing = if r.chance(15) { Standing::Busy } else { Standing::Running };
        job.last_change = r.chance(40).then(|| NOW + -(r.below(120) as i64));
    } else if r.chance(10) {
        job.standing = Standing::BackOff(NOW + 30);
    }
    job.held.sort_by(|a, b| a.node.cmp(&b.node));
    if r.chance(15) {
        job.excluded = (0..3).map(|_| NodeName::new(format!("n{:02}", r.below(12)))).collect();
        job.excluded.sort();
        job.excluded.dedup();
    }
    job
}

#[test]
fn the_checker_passes_every_plan_made_without_a_solver() {
    for seed in 0..10_000 {
        let world = world(seed, 7, 14);
        let plan = fallback(&world.problem(), "test");
        let report = explain(&world.problem(), &plan);
        passes(&world, &plan);
        assert_eq!(report.jobs.len(), world.jobs.len(), "seed {seed}");
        assert_eq!(report.nodes.len(), world.gaps.gaps.len(), "seed {seed}");
    }
}

#[test]
fn the_checker_passes_every_plan_of_the_solver() {
    let (mut worse, mut score) = (0, 0);
    for seed in 20_000..21_000 {
        let mut world = world(seed, 5, 10);
        world.config.mip_gap = 0.001;
        let (plan, _) = solve(&world);
        let without = fallback(&world.problem(), "test");
        let problem = world.problem();
        let steps = Steps::of(&problem);
        let value = |plan: &Plan| evaluate(&problem, &steps, plan).score();
        let (with, without) = (value(&plan), value(&without));
        assert!(with >= without - 1e-6 * without.abs().max(1.0), "seed {seed}: {with} < {without}");
        worse += u32::from(without < with - 1e-6 * with.abs().max(1.0));
        score += 1;
    }
    println!("the solver's plan is better than the one in hand in {worse} of {score} worlds");
}

#[test]
fn an_unchanged_world_is_left_alone() {
    let (mut moved, mut total) = (Vec::new(), 0);
    for seed in 30_000..30_400 {
        let mut world = world(seed, 6, 12);
        // A start that is dearer than a growth would first be made small; see `cost`.
        for job in &mut world.jobs {
            job.costs = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };
        }
        // What a busy job without its lead's node gives up is free in the next round only.
        world.jobs.retain(|j| j.standing != Standing::Busy);
        world.set_holders();
        world.config.max_changes = 20;
        // Where jobs must avoid nodes, counts are not exact: a round may leave a node idle that the next one
        // uses.
        world.jobs.iter_mut().for_each(|j| j.excluded.clear());
        // With fewer steps than window ends, which steps there are depends on what is held.
        world.config.max_steps = 12;
        let (first, _) = solve(&world);
        let next = world.after(&first);
        let (second, _) = solve(&next);
        // Counts cannot always be laid on nodes as they are: only what is proved best must stay.
        if first.proof.is_none_or(|proof| proof.gap > world.config.mip_gap + 1e-9) {
            continue;
        }
        total += 1;
        if show(&first) != show(&second) {
            moved.push(format!("seed {seed}:\n  {}\n  {}", show(&first), show(&second)));
        }
    }
    assert!(total > 250, "{total} worlds");
    assert!(moved.is_empty(), "{} of {total}:\n{}", moved.len(), moved.join("\n"));
}
