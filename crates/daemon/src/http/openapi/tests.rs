//! The document says what the daemon writes and how it reads queries, and its checks find what is wrong.

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::document::access_word;
use super::validation::{PUBLISHED, assert_documented, escaped, find_errors, find_errors_of};
use crate::http::build_router;
use crate::http::route_access::RouteAccess;
use crate::http::routes::ROUTES;
use crate::http::standby_router;
use crate::http::tests::{ReaderKind, TestDaemon, posted, told};
use infill_api::routes as paths;
use infill_model::{
    AllowedSizes, DaemonMode, GapRefusal, JobId, JobReason, MetricsAccess, NodeReason, ReadAccess, RoundNote,
    ScalingCurve, SolveStatus, Spread,
};
use infill_testkit::samples;

#[track_caller]
fn assert_valid(schema: &str, value: &impl Serialize) {
    let value = serde_json::to_value(value).unwrap();
    let errors = find_errors_of(schema, &value);
    assert!(errors.is_empty(), "{schema}: {errors:?}\n{value}");
}

#[test]
fn documents_of_the_samples_are_valid() {
    assert_valid("DaemonStatus", &samples::sample_status());
    assert_valid("RoundView", &samples::sample_round());
    assert_valid("RoundsView", &samples::sample_rounds());
    assert_valid("HistoryView", &samples::sample_history());
    assert_valid("ProfilesView", &samples::sample_profiles());
    let import = json!({ "jobs": [samples::sample_ended_job(7)] });
    assert_valid("ImportEndedRequest", &import);
}

#[test]
fn values_with_their_own_form_in_json_are_valid() {
    let gap = Some(0.5);
    let text = || "text".to_owned();
    for status in [
        SolveStatus::Optimal,
        SolveStatus::TimeLimit { gap },
        SolveStatus::TimeLimit { gap: None },
        SolveStatus::SolverNotUsed { gap },
        SolveStatus::Fallback(text()),
        SolveStatus::LastResort(text()),
        SolveStatus::Trivial,
    ] {
        assert_valid("SolveStatus", &status);
    }
    for spread in [Spread::Near, Spread::Across, Spread::Both { rate: 1.0, error: 0.1 }] {
        assert_valid("Spread", &spread);
    }
    assert_valid("JobReason", &JobReason::Drained);
    assert_valid("NodeReason", &NodeReason::Refused(GapRefusal::Leaving(JobId(7))));
    assert_valid("RoundNote", &RoundNote::BudgetUsed { most: 3 });
    assert_valid("ScalingCurve", &ScalingCurve::linear());
    assert_valid("AllowedSizes", &AllowedSizes::Range { min: 1, max: 4 });
    DaemonMode::ALL.iter().for_each(|mode| assert_valid("DaemonMode", mode));
    assert!(!find_errors_of("DaemonMode", &json!("sleep")).is_empty());
}

/// Changes the status of the samples and counts what is then wrong.
fn errors_after(change: impl FnOnce(&mut Value)) -> usize {
    let mut status = serde_json::to_value(samples::sample_status()).unwrap();
    change(&mut status);
    find_errors_of("DaemonStatus", &status).len()
}

