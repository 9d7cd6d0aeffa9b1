//! The requests of agents: hello, poll and report.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tokio::time::{Instant, timeout_at};

use crate::agent_channels::{AgentPass, ChannelError, ProvedRequest};
use crate::context::{AgentAdmission, DaemonContext};
use crate::round_trigger::RoundUrgency;
use infill_api::{
    AgentAssignment, AgentDialect, AgentHello, AgentPoll, AgentRole, AgentWelcome, Capability, CapabilitySet,
    MAX_EVENTS, MAX_POLL_SECS, PROTOCOL, RawReport, ReportReceipt,
};
use infill_lifecycle::{AuthenticatedHello, MAX_GENERATION};
use infill_model::{Job, JobId, LendingMode, NodeName, RunSpec, UserId, clock::now, lead_of_wing};

use super::extended_jobs::own_places;
use super::signed_requests::VerifiedRequest;
use super::{JsonBody, RequestDenial, auth, random};

/// How often an open poll counts as a heartbeat.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(2);

/// `POST /v1/agent/hello`: checks an agent and admits it.
pub(crate) async fn handle_hello(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid: proved, session, request: hello }: VerifiedRequest<AgentHello>,
) -> Result<Json<AgentWelcome>, RequestDenial> {
    if let Some(running) = hello.running.filter(|generation| *generation > MAX_GENERATION) {
        tracing::warn!(job = %hello.job, node = %hello.node, running, "an agent was refused: no such generation");
        let what = format!("running: expected a generation up to {MAX_GENERATION}, not {running}");
        return Err(RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, what));
    }
    let (lead, node) = check_agent(&context, &hello, proved).await?;
    let (secret, pass) = match session {
        Some(session) => (None, AgentPass::Session(ProvedRequest { session, counter: 0 })),
        None => {
            let secret = random::new_secret()?;
            (Some(secret.clone()), AgentPass::Bearer(secret))
        }
    };
    let address = context.lock_state().node_address(&node);
    let authenticated = AuthenticatedHello {
        node: node.clone(),
        slurm_job: hello.job,
        address: address.clone(),
        port: hello.port,
        running: hello.running,
        dialect: AgentDialect::from_hello(&hello),
        spec: hello.spec.map(RunSpec::clamp_to_bounds),
    };
    match context.admit_agent(lead, authenticated, pass, now()) {
        AgentAdmission::Admitted => {}
        AgentAdmission::Refused => return Err(worker_gone()),
        AgentAdmission::Early => {
            let text = "the daemon has just started and does not know this worker yet; try again";
            return Err(RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
    }
    tracing::info!(job = %lead, %node, slurm_job = %hello.job, "an agent says hello");
    context.round_trigger.request_round(RoundUrgency::Ordinary, Some(proved.0));
    let place = Some(node).filter(|node| *node != hello.node);
    Ok(Json(AgentWelcome {
        secret,
        preempt_leave_secs: context.config.agent.preempt_leave_secs,
        place,
        address: Some(address),
        protocol: PROTOCOL,
        capabilities: CapabilitySet::from_iter([Capability::SealedSession]),
    }))
}

fn worker_gone() -> RequestDenial {
    RequestDenial::new(StatusCode::GONE, "this worker does not belong to the job any more")
}

/// Checks an agent's hello against Slurm. Returns the agent's lead, and its node or place.
async fn check_agent(
    context: &DaemonContext,
    hello: &AgentHello,
    proved: UserId,
) -> Result<(JobId, NodeName), RequestDenial> {
    let job = fetch_job(context, hello.job).await?;
    let extends = hello.role == AgentRole::Lead && hello.spec.as_ref().is_some_and(|spec| spec.extends);
    let is_malleable = job.partition == context.config.slurm.partition;
    let may_join = job.user_id == proved && is_malleable != extends && job.state.occupies_nodes();
    if may_join && extends && context.config.gaps.lend != LendingMode::Nodes {
        let snapshot = context.lock_state().snapshot.clone();
        let own = own_places(&job, snapshot.as_deref()).inspect_err(|unfit| {
            tracing::warn!(job = %hello.job, node = %hello.node, ?unfit, "a main job cannot be extended");
        })?;
        // The job's agent and its wings use this name for its place from now on.
        context.slurm.assign_place(job.id, &own);
    }
    let node = job.worker_nodes().into_iter().find(|node| node.host() == hello.node).filter(|_| may_join);
    let Some(node) = node else {
        tracing::warn!(job = %hello.job, node = %hello.node, uid = %proved, "an agent was refused: not its job or node");
        return Err(RequestDenial::not_authenticated());
    };
    let lead = match hello.role {
        AgentRole::Lead => job.id,
        AgentRole::Wing { lead } if lead_of_wing(&job) == Some(lead) => lead,
        AgentRole::Wing { .. } => return Err(RequestDenial::not_authenticated()),
    };
    if lead != job.id {
        let owner = fetch_job(context, lead).await?;
        if owner.user_id != proved {
            return Err(RequestDenial::not_authenticated());
        }
    } else {
        let at = now();
        context.change_fleet(at, |state| state.fleet.adopt_lead(&job, at));
    }
    Ok((lead, node))
}

/// The job as Slurm shows it now. The refusal for an unknown job is the same as for another user's job, so
/// that it reveals nothing.
async fn fetch_job(context: &DaemonContext, id: JobId) -> Result<Job, RequestDenial> {
    match context.slurm.find_job(id).await {
        Ok(Some(job)) => Ok(job),
        Ok(None) => Err(RequestDenial::not_authenticated()),
        Err(e) => {
            tracing::warn!(job = %id, "an agent cannot be checked: {e}");
            Err(RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "Slurm does not answer; try again"))
        }
    }
}

