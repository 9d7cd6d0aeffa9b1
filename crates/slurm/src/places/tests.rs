//! Tests of places on shared nodes, with clusters and expectations as short strings.

use super::place_assignments::PlaceAssignments;
use crate::PartitionSharing;
use infill_model::{
    AllocatedResources, BaseState, GpuCounts, Job, JobId, LendingRules, Node, NodeName, NodeState, NodeType,
    Reservation, Resources, Snapshot, UnixTime,
};

use std::collections::BTreeMap;

mod cpus;
mod own;
mod shares;

fn resources(cpus: u32, memory_mib: u64, gpus: u32) -> Resources {
    Resources { cpus, memory_mib, gpus: GpuCounts::from_counts([("a100".to_owned(), gpus)]) }
}

/// A cluster of nodes with 16 CPUs, 16,000 MiB and 4 GPUs.
struct Cluster {
    snapshot: Snapshot,
}

impl Cluster {
    fn of(names: &[&str]) -> Cluster {
        let nodes = names.iter().map(|name| Node {
            partitions: vec!["main".to_owned(), "infill".to_owned()],
            has: resources(16, 16_000, 4),
            ..Node::new(NodeName::new(*name), NodeType::new("gpu:a100:4/cpu16"))
        });
        Cluster { snapshot: Snapshot { nodes: nodes.collect(), ..Snapshot::default() } }
    }

    /// Adds a running job: `ID PARTITION NODE=GPUS,NODE=GPUS`, with 4 CPUs and 4,000 MiB for each GPU; `all`
    /// for a whole node. Its comment may follow.
    fn runs(&mut self, text: &str) -> &mut Cluster {
        let words: Vec<&str> = text.splitn(4, ' ').collect();
        let mut job = Job::new(JobId(words[0].parse().unwrap()), words[1], BaseState::Running);
        for (node, gpus) in words[2].split(',').filter_map(|part| part.split_once('=')) {
            job.nodes.push(NodeName::new(node));
            if let Ok(gpus) = gpus.parse::<u32>() {
                let holds = resources(4 * gpus, 4000 * u64::from(gpus), gpus);
                self.allocate(node, &mut job.allocations, holds);
            }
        }
        job.comment = words.get(3).copied().unwrap_or_default().to_owned();
        if job.comment.contains("wing=") {
            job.name = "wing:5".to_owned();
        }
        self.insert(job)
    }

    /// Adds a running job with some CPUs of a node, 100 MiB and no GPU: `ID PARTITION NODE CPUS`. Its comment
    /// may follow.
    fn holds(&mut self, text: &str) -> &mut Cluster {
        let words: Vec<&str> = text.splitn(5, ' ').collect();
        let mut job = Job::new(JobId(words[0].parse().unwrap()), words[1], BaseState::Running);
        job.nodes.push(NodeName::new(words[2]));
        self.allocate(words[2], &mut job.allocations, resources(words[3].parse().unwrap(), 100, 0));
        job.comment = words.get(4).copied().unwrap_or_default().to_owned();
        if job.comment.contains("wing=") {
            job.name = "wing:5".to_owned();
        }
        self.insert(job)
    }

    fn allocate(&mut self, node: &str, to: &mut Vec<AllocatedResources>, holds: Resources) {
        let node = self.snapshot.nodes.iter_mut().find(|n| n.name.as_str() == node).expect("a node");
        node.used.add(&holds);
        to.push(AllocatedResources { node: node.name.clone(), holds });
    }

    /// Adds a pending main job with its planned start: `ID START NODE,NODE GPUS`.
    fn waits(&mut self, text: &str) -> &mut Cluster {
        let words: Vec<&str> = text.split(' ').collect();
        let mut job = Job::new(JobId(words[0].parse().unwrap()), "main", BaseState::Pending);
        job.start_time = Some(UnixTime(words[1].parse().unwrap()));
        job.scheduled_nodes = words[2].split(',').map(NodeName::new).collect();
        job.wants = words[3].parse().ok().map(|gpus| resources(gpus, 100, gpus));
        self.insert(job)
    }

    fn insert(&mut self, job: Job) -> &mut Cluster {
        self.snapshot.jobs.push(job);
        self.snapshot.jobs.sort_by_key(|j| j.id);
        self
    }