#[test]
fn a_value_of_another_form_is_found() {
    assert_eq!(errors_after(|_| {}), 0);
    assert_ne!(errors_after(|status| status["colour"] = json!("red")), 0, "an unknown field");
    assert_ne!(
        errors_after(|status| status["jobs"][0]["colour"] = json!("red")),
        0,
        "an inner unknown field"
    );
    assert_ne!(errors_after(|status| status["jobs"][0]["ends"]["colour"] = json!(1)), 0, "one of an option");
    assert_ne!(errors_after(|status| status["schema"] = json!(2)), 0, "another version");
    assert_ne!(errors_after(|status| status["started_at"] = json!("now")), 0, "another type");
    assert_ne!(
        errors_after(|status| drop(status.as_object_mut().unwrap().remove("nodes"))),
        0,
        "a lost field"
    );
    // Fields of a profile and of the key that is flattened into it.
    let mut profiles = serde_json::to_value(samples::sample_profiles()).unwrap();
    profiles["profiles"][0]["colour"] = json!("red");
    assert_ne!(find_errors_of("ProfilesView", &profiles), [""; 0]);
    // Rows of either kind are in the same document as the fields around them.
    let mut map = json!({
        "schema": 1, "from": 0, "to": 1, "seen": 1, "nodes": 1, "first": 0, "count": 1,
        "detail": "mixtures", "rows": [1], "columns": 1, "shares": "AAAA",
    });
    assert_valid("TimelineView", &map);
    map["detail"] = json!("nodes");
    assert_ne!(find_errors_of("TimelineView", &map), [""; 0]);
}

/// Whether an answer is documented.
fn is_documented(path: &str, status: u16, kind: &str, body: &str) -> bool {
    let headers: HeaderMap =
        [(axum::http::header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect();
    let path = path.to_owned();
    let body = body.to_owned();
    std::panic::catch_unwind(move || assert_documented(&path, status, &headers, body.as_bytes())).is_ok()
}

#[test]
fn an_answer_that_is_not_documented_is_found() {
    let json = "application/json";
    let refusal = r#"{"error":"not proved"}"#;
    assert!(is_documented(paths::STATUS, 401, json, refusal));
    assert!(is_documented("/v1/rounds/17", 404, json, refusal));
    assert!(is_documented(paths::HEALTHZ, 200, "text/plain; charset=utf-8", "ok\n"));
    assert!(is_documented(paths::CONTROL, 204, "", ""));
    assert!(!is_documented(paths::STATUS, 418, json, refusal), "another status");
    assert!(!is_documented(paths::STATUS, 401, json, r#"{"reason":"?"}"#), "another body");
    assert!(!is_documented(paths::STATUS, 401, "text/plain", refusal), "another type");
    assert!(!is_documented(paths::STATUS, 200, json, refusal), "another schema");
    assert!(!is_documented(paths::CONTROL, 204, json, refusal), "a body where there is none");
}

/// The operation of a route.
fn operation(path: &str) -> &'static Value {
    let methods = PUBLISHED["paths"][path].as_object();
    methods.and_then(|methods| methods.values().next()).unwrap_or_else(|| panic!("{path} is not described"))
}

#[test]
fn each_route_says_who_may_use_it_and_how_they_prove_it() {
    for route in ROUTES.iter().filter(|route| PUBLISHED["paths"].get(route.path).is_some()) {
        let operation = operation(route.path);
        assert_eq!(operation["tags"], json!([access_word(route.access)]), "{}", route.path);
        let proofs = operation["security"].as_array().unwrap();
        let is_free = proofs.is_empty() || proofs.contains(&json!({}));
        let expected = match route.access {
            RouteAccess::Open | RouteAccess::Reads => true,
            // The ticket is in the body.
            RouteAccess::Changes => route.path == paths::WEB_SESSIONS,
            RouteAccess::Computes | RouteAccess::Agents => false,
        };
        assert_eq!(is_free, expected, "{}", route.path);
    }
}

#[test]
fn the_bodies_that_tests_send_are_valid() {
    for route in
        ROUTES.iter().filter(|route| matches!(route.access, RouteAccess::Agents | RouteAccess::Changes))
    {
        let Some(mut body) = posted(route.path, ReaderKind::Owner) else { continue };
        let pointer =
            format!("/paths/{}/post/requestBody/content/application~1json/schema", escaped(route.path));
        if route.path == paths::WEB_SESSIONS {
            // A ticket takes the place of the proof.
            body = json!({ "ticket": body["ticket"] });
        }
        let errors = find_errors(&pointer, &body);
        assert!(errors.is_empty(), "{}: {errors:?}\n{body}", route.path);
    }
}

/// A query without one of its parameters, or with another value of it.
fn changed(query: &str, name: &str, value: Option<&str>) -> String {
    let kept = query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(name));
    let new = value.map(|value| format!("{name}={value}"));
    kept.map(str::to_owned).chain(new).collect::<Vec<_>>().join("&")
}

/// A request of a reader for each route, as path and query.
fn requests() -> Vec<(&'static str, String, String)> {
    let readers = ROUTES.iter().filter(|r| matches!(r.access, RouteAccess::Reads | RouteAccess::Computes));
    readers
        .map(|route| {
            let (asked, _) = told(route.path).unwrap();
            let (path, query) = asked.split_once('?').unwrap_or((&asked, ""));
            (route.path, path.to_owned(), query.to_owned())
        })
        .collect()
}

fn query_parameters(route: &str) -> impl Iterator<Item = (&'static str, &'static Value)> {
    let parameters = operation(route)["parameters"].as_array().into_iter().flatten();
    let of_query = parameters.filter(|parameter| parameter["in"] == "query");
    of_query.map(|parameter| (parameter["name"].as_str().unwrap(), parameter))
}

#[tokio::test]
async fn queries_are_read_as_the_document_says() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let mut bounds = 0;
    for (route, path, query) in requests() {
        for (name, parameter) in query_parameters(route) {
            let mut refused = Vec::new();
            if parameter["required"] == true {
                refused.push(changed(&query, name, None));
            }
            if parameter["schema"]["type"] != "string" {
                refused.push(changed(&query, name, Some("red")));
            }
            for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
                if let Some(bound) = parameter["schema"][bound].as_i64() {
                    refused.push(changed(&query, name, Some(&(bound + beyond).to_string())));
                    bounds += 1;
                }
            }
            for query in refused {
                let (status, body) = daemon.get(ReaderKind::Admin, &format!("{path}?{query}")).await;
                assert_eq!(status, 400, "{path}?{query}: {body}");
            }
        }
    }
    assert!(bounds > 20, "bounds are found: {bounds}");
}

