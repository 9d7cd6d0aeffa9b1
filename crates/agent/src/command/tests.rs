//! Tests of commands and their ends.

use tokio::io::AsyncReadExt as _;

use super::*;
use crate::oom_kills::tests::Fake;

const JOB: &str = "system.slice/slurmstepd.scope/job_17";

/// Runs a shell script, which finds the counter of kills in `$1`. Returns how it ended, and whether
/// memory ran out.
async fn run(fake: &Fake, job: u32, script: &str) -> (CommandOutcome, bool) {
    let file = fake.say(JOB, 5);
    let tally = ProgressTally::new();
    let words = ["sh", "-c", script, "sh", &file.display().to_string()].map(str::to_owned);
    let mut running = RunningCommand::start(LaunchSpec {
        words: words.to_vec(),
        ranks: vec![(0, Vec::new()), (1, vec![("SECOND".into(), "1".to_owned())])],
        remote: None,
        mark: format!("{}.{job}", file.display()),
        signal: libc::SIGUSR1,
        output: OutputForwarder::to_writers(tokio::io::sink(), tokio::io::sink(), false),
        regex: None,
        tally: tally.clone(),
        kills: fake.kills(job),
    });
    (running.wait_for_end().await, tally.ran_out_of_memory())
}

#[test]
fn a_kill_is_explained_unless_the_command_may_have_been_saving() {
    let explain = |how, secs| explain_kill(how, libc::SIGUSR1, Duration::from_secs(secs));
    let ignores = "the command ignores SIGUSR1, and is killed; choose another --signal";
    assert_eq!(explain(SignalHandling::Ignored, 2).as_deref(), Some(ignores));
    assert!(explain(SignalHandling::Blocked, 60).is_some_and(|why| why.contains("blocks SIGUSR1")));
    assert_eq!(explain(SignalHandling::Taken, 2), None);
    let late = explain(SignalHandling::Taken, 60).unwrap();
    assert!(late.contains("has not ended 60 s after SIGUSR1") && late.contains("--signal"), "{late}");
}

/// The kernel shows how a real process takes the signal.
#[tokio::test]
async fn a_process_that_ignores_the_signal_is_recognised() {
    for (script, want) in [
        ("trap '' USR1; echo; exec sleep 60", SignalHandling::Ignored),
        // A shell blocks its signals while it starts a process, so this one starts none.
        ("trap 'exit 0' USR1; echo; while :; do :; done", SignalHandling::Taken),
    ] {
        let words = ["sh", "-c", script].map(str::to_owned);
        let mut child = spawn_rank(&words, &[], "a test of signals").unwrap();
        let mut ready = [0];
        child.stdout.take().unwrap().read_exact(&mut ready).await.unwrap();
        let processes = CommandProcesses::new(child_pid(&child).into_iter().collect(), "a test of signals");
        assert_eq!(processes.signal_handling(libc::SIGUSR1).await, Some(want), "{script}");
        processes.signal_all(libc::SIGKILL).await;
        child.wait().await.unwrap();
    }
}

/// A server that a program has started knows nothing of the signal, and the program needs it while it saves.
#[tokio::test]
async fn processes_that_would_die_of_the_signal_are_asked_last() {
    let script = "trap 'exit 7' USR1; sleep 60 & echo; while :; do :; done";
    let words = ["sh", "-c", script].map(str::to_owned);
    let mut child = spawn_rank(&words, &[], "a test of servers").unwrap();
    let mut ready = [0];
    child.stdout.take().unwrap().read_exact(&mut ready).await.unwrap();
    let processes = CommandProcesses::new(child_pid(&child).into_iter().collect(), "a test of servers");
    let spared = processes.ask_all(libc::SIGUSR1).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(7));
    assert_eq!(spared.len(), 1, "the server");
    assert!(processes.any_alive().await);
    processes.signal_some(&spared, libc::SIGUSR1).await;
    let gone = async {
        while processes.any_alive().await {
            tokio::time::sleep(Duration::from_millis(10)).await
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the server ends");
    // Where no process handles the signal, all get it at once.
    let words = ["sh", "-c", "sleep 60; true"].map(str::to_owned);
    let mut child = spawn_rank(&words, &[], "a test without handlers").unwrap();
    let processes = CommandProcesses::new(child_pid(&child).into_iter().collect(), "a test without handlers");
    assert_eq!(processes.ask_all(libc::SIGUSR1).await, [0; 0]);
    assert_eq!(child.wait().await.unwrap().code(), None);
}

#[tokio::test]
async fn a_command_that_the_kernel_kills_for_memory_ran_out_of_memory() {
    const COUNTED: &str = "echo oom_kill 6 >\"$1\"; ";
    const SECOND: &str = "test -n \"$SECOND\" && exec sleep 60; ";
    let fake = Fake::new();
    let cases = [
        // The kernel kills a rank, the child of a shell, or the child of a launcher.
        (17, format!("{SECOND}{COUNTED}kill -9 $$"), 137, true),
        (17, format!("{SECOND}{COUNTED}sh -c 'kill -9 $$'; exit $?"), 137, true),
        (17, format!("{SECOND}{COUNTED}exit 1"), 1, true),
        // If other jobs are in the cgroup too, the kill counts only for a command that was killed.
        (9, format!("{SECOND}{COUNTED}kill -9 $$"), 137, true),
        (9, format!("{SECOND}{COUNTED}exit 1"), 1, false),
        // Someone else killed it.
        (17, format!("{SECOND}kill -9 $$"), 137, false),
        // It went on without the killed process.
        (17, format!("{COUNTED}exit 0"), 0, false),
    ];
    for (job, script, code, ran_out) in cases {
        let (ended, found_out_of_memory) = run(&fake, job, &script).await;
        assert_eq!((ended.exit.code, found_out_of_memory), (code, ran_out), "job {job}: {script}");
        assert_eq!(ended.failed_unasked, code != 0, "{script}");
    }
}
