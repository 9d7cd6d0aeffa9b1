//! Jobs that are not to blame where a host has too little.

use crate::plan::tests::worlds::*;
use infill_model::{HostPart, HostShortage, JobReason, JobReasonKind};

/// Two jobs on one host, whose plans need more than it has.
fn crowded() -> World {
    let mut world = World::new(
        "n1#0:1800 n1#1:1800 n1#2:1800",
        &["1 1-2 linear held=n1:0 needs:default=9", "2 1 linear held=n1:1 needs:default=9"],
    );
    world.count((4, 1000), "n1=12/3000");
    world
}

#[test]
fn a_running_job_may_go_on_whatever_its_host_has() {
    let world = crowded();
    let plan = last_resort(&world.problem(), "test");
    assert_eq!(show(&plan), "1: n1:0* | 2: n1:1*");
    passes(&world, &plan);
    let plan = plan_without_solver(&world.problem(), "test");
    assert_eq!(show(&plan), "1: n1:0* | 2: n1:1*", "it gets no more of such a host");
    passes(&world, &plan);
}

#[test]
fn where_no_shares_are_counted_no_job_needs_too_much() {
    let mut world = crowded();
    world.gaps.gaps.iter_mut().for_each(|gap| gap.share = None);
    let plan = plan_without_solver(&world.problem(), "test");
    assert_eq!(show(&plan), "1: n1:0* n1:2 | 2: n1:1*");
    passes(&world, &plan);
}

/// The kind of reason of the last job of a world, and what hosts lack for it. Each place comes with 4 CPUs
/// and 1000 MiB.
fn last_reason(gaps: &str, jobs: &[&str], hosts: &str) -> (JobReasonKind, Option<HostShortage>) {
    let mut world = World::new(gaps, jobs);
    world.count((4, 1000), hosts);
    let plan = plan_without_solver(&world.problem(), "test");
    passes(&world, &plan);
    let verdict = explain_plan(&world.problem(), &plan).jobs.pop().expect("a job");
    let waits = match verdict.why {
        JobReason::WaitsForHosts(shortage) => Some(shortage),
        _ => None,
    };
    (verdict.why.kind(), verdict.hosts.or(waits))
}

fn lacks(lacks: HostPart, takes: (u32, u64), workers: u32, fit: u32) -> Option<HostShortage> {
    let takes = CpuMemory { cpus: takes.0, memory_mib: takes.1 };
    Some(HostShortage { workers, takes, lacks, fit })
}

const THREE_PLACES: &str = "n1#0:1800 n1#1:1800 n1#2:1800";

#[test]
fn the_report_names_what_hosts_lack_for_a_larger_size() {
    let crowded = crowded();
    let plan = plan_without_solver(&crowded.problem(), "test");
    let settled = explain_plan(&crowded.problem(), &plan).jobs.remove(0);
    assert_eq!(
        (settled.why.kind(), settled.hosts),
        (JobReasonKind::Settled, lacks(HostPart::Cpus, (9, 1000), 1, 0))
    );

    let starts = |job: &str, hosts: &str| {
        let (kind, hosts) = last_reason(THREE_PLACES, &[job], hosts);
        assert_eq!(kind, JobReasonKind::Starts);
        hosts
    };
    assert_eq!(starts("1 1-3 linear needs:default=6", "n1=12/3000"), lacks(HostPart::Cpus, (6, 1000), 1, 0));
    let memory = starts("1 1-3 linear needs:default=4/1500", "n1=12/3000");
    assert_eq!(memory, lacks(HostPart::Memory, (4, 1500), 1, 0));
    assert_eq!(starts("1 1-3 linear needs:default=6", "n1=18/3000"), None, "it gets its largest size");
    assert_eq!(starts("1 1-4 linear needs:default=6", "n1=18/3000"), None, "no further place is free");
    assert_eq!(starts("1 1-4 linear", "n1=12/3000"), None);
}

#[test]
fn the_report_names_what_hosts_lack_for_a_start() {
    let of_cpus = ["1 1 linear w=9 needs:default=8", "2 1 linear needs:default=8"];
    let waits = (JobReasonKind::WaitsForHosts, lacks(HostPart::Cpus, (8, 1000), 1, 0));
    assert_eq!(last_reason(THREE_PLACES, &of_cpus, "n1=12/3000"), waits);
    let waits = (JobReasonKind::WaitsForHosts, lacks(HostPart::Cpus, (6, 1000), 3, 2));
    assert_eq!(last_reason(THREE_PLACES, &["1 3 linear needs:default=6"], "n1=12/3000"), waits);
    // With its other plan it starts.
    let either = [of_cpus[0], "2 1 1:10 needs:default=8 plan:few=1:1 needs:few=1"];
    assert_eq!(last_reason(THREE_PLACES, &either, "n1=12/3000"), (JobReasonKind::Starts, None));
    // Too few nodes, whatever hosts have.
    let many = last_reason(THREE_PLACES, &["1 4 linear needs:default=6"], "n1=12/3000");
    assert_eq!(many, (JobReasonKind::WaitsForNodes, None));
}