#[tokio::test]
async fn a_parameter_that_is_left_out_has_its_default() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let mut defaults = 0;
    // What is explained changes from second to second.
    for (route, path, query) in requests().into_iter().filter(|(route, ..)| *route != paths::EXPLAIN) {
        for (name, parameter) in query_parameters(route) {
            let default = &parameter["schema"]["default"];
            if default.is_null() {
                continue;
            }
            defaults += 1;
            let mut answers = Vec::new();
            for value in [None, Some(default.to_string())] {
                let query = changed(&query, name, value.as_deref());
                let (status, body) = daemon.get(ReaderKind::Admin, &format!("{path}?{query}")).await;
                assert_eq!(status, 200, "{path}?{query}: {body}");
                answers.push(serde_json::from_str::<Value>(&body).unwrap());
            }
            assert_eq!(answers[0], answers[1], "{path}: {name}");
        }
    }
    assert!(defaults >= 6, "defaults are found: {defaults}");
}

#[tokio::test]
async fn a_number_in_the_path_that_cannot_be_read_is_refused_in_json() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    for path in ["/v1/jobs/red/generations", "/v1/rounds/red", "/v1/figures/red?from=1&to=2"] {
        let (status, body) = daemon.get(ReaderKind::Admin, path).await;
        assert_eq!(status, 400, "{path}: {body}");
        assert!(serde_json::from_str::<Value>(&body).unwrap()["error"].is_string(), "{path}: {body}");
    }
}

#[tokio::test]
async fn daemons_that_lead_or_stand_by_serve_the_document() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    for router in [build_router(daemon.context.clone()), standby_router(MetricsAccess::Closed)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{}", listener.local_addr().unwrap(), paths::OPENAPI);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let answer = reqwest::get(url).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(answer.json::<Value>().await.unwrap(), *PUBLISHED);
    }
}
