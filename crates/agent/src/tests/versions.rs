//! Tests with a daemon of another version than the agent.

use std::sync::Arc;

use serde_json::json;

use infill_api::AgentRole;
use infill_model::{AgentEvent, AgentEventKind, Directive, NodeName};

use super::daemon::FakeDaemon;
use super::{LEAD, Subject, Trusted, run, until};
use crate::daemon_link::{DaemonLink, LinkConfig};
use crate::daemon_loops;
use crate::outbox::EventOutbox;

/// Counts forever; ends on the rescale signal.
const COUNTS: &str = r#"exec 2>/dev/null; trap 'exit 0' USR1; n=0
    while :; do n=$((n+1)); echo "step $n"; sleep 0.02; done"#;

/// Waits until the agent has taken up the present assignment, and asks for the next one.
async fn taken_up(daemon: &FakeDaemon) {
    let version = daemon.version();
    until("the agent to take up the assignment", || daemon.polls_since(version) > 0).await;
}

#[tokio::test]
async fn a_directive_of_a_newer_daemon_leaves_the_command_running() {
    let daemon = FakeDaemon::start(run(1)).await;
    let subject = Subject::lead(&daemon, "--grace=5 --daemon-patience=0", COUNTS);
    subject.says("step 5").await;
    daemon.say_newer(json!({"levitate": {"generation": 2}}));
    taken_up(&daemon).await;
    let lines = subject.output.text().lines().count();
    until("more steps", || subject.output.text().lines().count() > lines + 10).await;
    assert!(
        !daemon.events().iter().any(|e| matches!(e, AgentEvent::Stopped { .. })),
        "{:?}",
        daemon.events()
    );
    daemon.say(Directive::Stop { generation: 1 });
    daemon.stopped(1).await;
    daemon.say(Directive::Finish { code: 7 });
    assert_eq!(subject.code().await, 7);
}

#[tokio::test]
async fn an_agent_whose_first_directive_is_of_a_newer_daemon_waits_for_another() {
    let daemon = FakeDaemon::start(Directive::Hold).await;
    daemon.say_newer(json!("levitate"));
    let subject = Subject::lead(&daemon, "--daemon-patience=0", COUNTS);
    taken_up(&daemon).await;
    assert_eq!(daemon.events(), []);
    daemon.say(run(1));
    subject.says("step 1").await;
    daemon.say(Directive::Finish { code: 0 });
    assert_eq!(subject.code().await, 0);
}

#[tokio::test]
async fn an_older_daemon_that_refuses_a_report_gets_the_events_that_it_knows() {
    let daemon = FakeDaemon::start(Directive::Hold).await;
    daemon.lack(AgentEventKind::OutOfMemory);
    let link = LinkConfig {
        url: daemon.url(),
        ca: None,
        job: LEAD,
        node: NodeName::new("n1"),
        role: AgentRole::Lead,
        spec: None,
        identity: Box::new(Trusted),
    };
    let link = Arc::new(DaemonLink::new(link).unwrap());
    let outbox = Arc::new(EventOutbox::default());
    let first = AgentEvent::Started { generation: 1 };
    let second = AgentEvent::Started { generation: 2 };
    for event in [first.clone(), AgentEvent::OutOfMemory { generation: 1 }, second.clone()] {
        outbox.push(event);
    }
    let task = tokio::spawn(daemon_loops::report_loop(link, outbox.clone()));
    outbox.wait_until_empty().await;
    outbox.push(AgentEvent::Leaving);
    until("the event that follows", || daemon.events().contains(&AgentEvent::Leaving)).await;
    assert_eq!(daemon.events(), [first, second, AgentEvent::Leaving]);
    task.abort();
}