    fn job(&mut self, id: u32) -> &mut Job {
        self.snapshot.jobs.iter_mut().find(|j| j.id.0 == id).expect("a job")
    }

    fn ends(&mut self, id: u32) -> &mut Cluster {
        let gone = self.snapshot.jobs.iter().position(|j| j.id.0 == id).expect("a job");
        for allocation in self.snapshot.jobs.remove(gone).allocations {
            let node = self.snapshot.nodes.iter_mut().find(|n| n.name == allocation.node).expect("its node");
            node.used = node.used.checked_sub(&allocation.holds).expect("it had it");
        }
        self
    }

    /// Each job with its places, or those that its start claims.
    fn seen(&self, assignments: &mut PlaceAssignments) -> String {
        let shown = assignments.snapshot_with_places(self.snapshot.clone());
        let names = |nodes: &[NodeName]| nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(",");
        let described = shown.jobs.iter().map(|job| {
            if job.state.is_pending() {
                format!("{} wants {}", job.id, names(&job.scheduled_nodes))
            } else {
                format!("{} on {}", job.id, names(&job.nodes))
            }
        });
        described.collect::<Vec<_>>().join("; ")
    }

    /// The places with this state.
    fn places(&self, assignments: &mut PlaceAssignments, state: &str) -> String {
        let shown = assignments.snapshot_with_places(self.snapshot.clone());
        let places = shown.nodes.iter().filter(|n| n.state.to_string() == state);
        places.map(|n| n.name.as_str()).collect::<Vec<_>>().join(",")
    }
}

fn assignments() -> PlaceAssignments {
    PlaceAssignments::new("infill", LendingRules::default(), BTreeMap::new())
}

#[test]
fn each_gpu_is_a_node_with_its_share() {
    let mut cluster = Cluster::of(&["n1"]);
    cluster.snapshot.nodes[0].address = "10.0.0.1".to_owned();
    let shown = assignments().snapshot_with_places(cluster.runs("1 main n1=3").snapshot.clone());
    assert_eq!(shown.nodes.len(), 4);
    let free = &shown.nodes[3];
    assert_eq!((free.name.as_str(), free.address.as_str()), ("n1:3", "10.0.0.1"));
    assert_eq!((free.node_type.as_str(), free.state.to_string().as_str()), ("gpu:a100:1/cpu4", "IDLE"));
    assert_eq!((&free.has, free.used.is_none()), (&resources(4, 4000, 1), true));
    assert_eq!(shown.nodes[0].state.to_string(), "ALLOCATED");
}

#[test]
fn a_job_keeps_its_places() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=2").runs("2 main n1=1");
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:0,n1:1; 2 on n1:2");
    cluster.ends(1).runs("3 main n1=1");
    assert_eq!(cluster.seen(&mut assignments), "2 on n1:2; 3 on n1:0");
    cluster.runs("4 main n1=2");
    assert_eq!(cluster.seen(&mut assignments), "2 on n1:2; 3 on n1:0; 4 on n1:1,n1:3");
}

#[test]
fn malleable_jobs_are_where_they_were_sent() {
    let mut cluster = Cluster::of(&["n1", "n2"]);
    let mut assignments = assignments();
    assignments.record_sent(JobId(5), &NodeName::new("n2:2"));
    cluster.runs("5 infill n2=1").runs("6 infill n1=1 infill:order=1;wing=5;place=n1:3");
    cluster.runs("7 main n1=2,n2=1");
    assert_eq!(cluster.seen(&mut assignments), "5 on n2:2; 6 on n1:3; 7 on n1:0,n1:1,n2:0");
    // A main job that came first changes its place: infill decides which GPU it has.
    cluster.runs("8 infill n1=1 infill:order=2;wing=5;place=n1:0");
    assert_eq!(cluster.seen(&mut assignments), "5 on n2:2; 6 on n1:3; 7 on n1:1,n1:2,n2:0; 8 on n1:0");
    let alone = assignments.job_with_last_places(cluster.snapshot.jobs[0].clone());
    assert_eq!(alone.unwrap().nodes, [NodeName::new("n2:2")]);
    // One that has come since the last snapshot.
    let mut new = Job::new(JobId(9), "infill", BaseState::Running);
    new.nodes = vec![NodeName::new("n2")];
    new.comment = "infill:order=3;wing=5;place=n2:1".to_owned();
    new.name = "wing:5".to_owned();
    assert_eq!(assignments.job_with_last_places(new).unwrap().nodes, [NodeName::new("n2:1")]);
}

