//! Tests that a job outlives its daemon: leads wait, train alone, and never reach their time limit.

use std::path::Path;
use std::time::Duration;

use crate::signals::AgentSignal;
use crate::slurm_programs::SlurmPrograms;
use infill_api::AgentRole;
use infill_model::{AgentEvent, CommandExit, Directive, NodeName};
use infill_testkit::{clock::StoppedClock, write_script};

use super::daemon::FakeDaemon;
use super::{LEAD, Subject, run, until};

/// Counts its steps, from where it stopped, and saves on the rescale signal. The shell's message about a
/// `sleep` that gets the signal too is dropped.
const COUNTS: &str = r#"exec 2>/dev/null
    at=$(dirname $INFILL_PROGRESS)/at; n=$(cat $at 2>/dev/null || echo 0); echo "from $n"
    trap 'echo $n >$at; echo "saved $n"; exit 0' USR1
    while :; do n=$((n+1)); echo "generation $INFILL_GENERATION step $n"; sleep 0.02; done"#;

/// Time for a few checks: a worker checks once a second whether the daemon is away.
const A_FEW_LOOKS: Duration = Duration::from_secs(3);

/// Within this time an agent notices that the daemon is back.
const HEARS: Duration = Duration::from_secs(6);

/// A command that ends with this code once the test lets it.
fn ends_with(code: i32) -> String {
    format!(
        "echo ready; until [ -e $(dirname $INFILL_PROGRESS)/go ]; do sleep 0.02; done; echo over; exit {code}"
    )
}

/// The daemon goes away, and then the command ends. The agent has a few looks at that.
async fn end_while_away(daemon: &FakeDaemon, subject: &Subject) -> StoppedClock {
    subject.says("ready").await;
    daemon.set_away(true);
    std::fs::write(subject.dir.path().join("go"), "").unwrap();
    subject.says("over").await;
    let clock = StoppedClock::stop();
    clock.advance_by(A_FEW_LOOKS).await;
    clock
}

/// Fake programs of Slurm's with these answers, which take no node back. All other calls are logged in
/// `site`.
fn slurm(site: &Path, squeue: &str) -> SlurmPrograms {
    let log = site.join("log").display().to_string();
    let quiet = r#"case "$*" in *PreemptTime*) echo N/A; exit;;
        *PENDING*) cat $(dirname $0)/pending 2>/dev/null; : >$(dirname $0)/looked; exit;; esac"#;
    let program = |name: &str, answer: &str| {
        write_script(site.join(name), &format!("{quiet}; echo {name} \"$@\" >>{log}; {answer}"))
    };
    SlurmPrograms {
        sbatch: program("sbatch", "exit 1"),
        squeue: program("squeue", squeue),
        scontrol: program("scontrol", ""),
        scancel: program("scancel", ""),
        ..SlurmPrograms::default()
    }
}

fn slurm_calls(site: &Path) -> String {
    std::fs::read_to_string(site.join("log")).unwrap_or_default()
}

#[tokio::test]
async fn a_lead_that_is_done_and_a_wing_leave_without_the_daemon() {
    for (role, code) in [(AgentRole::Lead, 0), (AgentRole::Wing { lead: LEAD }, 5)] {
        let daemon = FakeDaemon::start(run(1)).await;
        let subject = Subject::start(&daemon, role, "--daemon-patience=0", &ends_with(code), |_| None);
        let clock = end_while_away(&daemon, &subject).await;
        drop(clock);
        assert_eq!(subject.code().await, 0);
    }
}

/// Leaves as ranks do that save together because another one was asked to: reports that, and exits.
const LEAVES_WITH_OTHERS: &str = r#"echo ready; until [ -e $(dirname $INFILL_PROGRESS)/go ]; do sleep 0.02; done
    exec python3 -c 'import os, socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"samples=0 saved=0.1", os.environ["INFILL_PROGRESS"])
print("over", flush=True)'"#;

