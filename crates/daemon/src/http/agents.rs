//! What agents ask: hello, poll, report.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tokio::time::{Instant, timeout_at};

use crate::context::{Admission, Context};
use crate::lines::{AgentPass, NoLine, Proved};
use crate::waking::Call;
use infill_api::{
    Assignment, Capabilities, Capability, Dialect, HeardReport, Hello, MAX_EVENTS, MAX_POLL_SECS, PROTOCOL,
    Poll, Receipt, Role, Welcome,
};
use infill_lifecycle::{Arrival, MAX_GENERATION};
use infill_model::{Job, JobId, LendingMode, NodeName, RunSpec, UserId, clock::now, lead_of_wing};

use super::extending::own_places;
use super::orders::Order;
use super::{Body, Denial, auth, random};

/// How often an open poll counts as a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// `POST /v1/agent/hello`: proves who speaks, and takes the agent in.
pub(crate) async fn hello(
    State(context): State<Arc<Context>>,
    Order { uid: proved, session, order: hello }: Order<Hello>,
) -> Result<Json<Welcome>, Denial> {
    if let Some(running) = hello.running.filter(|g| *g > MAX_GENERATION) {
        tracing::warn!(job = %hello.job, node = %hello.node, running, "an agent was refused: no such generation");
        let what = format!("running generation {running}: there is none beyond {MAX_GENERATION}");
        return Err(Denial::new(StatusCode::UNPROCESSABLE_ENTITY, what));
    }
    let (lead, node) = place(&context, &hello, proved).await?;
    let (secret, pass) = match session {
        Some(session) => (None, AgentPass::Session(Proved { session, counter: 0 })),
        None => {
            let secret = random::new_secret()?;
            (Some(secret.clone()), AgentPass::Bearer(secret))
        }
    };
    let address = context.state().address(&node);
    let arrival = Arrival {
        node: node.clone(),
        slurm_job: hello.job,
        address,
        port: hello.port,
        running: hello.running,
        dialect: Dialect::of(&hello),
        spec: hello.spec.map(RunSpec::clamp_to_bounds),
    };
    match context.admit(lead, arrival, pass, now()) {
        Admission::Taken => {}
        Admission::Refused => {
            return Err(Denial::new(StatusCode::GONE, "this worker has no place in the job any more"));
        }
        Admission::Early => {
            let text = "the daemon has just begun and knows nothing of this worker yet; try again";
            return Err(Denial::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
    }
    tracing::info!(job = %lead, %node, slurm_job = %hello.job, "an agent says hello");
    context.wake.call(Call::Ordinary, Some(proved.0));
    let place = Some(node).filter(|node| *node != hello.node);
    Ok(Json(Welcome {
        secret,
        preempt_leave_secs: context.config.agent.preempt_leave_secs,
        place,
        protocol: PROTOCOL,
        capabilities: Capabilities::from_iter([Capability::SealedSession]),
    }))
}

/// The lead to which the agent belongs, and its node or its place there, if Slurm agrees with all that it
/// says.
async fn place(context: &Context, hello: &Hello, proved: UserId) -> Result<(JobId, NodeName), Denial> {
    let job = known_job(context, hello.job).await?;
    let extends = hello.role == Role::Lead && hello.spec.as_ref().is_some_and(|spec| spec.extends);
    let is_malleable = job.partition == context.config.slurm.partition;
    let is_its = job.user_id == proved && is_malleable != extends && job.state.occupies_nodes();
    if is_its && extends && context.config.gaps.lend != LendingMode::Nodes {
        let snapshot = context.state().snapshot.clone();
        let own = own_places(&job, snapshot.as_deref()).inspect_err(|unfit| {
            tracing::warn!(job = %hello.job, node = %hello.node, ?unfit, "a main job cannot be extended");
        })?;
        // Its agent and its wings know its place by this name from now on.
        context.slurm.seat(job.id, &own);
    }
    let node = job.worker_nodes().into_iter().find(|n| n.host() == hello.node).filter(|_| is_its);
    let Some(node) = node else {
        tracing::warn!(job = %hello.job, node = %hello.node, uid = %proved, "an agent was refused: not its job or node");
        return Err(Denial::unproved());
    };
    let lead = match hello.role {
        Role::Lead => job.id,
        Role::Wing { lead } if lead_of_wing(&job) == Some(lead) => lead,
        Role::Wing { .. } => return Err(Denial::unproved()),
    };
    if lead != job.id {
        let owner = known_job(context, lead).await?;
        if owner.user_id != proved {
            return Err(Denial::unproved());
        }
    } else {
        let at = now();
        context.change(at, |state| state.fleet.adopt(&job, at));
    }
    Ok((lead, node))
}

/// The job as Slurm shows it now. To a caller who proved nothing about it, an unknown job looks like
/// another's.
async fn known_job(context: &Context, id: JobId) -> Result<Job, Denial> {
    match context.slurm.job(id).await {
        Ok(Some(job)) => Ok(job),
        Ok(None) => Err(Denial::unproved()),
        Err(e) => {
            tracing::warn!(job = %id, "cannot check an agent: {e}");
            Err(Denial::new(StatusCode::SERVICE_UNAVAILABLE, "Slurm does not answer; try again"))
        }
    }
}

/// `POST /v1/agent/poll`: the present assignment, once it is newer than the one that the agent has seen.
pub(crate) async fn poll(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    proved: Option<Extension<Proved>>,
    Body(poll): Body<Poll>,
) -> Result<Json<Assignment>, Denial> {
    let pass = auth::agent_pass(&headers, proved.as_deref())?;
    let agent = (poll.job, poll.node.clone());
    let mut watch = context.lines.watch(&agent, &pass)?;
    let end = Instant::now() + Duration::from_secs(poll.wait_secs.min(MAX_POLL_SECS));
    loop {
        if !context.state().fleet.seen(poll.job, &poll.node, now()) {
            return Err(Denial::new(StatusCode::GONE, "this worker has no place in the job any more"));
        }
        let slice = end.min(Instant::now() + SIGN_OF_LIFE);
        let waited = timeout_at(slice, watch.wait_for(|a| a.version > poll.seen)).await;
        // The line has ended, or a newer hello has replaced it.
        if matches!(waited, Ok(Err(_))) {
            return Err(Denial::unproved());
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
pub(crate) async fn report(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    proved: Option<Extension<Proved>>,
    Body(report): Body<HeardReport>,
) -> Result<Response, Denial> {
    let pass = auth::agent_pass(&headers, proved.as_deref())?;
    if report.count() > MAX_EVENTS {
        return Err(Denial::new(StatusCode::PAYLOAD_TOO_LARGE, format!("more than {MAX_EVENTS} events")));
    }
    let (report, not_understood) = report.read();
    context.hear(&report, &pass, now())?;
    if not_understood.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    tracing::debug!(job = %report.job, node = %report.node, ?not_understood, "an agent is newer");
    Ok(Json(Receipt { not_understood }).into_response())
}

impl From<NoLine> for Denial {
    fn from(none: NoLine) -> Denial {
        match none {
            NoLine::Unknown => Denial::unproved(),
            NoLine::Crowded => Denial::new(StatusCode::TOO_MANY_REQUESTS, "this agent polls already"),
            NoLine::TooOften(after) => Denial::too_often("this agent reports too often; try again", after),
        }
    }
}
