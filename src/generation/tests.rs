//! Whole lives of a job, with agents and a Slurm that do what they are told.

use std::collections::BTreeMap;

use super::input::Arrival;
use super::observe::Sight;
use super::reconcile::{Ground, OrderNumbers};
use super::*;
use crate::model::{
    AgentEvent, BaseState, Directive, ExecPlan, Job, JobState, Placement, UserId, WindowCause, WindowEnd,
};

const LEAD: JobId = JobId(7);

struct Numbers(u64);

impl OrderNumbers for Numbers {
    fn next(&mut self) -> Option<u64> {
        self.0 += 1;
        Some(self.0)
    }
}

/// A machine with its agents and its jobs in Slurm.
struct Rig {
    m: Machine,
    now: UnixTime,
    numbers: Numbers,
    /// Running generation by node.
    agents: BTreeMap<NodeName, Option<u64>>,
    /// Nodes of each job that Slurm runs.
    slurm: BTreeMap<JobId, Vec<NodeName>>,
    held: bool,
    notes: Vec<String>,
    started: Vec<Vec<String>>,
    effects: Vec<Effect>,
    /// Nodes with a known window end.
    windows: BTreeMap<NodeName, UnixTime>,
}

fn n(i: u32) -> NodeName {
    NodeName::new(format!("n{i}"))
}

fn rig(sizes: &str) -> Rig {
    let now = UnixTime(1000);
    Rig {
        m: Machine::new(LEAD, Sizes::parse(sizes).unwrap(), now),
        now,
        numbers: Numbers(0),
        agents: BTreeMap::new(),
        slurm: BTreeMap::new(),
        held: true,
        notes: Vec::new(),
        started: Vec::new(),
        effects: Vec::new(),
        windows: BTreeMap::new(),
    }
}

fn job(id: JobId, nodes: &[NodeName], order: u64) -> Job {
    let running = !nodes.is_empty();
    let state = if running { BaseState::Running } else { BaseState::Pending };
    Job {
        user_id: UserId(1001),
        user_name: "alice".into(),
        account: "research".into(),
        name: if id == LEAD { "train".into() } else { format!("wing:{LEAD}") },
        qos: "infill".into(),
        state_reason: "JobHeldUser".into(),
        submit_time: Some(UnixTime(900)),
        start_time: Some(UnixTime(1000)),
        time_limit_mins: Some(10_000),
        nodes: nodes.to_vec(),
        batch_host: nodes.first().cloned(),
        node_count: nodes.len() as u32,
        held: !running,
        comment: format!("infill:order={order}"),
        ..Job::new(id, "infill", state)
    }
}

impl Rig {
    /// Takes an outcome in and does its effects as Slurm would.
    fn settle(&mut self, out: Outcome) {
        self.notes.extend(out.notes);
        if let Some((_, nodes, _)) = out.started {
            self.started.push(nodes.iter().map(|n| n.to_string()).collect());
        }
        for effect in out.effects {
            match &effect {
                Effect::Launch { node, .. } => {
                    self.slurm.insert(LEAD, vec![node.clone()]);
                    self.held = false;
                }
                Effect::RequeueHold { .. } => {
                    let nodes = self.slurm.remove(&LEAD).unwrap_or_default();
                    self.agents.retain(|n, _| !nodes.contains(n));
                    self.held = true;
                }
                Effect::CancelWing { job } => {
                    let nodes = self.slurm.remove(job).unwrap_or_default();
                    self.agents.retain(|n, _| !nodes.contains(n));
                }
                Effect::ShrinkWing { job, keep } => drop(self.slurm.insert(*job, keep.clone())),
                Effect::Hold { .. } => self.held = true,
                Effect::SetLimit { .. } => {}
            }
            self.effects.push(effect);
        }
    }

    fn with(&mut self, f: impl FnOnce(&mut Machine, UnixTime, &mut Outcome)) {
        let mut out = Outcome::default();
        f(&mut self.m, self.now, &mut out);
        self.m.step(self.now, &mut out);
        self.settle(out);
    }

