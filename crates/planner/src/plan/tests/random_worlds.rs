//! Random worlds from seeds.

use super::worlds::{NOW, World, gap, job};
use infill_model::{
    AllowedSizes, ExecPlan, HeldNode, JobId, MalleableJob, NodeName, NodeType, PlanNeeds, ScalingCurve,
    SchedulingState, TurnState, malleable::RateCurve,
};

/// A small generator, so that a seed always means the same world (SplitMix64).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// A random world with at most `jobs` jobs and `nodes` nodes.
pub fn world(seed: u64, jobs: u64, nodes: u64) -> World {
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
    have_turns(&mut world, seed);
    world
}

/// Gives turns to some of the jobs that hold nodes. Everything else stays as it is without turns.
pub fn have_turns(world: &mut World, seed: u64) {
    let mut random = Random(!seed);
    for job in world.jobs.iter_mut().filter(|job| !job.held.is_empty()) {
        job.turn = random.chance(30).then(|| TurnState::Keeps { until: NOW + 60 });
    }
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
        job.rates.push(RateCurve {
            exec_plan,
            node_type,
            curve: ScalingCurve::parse("1:7,4:30").unwrap(),
            // By the job's id, not by chance, so that seeds keep their worlds.
            sizes: [None, Some("1,4"), Some("2-3")][id as usize % 3].map(|s| AllowedSizes::parse(s).unwrap()),
            needs: PlanNeeds::default(),
        });
    }
    if job.rates.len() > 1 && id.is_multiple_of(2) {
        // It stays alive as long as its plan stays.
        job.costs.up_secs = 3.0;
        job.swap_secs = Some(f64::from(id) * 15.0);
    }
    if r.chance(30) {
        job.costs.start_secs = r.pick(&[0.0, 5.0, 60.0, 200.0]);
        job.costs.down_secs = r.pick(&[0.0, 12.0, 30.0]);
        job.hysteresis_share = r.pick(&[1.0, 0.25]);
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
        job.scheduling_state = if r.chance(15) { SchedulingState::Busy } else { SchedulingState::Running };
        job.last_change = r.chance(40).then(|| NOW + -(r.below(120) as i64));
    } else if r.chance(10) {
        job.scheduling_state = SchedulingState::BackOff(NOW + 30);
    }
    job.held.sort_by(|a, b| a.node.cmp(&b.node));
    job.lead_away = job.scheduling_state == SchedulingState::Busy && r.chance(50);
    if r.chance(15) {
        job.excluded = (0..3).map(|_| NodeName::new(format!("n{:02}", r.below(12)))).collect();
    }
    job
}
