//! Whose turn it is over a day in which nothing else changes: jobs get nodes when the rotation says so.

use super::*;
use infill_model::{
    AllowedSizes, ExcludedNodes, HeldNode, JobDeclaration, JobLocation, JobProgress, NodeName,
    ProgramIdentity, RescaleCosts, ResizeState, SchedulingState, UserId,
};

const COSTS: RescaleCosts = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };

/// (18 + 12) / 2 %, in seconds.
const LENGTH_SECS: i64 = 1_500;

fn job(id: u32, user: &str, sizes: &str) -> JobFacts {
    JobFacts {
        job: JobId(id),
        user: UserId(1),
        program: ProgramIdentity { user: user.to_owned(), ..ProgramIdentity::default() },
        sizes: AllowedSizes::parse(sizes).unwrap(),
        declaration: JobDeclaration::default(),
        scheduling_state: SchedulingState::Waiting,
        since: UnixTime(0),
        waits_since: Some(UnixTime(0)),
        running: None,
        location: JobLocation::default(),
        resize: ResizeState::default(),
        progress: JobProgress::default(),
        submitted_at: UnixTime(i64::from(id)),
        excluded: ExcludedNodes::default(),
        ending: false,
    }
}

fn hold(job: &mut JobFacts, nodes: u32) {
    job.location.held =
        (0..nodes).map(|n| HeldNode { node: NodeName::new(format!("n{n}")), slurm_job: job.job }).collect();
    job.running = Some(nodes);
}

/// A cluster whose nodes go to the jobs that have their turn, at their smallest sizes.
struct World {
    rotation: TurnRotation,
    jobs: Vec<JobFacts>,
    places: u32,
    /// Places of what jobs were promised.
    promised: BTreeMap<JobId, u32>,
    now: i64,
    /// Node-seconds of each job.
    had: BTreeMap<JobId, f64>,
    /// The moment at which each job first had nodes.
    first: BTreeMap<JobId, i64>,
    exchanges: u32,
}

impl World {
    fn of(jobs: Vec<JobFacts>, places: u32) -> World {
        World {
            rotation: TurnRotation::default(),
            jobs,
            places,
            promised: BTreeMap::new(),
            now: 0,
            had: BTreeMap::new(),
            first: BTreeMap::new(),
            exchanges: 0,
        }
    }

    fn free(&self) -> u32 {
        self.places - self.jobs.iter().map(|job| job.location.held.len() as u32).sum::<u32>()
    }

    fn settle(&mut self) {
        let now = UnixTime(self.now);
        self.rotation.ingest_jobs(&self.jobs, now);
        let claims = self.jobs.iter().map(|facts| NodeClaim {
            facts,
            may_start: true,
            costs: COSTS,
            left_secs: None,
            promised_places: self.promised.get(&facts.job).copied(),
        });
        let claims: Vec<NodeClaim<'_>> = claims.collect();
        let user_shares = UserShares { share: &|_| 1.0, used_secs: &|_| 0.0 };
        self.rotation.settle_turns(&claims, self.places, &user_shares, now);
    }

    /// Lets time pass in steps of ten seconds.
    fn run(&mut self, secs: i64) {
        let end = self.now + secs;
        while self.now < end {
            self.settle();
            let states: Vec<Option<TurnState>> =
                self.jobs.iter().map(|job| self.rotation.turn_of(job.job)).collect();
            let next = self.jobs.iter().zip(&states).filter(|(_, turn)| **turn == Some(TurnState::Next));
            let mut wanted: u32 = next.map(|(job, _)| job.sizes.min()).sum();
            for (job, turn) in self.jobs.iter_mut().zip(&states) {
                if wanted > 0 && *turn == Some(TurnState::Over) {
                    wanted = wanted.saturating_sub(job.sizes.min());
                    job.location.held = Vec::new();
                    job.running = None;
                    self.exchanges += 1;
                }
            }
            for (at, turn) in states.iter().enumerate() {
                let needs = self.jobs[at].sizes.min();
                if *turn == Some(TurnState::Next) && needs <= self.free() {
                    let job = &mut self.jobs[at];
                    hold(job, needs);
                    self.first.entry(job.job).or_insert(self.now);
                }
            }
            self.now += 10;
            for job in &self.jobs {
                *self.had.entry(job.job).or_default() += 10.0 * job.location.held.len() as f64;
            }
        }
    }

    /// Node-seconds of one user's jobs.
    fn had_by(&self, user: &str) -> f64 {
        let jobs = self.jobs.iter().filter(|job| job.program.user == user);
        jobs.filter_map(|job| self.had.get(&job.job)).sum()
    }

    /// Jain's index over what these jobs have had.
    fn fairness(&self) -> f64 {
        let (sum, squares) = self.had.values().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        sum * sum / (self.had.len() as f64 * squares)
    }
}

