//! All operations: their parameters, bodies and answers.

use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::http::signed_requests::CredentialBound;
use crate::http::{FURTHEST_ZONE_SECS, LATEST_TIME};
use crate::metrics;
use infill_api::{self as api, headers, routes as paths};
use infill_model::ProfileFilter;

use super::schemas::SchemaCollector;
use super::security::RequiredProof;

/// The body of an answer.
pub(super) enum AnswerContent {
    Json(Value),
    Text(&'static str),
    Nothing,
}

/// What a client may ask of a route.
pub(super) struct ApiOperation {
    pub path: &'static str,
    pub id: &'static str,
    pub parameters: Vec<Value>,
    pub body: Option<Value>,
    pub answers: Vec<(u16, AnswerContent)>,
    /// Statuses of refusals, besides those of all routes with the same access.
    pub denials: Vec<u16>,
    /// The proof, if it is not the usual one for the route's access.
    pub proof: Option<RequiredProof>,
    /// The purpose of the credential.
    pub purpose: Option<&'static str>,
    /// What else the description says.
    pub notes: String,
}

impl ApiOperation {
    fn new(path: &'static str, id: &'static str) -> ApiOperation {
        ApiOperation {
            path,
            id,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            denials: Vec::new(),
            proof: None,
            purpose: None,
            notes: String::new(),
        }
    }

    /// A route for readers.
    fn read<T: JsonSchema>(
        path: &'static str,
        id: &'static str,
        schemas: &mut SchemaCollector,
    ) -> ApiOperation {
        let answer = AnswerContent::Json(schemas.answer::<T>());
        ApiOperation { purpose: Some(headers::READ_PURPOSE), ..ApiOperation::new(path, id) }
            .answers(200, answer)
    }

    /// A route for requests that are bound to a credential.
    fn change<T: JsonSchema + CredentialBound>(
        path: &'static str,
        id: &'static str,
        schemas: &mut SchemaCollector,
    ) -> ApiOperation {
        let body = Some(schemas.body::<T>());
        ApiOperation { body, purpose: Some(T::PURPOSE), ..ApiOperation::new(path, id) }
    }

    fn answers(mut self, status: u16, content: AnswerContent) -> ApiOperation {
        self.answers.push((status, content));
        self
    }

    fn denies(mut self, statuses: &[u16]) -> ApiOperation {
        self.denials.extend(statuses);
        self
    }

    fn needs(self, proof: RequiredProof) -> ApiOperation {
        ApiOperation { proof: Some(proof), ..self }
    }

    fn notes(self, notes: impl Into<String>) -> ApiOperation {
        ApiOperation { notes: notes.into(), ..self }
    }

    fn query<T: JsonSchema>(mut self, schemas: &mut SchemaCollector) -> ApiOperation {
        self.parameters.extend(schemas.query::<T>());
        self.denies(&[400])
    }

    /// Bounds of a number in the query, both included.
    fn bounds(mut self, name: &str, least: i64, most: i64) -> ApiOperation {
        let schema = self.schema_of(name);
        schema["minimum"] = least.into();
        schema["maximum"] = most.into();
        self
    }

    /// What a number in the query is if it is left out.
    fn default(mut self, name: &str, value: u32) -> ApiOperation {
        self.schema_of(name)["default"] = value.into();
        self
    }

    fn schema_of(&mut self, name: &str) -> &mut Value {
        let found = self.parameters.iter_mut().find(|parameter| parameter["name"] == name);
        &mut found.unwrap_or_else(|| panic!("{} has no parameter {name}", self.path))["schema"]
    }

    /// A period from `from` to `to`, at most this long.
    fn period(self, longest: i64) -> ApiOperation {
        let notes = format!("`to` is 1 to {longest} seconds after `from`. {}", self.notes);
        let bounded = self.bounds("from", 0, LATEST_TIME.0 - 1).bounds("to", 1, LATEST_TIME.0);
        bounded.notes(notes.trim())
    }

    fn zone(self) -> ApiOperation {
        let furthest = i64::from(FURTHEST_ZONE_SECS);
        self.bounds("zone", -furthest, furthest)
    }

