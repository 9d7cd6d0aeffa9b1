//! The document as a whole: each route of the table with its operation.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::http::route_access::RouteAccess;
use crate::http::routes::{ApiRoute, ROUTES};
use infill_api::{ErrorBody, SCHEMA_VERSION, routes as paths};

use super::operations::{AnswerContent, ApiOperation, operations};
use super::schemas::SchemaCollector;
use super::security::{RequiredProof, answer_headers, parameters, schemes};

/// The files of the web page, which the document leaves out.
const PAGE_FILES: [&str; 3] = [paths::PAGE, paths::PAGE_SCRIPT, paths::PAGE_STYLE];

/// The paths with their descriptions, as the crate of the messages has them.
const SOURCE: &str = include_str!("../../../../api/src/routes.rs");

/// Refusals of browsers on any route.
const BROWSER_DENIALS: [u16; 2] = [403, 421];

/// Refusals on any route that needs a daemon that leads.
const LEADER_DENIALS: [u16; 3] = [401, 500, 503];

/// Refusals of bodies.
const BODY_DENIALS: [u16; 5] = [400, 408, 413, 415, 422];

const ABOUT: &str = "\
The HTTP interface of infill's daemon, which lends idle nodes of a Slurm cluster to malleable training \
jobs. Later versions may add fields to answers: ignore those that you do not know.";

/// A route as the documents show it.
pub(in crate::http) struct RouteDescription {
    /// What it is for.
    pub text: String,
    /// Its method, in capitals.
    pub method: &'static str,
}

/// Description and method of the route with this path.
///
/// # Panics
///
/// If no constant has this path.
pub(in crate::http) fn describe_route(path: &str) -> RouteDescription {
    let at = SOURCE.find(&format!("= {path:?};")).unwrap_or_else(|| panic!("{path} has no constant"));
    let above: Vec<&str> =
        SOURCE[..at].lines().rev().skip(1).map_while(|line| line.strip_prefix("/// ")).collect();
    let words = above.into_iter().rev().collect::<Vec<_>>().join(" ");
    let method = if words.contains("(`POST`)") { "POST" } else { "GET" };
    let words = words.split(", as a pattern").next().unwrap_or_default();
    let text = words.replace(" (`POST`)", "").replace(" (`GET`)", "").trim_end_matches('.').to_owned();
    RouteDescription { text, method }
}

/// The word for who may use a route.
pub(in crate::http) fn access_word(access: RouteAccess) -> &'static str {
    match access {
        RouteAccess::Open => "open",
        RouteAccess::Agents => "agent",
        RouteAccess::Changes => "user",
        RouteAccess::Reads => "reader",
        RouteAccess::Computes => "proved reader",
    }
}

/// The document.
///
/// # Panics
///
/// If a route has no operation, or an operation no route.
pub(in crate::http) fn build_document() -> Value {
    let mut schemas = SchemaCollector::new();
    let error = schemas.answer::<ErrorBody>();
    let mut operations = operations(&mut schemas);
    let mut statuses = BTreeSet::new();
    let mut found = Map::new();
    for route in ROUTES.iter().filter(|route| !PAGE_FILES.contains(&route.path)) {
        let index = operations.iter().position(|operation| operation.path == route.path);
        let index =
            index.unwrap_or_else(|| panic!("{} has no operation: add it to operations.rs", route.path));
        let operation = operations.swap_remove(index);
        let denials = denials(route, &operation);
        let method = describe_route(route.path).method.to_lowercase();
        found.insert(route.path.to_owned(), json!({ method: to_json(route, operation, &denials) }));
        statuses.extend(denials);
    }
    let unknown: Vec<&str> = operations.iter().map(|operation| operation.path).collect();
    assert!(unknown.is_empty(), "the table has no routes {unknown:?}");
    let mut found = Value::Object(found);
    let denials: Map<String, Value> =
        statuses.iter().map(|status| (denial_name(*status), denial(*status, &error))).collect();
    let schemas = schemas.finish(&mut found);
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "infill",
            "version": SCHEMA_VERSION.to_string(),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The daemon that serves this document (`daemon.listen`)." }],
        "tags": tags(),
        "paths": found,
        "components": {
            "schemas": schemas,
            "responses": denials,
            "parameters": parameters(),
            "headers": answer_headers(),
            "securitySchemes": schemes(),
        },
    })
}

fn tags() -> Value {
    let tag = |access: RouteAccess, text: &str| json!({ "name": access_word(access), "description": text });
    json!([
        tag(RouteAccess::Open, "Anyone who reaches the port. The answers name no user."),
        tag(
            RouteAccess::Reads,
            "Users who prove themselves, browsers with a session, and anyone where `http.read` is `open`."
        ),
        tag(RouteAccess::Computes, "Users who prove themselves, and browsers with a session."),
        tag(RouteAccess::Changes, "Users who prove themselves. Orders to the daemon are for administrators."),
        tag(RouteAccess::Agents, "Agents of jobs, with their job's proof."),
    ])
}

