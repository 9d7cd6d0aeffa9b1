//! Every input in every phase: the next state, and forbidden transitions.

use std::fmt::Write as _;

use crate::effect::Effect;
use crate::hello::AuthenticatedHello;
use crate::observed_job::ObservedJob;
use infill_model::{
    AgentEvent, BaseState, CommandExit, FaultSource, JobId, JobState, MalleableState, NodeName,
};

use super::rig::{LEAD, Rig, alive, job, n, progress, rig, running, settings};

/// The wing on n2 of each job.
const WING: JobId = JobId(101);

const ASKED: CommandExit = CommandExit { code: 0, asked: true, killed: false };
const DONE: CommandExit = CommandExit { code: 0, asked: false, killed: false };
const FAILED: CommandExit = CommandExit { code: 3, asked: false, killed: false };

/// Makes a job in some phase.
pub type Make = fn() -> Rig;

/// An input to a job.
type Input = fn(&mut Rig);

/// A job in each phase, with its lead on n1 and a wing on n2, if it has any.
pub const PHASES: [(&str, Make); 12] = [
    ("queued", || rig("1-8")),
    ("launching", launching),
    ("starting", starting),
    ("running", || running("1-8", &[1, 2])),
    ("alive", || alive("1-8", &[1, 2])),
    ("regrouping", regrouping),
    ("without lead", without_lead),
    ("shrinking", || after(&[1], &[])),
    ("failing", || after(&[1, 2], &[(2, FAILED)])),
    ("parking", || after(&[], &[(1, ASKED), (2, ASKED)])),
    ("ending", || after(&[1, 2], &[(1, DONE), (2, DONE)])),
    ("ended", ended),
];

const INPUTS: [(&str, Input); 36] = [
    ("lead: hello", |r| hello(r, 1, LEAD, None)),
    (LATER, |r| hello(r, 1, LEAD, Some(9))),
    ("wing: hello", |r| hello(r, 2, WING, None)),
    ("started", |r| event(r, 1, AgentEvent::Started { generation: 1 })),
    ("lead: ended", |r| end(r, 1, DONE)),
    ("lead: failed", |r| end(r, 1, FAILED)),
    ("lead: stopped", |r| end(r, 1, ASKED)),
    ("wing: ended", |r| end(r, 2, DONE)),
    ("wing: failed", |r| end(r, 2, FAILED)),
    ("wing: stopped", |r| end(r, 2, ASKED)),
    ("lead: node is taken", |r| event(r, 1, AgentEvent::Leaving)),
    ("wing: node is taken", |r| event(r, 2, AgentEvent::Leaving)),
    ("progress", |r| event(r, 1, progress(1))),
    ("wing is ready", |r| alive_event(r, 2, |generation| AgentEvent::Ready { generation })),
    ("store is open", |r| {
        alive_event(r, 1, |generation| AgentEvent::Store { generation, port: 9, secret: None })
    }),
    ("wing has joined", |r| alive_event(r, 2, |generation| AgentEvent::Joined { generation, secs: 0.1 })),
    ("step is stuck", |r| alive_event(r, 2, |generation| AgentEvent::Stuck { generation })),
    ("step has failed", |r| alive_event(r, 2, |generation| AgentEvent::Failed { generation })),
    ("wing is hopeless", |r| {
        alive_event(r, 2, |generation| AgentEvent::Hopeless { generation, why: "no way".into() });
    }),
    ("wing submitted", |r| event(r, 1, AgentEvent::WingSubmitted { order: 1, job: WING })),
    ("wing refused", |r| event(r, 1, AgentEvent::WingRefused { order: 1, error: "limit".into() })),
    ("wing is unfit", |r| event(r, 2, AgentEvent::Unfit { blame: FaultSource::Job, why: "no dir".into() })),
    ("Slurm: lead waits", |r| lead(r, BaseState::Pending, &[])),
    ("Slurm: lead runs", |r| lead(r, BaseState::Running, &[n(1)])),
    ("Slurm: lead has failed", |r| lead(r, BaseState::Failed, &[])),
    ("Slurm: lead is gone", |r| see(r, false)),
    ("Slurm: wing is gone", |r| see(r, true)),
    ("target: the same", |r| r.target(&[1, 2])),
    ("target: grown", |r| r.target(&[1, 2, 3])),
    ("target: shrunk", |r| r.target(&[1])),
    ("target: moved", |r| r.target(&[4, 2])),
    ("target: nothing", |r| r.target(&[])),
    ("launch failed, passing", |r| failed(r, &launch(), true)),
    ("launch failed", |r| failed(r, &launch(), false)),
    ("requeue failed", |r| failed(r, &Effect::RequeueHold { job: LEAD }, false)),
    ("a minute's silence", |r| {
        r.now = r.now + 61;
        r.with(|_, _, _| {});
    }),
];

/// Transitions that no input may cause, and why.
struct Forbidden {
    from: &'static [MalleableState],
    to: &'static [MalleableState],
    why: &'static str,
}