    /// What the planner wants, lead first.
    fn target(&mut self, nodes: &[u32]) {
        let lease = self.now + 600;
        let nodes = nodes.iter().map(|i| Placement { node: n(*i), lease_until: lease }).collect();
        let plan = JobPlan { job: LEAD, nodes, exec_plan: ExecPlan::default(), rate: 1.0, forecast: vec![] };
        let windows = self.windows.clone();
        let window = move |n: &NodeName| {
            windows.get(n).map_or(WindowEnd::Unknown, |at| WindowEnd::Known {
                at: *at,
                cause: WindowCause::PlannedJob(JobId(1)),
            })
        };
        let settings = Settings {
            partition: "infill".into(),
            qos: None,
            wing_start_secs: 20.0,
            lead_start_secs: 20.0,
            backoff_secs: 30.0,
            backoff_max_secs: 300.0,
        };
        let mut numbers = Numbers(self.numbers.0);
        self.with(|m, now, out| {
            let ground = Ground { window: &window, free: &|_| true };
            m.set_target(&plan, &ground, &mut numbers, &settings, now, out);
        });
        self.numbers = numbers;
    }

    fn event(&mut self, node: &NodeName, event: AgentEvent) {
        let node = node.clone();
        self.with(|m, now, out| m.event(&node, &event, now, out));
    }

    fn stopped(&mut self, node: &NodeName, generation: u64, exit: Exit) {
        self.agents.insert(node.clone(), None);
        let event = AgentEvent::Stopped { generation, exit, stop_secs: 0.1, port: 4000 };
        self.event(node, event);
    }

    /// Lets agents obey and Slurm's jobs start, until nothing moves.
    fn run(&mut self) {
        for _ in 0..20 {
            self.submit_wings();
            self.say_hello();
            let before = self.m.clone();
            for (node, running) in self.agents.clone() {
                self.obey(&node, running);
            }
            if self.m == before {
                return;
            }
        }
        panic!("the job finds no rest: {:?}", self.m.phase);
    }

    fn submit_wings(&mut self) {
        for order in self.m.orders() {
            let id = JobId(100 + order.order as u32);
            self.slurm.insert(id, order.nodes.clone());
            let lead = self.m.lead_node().unwrap().clone();
            self.event(&lead, AgentEvent::WingSubmitted { order: order.order, job: id });
        }
    }

    fn say_hello(&mut self) {
        for (id, nodes) in self.slurm.clone() {
            for node in nodes {
                if self.agents.contains_key(&node) {
                    continue;
                }
                let arrival = Arrival {
                    address: format!("{node}.cluster"),
                    node: node.clone(),
                    slurm_job: id,
                    port: 4000,
                    running: None,
                    spec: None,
                };
                self.with(|m, now, out| assert!(m.hello(arrival, now, out)));
                self.agents.insert(node, None);
            }
        }
    }

    fn obey(&mut self, node: &NodeName, running: Option<u64>) {
        match self.m.directive(node) {
            Directive::Run(member)
                if running != Some(member.generation)
                    && self.m.workers.get(node).is_some_and(|w| w.stopped.is_none()) =>
            {
                self.agents.insert(node.clone(), Some(member.generation));
            }
            Directive::Stop { generation } if running == Some(generation) => {
                self.stopped(node, generation, Exit { code: 0, asked: true, killed: false });
            }
            Directive::Leave | Directive::Finish { .. } => {
                self.agents.remove(node);
                self.slurm.values_mut().for_each(|nodes| nodes.retain(|x| x != node));
                self.slurm.retain(|_, nodes| !nodes.is_empty());
                self.observe();
            }
            _ => {}
        }
    }