/// Statuses with which a route may refuse a request.
fn denials(route: &ApiRoute, operation: &ApiOperation) -> BTreeSet<u16> {
    let mut statuses = BTreeSet::from(BROWSER_DENIALS);
    if route.access != RouteAccess::Open {
        statuses.extend(LEADER_DENIALS);
    }
    if operation.body.is_some() {
        statuses.extend(BODY_DENIALS);
    }
    statuses.extend(&operation.denials);
    statuses
}

fn to_json(route: &ApiRoute, operation: ApiOperation, denials: &BTreeSet<u16>) -> Value {
    let ApiOperation { id, mut parameters, body, answers, proof, purpose, notes, .. } = operation;
    let proof = proof.unwrap_or(RequiredProof::for_access(route.access));
    if proof.takes_credential() {
        parameters
            .extend(["Nonce", "To"].map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })));
    }
    let mut responses = Map::new();
    for (status, content) in answers {
        responses.insert(status.to_string(), answer(status, content, proof));
    }
    for status in denials {
        let path = format!("#/components/responses/{}", denial_name(*status));
        responses.insert(status.to_string(), json!({ "$ref": path }));
    }
    let summary = describe_route(route.path).text;
    let mut shown = json!({
        "operationId": id, "summary": summary, "tags": [access_word(route.access)], "parameters": parameters,
        "responses": responses, "security": proof.requirements(),
    });
    let purpose = purpose.filter(|_| proof.takes_credential());
    let body = body
        .map(|schema| json!({ "required": true, "content": { "application/json": { "schema": schema } } }));
    let notes = Some(notes).filter(|notes| !notes.is_empty());
    let optional = [
        ("x-infill-purpose", purpose.map(Value::from)),
        ("requestBody", body),
        ("description", notes.map(Value::from)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            shown[name] = value;
        }
    }
    shown
}

fn answer(status: u16, content: AnswerContent, proof: RequiredProof) -> Value {
    let mut answer = json!({ "description": reason(status) });
    match content {
        AnswerContent::Json(schema) => {
            answer["content"] = json!({ "application/json": { "schema": schema } })
        }
        AnswerContent::Text(kind) => answer["content"] = json!({ kind: { "schema": { "type": "string" } } }),
        AnswerContent::Nothing => {}
    }
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    if proof != RequiredProof::Nothing && proof != RequiredProof::BrowserSession {
        answer["headers"] = json!({ infill_api::headers::MAC: header("Mac") });
    }
    if proof.takes_credential() {
        answer["headers"][infill_api::headers::SEAL] = header("Seal");
    }
    if proof.gives_ticket() {
        answer["headers"][infill_api::headers::TICKET] = header("Ticket");
    }
    answer
}

/// The standard's words for a status.
fn reason(status: u16) -> &'static str {
    let status = StatusCode::from_u16(status).expect("a status");
    status.canonical_reason().expect("a status of the standard")
}

/// The name of a refusal in the document.
fn denial_name(status: u16) -> String {
    reason(status).replace(' ', "")
}

fn denial(status: u16, error: &Value) -> Value {
    let mut denial = json!({
        "description": denial_text(status),
        "content": { "application/json": { "schema": error } },
    });
    if status == 429 {
        let seconds = json!({ "type": "integer", "minimum": 1 });
        denial["headers"] = json!({
            "retry-after": { "description": "Seconds until another try makes sense.", "schema": seconds },
        });
    }
    denial
}

/// What a refusal means.
///
/// # Panics
///
/// The status must have a text.
fn denial_text(status: u16) -> &'static str {
    match status {
        400 => "A parameter or the body cannot be read, or is out of bounds.",
        401 => "The proof is missing or not valid. The answer does not say why.",
        403 => "The user may not do that, or another site's page sent the request.",
        404 => "There is nothing, or nothing that this reader may see.",
        408 => "The body did not arrive in time.",
        409 => "The state of the user's jobs does not allow it.",
        410 => "The worker does not belong to the job any more. Its agent ends.",
        413 => "The body is too long, or has too many entries.",
        415 => "The body is not marked as `application/json`.",
        421 => "The request is meant for another daemon, or names a host that is not this one.",
        422 => "The body is JSON of another form, or has values that are not allowed.",
        429 => "The client asks too often.",
        500 => "The daemon failed. Its log says more.",
        503 => "The daemon stands by, is not ready, or cannot reach what it needs. Try again.",
        _ => panic!("say in {} what {status} means", file!()),
    }
}

/// What the routes' page calls the answer of a route: the name of its schema, or its kind.
pub(in crate::http) fn answer_name(document: &Value, path: &str) -> String {
    let Some(operations) = document["paths"][path].as_object() else {
        return "a file of the page".to_owned();
    };
    let responses = operations.values().find_map(|operation| operation["responses"].as_object());
    let content =
        responses.and_then(|all| all.iter().find(|(status, _)| status.starts_with('2'))).map(|(_, a)| a);
    let Some(content) = content.and_then(|answer| answer["content"].as_object()) else {
        return "none".to_owned();
    };
    let (kind, media) = content.iter().next().expect("a kind");
    match media["schema"]["$ref"].as_str() {
        Some(path) => format!("`{}`", path.rsplit('/').next().unwrap_or(path)),
        None if kind == "application/json" => "OpenAPI".to_owned(),
        None => "text".to_owned(),
    }
}
