//! What agents receive, and when they are woken.

use super::*;
use infill_model::{GenerationMember, JobId, NodeName, WingOrder};

fn agent() -> AgentId {
    (JobId(7), NodeName::from("n1"))
}

fn run(generation: u64) -> Directive {
    Directive::Run(GenerationMember {
        generation,
        rank: 0,
        world: 1,
        master_addr: "n1".into(),
        master_port: 4000,
        nodes: vec![NodeName::from("n1")],
        exec_plan: "default".into(),
        meeting: None,
    })
}

fn wing() -> WingOrder {
    WingOrder {
        number: 1,
        nodes: vec![NodeName::from("n2")],
        time_limit_mins: 10,
        partition: "infill".into(),
        qos: None,
        account: None,
        gres: None,
        cpus: None,
        memory_mib: None,
        constraint: None,
        exclude: None,
    }
}

fn order(directive: Directive, wings: &[WingOrder]) -> Vec<AgentOrder> {
    vec![AgentOrder { agent: agent(), directive, wings: wings.to_vec(), notice: None }]
}

/// A directive, the wings to submit, and how much of both may be sent.
type SentOrder<'a> = (Directive, &'a [WingOrder], SendScope);

/// The agent's assignment after these orders: its directive, its wings, and whether the last order woke it.
fn assignment_after(orders: &[SentOrder<'_>]) -> String {
    let channels = AgentChannels::new(UnixTime(1000));
    let pass = AgentPass::Bearer(Secret("s".into()));
    channels.open_channel(agent(), pass.clone());
    let mut assignments = channels.watch_assignment(&agent(), &pass).unwrap();
    let mut version = assignments.borrow().version;
    let mut woken = false;
    for (directive, wings, scope) in orders {
        channels.send_orders(order(directive.clone(), wings), *scope);
        woken = assignments.has_changed().unwrap();
        let new_version = assignments.borrow_and_update().version;
        assert_eq!(new_version > version, woken, "the version is new exactly when the agent is woken");
        version = new_version;
    }
    let last = assignments.borrow();
    let directive = match &last.directive {
        Directive::Run(member) => format!("run {}", member.generation),
        Directive::Stop { generation } => format!("stop {generation}"),
        other => format!("{other:?}").to_lowercase(),
    };
    format!("{directive}, {} wings{}", last.wings.len(), if woken { ", woken" } else { "" })
}

#[test]
fn an_order_is_sent_as_far_as_its_scope_allows_and_wakes_if_it_is_new() {
    use Directive::{Hold, Stop};
    use SendScope::{Everything, Generations, NothingNew};
    let stop = Stop { generation: 1 };
    let wings = [wing()];
    let cases: [(&[SentOrder<'_>], &str); 8] = [
        (&[(Hold, &[], Everything)], "hold, 0 wings"),
        (&[(run(1), &wings, NothingNew)], "hold, 0 wings"),
        (&[(run(1), &wings, Generations)], "run 1, 0 wings, woken"),
        (&[(run(1), &wings, Everything)], "run 1, 1 wings, woken"),
        (&[(run(1), &wings, Generations), (run(1), &wings, Everything)], "run 1, 1 wings, woken"),
        (&[(run(1), &[], Everything), (run(1), &[], Everything)], "run 1, 0 wings"),
        (&[(run(1), &[], Everything), (stop, &[], NothingNew)], "stop 1, 0 wings, woken"),
        (&[(run(1), &[], Everything), (run(2), &[], NothingNew)], "run 1, 0 wings"),
    ];
    for (orders, expected) in cases {
        assert_eq!(assignment_after(orders), expected, "{orders:?}");
    }
}

#[test]
fn only_present_agents_have_a_channel_and_only_with_their_last_secret() {
    let channels = AgentChannels::new(UnixTime(1000));
    let [old, new] = ["old", "new"].map(|text| AgentPass::Bearer(Secret(text.into())));
    assert!(channels.check_report(&agent(), &old, Instant::now()).is_err());
    assert!(channels.watch_assignment(&agent(), &old).is_err());
    channels.open_channel(agent(), old.clone());
    let assignments = channels.watch_assignment(&agent(), &old).unwrap();
    channels.open_channel(agent(), new.clone());
    assert!(channels.check_report(&agent(), &new, Instant::now()).is_ok());
    assert!(channels.check_report(&agent(), &old, Instant::now()).is_err());
    assert!(channels.watch_assignment(&agent(), &old).is_err(), "a replaced secret is refused");
    assert!(assignments.has_changed().is_err(), "the channel of the older hello is closed");
    let next = channels.watch_assignment(&agent(), &new).unwrap();
    assert!(next.borrow().version > assignments.borrow().version);
    channels.retain_agents(|_| false);
    assert!(channels.check_report(&agent(), &new, Instant::now()).is_err());
}

#[test]
fn a_session_has_a_name_and_each_of_its_requests_counts_once() {
    let channels = AgentChannels::new(UnixTime(1000));
    let pass =
        |session: &str, counter| AgentPass::Session(ProvedRequest { session: session.to_owned(), counter });
    channels.open_channel(agent(), pass("a", 0));
    assert!(channels.check_report(&agent(), &pass("b", 1), Instant::now()).is_err(), "another session");
    assert!(
        channels.check_report(&agent(), &AgentPass::Bearer(Secret("a".into())), Instant::now()).is_err(),
        "the name of a session is not a secret"
    );
    let reported = [1, 1, 3, 2, 4]
        .map(|counter| channels.check_report(&agent(), &pass("a", counter), Instant::now()).is_ok());
    assert_eq!(reported, [true, false, true, false, true]);
    // Polls have a counter of their own: a poll is open while reports are sent.
    let polled = [2, 2, 5, 4].map(|counter| channels.watch_assignment(&agent(), &pass("a", counter)).is_ok());
    assert_eq!(polled, [true, false, true, false]);
    channels.open_channel(agent(), AgentPass::Bearer(Secret("a".into())));
    assert!(channels.check_report(&agent(), &pass("a", 9), Instant::now()).is_err());
}

#[test]
fn each_channel_has_a_rate_limit_of_its_own() {
    let channels = AgentChannels::new(UnixTime(1));
    let secret = AgentPass::Bearer(Secret("s".to_owned()));
    let wrong = AgentPass::Bearer(Secret("t".to_owned()));
    let other = (JobId(8), NodeName::from("n2"));
    channels.open_channel(agent(), secret.clone());
    channels.open_channel(other.clone(), secret.clone());
    let start = Instant::now() + Duration::from_secs(1);
    let report = |agent: &AgentId, millis| {
        channels.check_report(agent, &secret, start + Duration::from_millis(millis))
    };
    assert!((0..100).all(|_| report(&agent(), 0) == Ok(())));
    assert_eq!(report(&agent(), 20), Err(ChannelError::TooOften(Duration::from_millis(30))));
    assert_eq!(report(&other, 20), Ok(()));
    assert_eq!([50, 50].map(|millis| report(&agent(), millis).is_ok()), [true, false]);
    assert_eq!(channels.check_report(&agent(), &wrong, start), Err(ChannelError::Unknown));
}
