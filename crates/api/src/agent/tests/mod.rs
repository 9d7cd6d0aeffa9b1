//! What agents and daemons of neighbouring versions read of each other.

mod first;
mod schema;

use infill_model::{AgentEvent, Directive};

use super::*;

#[test]
fn an_order_that_is_not_known_leaves_the_one_before_and_the_rest_of_the_assignment() {
    let text = r#"{"version":7,"directive":{"levitate":{"generation":3}},"notice":"saves rarely",
                   "wings":[{"wing":"of a new kind"},{"order":4,"nodes":["n2"],"time_limit_mins":5,"partition":"infill",
                             "qos":null,"account":null,"gres":null}],"mood":"fine"}"#;
    let heard: RawAssignment = serde_json::from_str(text).unwrap();
    let before = Directive::Stop { generation: 2 };
    let (assignment, unknown) = heard.decode_known(&before);
    assert_eq!((assignment.version, &assignment.directive), (7, &before));
    assert_eq!(assignment.wings.iter().map(|w| w.order).collect::<Vec<_>>(), [4]);
    assert_eq!(assignment.notice.as_deref(), Some("saves rarely"));
    assert_eq!(unknown, ["levitate", "wing"]);
}

#[test]
fn events_that_are_not_known_are_dropped_one_by_one() {
    let text = r#"{"job":7,"node":"n1","events":[{"started":{"generation":1}},"telepathy",{"levitated":{"by":2}},
                   {"levitated":{"by":3}},{"stopped":{"generation":"one"}},[1,2],"leaving"]}"#;
    let heard: RawReport = serde_json::from_str(text).unwrap();
    assert_eq!(heard.event_count(), 7);
    let (report, unknown) = heard.decode_known();
    assert_eq!(report.events, [AgentEvent::Started { generation: 1 }, AgentEvent::Leaving]);
    assert_eq!(unknown, ["telepathy", "levitated", "stopped", "[1,2]"]);
}

#[test]
fn names_of_what_is_not_known_are_short_and_hold_no_control_characters() {
    let text = format!(r#"{{"job":7,"node":"n1","events":["\n{}"]}}"#, "x".repeat(1000));
    let (_, unknown) = serde_json::from_str::<RawReport>(&text).unwrap().decode_known();
    assert_eq!(unknown, ["x".repeat(MAX_NAME_CHARS)]);
}
