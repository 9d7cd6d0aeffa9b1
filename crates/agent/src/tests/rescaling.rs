//! Tests of generations: start, stop and start again; commands that fail; a daemon that comes and goes.

use infill_model::{AgentEvent, CommandExit, Directive, GenerationMember};

use super::daemon::FakeDaemon;
use super::{Subject, member, run, until};

/// Saves on the rescale signal, as a training command does.
const SAVES: &str =
    r#"trap 'echo saved; exit 0' USR1; echo "ready $INFILL_GENERATION"; while :; do sleep 0.02; done"#;

const ASKED: CommandExit = CommandExit { code: 0, asked: true, killed: false };

fn stop(generation: u64) -> Directive {
    Directive::Stop { generation }
}

#[tokio::test]
async fn the_command_is_stopped_and_started_for_each_generation() {
    let daemon = FakeDaemon::start(Directive::Hold).await;
    let subject = Subject::lead(&daemon, "", SAVES);
    until("hello", || daemon.hellos().len() == 1).await;
    assert_eq!(daemon.hellos()[0].running, None);
    daemon.say(run(1));
    subject.says("[0] ready 1\n").await;
    daemon.say(stop(1));
    assert_eq!(daemon.stopped(1).await.0, ASKED);
    assert!(subject.output.text().contains("[0] saved\n"));
    daemon.say(run(2));
    subject.says("[0] ready 2\n").await;
    // Without a directive to stop, the agent stops the present command itself.
    daemon.say(run(3));
    assert_eq!(daemon.stopped(2).await.0, ASKED);
    subject.says("[0] ready 3\n").await;
    daemon.say(Directive::Finish { code: 7 });
    assert_eq!(subject.code().await, 7);
    assert_eq!(daemon.stopped(3).await.0, ASKED);
}

#[tokio::test]
async fn a_command_that_ignores_its_signal_is_killed_with_all_its_children() {
    let daemon = FakeDaemon::start(run(1)).await;
    let script = "trap '' USR1; setsid sh -c 'trap \"\" USR1; echo child $$; sleep 1000' & echo ready; wait; sleep 1000";
    let subject = Subject::lead(&daemon, "--grace=0 --no-prefix", script);
    subject.says("ready\n").await;
    subject.says("child ").await;
    let text = subject.output.text();
    let child = text.lines().find_map(|l| l.strip_prefix("child ")).unwrap().to_owned();
    daemon.say(stop(1));
    let (exit, _) = daemon.stopped(1).await;
    assert_eq!(exit, CommandExit { code: 137, asked: true, killed: true });
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the child lives: {stat}");
    daemon.say(Directive::Leave);
    assert_eq!(subject.code().await, 0);
}

/// The shell must not go on: what follows the command may publish or delete its checkpoint.
#[tokio::test]
async fn a_wrapper_that_dies_of_the_signal_does_not_take_the_command_with_it() {
    let daemon = FakeDaemon::start(run(1)).await;
    let script = r#"sh -c 'trap "sleep 0.2; echo saved; exit 0" USR1; echo ready; while :; do sleep 0.02; done' && echo published"#;
    let subject = Subject::lead(&daemon, "--no-prefix", script);
    subject.says("ready\n").await;
    daemon.say(stop(1));
    let (exit, secs) = daemon.stopped(1).await;
    assert_eq!(exit, CommandExit { code: 128 + libc::SIGUSR1, asked: true, killed: false });
    let text = subject.output.text();
    assert!(text.contains("saved\n") && !text.contains("published"), "{secs}: {text}");
}

#[tokio::test]
async fn a_program_can_wait_for_its_server_that_knows_nothing_of_the_signal() {
    let daemon = FakeDaemon::start(run(1)).await;
    let script =
        "sleep 60 & server=$!; trap 'wait $server; echo saved; exit 0' USR1; echo ready; while :; do :; done";
    let subject = Subject::lead(&daemon, "--no-prefix --grace 8", script);
    subject.says("ready\n").await;
    daemon.say(stop(1));
    let (exit, secs) = daemon.stopped(1).await;
    assert_eq!(exit, ASKED);
    assert!((1.5..7.0).contains(&secs) && subject.output.text().contains("saved\n"), "{secs}");
}

#[tokio::test]
async fn an_end_is_reported_with_its_code_and_again_on_demand() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "", "exit 3");
    let (exit, _) = daemon.stopped(1).await;
    assert_eq!(exit, CommandExit { code: 3, asked: false, killed: false });
    // The directive to stop crossed the end.
    let count = daemon.events().len();
    daemon.say(stop(1));
    until("another report", || daemon.events().len() > count).await;
    assert_eq!(
        daemon.events().last(),
        daemon.events().iter().rfind(|e| matches!(e, AgentEvent::Stopped { generation: 1, .. }))
    );
    assert_eq!(daemon.events().iter().filter(|e| matches!(e, AgentEvent::Started { .. })).count(), 1);
    // This directive stops a generation that never started here.
    daemon.say(stop(2));
    assert_eq!(daemon.stopped(2).await.0, ASKED);
    daemon.say(Directive::Finish { code: 3 });
    assert_eq!(subject.code().await, 3);
}

