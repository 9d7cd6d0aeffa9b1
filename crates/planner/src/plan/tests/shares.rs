//! CPUs and memory of hosts: plans that need more of them than their places come with.

use super::random_worlds::Random;
use super::worlds::*;
use crate::plan::{
    placement::extract,
    space::decision::{DecisionSpace, Schedule},
};
use infill_testkit::effort;

/// A host of two places that come with 4 CPUs and 1000 MiB each.
const TWO_PLACES: &str = "n1#0:1800 n1#1:1800";

/// A job of one worker that is three times as fast where its optimizer works on 8 CPUs.
const OFFLOADS: &str = "1 1 1:10 plan:offload=1:30 needs:offload=8";

/// What the solver's plan gives to each job, and with which execution plan.
fn placed(world: &World) -> String {
    let (plan, _) = solve(world);
    plan.jobs
        .iter()
        .map(|job| format!("{}:{}", job.nodes.len(), job.exec_plan.0))
        .collect::<Vec<_>>()
        .join(" ")
}

fn world(gaps: &str, jobs: &[&str], hosts: &str) -> World {
    let mut world = World::new(gaps, jobs);
    world.config.max_changes = 20;
    world.count((4, 1000), hosts);
    world
}

#[test]
fn a_plan_that_needs_many_cpus_is_chosen_where_they_are_free() {
    assert_eq!(placed(&world(TWO_PLACES, &[OFFLOADS], "n1=8/2000")), "1:offload");
    // What no place comes with is available for it, too.
    assert_eq!(placed(&world("n1#0:1800", &[OFFLOADS], "n1=9/2000")), "1:offload");
    // The same holds for memory.
    let big = "1 1 1:10 plan:offload=1:30 needs:offload=4/1900";
    assert_eq!(placed(&world(TWO_PLACES, &[big], "n1=8/2000")), "1:offload");
}

#[test]
fn a_plan_that_needs_many_cpus_is_not_chosen_where_they_are_not_free() {
    assert_eq!(placed(&world("n1#0:1800", &[OFFLOADS], "n1=7/2000")), "1:default");
    // There are enough in all, but not on one host.
    assert_eq!(placed(&world("n1#0:1800 n2#0:1800", &[OFFLOADS], "n1=7/1000 n2=7/1000")), "1:default");
    let big = "1 1 1:10 plan:offload=1:30 needs:offload=4/1900";
    assert_eq!(placed(&world(TWO_PLACES, &[big], "n1=8/1899")), "1:default");
    // Another job makes more of the place whose share it would take.
    let worth = [OFFLOADS, "2 1 1:10 w=9"];
    assert_eq!(placed(&world(TWO_PLACES, &worth, "n1=8/2000")), "1:default 1:default");
    let not_worth = [OFFLOADS, "2 1 1:10 w=0.5"];
    assert_eq!(placed(&world(TWO_PLACES, &not_worth, "n1=8/2000")), "1:offload 0:default");
}

#[test]
fn a_job_that_needs_less_leaves_the_rest_to_others() {
    let frugal = "2 1 1:10 w=9 plan:few=1:9.9 needs:few=1";
    let few = [OFFLOADS, frugal];
    assert_eq!(placed(&world(TWO_PLACES, &few, "n1=9/2000")), "1:offload 1:few");
    assert_eq!(placed(&world(TWO_PLACES, &few, "n1=8/2000")), "1:default 1:default");
}

#[test]
fn a_worker_keeps_what_it_has_whatever_its_plan_needs() {
    // The job changed to a plan that needs little. Its wing still has what it got for the other plan.
    let jobs = ["1 1 1:10 held=n1:0 plan:big=1:1 needs:big=8", "2 1 1:25 plan:big=1:30 needs:big=8"];
    let mut world = world("n1#0:1800 n1#1:1800", &jobs, "n1=14/2000");
    assert_eq!(placed(&world), "1:default 1:big");
    for (at, held) in [(0, 8), (1, 0)] {
        let share = world.gaps.gaps[at].share.as_mut().unwrap();
        share.held.cpus = held;
        share.free.cpus = 6;
    }
    assert_eq!(placed(&world), "1:default 1:default");
}