#[tokio::test]
async fn a_lead_that_has_left_with_a_wing_is_not_done() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "--daemon-patience=0", LEAVES_WITH_OTHERS);
    let clock = end_while_away(&daemon, &subject).await;
    assert!(!subject.task.is_finished(), "it has left");
    daemon.set_away(false);
    clock.advance_by(HEARS).await;
    drop(clock);
    assert_eq!(daemon.stopped(1).await.0, CommandExit { code: 0, asked: false, killed: false });
    subject.task.abort();
}

#[tokio::test]
async fn a_failure_without_the_daemon_waits_for_it() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "--daemon-patience=0", &ends_with(5));
    let clock = end_while_away(&daemon, &subject).await;
    assert!(!subject.task.is_finished(), "it has left");
    daemon.set_away(false);
    clock.advance_by(HEARS).await;
    drop(clock);
    assert_eq!(daemon.stopped(1).await.0.code, 5);
    daemon.say(Directive::Finish { code: 5 });
    assert_eq!(subject.code().await, 5);
}

#[tokio::test]
async fn a_lead_that_starts_without_the_daemon_waits_for_it() {
    let daemon = FakeDaemon::start(run(1)).await;
    daemon.set_away(true);
    let subject = Subject::lead(&daemon, "--daemon-patience=0", COUNTS);
    let clock = StoppedClock::stop();
    clock.advance_by(A_FEW_LOOKS).await;
    assert!(!subject.task.is_finished(), "it has left");
    assert_eq!(subject.output.text(), "");
    daemon.set_away(false);
    clock.advance_by(HEARS).await;
    drop(clock);
    subject.says("generation 1 step 2\n").await;
    subject.task.abort();
}

/// A lead that has just started, and its Slurm, in which a job of this partition waits for nodes.
struct Beginner {
    site: tempfile::TempDir,
    subject: Subject,
    _daemon: FakeDaemon,
}

impl Beginner {
    async fn start(alone: Option<u32>, prepare: fn(&FakeDaemon), partition: &str) -> Beginner {
        let site = tempfile::tempdir().unwrap();
        let daemon = FakeDaemon::start(run(1)).await;
        prepare(&daemon);
        let at = chrono::Local::now().format("%Y-%m-%dT%H:%M:%S");
        std::fs::write(site.path().join("pending"), format!("{partition}|Resources|{at}\n")).unwrap();
        let programs = slurm(site.path(), "");
        let subject = Subject::lead_with(&daemon, "--daemon-patience=600", COUNTS, |config| {
            config.alone = alone;
            config.programs = programs.clone();
        });
        Beginner { site, subject, _daemon: daemon }
    }

    fn asks(&self) -> Option<String> {
        slurm_calls(self.site.path()).lines().find(|line| line.starts_with("scontrol")).map(str::to_owned)
    }
}

fn away(daemon: &FakeDaemon) {
    daemon.set_away(true);
}

#[tokio::test]
async fn a_worker_that_starts_without_the_daemon_does_not_block_main_jobs() {
    let waits = Beginner::start(None, away, "main").await;
    let blind = Beginner::start(None, FakeDaemon::set_blind, "main").await;
    let alone = Beginner::start(Some(0), away, "main").await;
    let there = Beginner::start(None, |_| (), "main").await;
    let others = Beginner::start(None, away, "infill").await;
    there.subject.says("step 1\n").await;
    let clock = StoppedClock::stop();
    clock.advance_by(Duration::from_millis(1500)).await;
    for beginner in [&waits, &blind, &alone] {
        until("scontrol", || beginner.asks().is_some()).await;
    }
    until("a look", || others.site.path().join("looked").exists()).await;
    clock.advance_by(A_FEW_LOOKS).await;
    drop(clock);
    assert_eq!(waits.asks().as_deref(), Some("scontrol requeuehold 100"));
    assert_eq!(blind.asks().as_deref(), Some("scontrol requeuehold 100"), "the daemon cannot accept it");
    assert_eq!(alone.asks().as_deref(), Some("scontrol requeue 100"), "it does not wait for a daemon");
    assert_eq!((there.asks(), others.asks()), (None, None));
    for beginner in [waits, blind, alone, there, others] {
        beginner.subject.task.abort();
    }
}

