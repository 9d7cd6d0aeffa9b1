//! Records that are JSON by their brackets, and yet no text or numbers that serde_json takes: names in
//! Latin-1, halves of surrogate pairs, numbers beyond every range, the same field twice.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::json_window::first_value;

/// What stands in for a value that cannot be read: no kind of field can be understood from it.
const PLACEHOLDER: &str = "{}";

/// The record as JSON that can be read. Bytes that are no UTF-8 become replacement characters; a value that
/// still cannot be read, and a field that was there before, become [`PLACEHOLDER`] and nothing.
pub(super) fn repair_record(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    match object_members(&text) {
        Some(members) => join_members(&members).into_bytes(),
        None => value_or_placeholder(&text).into_owned().into_bytes(),
    }
}

/// The body of an answer as JSON that can be read.
pub(super) fn repair_text(body: Vec<u8>) -> Vec<u8> {
    String::from_utf8(body)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
        .into_bytes()
}

/// The names and values of an object, as they are written; `None` if it is none.
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

/// Takes the next value.
fn take_value<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (IgnoredAny, count) = first_value::<IgnoredAny>(rest.as_bytes()).ok()?;
    let value = rest.get(..count)?;
    *rest = rest.get(count..)?;
    Some(value)
}

fn join_members(members: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    let mut known = HashSet::new();
    for (name, value) in members {
        // A name that cannot be read is none that we know.
        let Ok(name) = serde_json::from_str::<String>(name) else { continue };
        if known.contains(&name) {
            continue;
        }
        let comma = if known.is_empty() { "" } else { "," };
        text.push_str(&format!("{comma}{}:{}", Value::from(name.as_str()), value_or_placeholder(value)));
        known.insert(name);
    }
    text + "}"
}

/// The value, or what stands in for it.
fn value_or_placeholder(value: &str) -> Cow<'_, str> {
    if serde_json::from_str::<Value>(value).is_ok() { value.into() } else { PLACEHOLDER.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let mended = String::from_utf8(repair_record(bytes)).unwrap();
        assert_eq!(mended, expected);
        assert!(serde_json::from_str::<Value>(&mended).is_ok(), "{mended}");
    }

    #[test]
    fn only_what_is_odd_changes() {
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