#[test]
fn of_two_jobs_sent_to_one_place_the_running_one_has_it() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("6 infill n1=1 infill:order=1;wing=5;place=n1:1");
    assert_eq!(cluster.seen(&mut assignments), "6 on n1:1");
    // It ends, and the next is there before it has gone.
    cluster.job(6).state.flags.insert("COMPLETING".to_owned());
    cluster.runs("7 infill n1=1 infill:order=2;wing=5;place=n1:1");
    assert_eq!(cluster.seen(&mut assignments), "6 on n1:0; 7 on n1:1");
    assert_eq!(cluster.places(&mut assignments, "ALLOCATED+COMPLETING"), "n1:0");
}

#[test]
fn a_comment_with_more_places_than_the_job_holds_does_not_block_them() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("6 infill n1=1 infill:order=1;wing=5;place=n1:1+2+3");
    assert_eq!(cluster.seen(&mut assignments), "6 on n1:1");
    cluster.runs("7 infill n1=1 infill:order=2;wing=5;place=n1:2");
    assert_eq!(cluster.seen(&mut assignments), "6 on n1:1; 7 on n1:2");
}

#[test]
fn a_job_that_has_its_node_whole_has_all_places() {
    let mut cluster = Cluster::of(&["n1", "n2"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=all,n2=1");
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:0,n1:1,n1:2,n1:3,n2:0");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n2:1,n2:2,n2:3");
}

#[test]
fn a_gpu_without_cpus_is_not_a_free_place() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=1");
    // A job with CPUs for two GPUs more, and no GPU.
    let mut greedy = Job::new(JobId(2), "main", BaseState::Running);
    greedy.nodes.push(NodeName::new("n1"));
    cluster.allocate("n1", &mut greedy.allocations, resources(7, 100, 0));
    cluster.insert(greedy);
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:0; 2 on n1:2,n1:3");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:1");
}

#[test]
fn free_places_are_unknown_while_records_contradict_each_other() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=1").runs("2 infill n1=1");
    cluster.snapshot.nodes[0].used = resources(4, 4000, 1);
    assert_eq!(cluster.places(&mut assignments, "IDLE+UNKNOWN"), "n1:2,n1:3");
    assert_eq!(cluster.places(&mut assignments, "ALLOCATED"), "n1:0,n1:1", "what runs is not doubted");
    cluster.snapshot.nodes[0].used = resources(8, 8000, 2);
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:2,n1:3");
    cluster.runs("3 main n1=3");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "", "jobs have more than there is");
}

#[test]
fn other_state_words_of_the_node_hold_for_each_place() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.snapshot.nodes[0].state = NodeState::from_words(["MIXED", "DRAIN", "COMPLETING", "PLANNED"]);
    cluster.runs("1 main n1=3");
    assert_eq!(cluster.places(&mut assignments, "DRAIN+IDLE+PLANNED"), "n1:3");
}

