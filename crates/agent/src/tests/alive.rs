//! Tests of commands that stay alive over changes, and talk with the agent.

use std::path::Path;
use std::time::Duration;

use crate::runtime_dir::own_uid;
use crate::sealing;
use crate::signals::AgentSignal;
use crate::worker::WorkerConfig;
use infill_api::AgentRole;
use infill_model::{AgentEvent, CommandExit, Directive, GenerationMember, GenerationRendezvous, Secret};
use infill_testkit::clock::StoppedClock;

use super::daemon::{FakeDaemon, LEAVE_SECS};
use super::{LEAD, Subject, lives, member, munge, until};

/// A process that follows the contract, and prints the messages that it gets. `FIRST` stands for messages
/// before all others; `HERE` for the answer to a roll call.
const PROCESS: &str = r#"exec python3 -u - <<'E'
import json, os, signal, socket, threading, time
signal.signal(signal.SIGUSR1, lambda *_: (print("signalled"), os._exit(0)))
to = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
to.connect(os.environ["INFILL_CONTROL"])
def say(what, **more):
    to.sendall(json.dumps({"type": what, "step": 1, **more}).encode() + b"\n")
FIRST
say("hello", version=1, pid=os.getpid(), local_rank=int(os.environ["LOCAL_RANK"]))
def listen():
    for line in to.makefile():
        message = json.loads(line)
        kind, epoch = message["type"], message.get("epoch", 0)
        print("got", kind, *(message[key] for key in ("epoch", "rank", "world", "store", "urgent", "text") if key in message))
        if kind == "welcome":
            say("ready", epoch=0)
        elif kind == "host":
            say("store", epoch=epoch, port=5000 + epoch)
        elif kind == "regroup":
            say("regrouped", epoch=epoch, secs={"form": 0.25, "wrap": 0.5})
            # The agent did not ask for this checkpoint.
            say("saved", epoch=epoch)
        elif kind == "save":
            say("saved", epoch=epoch)
        elif kind == "leave":
            say("left", epoch=epoch)
            os._exit(0)
        elif kind == "roll":
            HERE
    os._exit(0)
threading.Thread(target=listen).start()
# A signal that comes just before a long wait begins would be noticed at its end only.
while True:
    time.sleep(0.02)
E"#;

/// More time than a process has to answer a roll call.
const ROLL_TIME: Duration = Duration::from_millis(2300);

const DONE: CommandExit = CommandExit { code: 0, asked: true, killed: false };

fn process(first: &str, here: &str) -> String {
    PROCESS.replace("FIRST", first).replace("HERE", here)
}

fn obedient() -> String {
    process("", r#"say("here")"#)
}

fn meeting(generation: u64, meeting: GenerationRendezvous) -> GenerationMember {
    GenerationMember { meeting: Some(meeting), ..member(generation) }
}

fn hosted(generation: u64) -> GenerationMember {
    meeting(generation, GenerationRendezvous { host: true, ..GenerationRendezvous::default() })
}

fn with_store(generation: u64) -> GenerationMember {
    meeting(
        generation,
        GenerationRendezvous { store: Some("n1:5001".to_owned()), ..GenerationRendezvous::default() },
    )
}

/// The first store that was reported: its generation, its port, and the members' secret.
fn store(daemon: &FakeDaemon) -> Option<(u64, u16, Option<Secret>)> {
    daemon.events().into_iter().find_map(|event| match event {
        AgentEvent::Store { generation, port, secret } => Some((generation, port, secret)),
        _ => None,
    })
}

async fn reported(daemon: &FakeDaemon, event: AgentEvent) {
    until(&format!("{event:?}"), || daemon.events().contains(&event)).await;
}

fn ready(generation: u64) -> AgentEvent {
    AgentEvent::Ready { generation }
}

fn joined(generation: u64) -> AgentEvent {
    AgentEvent::Joined { generation, secs: 0.75 }
}

/// A wing whose command is in generation 1.
async fn alive(daemon: &FakeDaemon, flags: &str, script: &str) -> Subject {
    let subject = Subject::start(daemon, AgentRole::Wing { lead: LEAD }, flags, script, |_| None);
    reported(daemon, ready(1)).await;
    daemon.say(Directive::Run(with_store(1)));
    reported(daemon, joined(1)).await;
    subject
}

#[tokio::test]
async fn the_command_joins_each_generation_without_a_stop() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let subject = alive(&daemon, "", &obedient()).await;
    assert_eq!(store(&daemon).map(|(generation, port, _)| (generation, port)), Some((1, 5001)));
    subject.says("got regroup 1 0 1 n1:5001 False").await;
    daemon.say(Directive::Regroup(with_store(2)));
    reported(&daemon, joined(2)).await;
    // A daemon that has forgotten the event gets it again.
    daemon.say(Directive::Run(with_store(2)));
    until("again", || daemon.events().iter().filter(|e| **e == joined(2)).count() > 1).await;
    daemon.say(Directive::Part { generation: 3, urgent: false });
    assert_eq!(daemon.stopped(3).await, (DONE, 0.0));
    let text = subject.output.text();
    assert!(!text.contains("signalled") && text.contains("got leave 3 False"), "{text}");
    assert!(!daemon.events().iter().any(|e| matches!(e, AgentEvent::Stopped { generation: 1 | 2, .. })));
    daemon.say(Directive::Leave);
    assert_eq!(subject.code().await, 0);
}

