//! A fleet with a simulated Slurm and simulated agents that follow their orders.

use std::collections::{BTreeMap, BTreeSet};

use infill_api::AgentReport;
use infill_lifecycle::{
    AuthenticatedHello, Effect, EffectKind,
    fleet::{FleetOutcome, JobFleet},
};
use infill_model::{
    AgentEvent, AgentEventKind, BaseState, CommandExit, Directive, ExecPlan, GapSet, GenerationMember, Job,
    JobId, JobPlan, Node, NodeName, NodeState, NodeType, PlannedNode, Snapshot, UnixTime, UserId,
    config::Config, wing_comment, wing_name,
};

/// The first lead of every fleet here.
pub const LEAD: JobId = JobId(7);

/// The first wing that this lead submits.
pub const WING: JobId = JobId(10_001);

pub const ASKED: CommandExit = CommandExit { code: 0, asked: true, killed: false };
pub const DONE: CommandExit = CommandExit { code: 0, asked: false, killed: false };
pub const FAILED: CommandExit = CommandExit { code: 3, asked: false, killed: false };

/// The owner of every job.
const OWNER: UserId = UserId(1001);

/// A lead or wing in Slurm. Without nodes it waits, held.
#[derive(Clone, Debug)]
pub struct Shown {
    pub lead: JobId,
    pub order: u64,
    pub nodes: Vec<NodeName>,
}

/// A fleet with its jobs in Slurm and its agents.
#[derive(Clone, Debug)]
pub struct Rig {
    pub fleet: JobFleet,
    pub now: UnixTime,
    pub slurm: BTreeMap<JobId, Shown>,
    /// Running generation by agent.
    pub agents: BTreeMap<(JobId, NodeName), Option<u64>>,
    /// Whether commands stay alive over changes.
    pub live: bool,
    /// Kinds of events that agents have reported so far.
    pub heard: BTreeSet<AgentEventKind>,
    /// Kinds of effects that were carried out or failed so far.
    pub tried: BTreeSet<EffectKind>,
}

pub fn n(i: u32) -> NodeName {
    NodeName::new(format!("n{i}"))
}

/// A fleet with jobs in these phases on these nodes, the lead's first, such as `running n1 n2; queued`.
pub fn fleet(text: &str) -> Rig {
    let mut rig = empty();
    let parts: Vec<&str> = text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
    for lead in (LEAD.0..).take(parts.len()) {
        rig.submit(JobId(lead));
    }
    drop(rig.look());
    for (lead, part) in (LEAD.0..).zip(parts) {
        let mut words = part.split_whitespace();
        let phase = words.next().unwrap();
        let nodes = words.map(NodeName::from).collect::<Vec<_>>();
        rig.bring(JobId(lead), phase, &nodes);
    }
    rig
}

/// A fleet without jobs, with plenty of wing numbers.
pub fn empty() -> Rig {
    let mut fleet = JobFleet::new(&Config::default());
    fleet.wing_numbers.refill(1);
    let (slurm, agents, heard, tried) = Default::default();
    Rig { fleet, now: UnixTime(1000), slurm, agents, live: false, heard, tried }
}

impl Rig {
    /// A new lead waits in the queue.
    pub fn submit(&mut self, lead: JobId) {
        self.slurm.insert(lead, Shown { lead, order: 0, nodes: Vec::new() });
    }

    /// Brings a waiting job into a phase.
    fn bring(&mut self, lead: JobId, phase: &str, nodes: &[NodeName]) {
        let exits: &[CommandExit] = match phase {
            "queued" => return,
            "launching" => return drop(self.target(lead, nodes)),
            "starting" => return self.start(lead, nodes),
            "failing" => &[FAILED],
            "parking" => &[ASKED, ASKED],
            "ending" | "ended" => &[DONE, DONE],
            _ => &[],
        };
        self.live = ["alive", "regrouping", "leadless"].contains(&phase);
        let more = if phase == "leadless" { vec![n(3), n(4)] } else { Vec::new() };
        for _ in 0..2 {
            drop(self.target(lead, &[nodes, &more].concat()));
            self.run();
        }
        match phase {
            "regrouping" => self.warm_up(lead, &[nodes, &[n(3)]].concat()),
            "leadless" => {
                drop(self.report(lead, &nodes[0], AgentEvent::Leaving));
                self.run();
            }
            "shrinking" => drop(self.target(lead, &nodes[..1])),
            "parking" => drop(self.target(lead, &[])),
            _ => {}
        }
        for (node, exit) in nodes.iter().rev().zip(exits) {
            drop(self.stopped(lead, node, *exit));
        }
        if phase == "ended" {
            self.slurm.remove(&lead);
            drop(self.look());
        }
    }

    /// The lead's agent says hello and submits the wings.
    fn start(&mut self, lead: JobId, nodes: &[NodeName]) {
        drop(self.target(lead, nodes));
        drop(self.hello(lead, lead, &nodes[0], None));
        drop(self.target(lead, nodes));
        self.submit_wings(lead);
    }