#[test]
fn jobs_of_one_user_have_turns_of_the_length_that_an_exchange_is_worth() {
    for (count, first_secs) in [(8, 0), (16, 900), (64, 3_600)] {
        let mut world = World::of((0..count).map(|id| job(id, "alice", "1-8")).collect(), 8);
        world.run(86_400);
        let last = world.first.values().max().unwrap();
        assert_eq!(world.first.len(), count as usize);
        assert!(*last <= first_secs, "{count}: the last first turn came after {last} s");
        assert!(world.fairness() >= 0.95, "{count}: {}", world.fairness());
        // Eight places, and a turn in each that is as long as it should be once all had their first.
        let most = 8 * (86_400 - first_secs) / LENGTH_SECS + 2 * i64::from(count);
        assert!(i64::from(world.exchanges) <= most, "{count}: {} exchanges", world.exchanges);
        assert!((world.exchanges > 0) == (count > 8), "{count}: {} exchanges", world.exchanges);
    }
}

#[test]
fn a_user_with_many_jobs_has_as_many_nodes_as_one_with_few() {
    let many = (0..500).map(|id| job(id, "alice", "1"));
    let few = (500..504).map(|id| job(id, "bob", "1"));
    let mut world = World::of(many.chain(few).collect(), 8);
    world.run(7_200);
    let alice = world.had_by("alice");
    let bob = world.had_by("bob");
    assert!((alice / bob - 1.0).abs() < 0.05, "{alice} {bob}");
}

#[test]
fn turns_go_on_beside_the_nodes_of_a_promise() {
    let mut world = World::of((0..9).map(|id| job(id, "alice", "1-8")).collect(), 8);
    hold(&mut world.jobs[0], 4);
    world.promised.insert(JobId(0), 4);
    world.run(86_400);
    assert_eq!(world.jobs[0].location.held.len(), 4, "the job with the promise is not parked");
    world.had.remove(&JobId(0));
    let last = world.first.values().max().unwrap();
    assert!(world.first.len() == 8 && *last <= 900, "the last first turn came after {last} s");
    assert!(world.fairness() >= 0.95, "{}", world.fairness());
}

#[test]
fn a_job_with_a_promise_waits_for_no_turn() {
    let mut world = World::of((0..17).map(|id| job(id, "alice", "1")).collect(), 8);
    world.run(3_600);
    let turn = |world: &World, job: JobId| world.rotation.turn_of(job);
    let waits = |job: &&JobFacts| turn(&world, job.job).is_some_and(|turn| turn.queue_position().is_some());
    let last = world.jobs.iter().rev().find(waits).expect("more jobs than places").job;
    world.promised.insert(last, 2);
    world.settle();
    assert_eq!(turn(&world, last), Some(TurnState::Next));
}

#[test]
fn a_job_that_needs_all_nodes_has_its_turn_among_small_ones() {
    let small = (0..16).map(|id| job(id, "alice", "1"));
    let mut world = World::of(small.chain([job(16, "alice", "8")]).collect(), 8);
    world.run(86_400);
    let first = world.first[&JobId(16)];
    assert!(first <= 4 * LENGTH_SECS, "it first had nodes after {first} s");
    let large = world.had[&JobId(16)];
    let all = world.had.values().sum::<f64>();
    assert!((0.04..0.2).contains(&(large / all)), "{large} of {all}");
}

#[test]
fn a_late_job_has_its_first_turn_soon_and_then_no_more_than_others() {
    let mut world = World::of((0..16).map(|id| job(id, "alice", "1")).collect(), 8);
    world.run(43_200);
    world.jobs.push(job(99, "alice", "1"));
    world.run(43_200);
    let first = world.first[&JobId(99)] - 43_200;
    assert!(first <= 900, "after {first} s");
    let late = world.had[&JobId(99)];
    let early = world.had[&JobId(0)];
    assert!((0.35..0.65).contains(&(late / early)), "{late} {early}");
}

#[test]
fn waiting_jobs_know_when_their_turn_comes() {
    let mut world = World::of((0..20).map(|id| job(id, "alice", "1")).collect(), 8);
    world.run(20);
    world.settle();
    let waits: Vec<(u32, u32, f64)> = world
        .jobs
        .iter()
        .filter_map(|job| match world.rotation.turn_of(job.job) {
            Some(TurnState::Waits(QueuePosition { position, queue_length, secs })) => {
                Some((position, queue_length, secs))
            }
            _ => None,
        })
        .collect();
    assert_eq!(waits.len(), 12);
    for (at, (position, of, secs)) in waits.iter().enumerate() {
        assert_eq!((*position as usize, *of), (at + 1, 12));
        // A quarter of a turn, for these are first turns; twelve on eight places.
        let rounds = if at < 8 { 1.0 } else { 2.0 };
        assert!((secs - rounds * 375.0).abs() <= 30.0, "{position}: {secs}");
    }
    let first = world.first[&JobId(0)];
    let last = world.now;
    world.run(3_000);
    let took = world.first[&JobId(19)];
    assert!((took - last - 750).abs() <= 60, "{first} {last} {took}");
}

#[test]
fn a_job_keeps_its_nodes_while_no_job_waits() {
    let mut world = World::of((0..2).map(|id| job(id, "alice", "1-8")).collect(), 8);
    world.run(86_400);
    assert_eq!(world.exchanges, 0);
    assert_eq!(world.rotation.next_end(UnixTime(0)), None);
}