/// A wing whose command speaks `version`, on a node with MUNGE.
fn speaking(daemon: &FakeDaemon, version: u64, site: &Path) -> Subject {
    let process = obedient().replace("version=1", &format!("version={version}"));
    let process = process.replace(r#""text")"#, r#""secret", "version")"#);
    let programs = munge(site, own_uid(), 0);
    Subject::with(
        daemon,
        AgentRole::Wing { lead: LEAD },
        "",
        &process,
        |_| None,
        |config: &mut WorkerConfig| config.programs = programs.clone(),
    )
}

fn run_with_secret(generation: u64, secret: Option<Secret>) -> Directive {
    let meeting = with_store(generation).meeting.map(|meeting| GenerationRendezvous { secret, ..meeting });
    Directive::Run(GenerationMember { meeting, ..member(generation) })
}

#[tokio::test]
async fn a_stores_host_makes_a_secret_that_the_daemon_cannot_read() {
    let site = tempfile::tempdir().unwrap();
    let mut made = Vec::new();
    for version in [2, 1] {
        let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
        let subject = speaking(&daemon, version, site.path());
        until("a store", || store(&daemon).is_some()).await;
        let sealed = store(&daemon).and_then(|(_, _, secret)| secret).expect("a secret");
        assert!(sealed.0.starts_with("MUNGE:"), "{}", sealed.0);
        let secret = sealing::open_secret(&munge(site.path(), own_uid(), 0), LEAD, &sealed).await.unwrap();
        daemon.say(run_with_secret(1, Some(sealed)));
        reported(&daemon, joined(1)).await;
        subject.says(&format!("got welcome {version}")).await;
        subject.says(&secret.0).await;
        made.push(secret);
    }
    assert_ne!(made[0], made[1]);
}

#[tokio::test]
async fn members_get_the_secret_that_another_agent_has_made() {
    let site = tempfile::tempdir().unwrap();
    let made = sealing::make_secret(&munge(site.path(), own_uid(), 0), LEAD).await.unwrap();
    let daemon = FakeDaemon::start(Directive::Run(member_that_waits(1))).await;
    let subject = speaking(&daemon, 2, site.path());
    reported(&daemon, ready(1)).await;
    daemon.say(run_with_secret(1, Some(made.sealed)));
    reported(&daemon, joined(1)).await;
    subject.says(&made.secret.0).await;
    // A secret that cannot be read is a failure; a generation without a secret goes on.
    daemon.say(Directive::Regroup(member_of(run_with_secret(2, Some(Secret("MUNGE:AAAA".to_owned()))))));
    reported(&daemon, AgentEvent::Failed { generation: 2 }).await;
    daemon.say(Directive::Regroup(member_of(run_with_secret(3, None))));
    reported(&daemon, joined(3)).await;
}

fn member_of(directive: Directive) -> GenerationMember {
    let Directive::Run(member) = directive else { panic!("{directive:?}") };
    member
}

fn member_that_waits(generation: u64) -> GenerationMember {
    meeting(generation, GenerationRendezvous::default())
}

#[tokio::test]
async fn a_newcomer_is_let_in_or_sent_away() {
    let daemon = FakeDaemon::start(Directive::Warm(hosted(4))).await;
    let subject = Subject::start(&daemon, AgentRole::Wing { lead: LEAD }, "", &obedient(), |_| None);
    reported(&daemon, ready(4)).await;
    assert!(!daemon.events().iter().any(|e| matches!(e, AgentEvent::Started { .. })));
    daemon.say(Directive::Regroup(with_store(5)));
    reported(&daemon, joined(5)).await;
    subject.task.abort();

    let daemon = FakeDaemon::start(Directive::Warm(hosted(4))).await;
    let subject =
        Subject::start(&daemon, AgentRole::Wing { lead: LEAD }, "--grace=1000", &obedient(), |_| None);
    reported(&daemon, ready(4)).await;
    daemon.say(Directive::Leave);
    assert_eq!(subject.code().await, 0);
}

#[tokio::test]
async fn the_failure_of_a_newcomer_is_reported() {
    let daemon = FakeDaemon::start(Directive::Warm(hosted(4))).await;
    let script = "sleep 0.1; exit 3";
    let _subject = Subject::start(&daemon, AgentRole::Wing { lead: LEAD }, "", script, |_| None);
    assert_eq!(daemon.stopped(4).await.0, CommandExit { code: 3, asked: false, killed: false });
}

#[tokio::test]
async fn a_command_that_died_before_a_change_is_reported_with_its_own_code() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let dies = PROCESS.replace("FIRST", "").replace(
        r#"say("regrouped", epoch=epoch, secs={"form": 0.25, "wrap": 0.5})"#,
        r#"say("regrouped", epoch=epoch, secs={"form": 0.75}); import time; time.sleep(0.3); os._exit(5)"#,
    );
    let _subject = alive(&daemon, "", &dies.replace("HERE", "pass")).await;
    daemon.stopped(1).await;
    daemon.say(Directive::Regroup(with_store(2)));
    assert_eq!(daemon.stopped(2).await.0, CommandExit { code: 5, asked: false, killed: false });
}