const FORBIDDEN: [Forbidden; 5] = {
    use MalleableState::{
        Ended, Ending, Launching, Parking, Queued, Regrouping, Rescaling, Running, Starting,
    };
    let alive: &[_] = &[Queued, Launching, Starting, Running, Rescaling, Regrouping, Parking, Ending];
    let past: &[_] = &[Ended];
    [
        Forbidden { from: past, to: alive, why: "an ended job stays ended" },
        Forbidden {
            from: &[Ending],
            to: &[Launching, Starting, Running, Rescaling, Regrouping, Parking],
            why: "a command that has ended is not started again",
        },
        Forbidden {
            from: &[Queued, Launching, Starting, Parking],
            to: &[Ending],
            why: "only a command that ran can end",
        },
        Forbidden {
            from: &[Running, Rescaling, Regrouping, Parking],
            to: &[Launching],
            why: "a lead is launched only from the queue",
        },
        Forbidden {
            from: &[Queued, Launching, Starting, Rescaling, Parking, Ending],
            to: &[Regrouping],
            why: "only a command that runs is alive when its members change",
        },
    ]
};

/// An agent with a later generation than the daemon's is right, so no transition is forbidden.
const LATER: &str = "lead: hello, newer";

fn launching() -> Rig {
    let mut r = rig("1-8");
    r.target(&[1]);
    r
}

fn starting() -> Rig {
    let mut r = rig("2-8");
    r.target(&[1, 2]);
    r.say_hello();
    r.target(&[1, 2]);
    event(&mut r, 1, AgentEvent::WingSubmitted { order: 1, job: WING });
    r
}

/// A job that ran on n1 and n2 and got another target. These workers have stopped since.
fn after(target: &[u32], ends: &[(u32, CommandExit)]) -> Rig {
    let mut r = running("1-8", &[1, 2]);
    r.target(target);
    for (node, exit) in ends {
        end(&mut r, *node, *exit);
    }
    r
}

fn ended() -> Rig {
    let mut r = after(&[1, 2], &[(1, DONE), (2, DONE)]);
    lead(&mut r, BaseState::Completed, &[]);
    r
}

/// A job that trains on n2 and n3 after Slurm has taken the lead's node.
fn without_lead() -> Rig {
    let mut r = alive("1-8", &[1, 2, 3, 4]);
    r.event(&n(1), AgentEvent::Leaving);
    r.run();
    r
}

/// A job that is growing by n3 while its command stays alive.
fn regrouping() -> Rig {
    let mut r = alive("1-8", &[1, 2]);
    r.target(&[1, 2, 3]);
    r.submit_wings();
    r.say_hello();
    let generation = r.m.generation.number;
    event(&mut r, 3, AgentEvent::Ready { generation });
    r
}

/// Reports an event of the present generation.
fn alive_event(r: &mut Rig, node: u32, make_event: fn(u64) -> AgentEvent) {
    event(r, node, make_event(r.m.generation.number));
}

fn hello(r: &mut Rig, node: u32, slurm_job: JobId, running: Option<u64>) {
    let hello = AuthenticatedHello {
        node: n(node),
        slurm_job,
        address: format!("n{node}"),
        port: 4000,
        running,
        spec: None,
        dialect: infill_api::AgentDialect::present_protocol(),
    };
    r.with(|m, now, out| {
        m.handle_hello(hello, now, out);
    });
}

fn event(r: &mut Rig, node: u32, event: AgentEvent) {
    r.event(&n(node), event);
}

fn end(r: &mut Rig, node: u32, exit: CommandExit) {
    let generation = r.m.generation.number;
    event(r, node, AgentEvent::Stopped { generation, exit, stop_secs: 0.1, port: 4000 });
}

fn launch() -> Effect {
    Effect::Launch { job: LEAD, node: n(1), limit_mins: 10 }
}

fn failed(r: &mut Rig, effect: &Effect, is_transient: bool) {
    r.with(|m, now, out| m.effect_failed(effect, "no", is_transient, &settings(), now, out));
}

/// Takes in a snapshot with the lead in this state on these nodes, and with the wings.
fn lead(r: &mut Rig, state: BaseState, nodes: &[NodeName]) {
    let mut lead = job(LEAD, nodes, 0);
    lead.state = JobState::from_base(state);
    observe(r, Some(&lead), true);
}

/// Takes in a snapshot without wings, with or without the lead.
fn see(r: &mut Rig, shows_lead: bool) {
    let nodes = r.slurm.get(&LEAD).cloned().unwrap_or_default();
    let lead = job(LEAD, &nodes, 0);
    observe(r, shows_lead.then_some(&lead), false);
}

fn observe(r: &mut Rig, lead: Option<&infill_model::Job>, wings: bool) {
    r.now = r.now + 5;
    let wing = r.slurm.get(&WING).map(|nodes| job(WING, nodes, 1));
    let wings = wing.iter().filter(|_| wings).collect();
    let observed = ObservedJob { lead, wings, read_at: r.now, ..ObservedJob::default() };
    r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
}