#[test]
fn a_planned_start_claims_what_it_will_find_missing() {
    let mut cluster = Cluster::of(&["n1", "n2"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=2").runs("5 infill n1=1").runs("6 infill n2=1").waits("8 500 n1,n2 2");
    cluster.job(1).end_time = Some(UnixTime(900));
    // On n1 it takes a free place and one of a malleable job; on n2 enough places are free.
    let running = "1 on n1:0,n1:1; 5 on n1:2; 6 on n2:0";
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:2,n1:3,n2:2,n2:3"));
    // The main job there will have ended by then.
    cluster.job(1).end_time = Some(UnixTime(500));
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n2:2,n2:3"));
    // What the first start takes is missing for the next.
    cluster.waits("9 600 n1,n2 2");
    assert_eq!(
        cluster.seen(&mut assignments),
        format!("{running}; 8 wants n2:2,n2:3; 9 wants n1:2,n1:3,n2:0,n2:1")
    );
    // A job that wants whole nodes, or whose record is unclear, claims all places.
    cluster.ends(8).ends(9).waits("9 400 n2 whole");
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 9 wants n2:0,n2:1,n2:2,n2:3"));
}

#[test]
fn nodes_that_cannot_be_lent_leave_the_partition() {
    let mut cluster = Cluster::of(&["n1", "n2", "n3"]);
    cluster.snapshot.nodes[0].has = Resources { gpus: GpuCounts::default(), ..resources(16, 16_000, 0) };
    cluster.snapshot.nodes[1].has.gpus =
        GpuCounts::from_counts([("a100".to_owned(), 2), ("t4".to_owned(), 2)]);
    let shown = assignments().snapshot_with_places(cluster.runs("1 main n1=0").snapshot.clone());
    let names: Vec<&str> = shown.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3:0", "n3:1", "n3:2", "n3:3"]);
    assert!(shown.nodes[..2].iter().all(|n| n.partitions == ["main"]));
    assert_eq!(shown.jobs[0].nodes, [NodeName::new("n1")]);
}

#[test]
fn a_worker_with_the_cpus_of_two_places_has_both_and_a_comment_alone_gives_none() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    for (id, cpus, place) in [(6, 8, "n1:0+1"), (7, 4, "n1:2+3")] {
        let mut wing = Job::new(JobId(id), "infill", BaseState::Running);
        wing.name = "wing:5".to_owned();
        wing.nodes = vec![NodeName::new("n1")];
        wing.comment = format!("infill:order={id};wing=5;place={place}");
        cluster.allocate("n1", &mut wing.allocations, resources(cpus, 4000, 1));
        cluster.insert(wing);
    }
    assert_eq!(cluster.seen(&mut assignments), "6 on n1:0,n1:1; 7 on n1:2");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:3");
}

#[test]
fn a_planned_start_claims_cpus_too() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    // The malleable job has the CPUs of two GPUs. 8 are left, and the start wants 12.
    let mut greedy = Job::new(JobId(5), "infill", BaseState::Running);
    greedy.nodes.push(NodeName::new("n1"));
    cluster.allocate("n1", &mut greedy.allocations, resources(8, 4000, 1));
    cluster.insert(greedy).waits("8 500 n1 3");
    cluster.job(8).wants = Some(resources(12, 100, 3));
    assert_eq!(cluster.seen(&mut assignments), "5 on n1:0; 8 wants n1:0,n1:2", "one place is left");
    // Without GPUs it takes the CPUs of one place.
    cluster.ends(5).job(8).wants = Some(resources(3, 100, 0));
    assert_eq!(cluster.seen(&mut assignments), "8 wants n1:3");
}

#[test]
fn the_start_that_is_planned_first_claims_first_whatever_its_id() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.waits("8 600 n1 1").waits("9 500 n1 2");
    assert_eq!(cluster.seen(&mut assignments), "8 wants n1:1; 9 wants n1:2,n1:3");
    cluster.job(8).start_time = Some(UnixTime(400));
    assert_eq!(cluster.seen(&mut assignments), "8 wants n1:3; 9 wants n1:1,n1:2");
    // The first start takes the youngest malleable job, the second one the other.
    cluster.runs("5 infill n1=2 infill:order=1;wing=5;place=n1:0+1");
    cluster.runs("6 infill n1=2 infill:order=2;wing=5;place=n1:2+3");
    let running = "5 on n1:0,n1:1; 6 on n1:2,n1:3";
    cluster.job(8).wants = Some(resources(2, 100, 2));
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:2,n1:3; 9 wants n1:0,n1:1"));
    cluster.job(8).start_time = Some(UnixTime(600));
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:0,n1:1; 9 wants n1:2,n1:3"));
}

#[test]
fn a_reservation_covers_all_places_of_its_nodes() {
    let mut cluster = Cluster::of(&["n1", "n2", "n3"]);
    // n3 has no GPU, and is not lent.
    cluster.snapshot.nodes[2].has = resources(16, 16_000, 0);
    let maintenance = Reservation {
        name: "maintenance".to_owned(),
        start_time: UnixTime(500),
        end_time: UnixTime(900),
        nodes: vec![NodeName::new("n1"), NodeName::new("n3")],
        flags: Vec::new(),
    };
    cluster.snapshot.reservations = vec![maintenance.clone()];
    let shown = assignments().snapshot_with_places(cluster.snapshot.clone());
    let nodes = ["n1:0", "n1:1", "n1:2", "n1:3", "n3"].map(NodeName::new).to_vec();
    assert_eq!(shown.reservations, [Reservation { nodes, ..maintenance }]);
}