    /// A snapshot of Slurm as it is now, a while later.
    fn observe(&mut self) {
        self.now = self.now + 5;
        for w in self.m.workers.values_mut() {
            w.last_seen = self.now;
        }
        let lead_nodes = self.slurm.get(&LEAD).cloned().unwrap_or_default();
        let mut lead = job(LEAD, &lead_nodes, 0);
        lead.held = self.held;
        if matches!(self.m.phase, Phase::Ending { .. }) && lead_nodes.is_empty() {
            lead.state = JobState::of(BaseState::Completed);
        }
        let wings: Vec<Job> = self
            .slurm
            .iter()
            .filter(|(id, _)| **id != LEAD)
            .map(|(id, nodes)| job(*id, nodes, u64::from(id.0) - 100))
            .collect();
        let sight = Sight { lead: Some(&lead), wings: wings.iter().collect(), read_at: self.now };
        let now = self.now;
        self.with(|m, _, out| m.observe(&sight, now, out));
    }

    fn nodes_running(&self) -> Vec<String> {
        self.agents.iter().filter(|(_, g)| g.is_some()).map(|(n, _)| n.to_string()).collect()
    }
}

/// A job that runs on these nodes, lead first.
fn running(sizes: &str, nodes: &[u32]) -> Rig {
    let mut r = rig(sizes);
    r.target(nodes);
    r.run();
    r.target(nodes);
    r.run();
    r
}

#[test]
fn starts_on_all_its_nodes_at_once() {
    let r = running("1-8", &[3, 1, 2]);
    assert_eq!(r.started, vec![vec!["n3", "n1", "n2"]], "{:?}", r.notes);
    assert_eq!(r.nodes_running(), ["n1", "n2", "n3"]);
    assert_eq!(r.m.rescales, 0);
    let Directive::Run(member) = r.m.directive(&n(2)) else { panic!("n2 runs nothing") };
    assert_eq!((member.rank, member.world, member.master_addr.as_str()), (2, 3, "n3.cluster"));
}

#[test]
fn grows_once_all_new_workers_are_here_and_not_before() {
    let mut r = running("1-8", &[1]);
    r.target(&[1, 2, 3]);
    assert_eq!(r.nodes_running(), ["n1"], "training goes on while wings come up");
    assert!(matches!(r.m.phase, Phase::Running { .. }));
    r.run();
    assert_eq!(r.started, [vec!["n1"], vec!["n1", "n2", "n3"]]);
    assert_eq!(r.m.rescales, 1);
}

#[test]
fn shrinks_and_gives_the_wing_back() {
    let mut r = running("1-8", &[1, 2, 3]);
    r.target(&[1, 3]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n3"]);
    r.observe();
    r.run();
    assert!(!r.agents.contains_key(&n(2)), "the worker on n2 has left");
    assert_eq!(r.m.wings.len(), 1);
}

#[test]
fn only_allowed_sizes_are_run() {
    let r = running("1,2,4", &[1, 2, 3]);
    assert_eq!(r.started, vec![vec!["n1", "n2"]]);
}

#[test]
fn one_wing_for_nodes_with_the_same_known_end_and_one_each_for_others() {
    let mut r = rig("1-8");
    for i in [2, 3] {
        r.windows.insert(n(i), UnixTime(5000));
    }
    r.target(&[1, 2, 3, 4, 5]);
    r.run();
    r.target(&[1, 2, 3, 4, 5]);
    let mut sizes: Vec<usize> = r.m.wings.values().map(|w| w.order.nodes.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 2]);
}

