//! Every input in every phase: the next phase, the consequences, and forbidden transitions.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::fleet::FleetOutcome;
use crate::{Effect, EffectKind};
use infill_model::{
    AgentEvent, AgentEventKind, BaseState, FaultSource, JobId, JobState, MalleableState, NodeName, Snapshot,
    UserId,
};

use super::rig::{ASKED, DONE, FAILED, LEAD, Rig, Shown, WING, drained, fleet, job, n, progress};

/// A waiting job that the inputs do not concern, and must not change.
const OTHER: JobId = JobId(8);

/// Phases of the job, with its lead on n1 and a wing on n2, if it has any.
const PHASES: [&str; 12] = [
    "queued",
    "launching",
    "starting",
    "running",
    "alive",
    "regrouping",
    "leadless",
    "shrinking",
    "failing",
    "parking",
    "ending",
    "ended",
];

/// An input; `None` if its sender has no place.
type Input = fn(&mut Rig) -> Option<FleetOutcome>;

const INPUTS: [(&str, Input); 55] = [
    ("lead: hello", |r| r.hello(LEAD, LEAD, &n(1), None)),
    (LATER, |r| r.hello(LEAD, LEAD, &n(1), Some(9))),
    ("wing: hello", |r| r.hello(LEAD, WING, &n(2), None)),
    ("stranger: hello", |r| r.hello(LEAD, JobId(998), &n(7), None)),
    ("unknown lead: hello", |r| r.hello(JobId(99), JobId(99), &n(7), None)),
    ("started", |r| r.report(LEAD, &n(1), AgentEvent::Started { generation: 1 })),
    ("lead: ended", |r| r.stopped(LEAD, &n(1), DONE)),
    ("lead: failed", |r| r.stopped(LEAD, &n(1), FAILED)),
    ("lead: stopped", |r| r.stopped(LEAD, &n(1), ASKED)),
    ("wing: ended", |r| r.stopped(LEAD, &n(2), DONE)),
    ("wing: failed", |r| r.stopped(LEAD, &n(2), FAILED)),
    ("wing: stopped", |r| r.stopped(LEAD, &n(2), ASKED)),
    ("lead: node is taken", |r| r.report(LEAD, &n(1), AgentEvent::Leaving)),
    ("wing: node is taken", |r| r.report(WING, &n(2), AgentEvent::Leaving)),
    ("progress", |r| r.report(LEAD, &n(1), progress())),
    ("wing is ready", |r| report_now(r, WING, 2, |generation| AgentEvent::Ready { generation })),
    ("lead: out of memory", |r| report_now(r, LEAD, 1, |generation| AgentEvent::OutOfMemory { generation })),
    ("store is open", |r| {
        report_now(r, LEAD, 1, |generation| AgentEvent::Store { generation, port: 9, secret: None })
    }),
    ("wing has joined", |r| {
        report_now(r, WING, 2, |generation| AgentEvent::Joined { generation, secs: 0.1 })
    }),
    ("step is stuck", |r| report_now(r, WING, 2, |generation| AgentEvent::Stuck { generation })),
    ("step has failed", |r| report_now(r, WING, 2, |generation| AgentEvent::Failed { generation })),
    ("wing is hopeless", |r| {
        report_now(r, WING, 2, |generation| AgentEvent::Hopeless { generation, why: "no way".into() })
    }),
    ("wing: unfit node", |r| {
        r.report(WING, &n(2), AgentEvent::Unfit { blame: FaultSource::Node, why: "no dir".into() })
    }),
    ("wing: unfit job", |r| {
        r.report(WING, &n(2), AgentEvent::Unfit { blame: FaultSource::Job, why: "no dir".into() })
    }),
    ("wing submitted", |r| r.report(LEAD, &n(1), AgentEvent::WingSubmitted { order: 1, job: WING })),
    ("wing refused", |r| r.report(LEAD, &n(1), AgentEvent::WingRefused { order: 1, error: "no".into() })),
    ("unknown job reports", |r| r.report(JobId(998), &n(1), AgentEvent::Leaving)),
    ("look: as it is", |r| Some(r.look())),
    ("look: lead waits", |r| look(r, |s| place(s, BaseState::Pending, &[]))),
    ("look: lead runs", |r| look(r, |s| place(s, BaseState::Running, &[n(1)]))),
    ("look: lead has ended", |r| look(r, |s| place(s, BaseState::Completed, &[]))),
    ("look: lead is gone", |r| look(r, |s| s.jobs.retain(|j| j.id != LEAD))),
    ("look: wing is gone", |r| look(r, |s| s.jobs.retain(|j| j.id != WING))),
    ("look: orphan wing", |r| look(r, |s| wing(s, JobId(99), UserId(1001)))),
    ("look: foreign wing", |r| look(r, |s| wing(s, LEAD, UserId(1002)))),
    ("look: node is drained", |r| {
        let mut out = r.look();
        out.merge(look(r, |s| s.nodes.push(drained(&n(1), "Kill task failed")))?);
        Some(out)
    }),
    ("doubtful look", |r| {
        let snapshot = r.snapshot();
        Some(r.fleet.renew_limits(&snapshot, r.now, r.now))
    }),
    ("lead is adopted", |r| {
        let lead = job(LEAD, r.slurm.get(&LEAD).unwrap_or(&Shown { lead: LEAD, order: 0, nodes: vec![] }));
        Some(r.fleet.adopt_lead(&lead, r.now))
    }),
    ("target: the same", |r| Some(r.target(LEAD, &[n(1), n(2)]))),
    ("target: grown", |r| Some(r.target(LEAD, &[n(1), n(2), n(3)]))),
    ("target: shrunk", |r| Some(r.target(LEAD, &[n(1)]))),
    ("target: moved", |r| Some(r.target(LEAD, &[n(4), n(2)]))),
    ("target: nothing", |r| Some(r.target(LEAD, &[]))),
    ("launched", |r| done(r, &launch())),
    ("launch failed, passing", |r| failed(r, &launch(), true)),
    ("launch failed", |r| failed(r, &launch(), false)),
    ("requeued", |r| done(r, &Effect::RequeueHold { job: LEAD })),
    ("requeue failed", |r| failed(r, &Effect::RequeueHold { job: LEAD }, false)),
    ("hold failed", |r| failed(r, &Effect::Hold { job: LEAD }, false)),
    ("unpin failed", |r| failed(r, &Effect::Unpin { job: LEAD }, false)),
    ("limit failed", |r| failed(r, &Effect::SetLimit { job: LEAD, limit_mins: 9 }, false)),
    ("shrink failed", |r| failed(r, &Effect::ShrinkWing { job: WING, keep: vec![] }, false)),
    ("cancel failed", |r| failed(r, &Effect::CancelWing { job: WING }, false)),
    ("tick", |r| after(r, 1)),
    (SILENCE, |r| after(r, 61)),
];