/// `POST /v1/agent/poll`: waits until the assignment is newer than the one that the agent has seen.
pub(crate) async fn handle_poll(
    State(context): State<Arc<DaemonContext>>,
    headers: HeaderMap,
    proved: Option<Extension<ProvedRequest>>,
    JsonBody(poll): JsonBody<AgentPoll>,
) -> Result<Json<AgentAssignment>, RequestDenial> {
    let pass = auth::agent_pass(&headers, proved.as_deref())?;
    let agent = (poll.job, poll.node.clone());
    let mut assignments = context.agent_channels.watch_assignment(&agent, &pass)?;
    let end = Instant::now() + Duration::from_secs(poll.wait_secs.min(MAX_POLL_SECS));
    loop {
        if !context.lock_state().fleet.record_heartbeat(poll.job, &poll.node, now()) {
            return Err(worker_gone());
        }
        let next_heartbeat = end.min(Instant::now() + LIVENESS_INTERVAL);
        let newer = assignments.wait_for(|assignment| assignment.version > poll.seen);
        let waited = timeout_at(next_heartbeat, newer).await;
        // The channel was closed, or a newer hello has replaced it.
        if matches!(waited, Ok(Err(_))) {
            return Err(RequestDenial::not_authenticated());
        }
        drop(waited);
        let assignment = assignments.borrow().clone();
        if assignment.version > poll.seen || Instant::now() >= end {
            return Ok(Json(assignment));
        }
    }
}

/// `POST /v1/agent/report`: handles events. Unknown events of newer agents are dropped one by one, and named
/// in the answer.
pub(crate) async fn handle_report(
    State(context): State<Arc<DaemonContext>>,
    headers: HeaderMap,
    proved: Option<Extension<ProvedRequest>>,
    JsonBody(report): JsonBody<RawReport>,
) -> Result<Response, RequestDenial> {
    let pass = auth::agent_pass(&headers, proved.as_deref())?;
    if report.event_count() > MAX_EVENTS {
        return Err(RequestDenial::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("expected at most {MAX_EVENTS} events"),
        ));
    }
    let (report, not_understood) = report.decode_known();
    context.handle_report(&report, &pass, now())?;
    if not_understood.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    tracing::debug!(job = %report.job, node = %report.node, ?not_understood, "a newer agent sends unknown events");
    Ok(Json(ReportReceipt { not_understood }).into_response())
}

impl From<ChannelError> for RequestDenial {
    fn from(error: ChannelError) -> RequestDenial {
        match error {
            ChannelError::Unknown => RequestDenial::not_authenticated(),
            ChannelError::Crowded => {
                RequestDenial::new(StatusCode::TOO_MANY_REQUESTS, "this agent has too many open polls")
            }
            ChannelError::TooOften(after) => {
                RequestDenial::too_often("this agent reports too often; try again", after)
            }
        }
    }
}