#[test]
fn moves_the_lead_with_one_restart_and_keeps_the_wings_that_stay() {
    let mut r = running("1-8", &[1, 2, 3]);
    let wing_of_3 = r.m.held()[&n(3)];
    r.target(&[4, 3]);
    r.run();
    assert_eq!(r.m.phase, Phase::Requeueing);
    r.observe();
    r.run();
    r.target(&[4, 3]);
    r.run();
    r.target(&[4, 3]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n4", "n3"], "{:?}", r.notes);
    assert_eq!(r.m.held()[&n(3)], wing_of_3);
}

#[test]
fn parks_when_it_gets_nothing_and_starts_again_later() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[]);
    r.run();
    r.observe();
    r.run();
    r.observe();
    r.run();
    assert_eq!((r.m.phase.clone(), r.m.held().len()), (Phase::Queued, 0));
    assert!(r.agents.is_empty() && r.slurm.is_empty() && r.held);
    assert_eq!(r.m.standing(r.now), Standing::Waiting);
    r.target(&[5]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n5"]);
}

#[test]
fn a_daemon_restarted_while_a_lead_is_requeued_does_not_plan_to_keep_its_node() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[]);
    for node in [n(1), n(2)] {
        r.stopped(&node, 1, Exit { code: 0, asked: true, killed: false });
    }
    assert_eq!(r.m.phase, Phase::Requeueing);
    r.m.resume(r.now);
    assert_eq!((r.m.held().len(), r.m.held_lead()), (0, None));
    assert_eq!(r.m.standing(r.now), Standing::Busy);
}

#[test]
fn too_few_nodes_for_the_smallest_size_is_no_start() {
    let mut r = rig("2-4");
    r.target(&[1]);
    r.run();
    r.now = r.now + 30;
    r.with(|_, _, _| {});
    assert!(r.started.is_empty());
    assert_eq!(r.m.phase, Phase::Requeueing);
}

#[test]
fn a_preempted_wing_stops_all_and_the_rest_goes_on() {
    let mut r = running("1-8", &[1, 2, 3]);
    r.event(&n(2), AgentEvent::Leaving);
    assert_eq!(r.m.directive(&n(1)), Directive::Stop { generation: 1 });
    // Rank 2 noticed over the wire before its agent was told: that is no end of the job.
    r.stopped(&n(3), 1, Exit { code: 0, asked: false, killed: false });
    r.stopped(&n(2), 1, Exit { code: 0, asked: true, killed: false });
    r.slurm.retain(|_, nodes| !nodes.contains(&n(2)));
    r.agents.remove(&n(2));
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n3"]);
    assert_eq!((r.m.rescales, r.m.restarts), (1, 0));
}

#[test]
fn a_preempted_lead_goes_back_to_the_queue_and_takes_its_wings_along() {
    let mut r = running("1-8", &[1, 2]);
    r.event(&n(1), AgentEvent::Leaving);
    // A round that was under way does not know it yet.
    r.target(&[1, 2]);
    r.stopped(&n(1), 1, Exit { code: 0, asked: true, killed: false });
    r.run();
    assert_eq!(r.started.len(), 1, "nothing starts on a lead that leaves");
    r.slurm.remove(&LEAD);
    r.agents.remove(&n(1));
    r.run();
    r.observe();
    r.run();
    assert_eq!(r.m.phase, Phase::Queued);
    assert!(r.effects.contains(&Effect::Hold { job: LEAD }) || r.held);
    r.observe();
    r.run();
    assert!(r.slurm.is_empty(), "no wing without a lead: {:?}", r.slurm);
    assert!(r.m.backoff_until.is_some());
}

#[test]
fn a_failure_is_retried_so_many_times_and_then_is_the_jobs_code() {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.max_restarts = 1;
    let failed = Exit { code: 3, asked: false, killed: false };
    let echo = Exit { code: 1, asked: false, killed: false };
    r.stopped(&n(2), 1, failed);
    r.stopped(&n(1), 1, echo);
    r.run();
    assert_eq!((r.m.restarts, r.m.rescales, r.m.generation), (1, 0, 2), "a retry is no rescale");
    r.stopped(&n(2), 2, failed);
    r.stopped(&n(1), 2, echo);
    assert_eq!(r.m.phase, Phase::Ending { code: 3 });
    assert_eq!(r.m.directive(&n(1)), Directive::Finish { code: 3 });
    assert_eq!(r.m.directive(&n(2)), Directive::Leave);
}

