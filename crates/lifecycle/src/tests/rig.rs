//! A lifecycle with simulated agents and a simulated Slurm that follow its orders.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::{Effect, StepOutcome};
use crate::hello::AuthenticatedHello;
use crate::job_lifecycle::JobLifecycle;
use crate::observed_job::ObservedJob;
use crate::phase::JobPhase;
use crate::settings::LifecycleSettings;
use crate::target::{TargetContext, WingNumbers};
use crate::worker::LiveState;
use infill_api::AgentDialect;
use infill_model::{
    AgentEvent, AllowedSizes, BackfillState, BaseState, CommandExit, Directive, ExecPlan, GenerationMember,
    Job, JobId, JobPlan, JobState, LiveChange, NodeName, PlannedNode, Probe, UnixTime, UserId, WindowCause,
    WindowEnd, wing_name,
};

pub const LEAD: JobId = JobId(7);

const ASKED: CommandExit = CommandExit { code: 0, asked: true, killed: false };

pub struct Numbers(u64);

impl WingNumbers for Numbers {
    fn next_number(&mut self) -> Option<u64> {
        self.0 += 1;
        Some(self.0)
    }
}

/// A lifecycle with its agents and its jobs in Slurm.
pub struct Rig {
    pub m: JobLifecycle,
    pub now: UnixTime,
    pub numbers: Numbers,
    /// Running generation by node.
    pub agents: BTreeMap<NodeName, Option<u64>>,
    /// The dialect of agents that say hello.
    pub dialect: AgentDialect,
    /// Nodes of each job that Slurm runs.
    pub slurm: BTreeMap<JobId, Vec<NodeName>>,
    /// Time limits that were set for jobs in Slurm, minutes.
    pub limits: BTreeMap<JobId, u64>,
    pub held: bool,
    /// The node to which the lead is pinned.
    pub pinned: Option<NodeName>,
    /// Jobs that Slurm preempts, each with the time of the notice.
    pub preempted: BTreeMap<JobId, UnixTime>,
    pub notes: Vec<String>,
    pub started: Vec<Vec<String>>,
    /// Why each of these generations began.
    pub whys: Vec<String>,
    pub effects: Vec<Effect>,
    pub strikes: Vec<NodeName>,
    pub acquitted: bool,
    /// Number of nodes when the command last ran out of memory.
    pub overflowed: Option<u32>,
    /// Nodes on which backfill has planned a job, each with the planned start.
    pub windows: BTreeMap<NodeName, UnixTime>,
    /// Backfill's resolution in seconds, if it is known.
    pub resolution_secs: Option<u32>,
    /// The probe of the next targets.
    pub probe: Option<Probe>,
    /// Number of wings that may still be ordered.
    pub wings_left: usize,
    /// Whether the command stays alive over changes.
    pub live: bool,
    /// Newcomers that are ready.
    pub warm: BTreeSet<NodeName>,
    /// Nodes whose processes hang.
    pub hang: BTreeSet<NodeName>,
    /// Number of commands that were stopped for a change.
    pub stops: u32,
    /// Changes of size that the command lived through.
    pub lived: Vec<LiveChange>,
}

pub fn n(i: u32) -> NodeName {
    NodeName::new(format!("n{i}"))
}

pub fn rig(sizes: &str) -> Rig {
    let now = UnixTime(1000);
    Rig {
        m: JobLifecycle::new(LEAD, AllowedSizes::parse(sizes).unwrap(), now),
        now,
        numbers: Numbers(0),
        agents: BTreeMap::new(),
        dialect: AgentDialect::present_protocol(),
        slurm: BTreeMap::new(),
        limits: BTreeMap::new(),
        held: true,
        pinned: None,
        preempted: BTreeMap::new(),
        notes: Vec::new(),
        started: Vec::new(),
        whys: Vec::new(),
        effects: Vec::new(),
        strikes: Vec::new(),
        acquitted: false,
        overflowed: None,
        windows: BTreeMap::new(),
        resolution_secs: None,
        probe: None,
        wings_left: 100,
        live: false,
        warm: BTreeSet::new(),
        hang: BTreeSet::new(),
        stops: 0,
        lived: Vec::new(),
    }
}

