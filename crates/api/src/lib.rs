//! The messages of the HTTP API under `/v1`, shared by the daemon, the agents and the command line.
//!
//! A daemon and agents of neighbouring versions understand each other. Both sides ignore unknown fields, and
//! read events and orders one by one. Additions to the first protocol are sent only to a side that names
//! their [`Capability`].

#![warn(clippy::disallowed_types)]

pub mod addresses;
mod agent;
mod capabilities;
mod collectives;
mod day_summary;
mod dialect;
mod document;
mod explain;
mod figures;
pub mod headers;
mod history;
mod job_lanes;
mod node_history;
mod operator;
mod profiles;
mod report;
mod rounds;
pub mod routes;
pub mod seal;
mod timeline;
mod web;

pub use agent::{
    AgentAssignment, AgentHello, AgentPoll, AgentReport, AgentRole, AgentWelcome, FIRST_PROTOCOL, MAX_EVENTS,
    MAX_POLL_SECS, PROTOCOL, RawAssignment, RawReport, ReportReceipt,
};
pub use capabilities::{Capability, CapabilitySet};
pub use collectives::{CollectivesView, ImportCollectivesRequest};
pub use day_summary::{DelaySummary, MAX_DAY_SECS, NodeCounts, SummaryQuery, SummaryView};
pub use dialect::AgentDialect;
pub use document::{BodyProof, ErrorBody, SCHEMA_VERSION};
pub use explain::{ExplainQuery, ExplainView};
pub use figures::{FigureKind, FigureQuery, FigureView, MAX_FIGURE_SECS};
pub use history::{
    EndedImportResult, FORGET_USER_PURPOSE, ForgetUserRequest, ForgottenUser, ImportEndedRequest, MAX_ENDED,
};
pub use job_lanes::{
    JobLane, LaneChange, LanesQuery, LanesView, MAX_LANE_CHANGES, MAX_LANE_SPANS, MAX_LANES,
};
pub use node_history::{NodeHistoryQuery, NodeHistoryView};
pub use operator::{
    ControlOrigin, ControlRequest, DaemonStatus, EndPrediction, GenerationsView, HiddenCounts, IdleShare,
    JobView, LengthAccuracy, NodeFailure, NodeKind, NodeView, PlanView, RoundView, StatusQuery,
};
pub use profiles::{
    CurveRow, ForgetRequest, HistoryRow, HistoryView, ImportRequest, MAX_HISTORY, MAX_IMPORTED, MAX_PROFILES,
    ProfileCount, ProfileFigureQuery, ProfileView, ProfilesView,
};
pub use report::{MAX_DELAYS, MAX_REPORT_SECS, ReportQuery, ReportView, UsesView};
pub use rounds::{DEFAULT_ROUNDS, MAX_ROUNDS, RoundsQuery, RoundsView};
pub use routes::daemon_urls;
pub use timeline::{
    MAX_TIMELINE_CELLS, MAX_TIMELINE_PIXELS, MAX_TIMELINE_SECS, NodeRow, TimelineQuery, TimelineRows,
    TimelineView,
};
pub use web::{
    LINK_PURPOSE, LinkRequest, REVOKE_PURPOSE, RevokeRequest, RevokedSessions, SessionRequest, WebLink,
    WebSession,
};