#[test]
fn the_job_is_done_when_the_command_has_ended_everywhere() {
    let mut r = running("1-8", &[1, 2]);
    let done = Exit { code: 0, asked: false, killed: false };
    r.stopped(&n(2), 1, done);
    assert!(matches!(r.m.phase, Phase::Running { .. }));
    r.stopped(&n(1), 1, done);
    assert_eq!(r.m.phase, Phase::Ending { code: 0 });
    r.run();
    r.observe();
    assert_eq!(r.m.phase, Phase::Ended);
    assert!(r.m.held().is_empty() && r.slurm.is_empty());
}

#[test]
fn a_dead_node_is_a_loss_and_no_failure() {
    let mut r = running("1-8", &[1, 2, 3]);
    // The node of rank 2 is gone; the others crash on their lost connection.
    r.slurm.retain(|_, nodes| !nodes.contains(&n(3)));
    r.agents.remove(&n(3));
    for i in [1, 2] {
        r.stopped(&n(i), 1, Exit { code: 1, asked: false, killed: false });
    }
    assert!(matches!(r.m.phase, Phase::Stopping { .. }));
    r.observe();
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert_eq!((r.m.restarts, r.m.rescales), (0, 1));
}

#[test]
fn a_loss_is_no_rescale_after_which_a_job_must_stay_as_it_is() {
    let mut r = running("1-8", &[1, 2, 3]);
    let rescaled = r.m.rescaled_at.expect("it was started by a plan");
    r.now = r.now + 7;
    r.event(&n(3), AgentEvent::Leaving);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert!(r.m.last_change > Some(rescaled));
    assert_eq!(r.m.rescaled_at, Some(rescaled));
    r.now = r.now + 7;
    r.target(&[1, 2, 4]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2", "n4"]);
    assert_eq!(r.m.rescaled_at, r.m.last_change);
}

#[test]
fn a_worker_that_never_stops_is_given_up_after_its_grace_time() {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.grace_secs = 10;
    r.target(&[1]);
    r.stopped(&n(1), 1, Exit { code: 0, asked: true, killed: false });
    r.now = r.now + 14;
    r.m.workers.values_mut().for_each(|w| w.last_seen = r.now);
    r.with(|_, _, _| {});
    assert!(matches!(r.m.phase, Phase::Stopping { .. }));
    r.now = r.now + 2;
    r.with(|_, _, _| {});
    assert!(matches!(r.m.phase, Phase::Idle | Phase::Running { .. }), "{:?}", r.m.phase);
    assert!(r.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. })), "{:?}", r.effects);
}

#[test]
fn a_wing_that_never_comes_is_cancelled_and_does_not_hold_up_the_others() {
    let mut r = running("1-8", &[1]);
    r.target(&[1, 2, 3]);
    for order in r.m.orders() {
        let id = JobId(100 + order.order as u32);
        // The wing on n3 waits in the queue for ever.
        if order.nodes.contains(&n(2)) {
            r.slurm.insert(id, order.nodes.clone());
        }
        r.event(&n(1), AgentEvent::WingSubmitted { order: order.order, job: id });
    }
    r.say_hello();
    assert_eq!(r.started.len(), 1, "the other wing is awaited");
    r.now = r.now + 21;
    r.m.workers.values_mut().for_each(|w| w.last_seen = r.now);
    r.with(|_, _, _| {});
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert!(r.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. })));
}