pub fn job(id: JobId, nodes: &[NodeName], order: u64) -> Job {
    let running = !nodes.is_empty();
    let state = if running { BaseState::Running } else { BaseState::Pending };
    Job {
        user_id: UserId(1001),
        user_name: "alice".into(),
        account: "research".into(),
        name: if id == LEAD { "train".into() } else { wing_name(LEAD) },
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
    /// Records an outcome and carries out its effects as Slurm would.
    pub fn settle(&mut self, out: StepOutcome) {
        self.notes.extend(out.notes);
        self.strikes.extend(out.strikes.into_iter().map(|(node, _)| node));
        self.acquitted |= out.acquitted;
        self.overflowed = out.out_of_memory.map(|o| o.nodes).or(self.overflowed);
        self.lived.extend(out.live_change);
        if let Some((_, nodes, why)) = out.started {
            self.whys.push(why);
            self.started.push(nodes.iter().map(|n| n.to_string()).collect());
        }
        for effect in out.effects {
            match &effect {
                Effect::Launch { node, .. } => {
                    self.slurm.insert(LEAD, vec![node.clone()]);
                    self.pinned = Some(node.clone());
                    self.held = false;
                }
                Effect::RequeueHold { .. } => {
                    let nodes = self.slurm.remove(&LEAD).unwrap_or_default();
                    self.limits.remove(&LEAD);
                    self.agents.retain(|n, _| !nodes.contains(n));
                    self.held = true;
                }
                Effect::CancelWing { job } => {
                    let nodes = self.slurm.remove(job).unwrap_or_default();
                    self.agents.retain(|n, _| !nodes.contains(n));
                }
                Effect::ShrinkWing { job, keep } => drop(self.slurm.insert(*job, keep.clone())),
                Effect::Hold { .. } => self.held = true,
                Effect::Unpin { .. } => self.pinned = None,
                Effect::SetLimit { job, limit_mins } => {
                    self.limits.insert(*job, u64::from(*limit_mins));
                }
            }
            self.effects.push(effect);
        }
    }

    pub fn with(&mut self, f: impl FnOnce(&mut JobLifecycle, UnixTime, &mut StepOutcome)) {
        let mut out = StepOutcome::default();
        f(&mut self.m, self.now, &mut out);
        self.m.step(&settings(), self.now, &mut out);
        self.settle(out);
    }

    /// Sets the target: these nodes, the lead's first.
    pub fn target(&mut self, nodes: &[u32]) {
        let leases: Vec<(u32, i64)> = nodes.iter().map(|i| (*i, 600)).collect();
        self.target_for(&leases);
    }

    /// Sets the target: nodes with the seconds of their leases, the lead's first.
    pub fn target_for(&mut self, leases: &[(u32, i64)]) {
        let planned =
            leases.iter().map(|(i, secs)| PlannedNode { node: n(*i), lease_until: self.now + *secs });
        self.target_of(ExecPlan::default(), planned.collect());
    }

    /// Sets the target: this execution plan on these nodes, the lead's first.
    pub fn target_of(&mut self, exec_plan: ExecPlan, nodes: Vec<PlannedNode>) {
        let probe = self.probe.clone();
        let plan = JobPlan { job: LEAD, nodes, exec_plan, rate: 1.0, probe, forecast: vec![] };
        let windows = self.windows.clone();
        let window = move |n: &NodeName| {
            windows.get(n).map_or(WindowEnd::Unknown, |at| WindowEnd::Known {
                at: *at,
                cause: WindowCause::PlannedJob(JobId(1)),
            })
        };
        let mut numbers = Numbers(self.numbers.0);
        let wings_left = self.wings_left;
        let resolution_secs = self.resolution_secs;
        self.with(|m, now, out| {
            let backfill = BackfillState { resolution_secs, ..BackfillState::default() };
            let startable_secs = |n: &NodeName| backfill.startable_secs(&window(n), now);
            let context = TargetContext {
                window: &window,
                free: &|_| true,
                startable_secs: &startable_secs,
                wings_left,
            };
            m.set_target(&plan, &context, &mut numbers, &settings(), now, out);
        });
        self.numbers = numbers;
    }

    pub fn event(&mut self, node: &NodeName, event: AgentEvent) {
        let node = node.clone();
        self.with(|m, now, out| m.handle_event(&node, &event, &settings(), now, out));
    }

    /// Lets time pass, with heartbeats of all agents.
    pub fn pass(&mut self, secs: i64) {
        self.now = self.now + secs;
        self.hear_all();
        self.with(|_, _, _| {});
    }

    pub fn stopped(&mut self, node: &NodeName, generation: u64, exit: CommandExit) {
        self.agents.insert(node.clone(), None);
        let event = AgentEvent::Stopped { generation, exit, stop_secs: 0.1, port: 4000 };
        self.event(node, event);
    }

    /// Lets Slurm's jobs start and agents follow their orders, until nothing changes.
    pub fn run(&mut self) {
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
        panic!("the job does not settle: {:?}", self.m.phase);
    }

    pub fn submit_wings(&mut self) {
        for order in self.m.wing_orders() {
            let id = JobId(100 + order.number as u32);
            self.slurm.insert(id, order.nodes.clone());
            let lead = self.m.lead_node().unwrap().clone();
            self.event(&lead, AgentEvent::WingSubmitted { order: order.number, job: id });
        }
    }

    pub fn say_hello(&mut self) {
        for (id, nodes) in self.slurm.clone() {
            for node in nodes {
                if self.agents.contains_key(&node) {
                    continue;
                }
                let hello = AuthenticatedHello {
                    address: format!("{node}.cluster"),
                    node: node.clone(),
                    slurm_job: id,
                    port: 4000,
                    running: None,
                    spec: None,
                    dialect: self.dialect.clone(),
                };
                self.with(|m, now, out| assert!(m.handle_hello(hello, now, out)));
                self.agents.insert(node, None);
            }
        }
    }

    pub fn obey(&mut self, node: &NodeName, running: Option<u64>) {
        match self.m.directive_for(node) {
            Directive::Run(member)
                if running != Some(member.generation)
                    && self.m.workers.get(node).is_some_and(|w| w.stopped.is_none()) =>
            {
                self.warm.remove(node);
                self.agents.insert(node.clone(), Some(member.generation));
                self.meet(node, &member);
            }
            Directive::Run(member) if running == Some(member.generation) => self.meet(node, &member),
            Directive::Regroup(member) if running.is_some() || self.warm.contains(node) => {
                self.meet(node, &member);
            }
            Directive::Regroup(GenerationMember { generation, .. }) => self.stopped(node, generation, ASKED),
            Directive::Warm(member) if !self.hang.contains(node) && self.warm.insert(node.clone()) => {
                self.event(node, AgentEvent::Ready { generation: member.generation });
            }
            Directive::Part { generation, .. } if running.is_some() && !self.hang.contains(node) => {
                self.agents.insert(node.clone(), None);
                let event = AgentEvent::Stopped { generation, exit: ASKED, stop_secs: 0.0, port: 4000 };
                self.event(node, event);
            }
            Directive::Stop { generation } | Directive::Rescue { generation }
                if self.m.workers.get(node).is_some_and(|w| w.stopped.is_none()) =>
            {
                self.warm.remove(node);
                self.stops += u32::from(running.is_some());
                self.stopped(node, generation, ASKED);
            }
            Directive::Leave | Directive::Finish { .. } => {
                self.agents.remove(node);
                self.warm.remove(node);
                self.slurm.values_mut().for_each(|nodes| nodes.retain(|other| other != node));
                self.slurm.retain(|_, nodes| !nodes.is_empty());
                self.observe();
            }
            _ => {}
        }
    }

    /// The process of a command that stays alive joins its generation.
    fn meet(&mut self, node: &NodeName, member: &GenerationMember) {
        let meeting = member.meeting.clone().unwrap_or_default();
        if !self.live || self.hang.contains(node) {
            return;
        }
        let generation = member.generation;
        self.warm.remove(node);
        self.agents.insert(node.clone(), Some(generation));
        if meeting.host {
            self.event(node, AgentEvent::Store { generation, port: 5000, secret: None });
        }
        let is_in = self.m.workers.get(node).is_some_and(|w| w.live == LiveState::Member(generation));
        if meeting.store.is_some() && !is_in {
            self.event(node, AgentEvent::Joined { generation, secs: 0.1 });
        }
    }

    /// Takes in a snapshot of Slurm, five seconds later, with heartbeats of all agents.
    pub fn observe(&mut self) {
        self.now = self.now + 5;
        self.hear_all();
        self.look();
    }

    /// Records heartbeats of all agents.
    fn hear_all(&mut self) {
        for worker in self.m.workers.values_mut() {
            worker.last_seen = self.now;
            worker.answered = true;
        }
    }

    /// Takes in a snapshot of Slurm.
    pub fn look(&mut self) {
        let lead_nodes = self.slurm.get(&LEAD).cloned().unwrap_or_default();
        let mut lead = job(LEAD, &lead_nodes, 0);
        lead.held = self.held;
        lead.asks.pinned = self.pinned.as_ref().map(NodeName::to_string).unwrap_or_default();
        if matches!(self.m.phase, JobPhase::Ending { .. }) && lead_nodes.is_empty() {
            lead.state = JobState::from_base(BaseState::Completed);
        }
        lead.preempt_time = self.preempted.get(&LEAD).copied();
        lead.time_limit_mins = self.limits.get(&LEAD).copied().or(lead.time_limit_mins);
        let wings = self.slurm.iter().filter(|(id, _)| **id != LEAD).map(|(id, nodes)| {
            let mut wing = job(*id, nodes, u64::from(id.0) - 100);
            wing.preempt_time = self.preempted.get(id).copied();
            wing.time_limit_mins = self.limits.get(id).copied().or(wing.time_limit_mins);
            wing
        });
        let wings: Vec<Job> = wings.collect();
        let observed = ObservedJob {
            lead: Some(&lead),
            wings: wings.iter().collect(),
            read_at: self.now,
            ..ObservedJob::default()
        };
        let now = self.now;
        self.with(|m, _, out| m.apply_observation(&observed, &settings(), now, out));
    }

    pub fn nodes_running(&self) -> Vec<String> {
        self.agents.iter().filter(|(_, g)| g.is_some()).map(|(n, _)| n.to_string()).collect()
    }
}

/// The site's settings.
pub fn settings() -> LifecycleSettings {
    LifecycleSettings {
        partition: "infill".into(),
        qos: None,
        wing_start_secs: 20.0,
        prolog_secs: 100.0,
        claim_secs: 20.0,
        lead_start_secs: 20.0,
        backoff_secs: 30.0,
        backoff_max_secs: 300.0,
    }
}

/// A report of nine samples.
pub fn progress(generation: u64) -> AgentEvent {
    AgentEvent::Progress {
        generation,
        samples: 9.0,
        secs: 1.0,
        step: None,
        loss: None,
        total: None,
        weight: None,
        startup: None,
    }
}

/// A job that runs on these nodes, lead first.
pub fn running(sizes: &str, nodes: &[u32]) -> Rig {
    let mut r = rig(sizes);
    r.target(nodes);
    r.run();
    r.target(nodes);
    r.run();
    r
}

/// A job that runs on these nodes, lead first, with a command that stays alive over changes.
pub fn alive(sizes: &str, nodes: &[u32]) -> Rig {
    let mut r = rig(sizes);
    r.live = true;
    for _ in 0..2 {
        r.target(nodes);
        r.run();
    }
    r
}
