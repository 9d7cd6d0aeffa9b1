//! Readers: who they are, by a MUNGE credential or a token of Slurm's with the first request, and by the
//! session that the answer opens in those that follow (of older clients by a ticket); browsers by the session
//! that a link has given them.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::agent_channels::ProvedRequest;
use crate::context::DaemonContext;
use crate::redaction::ApiReader;
use crate::session_store::AuthenticatedUser;
use infill_api::headers;
use infill_model::{ReadAccess, Secret};
use infill_slurm::identity::name_of;

use super::route_access::RouteAccess;
use super::sealed_sessions::SessionSlot;
use super::{RequestDenial, auth, browser_guard, random};

/// Purpose of the credential.
const READ_PURPOSE: &str = headers::READ_PURPOSE;

/// What a daemon says that asks for proof; it tells nothing that the file of the configuration does not.
const PROOF_NEEDED: &str = "reading needs proof of who reads: a MUNGE credential, or a token of Slurm's";

/// A reader whom the site's web server vouches for.
#[derive(Clone, Debug)]
pub(crate) struct ProxyUser(pub AuthenticatedUser);

/// Tells the handlers behind it who reads, and refuses who must prove it and does not.
pub(crate) async fn authenticate_reader(
    State((context, access)): State<(Arc<DaemonContext>, RouteAccess)>,
    mut request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    let vouched =
        request.extensions().get::<ProxyUser>().map(|ProxyUser(person)| to_reader(&context, person.clone()));
    let (viewer, ticket) = match vouched {
        Some(viewer) => (viewer, None),
        None => {
            // A request's body may be read by one at a time: it stays here.
            let slot = request.extensions().get::<SessionSlot>().cloned().unwrap_or_default();
            let proved = request.extensions().get::<ProvedRequest>().cloned();
            identify_reader(&context, access, request.headers(), (&slot, proved.as_ref())).await?
        }
    };
    request.extensions_mut().insert(viewer);
    let mut response = next.run(request).await;
    if let Some(value) = ticket.and_then(|t| HeaderValue::from_str(&t.0).ok()) {
        response.headers_mut().insert(headers::TICKET, value);
    }
    Ok(response)
}

/// Who asks, and the ticket that they are given if they have just proved it and are too old for a session.
async fn identify_reader(
    context: &DaemonContext,
    access: RouteAccess,
    sent: &HeaderMap,
    (slot, proved): (&SessionSlot, Option<&ProvedRequest>),
) -> Result<(ApiReader, Option<Secret>), RequestDenial> {
    let now = Instant::now();
    if let Some(ProvedRequest { session, counter }) = proved {
        let known = context.doors.readers.accept_request(&Secret(session.clone()), *counter, now);
        return Ok((to_reader(context, known.ok_or_else(RequestDenial::not_authenticated)?), None));
    }
    let Some(value) = sent.get(AUTHORIZATION) else {
        // What is computed for one reader alone is for nobody whom nobody knows.
        let open = context.config.http.read == ReadAccess::Open && access == RouteAccess::Reads;
        let asks = || RequestDenial::new(StatusCode::UNAUTHORIZED, PROOF_NEEDED);
        if !open {
            return Err(asks());
        }
        browser_guard::check_host_name(&context.config, sent)?;
        return Ok((ApiReader::default(), None));
    };
    let scheme =
        value.to_str().ok().and_then(|v| v.split_once(' ')).ok_or_else(RequestDenial::not_authenticated)?.0;
    if scheme == headers::TICKET_SCHEME {
        let doors = &context.doors;
        let secret = auth::bearer_secret(sent)?;
        let known = doors.tickets.find_user(&secret, now).or_else(|| doors.sessions.find_user(&secret, now));
        return Ok((to_reader(context, known.ok_or_else(RequestDenial::not_authenticated)?), None));
    }
    let shown = auth::PresentedCredential::from_headers(sent)?;
    let (uid, session) =
        auth::verify_proof(context, &context.doors.gates.people, slot, READ_PURPOSE, &shown).await?;
    let person = AuthenticatedUser { uid, name: name_of(uid).await };
    let ticket = match session {
        Some(session) => {
            context.doors.readers.add_session(&Secret(session), person.clone(), Instant::now());
            None
        }
        None => {
            let ticket = random::new_secret()?;
            context.doors.tickets.add_session(&ticket, person.clone(), Instant::now());
            Some(ticket)
        }
    };
    Ok((to_reader(context, person), ticket))
}

/// Proves that it is this daemon that says how it is, to whoever proves who asks.
pub(crate) async fn prove_health(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    if request.headers().contains_key(headers::TO) {
        let slot = request.extensions().get::<SessionSlot>().cloned().unwrap_or_default();
        let shown = auth::PresentedCredential::from_headers(request.headers())?;
        auth::verify_proof(&context, &context.doors.gates.health, &slot, headers::HEALTH_PURPOSE, &shown)
            .await?;
    }
    Ok(next.run(request).await)
}

fn to_reader(context: &DaemonContext, person: AuthenticatedUser) -> ApiReader {
    let named = person.name.as_ref().is_some_and(|n| context.config.daemon.admins.contains(n));
    let trusted = named || auth::is_daemon_user(person.uid);
    context.doors.to_reader(person, trusted)
}