#[test]
fn a_preempted_job_leaves_before_the_youngest() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("5 infill n1=2 infill:order=1;wing=5;place=n1:0+1");
    cluster.runs("6 infill n1=2 infill:order=2;wing=5;place=n1:2+3").waits("8 500 n1 1");
    let running = "5 on n1:0,n1:1; 6 on n1:2,n1:3";
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:2,n1:3"));
    // Slurm preempts the other job: no further job needs to leave.
    let preempted = cluster.job(5);
    preempted.start_time = Some(UnixTime(100));
    preempted.preempt_time = Some(UnixTime(400));
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:0,n1:1"));
    cluster.job(5).state.flags.insert("COMPLETING".to_owned());
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:0,n1:1"));
}

#[test]
fn a_start_that_lacks_resources_after_main_jobs_end_claims_malleable_jobs() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    for (id, cpus, end) in [(1, 7, 500), (2, 5, 9000)] {
        let mut main = Job::new(JobId(id), "main", BaseState::Running);
        main.end_time = Some(UnixTime(end));
        main.nodes = vec![NodeName::new("n1")];
        cluster.allocate("n1", &mut main.allocations, resources(cpus, 100, 1));
        cluster.insert(main);
    }
    cluster.runs("5 infill n1=1").waits("8 500 n1 2");
    cluster.job(8).wants = Some(resources(8, 100, 2));
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:0,n1:3; 2 on n1:1; 5 on n1:2; 8 wants n1:2");
}

#[test]
fn a_held_job_claims_nothing() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.waits("8 500 n1 whole").waits("9 600 n1 2").job(8).held = true;
    assert_eq!(cluster.seen(&mut assignments), "8 wants ; 9 wants n1:2,n1:3");
}

#[test]
fn a_job_that_is_cleaning_up_keeps_its_places_without_gpus_in_its_record() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=2").runs("6 infill n1=1 infill:order=1;wing=5;place=n1:3");
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:0,n1:1; 6 on n1:3");
    for id in [1, 6] {
        cluster.job(id).state.flags.insert("COMPLETING".to_owned());
        cluster.job(id).allocations[0].holds.gpus = GpuCounts::default();
    }
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:0,n1:1; 6 on n1:3");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:2", "and the node's sums agree");
}

#[test]
fn no_comment_pushes_a_job_off_its_place() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    assignments.record_sent(JobId(7), &NodeName::new("n1:0"));
    cluster.runs("7 infill n1=1").runs("5 infill n1=1 infill:gpus=1;place=n1:0");
    cluster.job(5).name = "train".to_owned();
    assert_eq!(cluster.seen(&mut assignments), "5 on n1:1; 7 on n1:0", "a lead's comment has no effect");
    cluster.runs("3 infill n1=1 infill:order=1;wing=5;place=n1:0");
    assert_eq!(
        cluster.seen(&mut assignments),
        "3 on n1:2; 5 on n1:1; 7 on n1:0",
        "the job that is there stays"
    );
}

#[test]
fn places_survive_an_empty_answer_and_a_restart_of_the_daemon() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = PlaceAssignments::new(
        "infill",
        LendingRules::default(),
        BTreeMap::from([(JobId(7), NodeName::new("n1:2"))]),
    );
    let other = cluster.runs("7 infill n1=1").runs("8 infill n1=1").job(8).clone();
    let lead = cluster.job(7).clone();
    assert_eq!(assignments.job_with_last_places(lead.clone()).unwrap().nodes, [NodeName::new("n1:2")]);
    assert_eq!(assignments.job_with_last_places(other), None, "nothing has been seen yet");
    assert_eq!(cluster.seen(&mut assignments), "7 on n1:2; 8 on n1:0");
    let jobs = std::mem::take(&mut cluster.snapshot.jobs);
    assert_eq!(cluster.seen(&mut assignments), "");
    cluster.snapshot.jobs = jobs;
    assert_eq!(cluster.seen(&mut assignments), "7 on n1:2; 8 on n1:0");
}
