//! What agents ask: hello, poll, report.

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
use super::signed_requests::VerifiedOrder;
use super::{JsonBody, RequestDenial, auth, random};

/// How often an open poll counts as a sign of life.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(2);

/// `POST /v1/agent/hello`: proves who speaks, and takes the agent in.
pub(crate) async fn handle_hello(
    State(context): State<Arc<DaemonContext>>,
    VerifiedOrder { uid: proved, session, order: hello }: VerifiedOrder<AgentHello>,
) -> Result<Json<AgentWelcome>, RequestDenial> {
    if let Some(running) = hello.running.filter(|g| *g > MAX_GENERATION) {
        tracing::warn!(job = %hello.job, node = %hello.node, running, "an agent was refused: no such generation");
        let what = format!("running generation {running}: there is none beyond {MAX_GENERATION}");
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
    let arrival = AuthenticatedHello {
        node: node.clone(),
        slurm_job: hello.job,
        address,
        port: hello.port,
        running: hello.running,
        dialect: AgentDialect::from_hello(&hello),
        spec: hello.spec.map(RunSpec::clamp_to_bounds),
    };
    match context.admit_agent(lead, arrival, pass, now()) {
        AgentAdmission::Taken => {}
        AgentAdmission::Refused => {
            return Err(RequestDenial::new(StatusCode::GONE, "this worker has no place in the job any more"));
        }
        AgentAdmission::Early => {
            let text = "the daemon has just begun and knows nothing of this worker yet; try again";
            return Err(RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
    }
    tracing::info!(job = %lead, %node, slurm_job = %hello.job, "an agent says hello");
    context.wake.request_round(RoundUrgency::Ordinary, Some(proved.0));
    let place = Some(node).filter(|node| *node != hello.node);
    Ok(Json(AgentWelcome {
        secret,
        preempt_leave_secs: context.config.agent.preempt_leave_secs,
        place,
        protocol: PROTOCOL,
        capabilities: CapabilitySet::from_iter([Capability::SealedSession]),
    }))
}

/// The lead to which the agent belongs, and its node or its place there, if Slurm agrees with all that it
/// says.
async fn check_agent(
    context: &DaemonContext,
    hello: &AgentHello,
    proved: UserId,
) -> Result<(JobId, NodeName), RequestDenial> {
    let job = fetch_job(context, hello.job).await?;
    let extends = hello.role == AgentRole::Lead && hello.spec.as_ref().is_some_and(|spec| spec.extends);
    let is_malleable = job.partition == context.config.slurm.partition;
    let is_its = job.user_id == proved && is_malleable != extends && job.state.occupies_nodes();
    if is_its && extends && context.config.gaps.lend != LendingMode::Nodes {
        let snapshot = context.lock_state().snapshot.clone();
        let own = own_places(&job, snapshot.as_deref()).inspect_err(|unfit| {
            tracing::warn!(job = %hello.job, node = %hello.node, ?unfit, "a main job cannot be extended");
        })?;
        // Its agent and its wings know its place by this name from now on.
        context.slurm.assign_place(job.id, &own);
    }
    let node = job.worker_nodes().into_iter().find(|n| n.host() == hello.node).filter(|_| is_its);
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

/// The job as Slurm shows it now. To a caller who proved nothing about it, an unknown job looks like
/// another's.
async fn fetch_job(context: &DaemonContext, id: JobId) -> Result<Job, RequestDenial> {
    match context.slurm.find_job(id).await {
        Ok(Some(job)) => Ok(job),
        Ok(None) => Err(RequestDenial::not_authenticated()),
        Err(e) => {
            tracing::warn!(job = %id, "cannot check an agent: {e}");
            Err(RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "Slurm does not answer; try again"))
        }
    }
}

/// `POST /v1/agent/poll`: the present assignment, once it is newer than the one that the agent has seen.
pub(crate) async fn handle_poll(
    State(context): State<Arc<DaemonContext>>,
    headers: HeaderMap,
    proved: Option<Extension<ProvedRequest>>,
    JsonBody(poll): JsonBody<AgentPoll>,
) -> Result<Json<AgentAssignment>, RequestDenial> {
    let pass = auth::agent_pass(&headers, proved.as_deref())?;
    let agent = (poll.job, poll.node.clone());
    let mut watch = context.lines.watch_assignment(&agent, &pass)?;
    let end = Instant::now() + Duration::from_secs(poll.wait_secs.min(MAX_POLL_SECS));
    loop {
        if !context.lock_state().fleet.record_heartbeat(poll.job, &poll.node, now()) {
            return Err(RequestDenial::new(StatusCode::GONE, "this worker has no place in the job any more"));
        }
        let slice = end.min(Instant::now() + LIVENESS_INTERVAL);
        let waited = timeout_at(slice, watch.wait_for(|a| a.version > poll.seen)).await;
        // The line has ended, or a newer hello has replaced it.
        if matches!(waited, Ok(Err(_))) {
            return Err(RequestDenial::not_authenticated());
        }
        drop(waited);
        let assignment = watch.borrow().clone();
        if assignment.version > poll.seen || Instant::now() >= end {
            return Ok(Json(assignment));
        }
    }
}

/// `POST /v1/agent/report`: events. Those that a newer agent knows and this daemon does not are dropped one
/// by one, and named in the answer.
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
            format!("more than {MAX_EVENTS} events"),
        ));
    }
    let (report, not_understood) = report.decode_known();
    context.handle_report(&report, &pass, now())?;
    if not_understood.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    tracing::debug!(job = %report.job, node = %report.node, ?not_understood, "an agent is newer");
    Ok(Json(ReportReceipt { not_understood }).into_response())
}

impl From<ChannelError> for RequestDenial {
    fn from(none: ChannelError) -> RequestDenial {
        match none {
            ChannelError::Unknown => RequestDenial::not_authenticated(),
            ChannelError::Crowded => {
                RequestDenial::new(StatusCode::TOO_MANY_REQUESTS, "this agent polls already")
            }
            ChannelError::TooOften(after) => {
                RequestDenial::too_often("this agent reports too often; try again", after)
            }
        }
    }
}