#[test]
fn a_restarted_daemon_goes_on_where_it_was_and_does_nothing_twice() {
    let mut r = running("1-8", &[1, 2]);
    let text = serde_json::to_string(&r.m).unwrap();
    let (effects, generations) = (r.effects.len(), r.started.len());
    r.m = serde_json::from_str(&text).unwrap();
    r.now = r.now + 300;
    let now = r.now;
    r.m.resume(now);
    for i in [1, 2] {
        let slurm_job = r.m.workers[&n(i)].slurm_job;
        let arrival =
            Arrival { node: n(i), slurm_job, address: String::new(), port: 1, running: Some(1), spec: None };
        r.with(|m, now, out| assert!(m.hello(arrival, now, out)));
    }
    r.observe();
    r.target(&[1, 2]);
    r.run();
    assert_eq!((r.effects.len(), r.started.len()), (effects, generations));
    assert!(matches!(r.m.phase, Phase::Running { .. }));
}

#[test]
fn an_agent_that_knows_more_than_the_store_is_believed() {
    let mut r = rig("1-8");
    r.slurm.insert(LEAD, vec![n(1)]);
    let arrival =
        Arrival { node: n(1), slurm_job: LEAD, address: "n1".into(), port: 1, running: Some(5), spec: None };
    r.with(|m, now, out| assert!(m.hello(arrival, now, out)));
    r.agents.insert(n(1), Some(5));
    r.target(&[1]);
    r.run();
    assert_eq!(r.m.generation, 6);
}

#[test]
fn a_lead_that_somebody_released_is_taken_up_and_one_that_waits_unheld_is_held() {
    let mut r = rig("1-8");
    r.held = false;
    r.observe();
    assert_eq!(r.effects, [Effect::Hold { job: LEAD }]);
    r.slurm.insert(LEAD, vec![n(4)]);
    r.observe();
    assert_eq!(r.m.phase, Phase::Launching { node: n(4) });
    assert_eq!(r.m.standing(r.now), Standing::Busy);
}

#[test]
fn a_stale_reading_does_not_undo_what_agents_said() {
    let mut r = rig("1-8");
    r.target(&[1]);
    let read_at = r.now;
    r.run();
    let waiting = job(LEAD, &[], 0);
    let sight = Sight { lead: Some(&waiting), wings: vec![], read_at };
    r.with(|m, now, out| m.observe(&sight, now, out));
    assert!(matches!(r.m.phase, Phase::Idle | Phase::Running { .. }), "{:?}", r.m.phase);
}

#[test]
fn a_wing_that_nobody_ordered_is_cancelled_and_a_stranger_gets_no_place() {
    let mut r = running("1-8", &[1]);
    r.slurm.insert(JobId(999), vec![n(6)]);
    r.agents.insert(n(6), None);
    r.observe();
    assert_eq!(r.effects.last().unwrap(), &Effect::CancelWing { job: JobId(999) });
    let arrival = Arrival {
        node: n(7),
        slurm_job: JobId(998),
        address: String::new(),
        port: 1,
        running: None,
        spec: None,
    };
    r.with(|m, now, out| assert!(!m.hello(arrival, now, out)));
}

#[test]
fn limits_are_whole_minutes_of_at_least_one() {
    let cases = [(-5.0, 1, 1), (59.0, 1, 1), (60.0, 1, 1), (61.0, 1, 2), (f64::INFINITY, 525_600, 525_600)];
    for (secs, start, running) in cases {
        assert_eq!((start_limit_mins(secs), running_limit_mins(secs)), (start, running), "{secs} s");
    }
}

#[test]
fn a_launch_that_slurm_cannot_take_just_then_is_tried_again_and_nobody_is_blamed() {
    let mut r = rig("1-8");
    r.target(&[1]);
    let launch = r.effects[0].clone();
    for (passing, blamed) in [(true, 0), (false, 1)] {
        let mut out = Outcome::default();
        r.m.effect_failed(&launch, "no", passing, r.now, &mut out);
        assert_eq!((r.m.phase.clone(), out.strikes.len()), (Phase::Queued, blamed));
        assert_eq!(r.m.backoff_until.is_some(), !passing);
        r.now = r.now + 2;
        r.target(&[1]);
        let launches = r.effects.iter().filter(|e| **e == launch).count();
        assert_eq!(launches, 2, "the second launch comes after the passing failure only");
    }
}
