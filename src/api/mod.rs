//! The messages of the HTTP API under `/v1`, shared by the daemon, the agents and the command line.
//!
//! Unknown fields are ignored on both sides, so that a daemon and agents of neighbouring versions understand
//! each other.

mod agent;
mod document;
pub mod headers;
mod history;
mod operator;
mod profiles;
mod rounds;
pub mod routes;

pub use agent::{AgentReport, Assignment, Hello, MAX_EVENTS, MAX_POLL_SECS, Poll, Role, Welcome};
pub use document::{ErrorBody, SCHEMA};
pub use history::{EndedTaken, ImportEndedRequest, MAX_ENDED};
pub use operator::{
    ControlRequest, EndView, Generations, Hidden, IdleShare, JobView, LengthsView, NodeFailure, NodeKind,
    NodeView, PlanView, RoundView, Status,
};
pub use profiles::{
    Counted, CurveRow, ForgetRequest, HistoryRow, HistoryView, ImportRequest, MAX_HISTORY, MAX_IMPORTED,
    MAX_PROFILES, ProfileView, ProfilesView,
};
pub use rounds::{DEFAULT_ROUNDS, MAX_ROUNDS, RoundsQuery, RoundsView};
pub use routes::daemon_urls;

/// Values that messages carry.
pub use crate::model::{AgentEvent, Control, Credential, Directive, Mode, Opening, Secret, hello_payload};