/// The state after one input: a dot if it is unchanged, and a star if a generation has begun.
fn cell(phase: Make, name: &str, input: Input) -> String {
    let mut r = phase();
    let before = r.m.malleable_state();
    let generations = r.started.len();
    input(&mut r);
    let after = r.m.malleable_state();
    for rule in FORBIDDEN.iter().filter(|_| name != LATER) {
        let broken = rule.from.contains(&before) && rule.to.contains(&after);
        assert!(!broken, "{name}: {before} → {after}: {}", rule.why);
    }
    let star = if r.started.len() > generations { "*" } else { "" };
    if before == after { format!(".{star}") } else { format!("{after}{star}") }
}

#[test]
fn every_input_in_every_phase() {
    let rows = INPUTS.map(|(name, input)| (name, PHASES.map(|(_, phase)| cell(phase, name, input))));
    let widths: [usize; PHASES.len()] = std::array::from_fn(|i| {
        rows.iter().map(|(_, cells)| cells[i].len()).chain([PHASES[i].0.len()]).max().unwrap_or(0)
    });
    let label = INPUTS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut table = String::new();
    let heads = PHASES.map(|(name, _)| name.to_owned());
    for (name, cells) in std::iter::once(("", heads)).chain(rows) {
        let cells = cells.iter().zip(widths).fold(String::new(), |mut line, (cell, width)| {
            write!(line, " {cell:<width$}").unwrap();
            line
        });
        writeln!(table, "{}", format!("{name:<label$}{cells}").trim_end()).unwrap();
    }
    insta::assert_snapshot!(table, @r"
                           queued    launching starting  running   alive       regrouping without lead shrinking failing  parking  ending   ended
    lead: hello            starting  running*  .         rescaling rescaling   rescaling  rescaling    .         .        .        .        .
    lead: hello, newer     rescaling rescaling rescaling rescaling rescaling   rescaling  rescaling    .         .        .        running* .
    wing: hello            .         .         running*  .         regrouping* .*         regrouping*  .         .        .        .        .
    started                .         .         .         .         .           .          .            .         .        .        .        .
    lead: ended            .         .         .         .         .           .          .            .         running* .        .        .
    lead: failed           .         .         .         rescaling rescaling   rescaling  .            .         running* .        .        .
    lead: stopped          .         .         .         rescaling rescaling   rescaling  .            .         running* .        .        .
    wing: ended            .         .         .         .         .           .          .            .         .        .        .        .
    wing: failed           .         .         .         rescaling regrouping* .*         regrouping*  .         .        .        .        .
    wing: stopped          .         .         .         rescaling rescaling   .*         rescaling    .         .        .        .        .
    lead: node is taken    .         .         .         rescaling rescaling   .*         .            .         .        .        .        .
    wing: node is taken    .         .         .         rescaling regrouping* .*         regrouping*  .         .        .        .        .
    progress               .         .         .         .         .           .          .            .         .        .        .        .
    wing is ready          .         .         .         .         .           .          .            .         .        .        .        .
    store is open          .         .         .         .         .           .          .            .         .        .        .        .
    wing has joined        .         .         .         .         .           .          .            .         .        .        .        .
    step is stuck          .         .         .         .         .           .          .            .         .        .        .        .
    step has failed        .         .         .         .         .           .          .            .         .        .        .        .
    wing is hopeless       .         .         .         rescaling rescaling   .          rescaling    .         .        .        .        .
    wing submitted         .         .         .         .         .           .          .            .         .        .        .        .
    wing refused           .         .         .         rescaling regrouping* .          regrouping*  .         .        .        .        .
    wing is unfit          .         .         .         rescaling regrouping* .*         regrouping*  .         .        .        .        .
    Slurm: lead waits      .         .         queued    queued    queued      queued     regrouping*  queued    queued   queued   queued   .
    Slurm: lead runs       launching .         .         .         .           .*         regrouping*  .         .        .        .        .
    Slurm: lead has failed ended     ended     ended     ended     ended       ended      ended        ended     ended    ended    ended    .
    Slurm: lead is gone    ended     ended     ended     ended     ended       ended      ended        ended     ended    ended    ended    .
    Slurm: wing is gone    .         .         .         rescaling regrouping* .*         parking      .         .        queued   .        .
    target: the same       launching .         .         .         .           .          regrouping*  .         .        .        .        .
    target: grown          launching .         .         .         .           .          .            .         .        .        .        .
    target: shrunk         launching .         .         rescaling regrouping* .          rescaling    .         .        .        .        .
    target: moved          launching parking   parking   rescaling rescaling   .          regrouping*  .         .        .        .        .
    target: nothing        .         parking   parking   rescaling rescaling   .          rescaling    .         .        .        .        .
    launch failed, passing .         queued    .         .         .           .          .            .         .        .        .        .
    launch failed          .         queued    .         .         .           .          .            .         .        .        .        .
    requeue failed         .         .         .         .         .           .          .            .         .        starting .        .
    a minute's silence     .         .         parking   .         .           parking    .            parking   parking  .        .        .
    ");
}
