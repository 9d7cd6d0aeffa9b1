//! Tests of preemption: whatever the command does, the worker is gone in time.

use std::time::Duration;

use crate::signals::AgentSignal;
use infill_api::AgentRole;
use infill_model::{AgentEvent, CommandExit, Directive};
use infill_testkit::clock::StoppedClock;

use super::daemon::{FakeDaemon, LEAVE_SECS};
use super::{LEAD, Subject, lives, run, until};

/// The time in which the command may save.
const LEAVE: Duration = Duration::from_millis((LEAVE_SECS * 1000.0) as u64);

/// A moment before or after the end of that time.
const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_command_that_saves_in_time_is_not_killed() {
    let daemon = FakeDaemon::start(run(1)).await;
    let script = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.02; done";
    let subject = Subject::start(&daemon, AgentRole::Wing { lead: LEAD }, "", script, |_| None);
    subject.says("ready").await;
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    assert_eq!(subject.code().await, 0);
    let events = daemon.events();
    assert!(events.contains(&AgentEvent::Leaving), "{events:?}");
    assert_eq!(daemon.stopped(1).await.0, CommandExit { code: 0, asked: true, killed: false });
}

#[tokio::test]
async fn a_signal_to_leave_just_after_the_command_was_stopped_is_not_lost() {
    for after_ms in [0, 10, 20, 30] {
        let daemon = FakeDaemon::start(run(1)).await;
        let script = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.02; done";
        let subject = Subject::start(&daemon, AgentRole::Wing { lead: LEAD }, "", script, |_| None);
        subject.says("ready").await;
        daemon.say(Directive::Stop { generation: 1 });
        subject.says("saved").await;
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        subject.signals.send(AgentSignal::Leave).await.unwrap();
        assert_eq!(subject.code().await, 0);
        assert!(daemon.events().contains(&AgentEvent::Leaving), "after {after_ms} ms");
    }
}

#[tokio::test]
async fn a_command_that_does_not_save_is_killed_in_time() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject =
        Subject::lead(&daemon, "", "trap '' USR1 TERM; echo ready $$; while :; do sleep 0.02; done");
    let command = subject.process("ready ").await;
    let clock = StoppedClock::stop();
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    clock.advance_by(LEAVE - MOMENT / 10).await;
    assert!(lives(command), "it may still save");
    clock.advance_by(MOMENT).await;
    until("the command's end", || !lives(command)).await;
    drop(clock);
    assert_eq!(subject.code().await, 143);
    assert_eq!(daemon.stopped(1).await.0, CommandExit { code: 137, asked: true, killed: true });
}

#[tokio::test]
async fn leaving_cuts_a_longer_stop_short_and_works_without_a_daemon() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject =
        Subject::lead(&daemon, "--grace=1000", "trap '' USR1; echo ready $$; while :; do sleep 0.02; done");
    let command = subject.process("ready ").await;
    let clock = StoppedClock::stop();
    subject.signals.send(AgentSignal::User(libc::SIGUSR1)).await.unwrap();
    daemon.set_away(true);
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    clock.advance_by(LEAVE + MOMENT).await;
    until("the command's end", || !lives(command)).await;
    drop(clock);
    assert_eq!(subject.code().await, 143);
}

#[tokio::test]
async fn a_second_signal_to_leave_kills_the_command_at_once() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "", "trap '' USR1; echo ready $$; while :; do sleep 0.02; done");
    let command = subject.process("ready ").await;
    let clock = StoppedClock::stop();
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    clock.advance_by(MOMENT).await;
    until("the command's end", || !lives(command)).await;
    let (exit, secs) = daemon.stopped(1).await;
    drop(clock);
    assert_eq!(subject.code().await, 143);
    assert!(exit.killed && secs < LEAVE_SECS, "{exit:?} {secs}");
}

#[tokio::test]
async fn an_idle_worker_leaves_at_once() {
    let daemon = FakeDaemon::start(infill_model::Directive::Hold).await;
    let subject = Subject::start(&daemon, AgentRole::Wing { lead: LEAD }, "", "true", |_| None);
    until("hello", || !daemon.hellos().is_empty()).await;
    subject.signals.send(AgentSignal::Leave).await.unwrap();
    assert_eq!(subject.code().await, 0);
    assert_eq!(daemon.events(), [AgentEvent::Leaving]);
}

#[tokio::test]
async fn a_users_signal_to_the_whole_step_does_not_end_the_job() {
    let daemon = FakeDaemon::start(run(1)).await;
    let script = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.02; done";
    let subject = Subject::lead(&daemon, "", script);
    subject.says("ready").await;
    subject.signals.send(AgentSignal::User(libc::SIGUSR1)).await.unwrap();
    assert!(daemon.stopped(1).await.0.asked);
    subject.task.abort();
}

#[tokio::test]
async fn a_users_signal_that_stands_for_a_preemption_ends_the_worker() {
    for (answer, leaves) in [("2026-11-22T06:35:04", true), ("N/A", false)] {
        let site = tempfile::tempdir().unwrap();
        let squeue = infill_testkit::write_script(
            site.path().join("squeue"),
            &format!("if [ -e $0.later ]; then echo {answer}; : >$0.asked; else echo N/A; fi"),
        );
        let daemon = FakeDaemon::start(run(1)).await;
        let script = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.02; done";
        let subject = Subject::lead_with(&daemon, "", script, |config| {
            config.programs.squeue.clone_from(&squeue);
        });
        subject.says("ready").await;
        std::fs::write(site.path().join("squeue.later"), "").unwrap();
        subject.signals.send(AgentSignal::User(libc::SIGUSR2)).await.unwrap();
        if leaves {
            assert_eq!(subject.code().await, 143);
            continue;
        }
        until("a look", || site.path().join("squeue.asked").exists()).await;
        let clock = StoppedClock::stop();
        clock.advance_by(Duration::from_millis(500)).await;
        drop(clock);
        assert!(!subject.task.is_finished() && !daemon.events().contains(&AgentEvent::Leaving));
        subject.task.abort();
    }
}

#[tokio::test]
async fn a_worker_that_missed_the_signal_learns_of_the_preemption_from_slurm() {
    for (answer, away) in [("2026-11-22T06:35:04", true), ("2026-11-22T06:35:04", false), ("N/A", false)] {
        let site = tempfile::tempdir().unwrap();
        let squeue = format!("echo {answer}; : >$0.asked");
        let squeue = infill_testkit::write_script(site.path().join("squeue"), &squeue);
        let daemon = FakeDaemon::start(run(1)).await;
        daemon.set_away(away);
        let subject = Subject::lead_with(&daemon, "", "trap 'exit 0' USR1; sleep 100 & wait", |config| {
            config.programs.squeue.clone_from(&squeue);
        });
        if answer == "N/A" {
            until("a look", || site.path().join("squeue.asked").exists()).await;
            let clock = StoppedClock::stop();
            clock.advance_by(Duration::from_secs(1)).await;
            drop(clock);
            assert!(!subject.task.is_finished(), "nothing has asked it to leave");
            subject.task.abort();
        } else {
            assert_eq!(subject.code().await, 143, "daemon away: {away}");
        }
    }
}
