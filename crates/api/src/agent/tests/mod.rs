//! Agents and daemons of neighbouring versions read each other's messages.

mod first;
mod schema;

use infill_model::{AgentEvent, Directive};

use super::*;

#[test]
fn an_unknown_directive_keeps_the_previous_one_and_the_rest_of_the_assignment() {
    let text = r#"{"version":7,"directive":{"levitate":{"generation":3}},"notice":"saves rarely",
                   "wings":[{"wing":"of a new kind"},{"order":4,"nodes":["n2"],"time_limit_mins":5,"partition":"infill",
                             "qos":null,"account":null,"gres":null}],"mood":"fine"}"#;
    let received: RawAssignment = serde_json::from_str(text).unwrap();
    let before = Directive::Stop { generation: 2 };
    let (assignment, unknown) = received.decode_known(&before);
    assert_eq!((assignment.version, &assignment.directive), (7, &before));
    assert_eq!(assignment.wings.iter().map(|w| w.number).collect::<Vec<_>>(), [4]);
    assert_eq!(assignment.notice.as_deref(), Some("saves rarely"));
    assert_eq!(unknown, ["levitate", "wing"]);
}

#[test]
fn unknown_events_are_dropped_one_by_one() {
    let text = r#"{"job":7,"node":"n1","events":[{"started":{"generation":1}},"telepathy",{"levitated":{"by":2}},
                   {"levitated":{"by":3}},{"stopped":{"generation":"one"}},[1,2],"leaving"]}"#;
    let received: RawReport = serde_json::from_str(text).unwrap();
    assert_eq!(received.event_count(), 7);
    let (report, unknown) = received.decode_known();
    assert_eq!(report.events, [AgentEvent::Started { generation: 1 }, AgentEvent::Leaving]);
    assert_eq!(unknown, ["telepathy", "levitated", "stopped", "[1,2]"]);
}

#[test]
fn names_of_unknown_events_are_short_and_without_control_characters() {
    let text = format!(r#"{{"job":7,"node":"n1","events":["\n{}"]}}"#, "x".repeat(1000));
    let (_, unknown) = serde_json::from_str::<RawReport>(&text).unwrap().decode_known();
    assert_eq!(unknown, ["x".repeat(MAX_NAME_CHARS)]);
}
