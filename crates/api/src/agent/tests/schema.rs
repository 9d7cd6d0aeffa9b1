//! The schema of the messages. It is in the repository, so that reviewers see each change.

use std::path::Path;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::super::*;

/// Path of the schema.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/agent.json");

/// If this variable is set, the test writes the file.
const UPDATE: &str = "INFILL_UPDATE_GOLDENS";

/// What a change of the schema means.
const MEANING: &str = "\
The messages between agents and daemon have changed. At each upgrade agents and daemon have neighbouring versions, so:
- A new field has a default, and a side that does not know the field can ignore it.
- A new directive, or a field that changes the meaning of a directive, has its own Capability (crates/api/src/capabilities.rs).
  `required_capability` in crates/lifecycle/src/fleet/agent_orders.rs names it: the daemon sends it only to agents with it.
- A new event may be sent at any time: an older daemon drops it, and names it in its answer.
- An existing field keeps its name and type until no supported version sends it.
If all this holds, regenerate the file and commit it:
    INFILL_UPDATE_GOLDENS=1 cargo test -p infill-api schema";

/// Removes descriptions: their wording may change, and programs ignore them.
fn remove_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A message may have a field of that name. Then the value is not a string.
            if fields.get("description").is_some_and(Value::is_string) {
                fields.remove("description");
            }
            fields.values_mut().for_each(remove_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_descriptions),
        _ => {}
    }
}

/// The schema of the present messages, as pretty-printed JSON.
fn present_schema() -> String {
    fn add<T: JsonSchema>(name: &str, messages: &mut Map<String, Value>, generator: &mut SchemaGenerator) {
        messages.insert(name.to_owned(), generator.subschema_for::<T>().to_value());
    }
    let mut generator = SchemaGenerator::default();
    let mut messages = Map::new();
    add::<AgentHello>("hello", &mut messages, &mut generator);
    add::<AgentWelcome>("welcome", &mut messages, &mut generator);
    add::<AgentPoll>("poll", &mut messages, &mut generator);
    add::<AgentAssignment>("assignment", &mut messages, &mut generator);
    add::<AgentReport>("report", &mut messages, &mut generator);
    add::<ReportReceipt>("receipt", &mut messages, &mut generator);
    let definitions = generator.take_definitions(true);
    let mut document = json!({ "protocol": PROTOCOL, "messages": messages, "$defs": definitions });
    remove_descriptions(&mut document);
    serde_json::to_string_pretty(&document).unwrap() + "\n"
}

#[test]
fn the_schema_is_the_one_in_the_repository() {
    let present = present_schema();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(Path::new(FILE), &present).unwrap();
    }
    let stored = std::fs::read_to_string(FILE).unwrap_or_default();
    let differs_at = present.lines().zip(stored.lines()).position(|(a, b)| a != b);
    let line = differs_at.unwrap_or_else(|| present.lines().count().min(stored.lines().count())) + 1;
    assert!(present == stored, "{FILE} differs from line {line} on.\n{MEANING}");
}
