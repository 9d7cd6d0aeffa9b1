//! Repairs records that have the structure of JSON, but contain text or numbers that serde_json refuses:
//! names in Latin-1, halves of surrogate pairs, numbers out of range, the same field twice.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::json_window::first_value;

/// Replaces a value that cannot be read. No kind of field accepts it, so the field counts as bad.
const PLACEHOLDER: &str = "{}";

/// The record as JSON that can be read. Bytes that are not UTF-8 become replacement characters. A value that
/// still cannot be read becomes [`PLACEHOLDER`]. A field that occurred before is dropped.
pub(super) fn repair_record(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    match object_members(&text) {
        Some(members) => join_members(&members).into_bytes(),
        None => value_or_placeholder(&text).into_owned().into_bytes(),
    }
}

/// The body of a response with replacement characters for bytes that are not UTF-8.
pub(super) fn repair_text(body: Vec<u8>) -> Vec<u8> {
    String::from_utf8(body)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
        .into_bytes()
}

/// The names and values of an object, as they are written; `None` if the text is not an object.
fn object_members(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut rest = text.trim_start().strip_prefix('{')?;
    let mut members = Vec::new();
    while !rest.trim_start().starts_with('}') {
        let name = take_value(&mut rest)?;
        rest = rest.trim_start().strip_prefix(':')?;
        members.push((name, take_value(&mut rest)?));
        rest = rest.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(members)
}

/// Takes the next value off the front of `rest`.
fn take_value<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (IgnoredAny, count) = first_value::<IgnoredAny>(rest.as_bytes()).ok()?;
    let value = rest.get(..count)?;
    *rest = rest.get(count..)?;
    Some(value)
}

fn join_members(members: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    let mut seen_names = HashSet::new();
    for (name, value) in members {
        // A field whose name cannot be read is not one that infill uses.
        let Ok(name) = serde_json::from_str::<String>(name) else { continue };
        if seen_names.contains(&name) {
            continue;
        }
        let comma = if seen_names.is_empty() { "" } else { "," };
        text.push_str(&format!("{comma}{}:{}", Value::from(name.as_str()), value_or_placeholder(value)));
        seen_names.insert(name);
    }
    text + "}"
}

/// The value, or [`PLACEHOLDER`] if serde_json refuses it.
fn value_or_placeholder(value: &str) -> Cow<'_, str> {
    if serde_json::from_str::<Value>(value).is_ok() { value.into() } else { PLACEHOLDER.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let repaired = String::from_utf8(repair_record(bytes)).unwrap();
        assert_eq!(repaired, expected);
        assert!(serde_json::from_str::<Value>(&repaired).is_ok(), "{repaired}");
    }

    #[test]
    fn only_unreadable_values_change() {
        check(br#"{"a": 1, "b": {"c": [null]}}"#, r#"{"a": 1,"b": {"c": [null]}}"#);
        check(b"{\"name\": \"caf\xe9\", \"a\": 1}", "{\"name\": \"caf\u{fffd}\",\"a\": 1}");
        check(br#"{"name": "\ud800", "a": 1}"#, r#"{"name":{},"a": 1}"#);
        check(br#"{"a": 1e999, "a": 2, "b": 3}"#, r#"{"a":{},"b": 3}"#);
        check(br#"{"\ud800": 1, "b": 3}"#, r#"{"b": 3}"#);
        check(br#"{}"#, "{}");
        check(br#"[1e999]"#, "{}");
        check(b"\"\xe9\"", "\"\u{fffd}\"");
        let deep = format!(r#"{{"a": {}1{}, "b": 2}}"#, "[".repeat(500), "]".repeat(500));
        check(deep.as_bytes(), r#"{"a":{},"b": 2}"#);
    }
}
