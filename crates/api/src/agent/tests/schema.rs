//! The schema of the messages, which is in the repository so that a change of it is seen.

use std::path::Path;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::super::*;

/// Where it is.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/agent.json");

/// If set, the test writes the file.
const UPDATE: &str = "INFILL_UPDATE_GOLDENS";

/// What a change of it means.
const MEANING: &str = "\
The messages between agents and daemon have changed. Both are of neighbouring versions at every upgrade, so:
- A new field has a default, and means nothing to who does not know it.
- A new directive, or a field that changes what one means, has a Capability of its own (crates/api/src/capabilities.rs), and
  `needs` in crates/lifecycle/src/fleet/agent_orders.rs says so: it is sent only to who named it.
- A new event may be sent at any time: an older daemon drops it, and names it in its answer.
- What is there stays, with its name and its type, until no supported version sends it.
If all that holds, write the file anew and commit it:
    INFILL_UPDATE_GOLDENS=1 cargo test -p infill-api schema";

/// Sentences change and mean nothing to programs.
fn without_sentences(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A field of a message may itself be called that; then it is no text.
            if fields.get("description").is_some_and(Value::is_string) {
                fields.remove("description");
            }
            fields.values_mut().for_each(without_sentences);
        }
        Value::Array(items) => items.iter_mut().for_each(without_sentences),
        _ => {}
    }
}

fn present() -> String {
    let mut generator = SchemaGenerator::default();
    let mut messages = Map::new();
    let mut add = |name: &str, schema: schemars::Schema| messages.insert(name.to_owned(), schema.to_value());
    fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<T>()
    }
    add("hello", of::<AgentHello>(&mut generator));
    add("welcome", of::<AgentWelcome>(&mut generator));
    add("poll", of::<AgentPoll>(&mut generator));
    add("assignment", of::<AgentAssignment>(&mut generator));
    add("report", of::<AgentReport>(&mut generator));
    add("receipt", of::<ReportReceipt>(&mut generator));
    let definitions = generator.take_definitions(true);
    let mut document = json!({ "protocol": PROTOCOL, "messages": messages, "$defs": definitions });
    without_sentences(&mut document);
    serde_json::to_string_pretty(&document).unwrap() + "\n"
}

#[test]
fn the_schema_is_the_one_in_the_repository() {
    let present = present();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(Path::new(FILE), &present).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    let line = present.lines().zip(kept.lines()).position(|(a, b)| a != b);
    let at = line.unwrap_or_else(|| present.lines().count().min(kept.lines().count())) + 1;
    assert!(present == kept, "{FILE} differs from line {at} on.\n{MEANING}");
}