#[test]
fn a_running_job_changes_its_plan_as_far_as_its_host_allows() {
    let jobs = ["1 1 1:10 held=n1:0 plan:big=1:30 needs:big=8"];
    assert_eq!(placed(&world(TWO_PLACES, &jobs, "n1=8/2000")), "1:big");
    assert_eq!(placed(&world(TWO_PLACES, &jobs, "n1=7/2000")), "1:default");
}

#[test]
fn a_planned_start_takes_what_is_left_over() {
    // A place of the host is claimed before the first step ends. What no place comes with may be claimed,
    // too.
    let left = |end: &str| placed(&world(&format!("n1#0:1800 n1#1:{end}"), &[OFFLOADS], "n1=12/2000"));
    assert_eq!((left("1800").as_str(), left("2").as_str()), ("1:offload", "1:default"));
}

#[test]
fn rows_exist_only_where_some_plan_needs_more_than_its_places_come_with() {
    let rows = |jobs: &[&str], hosts: &str| {
        let world = world(TWO_PLACES, jobs, hosts);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        space.shares.map_or(0, |shares| shares.rows.len())
    };
    assert_eq!(rows(&["1 1 linear needs:default=4/1000", "2 1-2 linear"], "n1=8/2000"), 0);
    assert_eq!(rows(&["1 1 linear needs:default=8/2000 block=2"], "n1=8/2000"), 0);
    assert_eq!(rows(&["1 1 linear needs:default=9/2000 block=2"], "n1=8/2000"), 2);
    assert_eq!(rows(&["1 1 linear needs:default=5"], ""), 0, "hosts are not counted");
    assert_eq!(rows(&["1 1 linear needs:default=5/1001"], "n1=8/2000"), 4);
    let many: Vec<String> = (5..15).map(|cpus| format!("{cpus} 1 linear needs:default={cpus}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(rows(&many, "n1=8/2000"), 5, "the total, and the largest needs");
}

/// A small world of one step: hosts with places, CPUs and memory, and jobs that each want one number of
/// workers with some needs.
fn small(r: &mut Random) -> World {
    let mut gaps = Vec::new();
    let mut counted = Vec::new();
    for host in 0..1 + r.below(3) {
        let places = 1 + r.below(4);
        gaps.extend((0..places).map(|place| format!("n{host}#{place}:900")));
        let cpus = 4 * places + r.below(5);
        let mib = 10 * places + r.below(11);
        counted.push(format!("n{host}={cpus}/{mib}"));
    }
    let jobs: Vec<String> = (1..=1 + r.below(3))
        .map(|id| {
            let workers = 1 + r.below(3);
            let cpus =
                [String::new(), (1 + r.below(9)).to_string(), "8".to_owned()][r.below(3) as usize].clone();
            let mib = [String::new(), (1 + r.below(25)).to_string()][r.below(2) as usize].clone();
            let block = 1 + r.below(5) / 4;
            format!("{id} {workers} linear needs:default={cpus}/{mib} block={block}")
        })
        .collect();
    let mut world = World::new(&gaps.join(" "), &jobs.iter().map(String::as_str).collect::<Vec<_>>());
    world.config.max_steps = 1;
    world.config.max_changes = 100;
    world.count((4, 10), &counted.join(" "));
    world
}

/// What one worker takes or one host has: places, CPUs, MiB.
type Item = (u32, u32, u64);

/// The workers of all jobs, each with what it takes.
fn items(world: &World) -> Vec<Item> {
    let of_job = |job: &MalleableJob| {
        let needs = job.rates[0].needs;
        let takes = (
            job.places_per_node,
            needs.cpus.unwrap_or(4 * job.places_per_node),
            needs.memory_mib.unwrap_or(10 * u64::from(job.places_per_node)),
        );
        std::iter::repeat_n(takes, job.sizes.max() as usize)
    };
    world.jobs.iter().flat_map(of_job).collect()
}

/// The hosts: free places, CPUs, MiB.
fn hosts(world: &World) -> Vec<Item> {
    let mut hosts: Vec<(NodeName, Item)> = Vec::new();
    for gap in &world.gaps.gaps {
        let free = gap.share.unwrap().free;
        match hosts.last_mut() {
            Some((host, (places, ..))) if *host == gap.node.host() => *places += 1,
            _ => hosts.push((gap.node.host(), (1, free.cpus, free.memory_mib))),
        }
    }
    hosts.into_iter().map(|(_, host)| host).collect()
}

/// Whether these workers fit on these hosts, by trying everything.
fn packs(hosts: &mut [Item], items: &[Item]) -> bool {
    let Some(((places, cpus, mib), rest)) = items.split_first() else { return true };
    for at in 0..hosts.len() {
        let (free, has, memory) = hosts[at];
        if free >= *places && has >= *cpus && memory >= *mib {
            hosts[at] = (free - places, has - cpus, memory - mib);
            let fits = packs(hosts, rest);
            hosts[at] = (free, has, memory);
            if fits {
                return true;
            }
        }
    }
    false
}

/// The schedule of one step in which each job has all its workers; `None` where the rows forbid it.
fn complete_schedule(space: &DecisionSpace<'_>) -> Option<Schedule> {
    let all = space.jobs.iter().map(|job| {
        let option = job.options.iter().position(|spec| spec.nodes == job.job.sizes.max());
        option.map(|option| vec![option])
    });
    let schedule: Schedule = all.collect::<Option<_>>()?;
    space.is_feasible(&schedule).then_some(schedule)
}

/// The guarantees of counting, on random small worlds:
///
/// - What can be packed, the rows allow. On one host the rows allow nothing else.
/// - What is placed completely can be packed. What is placed in part keeps every host, which the checker
///   confirms.
/// - Where placement misses what could be packed, it gives a job less: in fewer than one of 100 worlds.
#[test]
fn counts_of_hosts_against_packing_worker_by_worker() {
    let mut fit = 0u64;
    let mut not = 0u64;
    let mut one_host = 0u64;
    let mut loose = 0u64;
    let mut missed = 0u64;
    for seed in effort::seed_range(0..10_000) {
        let world = small(&mut Random(seed));
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if space.shares.is_none() {
            continue;
        }
        let schedule = complete_schedule(&space);
        let mut hosts = hosts(&world);
        let can_be = packs(&mut hosts, &items(&world));
        assert!(schedule.is_some() || !can_be, "seed {seed}: the rows forbid what fits: {world:#?}");
        if hosts.len() == 1 {
            assert_eq!(schedule.is_some(), can_be, "seed {seed}: {world:#?}");
            one_host += 1;
        }
        fit += u64::from(can_be);
        not += u64::from(!can_be);
        let Some(schedule) = schedule else { continue };
        let plan = extract::placed_plan(&space, &schedule, SolveStatus::Trivial);
        passes(&world, &plan);
        let is_whole = world
            .jobs
            .iter()
            .all(|job| plan.job_plan(job.id).map(|p| p.nodes.len() as u32) == Some(job.sizes.max()));
        assert!(can_be || !is_whole, "seed {seed}: {}", show(&plan));
        loose += u64::from(!can_be);
        missed += u64::from(can_be && !is_whole);
    }
    println!("{fit} fit and {not} do not; rows allow {loose} of these; placement misses {missed} that fit");
    let enough = effort::at_least(2001);
    assert!(fit >= enough && not >= enough && one_host >= enough, "{fit} {not} {one_host}");
    assert!(missed * 100 <= fit, "placement misses {missed} of {fit}");
}

/// A random world of several steps in which jobs hold places and have plans that need more or less.
pub(super) fn moving(seed: u64) -> World {
    let mut random = Random(seed);
    let r = &mut random;
    let mut gaps = Vec::new();
    let mut counted = Vec::new();
    let mut free = Vec::new();
    for host in 0..1 + r.below(4) {
        let places = 1 + r.below(4);
        for place in 0..places {
            let secs = [3, 70, 300, 900, 900, 1800][r.below(6) as usize];
            let unknown = if r.chance(40) { "?" } else { "" };
            gaps.push(format!("n{host}#{place}:{secs}{unknown}"));
            free.push(NodeName::new(format!("n{host}")).place_name(place as usize));
        }
        counted.push(format!("n{host}={}/{}", 4 * places + r.below(9), 10 * places + r.below(21)));
    }
    let mut world = World::new(&gaps.join(" "), &[]);
    for id in 1..=1 + r.below(4) as u32 {
        let needs = |r: &mut Random| format!("{}/{}", 1 + r.below(12), 1 + r.below(30));
        let sizes = ["1-4", "1,2,4", "2-3"][r.below(3) as usize];
        let big = needs(r);
        let few = needs(r);
        let mut job = job(&format!(
            "{id} {sizes} 1:10,4:30 plan:big=1:14,4:45 plan:few=1:8,4:28 needs:big={big} needs:few={few}"
        ));
        job.exec_plan.0 = ["default", "big", "few"][r.below(3) as usize].to_owned();
        for _ in 0..r.below(4) {
            if !free.is_empty() {
                let node = free.swap_remove(r.below(free.len() as u64) as usize);
                job.held.push(HeldNode { node, slurm_job: JobId(id) });
            }
        }
        if let Some(first) = job.held.first() {
            job.lead_node = Some(first.node.clone());
            job.scheduling_state =
                if r.chance(15) { SchedulingState::Busy } else { SchedulingState::Running };
        }
        job.held.sort_by(|a, b| a.node.cmp(&b.node));
        world.jobs.push(job);
    }
    world.set_holders();
    world.config.max_steps = 1 + r.below(5) as u32;
    world.config.max_changes = [1, 3, 20][r.below(3) as usize];
    world.min_window_secs = [0.0, 60.0][r.below(2) as usize];
    world.may_grow = !r.chance(10);
    world.count((4, 10), &counted.join(" "));
    // What a host has and what its places come with need not agree.
    for gap in &mut world.gaps.gaps {
        let share = gap.share.as_mut().unwrap();
        match r.below(10) {
            0 => share.held = CpuMemory::default(),
            1 => share.held.cpus += r.below(6) as u32,
            2 => share.held.cpus = 1,
            _ => {}
        }
    }
    super::random_worlds::have_turns(&mut world, seed);
    world
}

#[test]
fn the_checker_passes_every_plan_on_counted_hosts() {
    let mut more = 0u64;
    let mut counted = 0u64;
    for seed in effort::seed_range(0..800) {
        let mut world = moving(seed);
        let without = plan_without_solver(&world.problem(), "test");
        passes(&world, &without);
        passes(&world, &last_resort(&world.problem(), "test"));
        counted += u64::from(DecisionSpace::from_problem(&world.problem()).shares.is_some());
        let needs_more = |planned: &&infill_model::JobPlan| {
            let rates = &world.jobs.iter().find(|job| job.id == planned.job).unwrap().rates;
            let plan = rates.iter().find(|rate| rate.exec_plan == planned.exec_plan);
            !planned.nodes.is_empty() && plan.is_some_and(|rate| rate.needs.cpus > Some(4))
        };
        more += without.jobs.iter().filter(needs_more).count() as u64;
        if seed % 40 == 0 {
            world.config.solve_secs = 0.5;
            passes(&world, &plan_round(&world.problem(), solver().as_ref()));
        }
    }
    let enough = effort::at_least(241);
    assert!(
        more >= enough && counted >= enough,
        "{more} jobs take more than a place's share, {counted} worlds"
    );
}
