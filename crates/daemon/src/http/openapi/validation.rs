//! Checks that answers are as the document says. Unknown fields count as errors, although the document allows
//! that later versions add some.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::document::build_document;

/// The document as it is published.
pub(in crate::http) static PUBLISHED: LazyLock<Value> = LazyLock::new(build_document);

/// The document with schemas that allow no unknown fields.
static STRICT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = PUBLISHED.clone();
    let schemas = document["components"]["schemas"].as_object_mut().expect("schemas");
    schemas.values_mut().for_each(refuse_unknown_fields);
    document
});

/// Keywords whose value is a schema for a part of the value, by name or in a list.
const PARTS: [&str; 6] =
    ["properties", "patternProperties", "items", "prefixItems", "additionalProperties", "propertyNames"];

/// Keywords whose value is a list of schemas for the whole value.
const CHOICES: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Makes a schema refuse fields that it does not name.
fn refuse_unknown_fields(schema: &mut Value) {
    refuse_in_parts(schema);
    let Some(fields) = schema.as_object_mut() else { return };
    let describes_fields =
        fields.contains_key("properties") || CHOICES.iter().any(|key| fields.contains_key(*key));
    if describes_fields {
        fields.insert("unevaluatedProperties".to_owned(), false.into());
    }
}

/// Does so in what a schema says of parts of the value.
fn refuse_in_parts(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (key, value) in fields {
        let is_part = PARTS.contains(&key.as_str());
        match value {
            Value::Object(_) if key == "properties" || key == "patternProperties" => {
                value.as_object_mut().into_iter().flatten().for_each(|(_, part)| refuse_unknown_fields(part));
            }
            Value::Array(parts) if is_part => parts.iter_mut().for_each(refuse_unknown_fields),
            Value::Array(choices) if CHOICES.contains(&key.as_str()) => {
                choices.iter_mut().for_each(refuse_in_parts)
            }
            _ if is_part => refuse_unknown_fields(value),
            _ => {}
        }
    }
}

/// Validators of the schemas at pointers into the document.
static VALIDATORS: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());

/// The validator of the schema at this pointer.
fn validator(pointer: &str) -> Arc<Validator> {
    let mut known = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let made = known.entry(pointer.to_owned()).or_insert_with(|| {
        let mut schema = STRICT.pointer(pointer).unwrap_or_else(|| panic!("no schema at {pointer}")).clone();
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        // References lead there.
        schema["components"] = json!({ "schemas": STRICT["components"]["schemas"] });
        Arc::new(jsonschema::validator_for(&schema).unwrap_or_else(|e| panic!("{pointer}: {e}")))
    });
    made.clone()
}

/// What is wrong with a value of the schema at this pointer into the document, a line each.
pub(in crate::http) fn find_errors(pointer: &str, value: &Value) -> Vec<String> {
    let validator = validator(pointer);
    validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

/// The same for the schema with this name.
pub(in crate::http) fn find_errors_of(schema: &str, value: &Value) -> Vec<String> {
    find_errors(&format!("/components/schemas/{schema}"), value)
}

/// A name inside a JSON pointer.
pub(in crate::http) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The route of the document that a path belongs to, and its method.
fn find_route(path: &str) -> Option<(&'static str, &'static str)> {
    let routes = PUBLISHED["paths"].as_object()?;
    let matches = |pattern: &str| {
        let [pattern, path] = [pattern, path].map(|path| path.split('/'));
        pattern.clone().count() == path.clone().count()
            && pattern.zip(path).all(|(part, given)| part == given || part.starts_with('{'))
    };
    // A path without braces comes first.
    let found = routes.get_key_value(path).or_else(|| routes.iter().find(|(pattern, _)| matches(pattern)));
    let (route, methods) = found?;
    Some((route, methods.as_object()?.keys().next()?))
}

/// What is wrong with an answer; `None` if it is as the document says, or the document has no such route.
fn find_fault(path: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let (route, method) = find_route(path)?;
    let mut pointer = format!("/paths/{}/{method}/responses/{status}", escaped(route));
    let Some(mut response) = PUBLISHED.pointer(&pointer) else { return Some("no such status".to_owned()) };
    if let Some(reference) = response["$ref"].as_str() {
        pointer = reference.trim_start_matches('#').to_owned();
        response = PUBLISHED.pointer(&pointer)?;
    }
    let Some(kinds) = response["content"].as_object() else {
        return (!body.is_empty()).then(|| "the document has no body".to_owned());
    };
    let shown = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let media_type = |kind: &str| kind.split(';').next().unwrap_or_default().to_owned();
    let Some(kind) = kinds.keys().find(|kind| media_type(kind) == media_type(shown)) else {
        return Some(format!("its type is {shown:?}"));
    };
    if kind != "application/json" {
        return None;
    }
    let text = if headers.contains_key(CONTENT_ENCODING) { unpack(body) } else { body.to_vec() };
    let Ok(value) = serde_json::from_slice(&text) else { return Some("it is not JSON".to_owned()) };
    let errors = find_errors(&format!("{pointer}/content/{}/schema", escaped(kind)), &value);
    (!errors.is_empty()).then(|| errors.join("\n"))
}

fn unpack(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut text).unwrap();
    text
}

/// Asserts that an answer is as the document says.
#[track_caller]
pub(in crate::http) fn assert_documented(path: &str, status: u16, headers: &HeaderMap, body: &[u8]) {
    if let Some(fault) = find_fault(path, status, headers, body) {
        let body = String::from_utf8_lossy(body);
        panic!("the document does not have this answer of {path} with {status}: {fault}\n{body}");
    }
}

/// A router of a test whose answers are checked. If one is not as the document says, its connection breaks
/// off.
pub(in crate::http) fn with_checked_answers(router: Router) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| -> Response {
        let path = request.uri().path().to_owned();
        let (parts, body) = next.run(request).await.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        assert_documented(&path, parts.status.as_u16(), &parts.headers, &bytes);
        Response::from_parts(parts, Body::from(bytes))
    }))
}