#[tokio::test]
async fn a_missing_program_is_a_failure_of_the_command() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "", "exec /no/such/program");
    assert_eq!(daemon.stopped(1).await.0.code, 127);
    daemon.say(Directive::Finish { code: 127 });
    assert_eq!(subject.code().await, 127);
}

#[tokio::test]
async fn a_rendezvous_port_that_is_taken_is_not_a_failure() {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let taken = listener.local_addr().unwrap().port();
    let daemon =
        FakeDaemon::start(Directive::Run(GenerationMember { master_port: taken, ..member(1) })).await;
    let subject = Subject::lead(&daemon, "", SAVES);
    assert_eq!(daemon.stopped(1).await.0, ASKED);
    let events = daemon.events();
    let has_other_port = |e: &AgentEvent| matches!(e, AgentEvent::Stopped { port, .. } if *port != taken);
    assert!(events.iter().all(has_other_port), "{events:?}");
    daemon.say(run(2));
    subject.says("ready 2").await;
    assert!(!subject.output.text().contains("ready 1"));
    subject.task.abort();
}

#[tokio::test]
async fn local_ranks_fail_together() {
    let daemon = FakeDaemon::start(run(1)).await;
    // Rank 1 fails once rank 0 has printed its line. The failure ends rank 0, whatever it is doing.
    let script = r#"echo "rank $RANK of $WORLD_SIZE"; up=$INFILL_PROGRESS.up
        if [ $LOCAL_RANK = 1 ]; then until [ -e $up ]; do sleep 0.01; done; exit 4; fi
        : >$up; exec sleep 1000"#;
    let subject = Subject::lead(&daemon, "--nproc-per-node=2", script);
    let (exit, _) = daemon.stopped(1).await;
    assert_eq!(exit, CommandExit { code: 4, asked: false, killed: false });
    let text = subject.output.text();
    assert!(text.contains("[0] rank 0 of 2\n") && text.contains("[1] rank 1 of 2\n"), "{text}");
    subject.task.abort();
}

#[tokio::test]
async fn training_goes_on_while_the_daemon_is_away() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "", SAVES);
    daemon.started(1).await;
    subject.says("ready 1").await;
    daemon.set_away(true);
    daemon.say(stop(1));
    until("away", || daemon.hellos().len() == 1).await;
    daemon.restart();
    daemon.say(run(1));
    daemon.set_away(false);
    until("hello again", || daemon.hellos().len() == 2).await;
    assert_eq!(daemon.hellos()[1].running, Some(1));
    assert!(!daemon.events().iter().any(|e| matches!(e, AgentEvent::Stopped { .. })));
    daemon.say(stop(1));
    assert_eq!(daemon.stopped(1).await.0, ASKED);
    subject.task.abort();
}

#[tokio::test]
async fn an_end_while_the_daemon_was_away_is_reported_later() {
    let daemon = FakeDaemon::start(run(1)).await;
    let script = "echo ready; until [ -e $(dirname $INFILL_PROGRESS)/go ]; do sleep 0.02; done";
    let subject = Subject::lead(&daemon, "", script);
    subject.says("ready").await;
    daemon.set_away(true);
    daemon.restart();
    std::fs::write(subject.dir.path().join("go"), "").unwrap();
    tokio::task::yield_now().await;
    daemon.set_away(false);
    assert_eq!(daemon.stopped(1).await.0, CommandExit { code: 0, asked: false, killed: false });
    subject.task.abort();
}

#[tokio::test]
async fn progress_comes_from_datagrams_and_from_lines() {
    let daemon = FakeDaemon::start(run(1)).await;
    let flags = r"--progress-regex=^done:(?<samples>\d+)";
    let subject = Subject::lead(&daemon, flags, "echo done:64; exec sleep 1000");
    subject.says("done:64").await;
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let path = subject.dir.path().join("progress");
    for text in [&b"\xff\x00 garbage"[..], b"samples=banana", b"samples=36 step=9 loss=0.25"] {
        socket.send_to(text, &path).unwrap();
    }
    let sum = || {
        daemon.events().iter().fold((0.0, None, None), |(n, k, x), event| match event {
            AgentEvent::Progress { generation: 1, samples, step, loss, .. } => {
                (n + samples, step.or(k), loss.or(x))
            }
            _ => (n, k, x),
        })
    };
    until("progress", || sum() == (100.0, Some(9), Some(0.25))).await;
    subject.task.abort();
}