#[tokio::test]
async fn alone_it_trains_and_hands_over_without_losing_a_step() {
    let site = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(run(7)).await;
    daemon.set_away(true);
    let programs = slurm(site.path(), r#"[ -e "$0.asked" ] || echo 501 502; : >"$0.asked""#);
    let subject = Subject::lead_with(&daemon, "--daemon-patience=0", COUNTS, |config| {
        config.alone = Some(0);
        config.programs = programs.clone();
    });
    let clock = StoppedClock::stop();
    clock.advance_by(A_FEW_LOOKS).await;
    until("the wings' end", || slurm_calls(site.path()).contains("scancel")).await;
    // It checks again whether they have ended.
    clock.advance_by(Duration::from_secs(2)).await;
    drop(clock);
    subject.says("generation 0 step 9\n").await;
    assert!(
        slurm_calls(site.path()).contains("--name=wing:100\nscancel 501 502\n"),
        "{}",
        slurm_calls(site.path())
    );
    let clock = StoppedClock::stop();
    daemon.set_away(false);
    clock.advance_by(HEARS).await;
    drop(clock);
    subject.says("generation 7 step").await;
    let text = subject.output.text();
    let saved = text.split("saved ").nth(1).and_then(|rest| rest.lines().next()).expect("it saved");
    assert!(text.contains(&format!("[0] saved {saved}\n[0] from {saved}\n")), "{text}");
    assert_eq!(daemon.hellos()[0].running, None);
    let events = daemon.events();
    let unexpected = events.iter().find(|event| {
        !matches!(
            event,
            AgentEvent::Started { generation: 7, .. } | AgentEvent::Progress { generation: 7, .. }
        )
    });
    assert_eq!(unexpected, None);
    subject.task.abort();
}

#[tokio::test]
async fn alone_failures_are_retried_as_often_as_the_user_allows() {
    let site = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(run(1)).await;
    daemon.set_away(true);
    let programs = slurm(site.path(), "");
    let subject = Subject::lead_with(&daemon, "--daemon-patience=0", "echo here; exit 4", |config| {
        config.alone = Some(2);
        config.programs = programs.clone();
    });
    let output = subject.output.clone();
    let clock = StoppedClock::stop();
    clock.advance_by(A_FEW_LOOKS).await;
    drop(clock);
    assert_eq!(subject.code().await, 4);
    assert_eq!(output.text(), "[0] here\n".repeat(3));
}

/// A main job has its own nodes whatever infill says. For any other job, the daemon may still change its
/// mind.
#[tokio::test]
async fn a_main_job_that_the_daemon_refuses_trains_on_its_own_nodes() {
    for (own, trains) in [(vec![NodeName::new("n1")], true), (Vec::new(), false)] {
        let site = tempfile::tempdir().unwrap();
        let daemon = FakeDaemon::start(run(1)).await;
        daemon.set_refusing();
        let programs = slurm(site.path(), "");
        let subject = Subject::lead_with(&daemon, "--daemon-patience=0", COUNTS, |config| {
            config.alone = Some(0);
            config.own.clone_from(&own);
            config.programs = programs.clone();
        });
        let clock = StoppedClock::stop();
        clock.advance_by(A_FEW_LOOKS).await;
        if trains {
            drop(clock);
            subject.says("generation 0 step 9\n").await;
            // It does not go back to a daemon that is healthy.
            let clock = StoppedClock::stop();
            clock.advance_by(HEARS).await;
            drop(clock);
            subject.says("step 29\n").await;
            assert!(!subject.output.text().contains("saved"), "{}", subject.output.text());
        } else {
            clock.advance_by(HEARS).await;
            assert_eq!(subject.output.text(), "");
        }
        subject.task.abort();
    }
}

#[tokio::test]
async fn while_its_wings_may_live_it_does_not_train_alone() {
    let site = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(run(1)).await;
    daemon.set_away(true);
    let programs = slurm(site.path(), "exit 1");
    let subject = Subject::lead_with(&daemon, "--daemon-patience=0", "echo here", |config| {
        config.alone = Some(2);
        config.programs = programs.clone();
    });
    let clock = StoppedClock::stop();
    clock.advance_by(A_FEW_LOOKS).await;
    until("squeue", || slurm_calls(site.path()).contains("squeue")).await;
    clock.advance_by(Duration::from_secs(2)).await;
    assert_eq!(subject.output.text(), "");
    drop(clock);
    subject.task.abort();
}

/// Most of the half of its time that it trains.
const NEARLY_HALF: Duration = Duration::from_millis(4500);

/// A lead with 12 s left: half of that is kept for saving.
fn short(daemon: &FakeDaemon, programs: &SlurmPrograms) -> Subject {
    Subject::lead_with(daemon, "", COUNTS, |config| {
        config.left = Some(Duration::from_secs(12));
        config.programs = programs.clone();
    })
}

#[tokio::test]
async fn near_its_limit_it_saves_and_has_itself_requeued() {
    for away in [true, false] {
        let site = tempfile::tempdir().unwrap();
        let daemon = FakeDaemon::start(run(1)).await;
        let subject = short(&daemon, &slurm(site.path(), "echo 0:06"));
        subject.says("generation 1 step 2\n").await;
        daemon.set_away(away);
        let clock = StoppedClock::stop();
        clock.advance_by(NEARLY_HALF).await;
        drop(clock);
        // Half of those 6 s: a command that needs a moment is not killed meanwhile.
        subject.says("saved").await;
        until("requeued", || slurm_calls(site.path()).contains("scontrol requeuehold 100\n")).await;
        assert!(slurm_calls(site.path()).starts_with("squeue --noheader --format=%L --jobs 100\n"));
        assert!(!subject.task.is_finished(), "Slurm ends it");
        assert_eq!(subject.output.text().matches("from ").count(), 1, "it was started again");
        subject.signals.send(AgentSignal::Leave).await.unwrap();
        assert_eq!(subject.code().await, 143);
        assert_eq!(daemon.events().contains(&AgentEvent::Leaving), !away);
    }
}

#[tokio::test]
async fn a_limit_that_was_moved_does_not_end_the_command() {
    let site = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = short(&daemon, &slurm(site.path(), "echo 1:00:00"));
    subject.says("step 2\n").await;
    let clock = StoppedClock::stop();
    clock.advance_by(NEARLY_HALF).await;
    drop(clock);
    until("a look", || slurm_calls(site.path()).contains("squeue")).await;
    let clock = StoppedClock::stop();
    clock.advance_by(Duration::from_secs(7)).await;
    drop(clock);
    assert!(!subject.output.text().contains("saved"));
    assert_eq!(slurm_calls(site.path()).matches("squeue").count(), 1, "it asks too often");
    subject.task.abort();
}

#[tokio::test]
async fn a_wing_leaves_its_limit_to_a_daemon_that_is_there() {
    let site = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(run(1)).await;
    let programs = slurm(site.path(), "echo 0:01");
    let subject = Subject::with(
        &daemon,
        AgentRole::Wing { lead: LEAD },
        "",
        COUNTS,
        |_| None,
        |config| {
            config.left = Some(Duration::from_secs(4));
            config.programs = programs.clone();
        },
    );
    subject.says("step 2\n").await;
    let clock = StoppedClock::stop();
    clock.advance_by(Duration::from_secs(4)).await;
    drop(clock);
    assert!(!subject.output.text().contains("saved"));
    assert_eq!(slurm_calls(site.path()), "");
    subject.task.abort();
}
