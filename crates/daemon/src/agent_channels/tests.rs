//! What agents are told, and when they are woken.

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
        order: 1,
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

fn word(directive: Directive, wings: &[WingOrder]) -> Vec<AgentOrder> {
    vec![AgentOrder { agent: agent(), directive, wings: wings.to_vec(), notice: None }]
}

/// What an agent is to do, the wings that it is to submit, and how much of that it may be told.
type Said<'a> = (Directive, &'a [WingOrder], OrderPermit);

/// What an agent knows after these words: its directive, its wings, and whether the last word woke it.
fn told(words: &[Said<'_>]) -> String {
    let lines = AgentChannels::new(UnixTime(1000));
    let pass = AgentPass::Bearer(Secret("s".into()));
    lines.open_channel(agent(), pass.clone());
    let mut line = lines.watch_assignment(&agent(), &pass).unwrap();
    let mut version = line.borrow().version;
    let mut woken = false;
    for (directive, wings, permit) in words {
        lines.send_orders(word(directive.clone(), wings), *permit);
        woken = line.has_changed().unwrap();
        let now = line.borrow_and_update().version;
        assert_eq!(now > version, woken, "a version is new exactly when somebody is woken");
        version = now;
    }
    let told = line.borrow();
    let directive = match &told.directive {
        Directive::Run(member) => format!("run {}", member.generation),
        Directive::Stop { generation } => format!("stop {generation}"),
        other => format!("{other:?}").to_lowercase(),
    };
    format!("{directive}, {} wings{}", told.wings.len(), if woken { ", woken" } else { "" })
}

#[test]
fn a_word_is_told_as_far_as_it_may_be_and_wakes_if_it_is_new() {
    use Directive::{Hold, Stop};
    use OrderPermit::{Order, Run, Stop as Silent};
    let stop = Stop { generation: 1 };
    let wings = [wing()];
    let cases: [(&[Said<'_>], &str); 8] = [
        (&[(Hold, &[], Order)], "hold, 0 wings"),
        (&[(run(1), &wings, Silent)], "hold, 0 wings"),
        (&[(run(1), &wings, Run)], "run 1, 0 wings, woken"),
        (&[(run(1), &wings, Order)], "run 1, 1 wings, woken"),
        (&[(run(1), &wings, Run), (run(1), &wings, Order)], "run 1, 1 wings, woken"),
        (&[(run(1), &[], Order), (run(1), &[], Order)], "run 1, 0 wings"),
        (&[(run(1), &[], Order), (stop, &[], Silent)], "stop 1, 0 wings, woken"),
        (&[(run(1), &[], Order), (run(2), &[], Silent)], "run 1, 0 wings"),
    ];
    for (words, want) in cases {
        assert_eq!(told(words), want, "{words:?}");
    }
}

#[test]
fn only_who_is_here_has_a_line_and_only_with_its_last_secret() {
    let lines = AgentChannels::new(UnixTime(1000));
    let [old, new] = ["old", "new"].map(|text| AgentPass::Bearer(Secret(text.into())));
    assert!(
        lines.check_report(&agent(), &old, Instant::now()).is_err()
            && lines.watch_assignment(&agent(), &old).is_err()
    );
    lines.open_channel(agent(), old.clone());
    let line = lines.watch_assignment(&agent(), &old).unwrap();
    lines.open_channel(agent(), new.clone());
    assert!(
        lines.check_report(&agent(), &new, Instant::now()).is_ok()
            && lines.check_report(&agent(), &old, Instant::now()).is_err()
    );
    assert!(
        lines.watch_assignment(&agent(), &old).is_err(),
        "nobody listens with a secret that was replaced"
    );
    assert!(line.has_changed().is_err(), "the older hello's line has ended");
    assert!(lines.watch_assignment(&agent(), &new).unwrap().borrow().version > line.borrow().version);
    lines.retain_agents(|_| false);
    assert!(lines.check_report(&agent(), &new, Instant::now()).is_err());
}

#[test]
fn a_session_is_known_by_its_name_and_no_request_of_it_counts_twice() {
    let lines = AgentChannels::new(UnixTime(1000));
    let pass =
        |session: &str, counter| AgentPass::Session(ProvedRequest { session: session.to_owned(), counter });
    lines.open_channel(agent(), pass("a", 0));
    assert!(lines.check_report(&agent(), &pass("b", 1), Instant::now()).is_err(), "another's session");
    assert!(
        lines.check_report(&agent(), &AgentPass::Bearer(Secret("a".into())), Instant::now()).is_err(),
        "its name is no secret"
    );
    let heard = [1, 1, 3, 2, 4]
        .map(|counter| lines.check_report(&agent(), &pass("a", counter), Instant::now()).is_ok());
    assert_eq!(heard, [true, false, true, false, true]);
    // Polls are counted for themselves: they are under way while reports are made.
    let polled = [2, 2, 5, 4].map(|counter| lines.watch_assignment(&agent(), &pass("a", counter)).is_ok());
    assert_eq!(polled, [true, false, true, false]);
    lines.open_channel(agent(), AgentPass::Bearer(Secret("a".into())));
    assert!(lines.check_report(&agent(), &pass("a", 9), Instant::now()).is_err());
}

#[test]
fn a_line_has_its_own_measure_of_reports_and_gets_it_back() {
    let lines = AgentChannels::new(UnixTime(1));
    let secret = "s";
    let wrong = "t";
    let pass = |text: &str| AgentPass::Bearer(Secret(text.to_owned()));
    let other = (JobId(8), NodeName::from("n2"));
    lines.open_channel(agent(), pass(secret));
    lines.open_channel(other.clone(), pass(secret));
    let began = Instant::now() + Duration::from_secs(1);
    let hears =
        |who: &AgentId, millis| lines.check_report(who, &pass(secret), began + Duration::from_millis(millis));
    assert!((0..100).all(|_| hears(&agent(), 0) == Ok(())));
    assert_eq!(hears(&agent(), 20), Err(ChannelError::TooOften(Duration::from_millis(30))));
    assert_eq!(hears(&other, 20), Ok(()));
    assert_eq!([50, 50].map(|t| hears(&agent(), t).is_ok()), [true, false]);
    assert_eq!(lines.check_report(&agent(), &pass(wrong), began), Err(ChannelError::Unknown));
}
