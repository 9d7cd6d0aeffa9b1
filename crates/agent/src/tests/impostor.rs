//! Tests with an impostor at the daemon's port. To an agent this is as if no daemon answered.

use std::time::Duration;

use infill_api::AgentRole;
use infill_model::{AgentEvent, Directive};
use infill_testkit::{clock::StoppedClock, write_script};

use super::daemon::FakeDaemon;
use super::{LEAD, Subject, run, until};
use crate::slurm_programs::SlurmPrograms;

/// Counts, and prints the generation with each step.
const COUNTS: &str = r#"trap 'echo saved; exit 0' USR1
    n=0; while :; do n=$((n+1)); echo "generation $INFILL_GENERATION step $n"; sleep 0.02; done"#;

#[tokio::test]
async fn an_impostor_at_the_daemons_port_ends_no_job() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "--daemon-patience=600", COUNTS);
    subject.says("generation 1 step 3\n").await;
    daemon.set_impostor(true);
    until("some polls of the impostor's", || daemon.deceived() >= 3).await;
    // Its answers to reports do not discard any of them either.
    let before = subject.output.text().lines().count();
    until("more steps", || subject.output.text().lines().count() > before + 50).await;
    assert!(!subject.task.is_finished() && !subject.output.text().contains("saved"));
    daemon.set_impostor(false);
    daemon.say(Directive::Stop { generation: 1 });
    daemon.stopped(1).await;
    assert!(daemon.events().contains(&AgentEvent::Started { generation: 1 }));
    subject.task.abort();
}

/// A wing whose command has failed waits until the daemon has been away for too long. An answer to a hello
/// alone does not show that the daemon is there.
#[tokio::test]
async fn something_that_lets_only_hellos_pass_cannot_hide_that_the_daemon_is_away() {
    let daemon = FakeDaemon::start(run(1)).await;
    let fails =
        r#"echo ready; until [ -e $(dirname $INFILL_PROGRESS)/go ]; do sleep 0.05; done; echo over; exit 5"#;
    let wing = AgentRole::Wing { lead: LEAD };
    let subject = Subject::start(&daemon, wing, "--daemon-patience=1", fails, |_| None);
    subject.says("ready").await;
    daemon.set_hellos_only();
    let hellos = daemon.hellos().len();
    std::fs::write(subject.dir.path().join("go"), "").unwrap();
    subject.says("over").await;
    assert_eq!(subject.code().await, 0);
    assert!(daemon.hellos().len() > hellos, "hellos pass meanwhile");
}

#[tokio::test]
async fn the_welcome_of_an_impostor_is_refused() {
    let daemon = FakeDaemon::start(run(1)).await;
    daemon.set_impostor(true);
    let subject = Subject::lead(&daemon, "--daemon-patience=600", "echo began; sleep 60");
    until("two hellos", || daemon.hellos().len() >= 2).await;
    assert_eq!(
        (daemon.deceived(), daemon.events()),
        (0, Vec::new()),
        "the agent neither polls nor reports there"
    );
    assert_eq!(subject.output.text(), "");
    daemon.set_impostor(false);
    subject.says("began").await;
    subject.task.abort();
}

#[tokio::test]
async fn an_impostor_that_claims_to_be_healthy_does_not_stop_training_alone() {
    let site = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::start(run(7)).await;
    daemon.set_away(true);
    let [sbatch, squeue, scontrol, scancel] = ["sbatch", "squeue", "scontrol", "scancel"]
        .map(|name| write_script(site.path().join(name), "exit 0"));
    let programs = SlurmPrograms { sbatch, squeue, scontrol, scancel, ..SlurmPrograms::default() };
    let subject = Subject::lead_with(&daemon, "--daemon-patience=0", COUNTS, |config| {
        config.alone = Some(0);
        config.programs = programs.clone();
    });
    let clock = StoppedClock::stop();
    clock.advance_by(Duration::from_secs(3)).await;
    drop(clock);
    subject.says("generation 0 step 3\n").await;
    daemon.set_impostor(true);
    daemon.set_away(false);
    let clock = StoppedClock::stop();
    clock.advance_by(Duration::from_secs(12)).await;
    drop(clock);
    let before = subject.output.text().lines().count();
    until("more steps", || subject.output.text().lines().count() > before + 20).await;
    assert!(!subject.output.text().contains("saved"));
    daemon.set_impostor(false);
    let clock = StoppedClock::stop();
    clock.advance_by(Duration::from_secs(12)).await;
    drop(clock);
    subject.says("generation 7 step").await;
    subject.task.abort();
}