    /// The part of the path in braces.
    fn in_path(mut self, name: &str, description: &str, schema: Value) -> ApiOperation {
        self.parameters.push(json!({
            "name": name, "in": "path", "required": true, "description": description, "schema": schema,
        }));
        self
    }
}

/// All operations, in no order.
pub(super) fn operations(schemas: &mut SchemaCollector) -> Vec<ApiOperation> {
    let mut all = open();
    all.extend(over_time(schemas));
    all.extend(at_a_time(schemas));
    all.extend(of_profiles(schemas));
    all.extend(of_the_page(schemas));
    all.extend(of_administrators(schemas));
    all.extend(of_agents(schemas));
    all
}

fn open() -> Vec<ApiOperation> {
    let document = json!({ "type": "object" });
    vec![
        ApiOperation {
            purpose: Some(headers::HEALTH_PURPOSE),
            ..ApiOperation::new(paths::HEALTHZ, "getHealth")
        }
        .answers(200, AnswerContent::Text("text/plain"))
        .needs(RequiredProof::DaemonsIdentity)
        .denies(&[401, 421, 503])
        .notes("`ok` while rounds go on, and `standby` from a daemon that does not lead."),
        ApiOperation::new(paths::METRICS, "getMetrics")
            .answers(200, AnswerContent::Text(metrics::CONTENT_TYPE))
            .denies(&[403, 404])
            .notes("`http.metrics` says who may read them."),
        ApiOperation::new(paths::OPENAPI, "getOpenApi").answers(200, AnswerContent::Json(document)),
    ]
}

/// Routes for readers that tell of a period.
fn over_time(s: &mut SchemaCollector) -> Vec<ApiOperation> {
    let pixels = api::MAX_TIMELINE_PIXELS as i64;
    let kind = s.parameter::<api::FigureKind>();
    let name = json!({ "type": "string" });
    vec![
        ApiOperation::read::<api::ReportView>(paths::REPORT, "getReport", s)
            .query::<api::ReportQuery>(s)
            .period(api::MAX_REPORT_SECS),
        ApiOperation::read::<api::TimelineView>(paths::TIMELINE, "getTimeline", s)
            .query::<api::TimelineQuery>(s)
            .notes(format!(
                "`rows` times `columns` is at most {}. `to` is at most {} seconds after `nodes_since`. The \
                 answer is compressed for clients that accept `gzip`.",
                api::MAX_TIMELINE_CELLS,
                api::MAX_TIMELINE_SECS
            ))
            .period(api::MAX_TIMELINE_SECS)
            .bounds("rows", 1, pixels)
            .bounds("columns", 1, pixels),
        ApiOperation::read::<api::SummaryView>(paths::SUMMARY, "getSummary", s).query::<api::SummaryQuery>(s),
        ApiOperation::read::<api::LanesView>(paths::LANES, "getLanes", s)
            .query::<api::LanesQuery>(s)
            .period(api::MAX_TIMELINE_SECS),
        ApiOperation::read::<api::NodeHistoryView>(paths::NODE, "getNode", s)
            .in_path("name", "Name of the node.", name)
            .query::<api::NodeHistoryQuery>(s)
            .notes("A node that is unknown or hidden has no state and no uses.")
            .period(api::MAX_TIMELINE_SECS),
        ApiOperation::read::<api::FigureView>(paths::FIGURE, "getFigure", s)
            .in_path("kind", "What the figure shows over time.", kind)
            .query::<api::FigureQuery>(s)
            .period(api::MAX_FIGURE_SECS)
            .zone(),
    ]
}

/// Routes for readers that tell of the present, or of one moment.
fn at_a_time(s: &mut SchemaCollector) -> Vec<ApiOperation> {
    let job = json!({ "type": "integer", "format": "uint32", "minimum": 0 });
    let time = json!({ "type": "integer", "format": "int64" });
    let subject = json!({ "type": "string" });
    vec![
        ApiOperation::read::<api::ExplainView>(paths::EXPLAIN, "explain", s)
            .in_path(
                "subject",
                "Number of a malleable job or of one of its wings, or name of a node.",
                subject,
            )
            .query::<api::ExplainQuery>(s)
            .zone()
            .denies(&[404]),
        ApiOperation::read::<api::DaemonStatus>(paths::STATUS, "getStatus", s).query::<api::StatusQuery>(s),
        ApiOperation::read::<api::RoundView>(paths::ROUND, "getRound", s).denies(&[404]),
        ApiOperation::read::<api::RoundsView>(paths::ROUNDS, "listRounds", s)
            .query::<api::RoundsQuery>(s)
            .bounds("limit", 0, i64::from(api::MAX_ROUNDS))
            .default("limit", api::DEFAULT_ROUNDS),
        ApiOperation::read::<api::RoundView>(paths::ROUND_AT, "getRoundAt", s)
            .in_path("at", "The time, in seconds since 1970.", time)
            .denies(&[400, 404]),
        ApiOperation::read::<api::RoundView>(paths::PLAN, "computePlan", s)
            .denies(&[429])
            .notes("One plan is computed at a time, and a pause follows each."),
        ApiOperation::read::<api::GenerationsView>(paths::GENERATIONS, "listGenerations", s)
            .in_path("id", "The lead's job id.", job)
            .denies(&[400]),
        ApiOperation::read::<api::CollectivesView>(paths::COLLECTIVES, "getCollectives", s),
    ]
}

fn of_profiles(s: &mut SchemaCollector) -> Vec<ApiOperation> {
    let mut count = || AnswerContent::Json(s.answer::<api::ProfileCount>());
    let counts = [count(), count()];
    let [forgotten, imported] = counts;
    vec![
        ApiOperation::read::<api::ProfilesView>(paths::PROFILES, "listProfiles", s).query::<ProfileFilter>(s),
        ApiOperation::read::<api::HistoryView>(paths::PROFILE_HISTORY, "getProfileHistory", s)
            .query::<infill_model::ProfileKey>(s),
        ApiOperation::read::<api::FigureView>(paths::PROFILE_FIGURE, "getProfileFigure", s)
            .query::<api::ProfileFigureQuery>(s),
        ApiOperation::change::<api::ForgetRequest>(paths::FORGET_PROFILES, "forgetProfiles", s)
            .answers(200, forgotten)
            .denies(&[429]),
        ApiOperation::change::<api::ImportRequest>(paths::IMPORT_PROFILES, "importProfiles", s)
            .answers(200, imported)
            .denies(&[429]),
    ]
}

fn of_the_page(s: &mut SchemaCollector) -> Vec<ApiOperation> {
    let session = AnswerContent::Json(s.answer::<api::WebSession>());
    let link = AnswerContent::Json(s.answer::<api::WebLink>());
    let revoked = AnswerContent::Json(s.answer::<api::RevokedSessions>());
    let ticket = Some(s.body::<api::SessionRequest>());
    vec![
        ApiOperation::change::<api::LinkRequest>(paths::WEB_LINKS, "createLink", s).answers(200, link),
        ApiOperation { body: ticket, ..ApiOperation::new(paths::WEB_SESSIONS, "openSession") }
            .answers(200, session)
            .needs(RequiredProof::Nothing)
            .denies(&[401]),
        ApiOperation::new(paths::WEB_LOGOUT, "logOut")
            .answers(204, AnswerContent::Nothing)
            .needs(RequiredProof::BrowserSession),
        ApiOperation::change::<api::RevokeRequest>(paths::WEB_REVOKE, "revokeSessions", s)
            .answers(200, revoked),
    ]
}

fn of_administrators(s: &mut SchemaCollector) -> Vec<ApiOperation> {
    let imported = AnswerContent::Json(s.answer::<api::EndedImportResult>());
    let forgotten = AnswerContent::Json(s.answer::<api::ForgottenUser>());
    let collectives = AnswerContent::Json(s.answer::<api::CollectivesView>());
    vec![
        ApiOperation::change::<api::ImportEndedRequest>(paths::IMPORT_HISTORY, "importHistory", s)
            .answers(200, imported),
        ApiOperation::change::<api::ForgetUserRequest>(paths::FORGET_USER, "forgetUser", s)
            .answers(200, forgotten)
            .denies(&[409])
            .notes("The user must have no malleable jobs."),
        ApiOperation::change::<api::ImportCollectivesRequest>(
            paths::IMPORT_COLLECTIVES,
            "importCollectives",
            s,
        )
        .answers(200, collectives),
        ApiOperation::change::<api::ControlRequest>(paths::CONTROL, "control", s)
            .answers(204, AnswerContent::Nothing),
    ]
}

fn of_agents(s: &mut SchemaCollector) -> Vec<ApiOperation> {
    let welcome = AnswerContent::Json(s.answer::<api::AgentWelcome>());
    let assignment = AnswerContent::Json(s.answer::<api::AgentAssignment>());
    let receipt = AnswerContent::Json(s.answer::<api::ReportReceipt>());
    let poll = Some(s.body::<api::AgentPoll>());
    let report = Some(s.body::<api::AgentReport>());
    vec![
        ApiOperation::change::<api::AgentHello>(paths::AGENT_HELLO, "sayHello", s)
            .answers(200, welcome)
            .needs(RequiredProof::Request)
            .denies(&[410]),
        ApiOperation { body: poll, ..ApiOperation::new(paths::AGENT_POLL, "poll") }
            .answers(200, assignment)
            .denies(&[410, 429]),
        ApiOperation { body: report, ..ApiOperation::new(paths::AGENT_REPORT, "report") }
            .answers(200, receipt)
            .answers(204, AnswerContent::Nothing)
            .denies(&[429])
            .notes("204 if all events were understood."),
    ]
}