#[tokio::test]
async fn a_worker_whose_node_is_taken_lets_the_others_go_on() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let subject = alive(&daemon, "", &obedient()).await;
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    reported(&daemon, AgentEvent::Leaving).await;
    daemon.say(Directive::Part { generation: 2, urgent: false });
    assert_eq!(daemon.stopped(2).await.0, DONE);
    assert!(!subject.output.text().contains("signalled"));
    assert_eq!(subject.code().await, 0);

    // Without an answer it is still gone in time, and asks none of the others to save.
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let subject = alive(&daemon, "", &process(r#"print("process", os.getpid())"#, r#"say("here")"#)).await;
    let command = subject.process("process ").await;
    daemon.set_away(true);
    let output = subject.output.clone();
    let clock = StoppedClock::stop();
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    clock.advance_by(Duration::from_secs_f64(LEAVE_SECS)).await;
    until("the command's end", || !lives(command)).await;
    drop(clock);
    assert_eq!(subject.code().await, 0);
    assert!(!output.text().contains("signalled"));
}

#[tokio::test]
async fn a_process_that_misses_the_roll_is_killed() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let subject = alive(&daemon, "", &process("", "pass")).await;
    let rolls = GenerationRendezvous { rolls: 1, ..with_store(1).meeting.unwrap() };
    daemon.say(Directive::Run(meeting(1, rolls)));
    subject.says("got roll").await;
    let clock = StoppedClock::stop();
    clock.advance_by(ROLL_TIME).await;
    drop(clock);
    assert_eq!(daemon.stopped(1).await.0, CommandExit { code: 137, asked: false, killed: false });
}

#[tokio::test]
async fn a_process_that_answers_the_roll_is_not_killed() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let subject = alive(&daemon, "", &process("", r#"say("here"); print("answered")"#)).await;
    let store = with_store(1).meeting.unwrap().store;
    daemon.say(Directive::Regroup(meeting(
        2,
        GenerationRendezvous { store, urgent: true, ..GenerationRendezvous::default() },
    )));
    subject.says("got roll").await;
    reported(&daemon, joined(2)).await;
    subject.says("answered").await;
    let clock = StoppedClock::stop();
    clock.advance_by(ROLL_TIME).await;
    drop(clock);
    daemon.say(Directive::Rescue { generation: 2 });
    assert_eq!(daemon.stopped(2).await.0, DONE);
    let text = subject.output.text();
    assert!(text.contains("got save\n") && text.contains("signalled\n"), "{text}");
}

#[tokio::test]
async fn two_processes_on_a_node_have_neighbouring_places() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let subject = alive(&daemon, "--nproc-per-node=2", &obedient()).await;
    daemon.say(Directive::Regroup(GenerationMember { rank: 1, world: 3, ..with_store(2) }));
    subject.says("[0] got regroup 2 2 6 n1:5001 False").await;
    subject.says("[1] got regroup 2 3 6 n1:5001 False").await;
    reported(&daemon, joined(2)).await;
    assert!(!subject.output.text().contains("[1] got host"), "one store is enough");
    subject.task.abort();
}

#[tokio::test]
async fn a_message_that_makes_no_sense_is_answered_and_forgotten() {
    let daemon = FakeDaemon::start(Directive::Run(hosted(1))).await;
    let first =
        r#"to.sendall(b"\xff\x00\n[]\n{}\n" + b"9" * 5000 + b"\n"); say("hello", version=0, local_rank=7)"#;
    let subject = alive(&daemon, "", &process(first, "pass")).await;
    subject.says("got error expected a JSON object").await;
    subject.says("got error expected version 1").await;
    subject.task.abort();
}

#[tokio::test]
async fn without_a_meeting_there_is_no_control_socket() {
    let daemon = FakeDaemon::start(super::run(1)).await;
    let subject = Subject::lead(&daemon, "", r#"echo "control ${INFILL_CONTROL-none}"; exec sleep 1000"#);
    subject.says("control none").await;
    subject.task.abort();
}