    /// The job gets the last of these nodes, and the newcomer there is ready.
    fn warm_up(&mut self, lead: JobId, nodes: &[NodeName]) {
        drop(self.target(lead, nodes));
        self.submit_wings(lead);
        self.greet();
        let generation = self.fleet.job_lifecycle(lead).unwrap().generation.number;
        let newest = self.slurm.keys().next_back().copied().unwrap();
        drop(self.report(newest, &nodes[nodes.len() - 1], AgentEvent::Ready { generation }));
    }

    /// Carries out the effects as Slurm would.
    fn settle(&mut self, out: FleetOutcome) -> FleetOutcome {
        for effect in out.batches.iter().flat_map(|batch| &batch.effects) {
            match effect {
                Effect::Launch { job, node, .. } => self.show(*job, vec![node.clone()]),
                Effect::RequeueHold { job } => {
                    self.show(*job, Vec::new());
                    self.agents.retain(|(slurm_job, _), _| slurm_job != job);
                }
                Effect::CancelWing { job } => {
                    self.slurm.remove(job);
                    self.agents.retain(|(slurm_job, _), _| slurm_job != job);
                }
                Effect::ShrinkWing { job, keep } => self.show(*job, keep.clone()),
                Effect::Hold { .. } | Effect::Unpin { .. } | Effect::SetLimit { .. } => {}
            }
        }
        out
    }

    fn show(&mut self, job: JobId, nodes: Vec<NodeName>) {
        if let Some(shown) = self.slurm.get_mut(&job) {
            shown.nodes = nodes;
        }
    }

    /// Sets the target of a job: these nodes, the lead's first.
    pub fn target(&mut self, job: JobId, nodes: &[NodeName]) -> FleetOutcome {
        let plan = self.plan(job, nodes);
        let out = self.fleet.set_target(&plan, &GapSet::default(), self.now);
        self.settle(out)
    }

    /// A plan with these nodes for a job, the lead's first, for ten minutes.
    pub fn plan(&self, job: JobId, nodes: &[NodeName]) -> JobPlan {
        let lease_until = self.now + 600;
        let nodes = nodes.iter().map(|node| PlannedNode { node: node.clone(), lease_until }).collect();
        JobPlan { job, nodes, exec_plan: ExecPlan::default(), rate: 1.0, probe: None, forecast: vec![] }
    }

    /// An agent says hello; `None` if it has no place.
    pub fn hello(
        &mut self,
        lead: JobId,
        job: JobId,
        node: &NodeName,
        running: Option<u64>,
    ) -> Option<FleetOutcome> {
        let hello = AuthenticatedHello {
            node: node.clone(),
            slurm_job: job,
            address: node.to_string(),
            port: 4000,
            running,
            spec: None,
            dialect: infill_api::AgentDialect::present_protocol(),
        };
        let out = self.fleet.handle_hello(lead, hello, self.now)?;
        self.agents.insert((job, node.clone()), running);
        Some(self.settle(out))
    }

    /// An agent reports an event; `None` if it does not belong to a job.
    pub fn report(&mut self, job: JobId, node: &NodeName, event: AgentEvent) -> Option<FleetOutcome> {
        self.numbered_report(job, node, event, None)
    }

    /// An agent reports an event in a report with this number.
    pub fn numbered_report(
        &mut self,
        job: JobId,
        node: &NodeName,
        event: AgentEvent,
        number: Option<u64>,
    ) -> Option<FleetOutcome> {
        self.heard.insert(event.kind());
        let report = AgentReport { job, node: node.clone(), events: vec![event], gpus: None, number };
        let out = self.fleet.handle_report(&report, self.now)?;
        Some(self.settle(out))
    }

    /// The command of the present generation has ended on a node.
    pub fn stopped(&mut self, lead: JobId, node: &NodeName, exit: CommandExit) -> Option<FleetOutcome> {
        let lifecycle = self.fleet.job_lifecycle(lead)?;
        let generation = lifecycle.generation.number;
        let job = lifecycle.workers.get(node).map_or(lead, |w| w.slurm_job);
        if let Some(running) = self.agents.get_mut(&(job, node.clone())) {
            *running = None;
        }
        self.report(job, node, AgentEvent::Stopped { generation, exit, stop_secs: 0.1, port: 4000 })
    }

    /// A snapshot of the present Slurm.
    pub fn snapshot(&self) -> Snapshot {
        let jobs = self.slurm.iter().map(|(id, shown)| job(*id, shown)).collect();
        Snapshot { taken_at: self.now, jobs, ..Snapshot::default() }
    }

    /// Takes in a snapshot of Slurm, five seconds later.
    pub fn look(&mut self) -> FleetOutcome {
        let snapshot = self.snapshot();
        self.look_at(snapshot)
    }