/// An agent with a later generation than the daemon's is right, so no transition is forbidden.
const LATER: &str = "lead: hello, newer";

/// As after a suspension of the daemon: a generation that begins on a silent lead is lost in the same step.
const SILENCE: &str = "a minute's silence";

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
    [
        Forbidden {
            from: &[Ended],
            to: &[Starting, Running, Rescaling, Regrouping, Parking, Ending],
            why: "an ended job stays ended; only a new job with the same id may be queued or launched",
        },
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

fn launch() -> Effect {
    Effect::Launch { job: LEAD, node: n(1), limit_mins: 10 }
}

fn done(r: &mut Rig, effect: &Effect) -> Option<FleetOutcome> {
    r.tried.insert(effect.kind());
    Some(r.fleet.effect_done(LEAD, effect, r.now))
}

/// Reports an event of the present generation.
fn report_now(r: &mut Rig, job: JobId, node: u32, event: fn(u64) -> AgentEvent) -> Option<FleetOutcome> {
    let generation = r.fleet.job_lifecycle(LEAD)?.generation.number;
    r.report(job, &n(node), event(generation))
}

fn failed(r: &mut Rig, effect: &Effect, is_transient: bool) -> Option<FleetOutcome> {
    r.tried.insert(effect.kind());
    Some(r.fleet.effect_failed(LEAD, effect, "no", is_transient, r.now))
}

fn after(r: &mut Rig, secs: i64) -> Option<FleetOutcome> {
    r.now = r.now + secs;
    Some(r.fleet.step_all_jobs(r.now))
}

fn look(r: &mut Rig, change: impl FnOnce(&mut Snapshot)) -> Option<FleetOutcome> {
    let mut snapshot = r.snapshot();
    change(&mut snapshot);
    Some(r.look_at(snapshot))
}

/// Shows the lead in this state on these nodes.
fn place(snapshot: &mut Snapshot, state: BaseState, nodes: &[NodeName]) {
    snapshot.jobs.retain(|j| j.id != LEAD);
    let mut lead = job(LEAD, &Shown { lead: LEAD, order: 0, nodes: nodes.to_vec() });
    lead.state = JobState::from_base(state);
    snapshot.jobs.insert(0, lead);
}

/// Shows a wing on n6 whose comment names this lead.
fn wing(snapshot: &mut Snapshot, lead: JobId, user_id: UserId) {
    let id = JobId(20_000);
    snapshot
        .jobs
        .push(infill_model::Job { user_id, ..job(id, &Shown { lead, order: 5, nodes: vec![n(6)] }) });
}

/// One letter for each consequence: (a)ctions on Slurm, a record to (w)rite, a new (g)eneration, a (b)lamed
/// node, an (i)nterrupted generation, (m)easured progress, the (e)nd of the job, and agents that are (t)old
/// something new.
fn consequences(out: &FleetOutcome, has_new_orders: bool) -> String {
    let letters = [
        (out.batches.iter().any(|b| !b.effects.is_empty()), 'a'),
        (!out.changed.is_empty(), 'w'),
        (!out.generations.is_empty(), 'g'),
        (!out.strikes.is_empty() || !out.tripped_nodes.is_empty(), 'b'),
        (!out.interrupted.is_empty(), 'i'),
        (!out.progress.is_empty(), 'm'),
        (!out.ended.is_empty(), 'e'),
        (has_new_orders, 't'),
    ];
    letters.into_iter().filter(|(applies, _)| *applies).map(|(_, letter)| letter).collect()
}

/// The first letter of a state in capitals; C is rescaling, G regrouping and X ended.
fn letter(state: MalleableState) -> char {
    match state {
        MalleableState::Rescaling => 'C',
        MalleableState::Regrouping => 'G',
        MalleableState::Ended => 'X',
        other => other.word().chars().next().unwrap().to_ascii_uppercase(),
    }
}

fn state(r: &Rig, job: JobId) -> MalleableState {
    r.fleet.job_lifecycle(job).unwrap().malleable_state()
}

/// The result of one input: the new state, or a dot if it is unchanged, and the consequences. A dash means
/// that the sender has no place.
fn cell(phase: &str, name: &str, input: Input, reached: &mut Reached) -> String {
    let mut r = fleet(&format!("{phase} n1 n2; queued"));
    let before = state(&r, LEAD);
    let orders = r.fleet.agent_orders(LEAD);
    r.heard.clear();
    let out = input(&mut r);
    reached.0.append(&mut r.heard);
    reached.1.append(&mut r.tried);
    let Some(out) = out else { return "-".to_owned() };
    let now = state(&r, LEAD);
    let has_new_orders = r.fleet.agent_orders(LEAD) != orders;
    for rule in FORBIDDEN.iter().filter(|_| name != LATER) {
        let broken = rule.from.contains(&before) && rule.to.contains(&now);
        assert!(!broken, "{name}: {before} → {now}: {}", rule.why);
    }
    assert_eq!(state(&r, OTHER), MalleableState::Queued, "{name}: it concerns one job");
    let runs = [MalleableState::Running, MalleableState::Regrouping].contains(&now);
    assert!(out.generations.is_empty() || runs || name == SILENCE, "{name}: a generation runs");
    assert!(now == before || out.changed.contains(&LEAD), "{name}: a new state is stored");
    let now = if now == before { '.' } else { letter(now) };
    let consequences = consequences(&out, has_new_orders);
    format!("{now}{consequences}")
}

/// The kinds of events and of effects that the table covers.
type Reached = (BTreeSet<AgentEventKind>, BTreeSet<EffectKind>);

#[test]
fn each_phase_has_its_state() {
    let states = PHASES.map(|phase| state(&fleet(&format!("{phase} n1 n2")), LEAD).to_string());
    insta::assert_snapshot!(
        states.join(" "),
        @"queued launching starting running running regrouping running rescaling rescaling parking ending ended"
    );
}

#[test]
fn every_input_in_every_phase() {
    let mut table = format!("{:<22}", "");
    let mut reached = Reached::default();
    fn add_row(table: &mut String, cells: [String; PHASES.len()]) {
        cells.iter().for_each(|cell| write!(table, " {cell:<8}").unwrap());
        *table = table.trim_end().to_owned() + "\n";
    }
    add_row(&mut table, PHASES.map(|phase| phase[..phase.len().min(8)].to_owned()));
    for (name, input) in INPUTS {
        write!(table, "{name:<22}").unwrap();
        add_row(&mut table, PHASES.map(|phase| cell(phase, name, input, &mut reached)));
    }
    assert!(reached.0.iter().eq(AgentEventKind::ALL) && reached.1.iter().eq(EffectKind::ALL), "{reached:?}");
    insta::assert_snapshot!(table, @r"
                           queued   launchin starting running  alive    regroupi leadless shrinkin failing  parking  ending   ended
    lead: hello            Swt      Sawt     .        Cwit     Cwit     Cwt      Cwit     .        .        .        .        -
    lead: hello, newer     Cwt      Cwt      Cwt      Cwit     Cwit     Cwt      Cwit     .wt      .wt      .w       Rwgt     -
    wing: hello            -        -        Rwgt     .        Gwgit    .wgt     Gwgit    .        .        .        .        -
    stranger: hello        -        -        -        -        -        -        -        -        -        -        -        -
    unknown lead: hello    -        -        -        -        -        -        -        -        -        -        -        -
    started                .        .        .        .        .        .        .        .        .        .        .        .e
    lead: ended            .        .        .        .        .        .        .        .        Rawgbt   .        .        .e
    lead: failed           .        .        .        Cwit     Cwit     Cwt      .        .        Rawgbt   .        .        .e
    lead: stopped          .        .        .        Cwit     Cwit     Cwt      .        .        Rawgbt   .        .        .e
    wing: ended            .        .        .        .        .        .        .        .        .        .        .        .e
    wing: failed           .        .        .        Cwit     Gwgit    .wgt     Gwgit    .        .        .        .        .e
    wing: stopped          .        .        .        Cwit     Cwit     .wgt     Cwit     .        .        .        .        .e
    lead: node is taken    .        .        .aw      Cwit     Cwit     .awgt    .        .w       .w       .        .        .e
    wing: node is taken    -        -        -        Cwit     Gwgit    .wgt     Gwgit    .w       .w       .        .        -
    progress               .        .        .        .m       .m       .        .        .        .        .        .        .e
    wing is ready          -        -        -        .        .        .        .        .        .        .        .        -
    lead: out of memory    .        .        .        .        .        .        .        .        .        .        .        .e
    store is open          .        .        .        .t       .t       .t       .        .        .        .        .        .e
    wing has joined        -        -        -        .        .        .        .        .        .        .        .        -
    step is stuck          -        -        -        .        .t       .t       .t       .        .        .        .        -
    step has failed        -        -        -        .        .t       .t       .t       .        .        .        .        -
    wing is hopeless       -        -        -        Cwit     Cwit     .        Cwit     .        .        .        .        -
    wing: unfit node       -        -        -        Cwbit    Gwgbit   .wgbt    Gwgbit   .wbt     .wbt     .bt      .bt      -
    wing: unfit job        -        -        -        Cwit     Gwgit    .wgt     Gwgit    .wt      .wt      .wt      .wt      -
    wing submitted         .        .        .        .        .        .        .        .        .        .        .        .e
    wing refused           .        .        Rwgt     Cwit     Gwgit    .w       Gwgit    .w       .w       .w       .w       .e
    unknown job reports    -        -        -        -        -        -        -        -        -        -        -        -
    look: as it is         .        .        Rawgt    .aw      .aw      .aw      .awt     .        .aw      Qwt      .wt      .e
    look: lead waits       .        .        Qawt     Qawit    Qawit    Qawt     .awt     Qawt     Qawt     Qwt      Qwt      Qw
    look: lead runs        Lw       .        Rawgt    .aw      .aw      .aw      .awt     .        .aw      .awt     .wt      Lw
    look: lead has ended   Xwe      Xwe      Xawet    Xawiet   Xawiet   Xawet    Xawiet   Xawet    Xawet    Xwet     Xwet     .e
    look: lead is gone     Xwe      Xwe      Xawet    Xawiet   Xawiet   Xawet    Xawiet   Xawet    Xawet    Xwet     Xwet     .e
    look: wing is gone     .        .        Rwgt     Cwit     Gwgit    .awgt    Gawgit   .wt      .wt      Qwt      .wt      .e
    look: orphan wing      .a       .a       Rawgt    .aw      .aw      .aw      .awt     .a       .aw      Qawt     .awt     .ae
    look: foreign wing     .a       .a       Rawgt    .aw      .aw      .aw      .awt     .a       .aw      Qawt     .awt     .ae
    look: node is drained  .        .b       Rawgbt   .awb     .awb     .awb     .awt     .b       .awb     Qwt      .wbt     .e
    doubtful look          .        .        .aw      .aw      .aw      .aw      .aw      .        .aw      .        .        .e
    lead is adopted        .        .        .        .        .        .        .        .        .        .        .        Qw
    target: the same       Law      .        .        .        .        .        Gwgit    .        .        .t       .        .e
    target: grown          Law      .        .wt      .wt      .wt      .        .        .wt      .wt      .t       .        .e
    target: shrunk         Law      .        Rawgt    Cwit     Gwgit    .        Cwit     .        .        .        .        .e
    target: moved          Law      Paw      Paw      Cwit     Cwit     .        Gwgit    .        .        .t       .        .e
    target: nothing        .        Paw      Paw      Cwit     Cwit     .        Cwit     .        .        .        .        .e
    launched               .        .w       .        .        .        .        .w       .        .        .        .        .e
    launch failed, passing .        Qw       .        .        .        .        .        .        .        .        .        .e
    launch failed          .        Qw       .        .        .        .        .        .        .        .        .        .e
    requeued               .        .        .        .        .        .        .        .        .        .        .        .
    requeue failed         .        .        .        .        .        .        .        .        .        Swt      .        .e
    hold failed            .        .        .        .        .        .        .        .        .        .        .        .e
    unpin failed           .        .        .        .        .        .        .        .        .        .        .        .e
    limit failed           .        .        .        .        .        .        .        .        .        .        .        .e
    shrink failed          .        .        .        .        .        .        .        .        .        .        .        .e
    cancel failed          .        .        .        .        .        .        .        .        .        .        .        .e
    tick                   .        .        .        .        .        .        .        .        .        .        .        .e
    a minute's silence     .        .        Paw      .        .        Pawt     .aw      Pawt     Pawt     .aw      .aw      .e
    ");
}
