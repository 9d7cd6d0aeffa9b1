//! Tests that wings are submitted once, whatever happens to the agent.

use std::path::{Path, PathBuf};

use crate::slurm_programs::SlurmPrograms;
use crate::wings::{WingJob, WingSubmitter};
use infill_api::AgentRole;
use infill_model::{AgentEvent, Directive, JobId, NodeName, WingOrder};
use infill_testkit::write_script;

use super::daemon::FakeDaemon;
use super::{LEAD, Subject, until};

fn order(order: u64) -> WingOrder {
    WingOrder {
        number: order,
        nodes: vec![NodeName::new("n2"), NodeName::new("n3")],
        time_limit_mins: 7,
        partition: "infill".to_owned(),
        qos: Some("infill".to_owned()),
        account: None,
        gres: Some("gpu:4".to_owned()),
        cpus: None,
        memory_mib: None,
        constraint: None,
        exclude: None,
    }
}

/// Programs that log their arguments and input in `site`.
fn programs(site: &Path, sbatch: &str, queue: &str) -> SlurmPrograms {
    let log = site.join("log").display().to_string();
    SlurmPrograms {
        sbatch: write_script(site.join("sbatch"), &format!("echo \"$@\" >>{log}; cat >>{log}; {sbatch}")),
        squeue: write_script(site.join("squeue"), queue),
        ..SlurmPrograms::default()
    }
}

fn submitter(notes: &Path, programs: SlurmPrograms) -> WingSubmitter {
    let job = WingJob {
        lead: LEAD,
        worker_args: vec!["--".to_owned(), "true".to_owned()],
        url: "http://ctl".to_owned(),
        dir: None,
        share: Vec::new(),
        gpus: None,
        array_variables: Vec::new(),
        output: Some(PathBuf::from("/home/a/50%.out")),
        error: None,
    };
    WingSubmitter::new(job, notes.to_owned(), programs)
}

fn lead(daemon: &FakeDaemon, notes: &Path, programs: &SlurmPrograms) -> Subject {
    Subject::start(daemon, AgentRole::Lead, "", "true", |_| Some(submitter(notes, programs.clone())))
}

async fn reported(daemon: &FakeDaemon, event: AgentEvent) {
    until(&format!("{event:?}"), || daemon.events().contains(&event)).await;
}

#[tokio::test]
async fn each_order_is_submitted_once() {
    let site = tempfile::tempdir().unwrap();
    let notes = site.path().join("wings");
    let programs = programs(site.path(), "echo 501", "echo '477 infill:order=3;wing=100'");
    let daemon = FakeDaemon::start(Directive::Hold).await;
    let subject = lead(&daemon, &notes, &programs);
    daemon.order(vec![order(3), order(4)]);
    reported(&daemon, AgentEvent::WingSubmitted { order: 3, job: JobId(477) }).await;
    reported(&daemon, AgentEvent::WingSubmitted { order: 4, job: JobId(501) }).await;
    let count = daemon.events().len();
    daemon.order(vec![order(4)]);
    until("another report", || daemon.events().len() > count).await;
    subject.task.abort();
    // An agent after a restart, with a queue that does not show the wing any more.
    let programs = SlurmPrograms { squeue: write_script(site.path().join("none"), "true"), ..programs };
    let daemon = FakeDaemon::start(Directive::Hold).await;
    let subject = lead(&daemon, &notes, &programs);
    daemon.order(vec![order(4)]);
    reported(&daemon, AgentEvent::WingSubmitted { order: 4, job: JobId(501) }).await;
    subject.task.abort();

    let log = std::fs::read_to_string(site.path().join("log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("--parsable")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for flag in [
        "--partition=infill --nodes=2 --ntasks=2 --ntasks-per-node=1 --exclusive",
        "--nodelist=n2,n3 --time=7 --job-name=wing:100 --comment=infill:order=4;wing=100 --no-requeue",
        "--output=/dev/null",
        "--qos=infill --gres=gpu:4",
    ] {
        assert!(lines[0].contains(flag), "{flag}: {}", lines[0]);
    }
    assert!(log.contains("worker '--lead=100' '--url=http://ctl' -- true\n"), "{log}");
}

#[tokio::test]
async fn an_order_that_is_withdrawn_while_sbatch_is_slow_is_not_submitted() {
    let site = tempfile::tempdir().unwrap();
    let gate = site.path().join("gate");
    let slow = format!("while [ ! -e {} ]; do sleep 0.05; done; echo 501", gate.display());
    let programs = programs(site.path(), &slow, "true");
    let daemon = FakeDaemon::start(Directive::Hold).await;
    let subject = lead(&daemon, &site.path().join("wings"), &programs);
    daemon.order(vec![order(1), order(2), order(3)]);
    let log = site.path().join("log");
    until("the first to be under way", || log.exists()).await;
    daemon.order(vec![order(1), order(3)]);
    // When it polls for the second time, the agent has passed the list on.
    until("the agent to know", || daemon.polls_since(daemon.version()) >= 2).await;
    std::fs::write(&gate, "").unwrap();
    reported(&daemon, AgentEvent::WingSubmitted { order: 3, job: JobId(501) }).await;
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("infill:order=1;") && !log.contains("infill:order=2;"), "{log}");
    subject.task.abort();
}

#[tokio::test]
async fn a_refusal_is_reported() {
    let site = tempfile::tempdir().unwrap();
    let programs = programs(site.path(), "echo 'error: no such QOS' >&2; exit 1", "true");
    let daemon = FakeDaemon::start(Directive::Hold).await;
    let subject = lead(&daemon, &site.path().join("wings"), &programs);
    daemon.order(vec![order(9)]);
    until("the refusal", || {
        daemon.events().iter().any(|event| {
            matches!(event, AgentEvent::WingRefused { order: 9, error } if error.contains("no such QOS"))
        })
    })
    .await;
    subject.task.abort();
}

#[tokio::test]
async fn nothing_is_submitted_as_long_as_the_queue_is_unknown() {
    let site = tempfile::tempdir().unwrap();
    let flag = site.path().join("up");
    let queue = format!("[ -e {} ]", flag.display());
    let programs = programs(site.path(), "echo 501", &queue);
    let daemon = FakeDaemon::start(Directive::Hold).await;
    let subject = lead(&daemon, &site.path().join("wings"), &programs);
    daemon.order(vec![order(5)]);
    until("hello", || !daemon.hellos().is_empty()).await;
    daemon.order(vec![order(5)]);
    assert!(!site.path().join("log").exists());
    std::fs::write(&flag, "").unwrap();
    // The daemon's next answer names the order again.
    reported(&daemon, AgentEvent::WingSubmitted { order: 5, job: JobId(501) }).await;
    subject.task.abort();
}