    /// Takes in this snapshot, five seconds later. All agents send heartbeats.
    pub fn look_at(&mut self, snapshot: Snapshot) -> FleetOutcome {
        self.now = self.now + 5;
        for (job, node) in self.agents.keys() {
            self.fleet.record_heartbeat(*job, node, self.now);
        }
        let (out, unclear) = self.fleet.ingest_snapshot(&snapshot, self.now, self.now);
        assert_eq!(unclear, [] as [String; 0]);
        self.settle(out)
    }

    /// The lead's agent submits the wings of its order.
    pub fn submit_wings(&mut self, lead: JobId) {
        let lifecycle = self.fleet.job_lifecycle(lead).unwrap();
        let orders = lifecycle.wing_orders();
        let Some(node) = lifecycle.lead_node().cloned() else { return };
        for order in orders {
            let id = JobId(10_000 + order.number as u32);
            self.slurm.insert(id, Shown { lead, order: order.number, nodes: order.nodes });
            drop(self.report(lead, &node, AgentEvent::WingSubmitted { order: order.number, job: id }));
        }
    }

    /// Lets Slurm's jobs start and agents follow their orders, until nothing changes.
    pub fn run(&mut self) {
        for _ in 0..20 {
            let before: Vec<_> = self.fleet.job_lifecycles().cloned().collect();
            let leads: Vec<JobId> = before.iter().map(|m| m.job).collect();
            leads.iter().for_each(|lead| self.submit_wings(*lead));
            self.greet();
            leads.iter().for_each(|lead| self.obey(*lead));
            if self.fleet.job_lifecycles().eq(&before) {
                return;
            }
        }
        panic!("the fleet does not settle");
    }

    /// Agents of jobs that have started say hello.
    fn greet(&mut self) {
        let known: Vec<_> = self.fleet.job_lifecycles().cloned().collect();
        for (id, shown) in self.slurm.clone() {
            for node in shown.nodes.iter().filter(|n| !known.iter().any(|m| has(m, id, n))) {
                drop(self.hello(shown.lead, id, node, None));
            }
        }
    }

    /// The agents of a job follow their present orders.
    fn obey(&mut self, lead: JobId) {
        for order in self.fleet.agent_orders(lead) {
            match order.directive {
                Directive::Run(member) | Directive::Regroup(member) if self.live => {
                    self.meet(order.agent, &member);
                }
                Directive::Warm(GenerationMember { generation, .. }) if self.live => {
                    drop(self.report(order.agent.0, &order.agent.1, AgentEvent::Ready { generation }));
                }
                Directive::Run(member) => drop(self.agents.insert(order.agent, Some(member.generation))),
                Directive::Stop { .. } if self.agents.get(&order.agent).is_some_and(Option::is_some) => {
                    drop(self.stopped(lead, &order.agent.1, ASKED));
                }
                _ => {}
            }
        }
    }
}

impl Rig {
    /// A command that stays alive joins its generation.
    fn meet(&mut self, agent: (JobId, NodeName), member: &GenerationMember) {
        let generation = member.generation;
        let meeting = member.meeting.clone().unwrap_or_default();
        self.agents.insert(agent.clone(), Some(generation));
        let (slurm_job, node) = agent;
        if meeting.host {
            let event = AgentEvent::Store { generation, port: 5000, secret: None };
            drop(self.report(slurm_job, &node, event));
        }
        if meeting.store.is_some() {
            drop(self.report(slurm_job, &node, AgentEvent::Joined { generation, secs: 0.1 }));
        }
    }
}

fn has(lifecycle: &infill_lifecycle::JobLifecycle, job: JobId, node: &NodeName) -> bool {
    lifecycle.workers.get(node).is_some_and(|w| w.slurm_job == job)
}

/// A job as Slurm shows it.
pub fn job(id: JobId, shown: &Shown) -> Job {
    let running = !shown.nodes.is_empty();
    let state = if running { BaseState::Running } else { BaseState::Pending };
    let is_lead = id == shown.lead;
    Job {
        user_id: OWNER,
        user_name: "alice".into(),
        name: if is_lead { "train".into() } else { wing_name(shown.lead) },
        comment: if is_lead {
            "infill:nodes=1-8".into()
        } else {
            wing_comment(shown.order, shown.lead, None)
        },
        submit_time: Some(UnixTime(900)),
        start_time: Some(UnixTime(1000)),
        time_limit_mins: Some(10_000),
        nodes: shown.nodes.clone(),
        batch_host: shown.nodes.first().cloned(),
        node_count: shown.nodes.len() as u32,
        held: !running,
        ..Job::new(id, "infill", state)
    }
}

/// A node that was drained for this reason.
pub fn drained(name: &NodeName, reason: &str) -> Node {
    Node {
        state: NodeState::from_words(["IDLE", "DRAIN"]),
        partitions: vec!["infill".into()],
        reason: Some(reason.into()),
        ..Node::new(name.clone(), NodeType::new("cpu"))
    }
}

/// A report of progress in the first generation.
pub fn progress() -> AgentEvent {
    AgentEvent::Progress {
        generation: 1,
        samples: 9.0,
        secs: 1.0,
        step: None,
        loss: None,
        total: None,
        weight: None,
        startup: None,
    }
}
