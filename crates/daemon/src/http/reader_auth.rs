//! Authentication of readers.
//!
//! The first request carries a MUNGE credential or a Slurm token. Its answer opens a session for later
//! requests, or gives a ticket to older clients. Browsers use the session that they get for a link.

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

/// The refusal of a request without proof. It reveals nothing that is not in the configuration file.
const PROOF_NEEDED: &str = "readers must prove their identity: with a MUNGE credential or a Slurm token";

/// A reader for whom the site's web server vouches.
#[derive(Clone, Debug)]
pub(crate) struct ProxyUser(pub AuthenticatedUser);

/// Adds the reader to the request. Refuses readers who must prove their identity and do not.
pub(crate) async fn authenticate_reader(
    State((context, access)): State<(Arc<DaemonContext>, RouteAccess)>,
    mut request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    let proxy_user = request.extensions().get::<ProxyUser>();
    let proxy_reader = proxy_user.map(|ProxyUser(person)| to_reader(&context, person.clone()));
    let (viewer, ticket) = match proxy_reader {
        Some(viewer) => (viewer, None),
        None => {
            // Cloned, because the request with its body must not be borrowed over an await.
            let slot = request.extensions().get::<SessionSlot>().cloned().unwrap_or_default();
            let proved = request.extensions().get::<ProvedRequest>().cloned();
            match proved {
                Some(proved) => (find_session_reader(&context, proved)?, None),
                None => identify_reader(&context, access, request.headers(), &slot).await?,
            }
        }
    };
    request.extensions_mut().insert(viewer);
    let mut response = next.run(request).await;
    if let Some(value) = ticket.and_then(|ticket| HeaderValue::from_str(&ticket.0).ok()) {
        response.headers_mut().insert(headers::TICKET, value);
    }
    Ok(response)
}

/// The reader of a session whose key has signed this request.
fn find_session_reader(context: &DaemonContext, proved: ProvedRequest) -> Result<ApiReader, RequestDenial> {
    let ProvedRequest { session, counter } = proved;
    let person = context.access.readers.accept_request(&Secret(session), counter, Instant::now());
    Ok(to_reader(context, person.ok_or_else(RequestDenial::not_authenticated)?))
}

/// The reader that the headers identify. Returns a new ticket too, if the headers hold a proof and the client
/// does not support sessions.
async fn identify_reader(
    context: &DaemonContext,
    access: RouteAccess,
    sent: &HeaderMap,
    slot: &SessionSlot,
) -> Result<(ApiReader, Option<Secret>), RequestDenial> {
    let now = Instant::now();
    let Some(value) = sent.get(AUTHORIZATION) else {
        // Anonymous readers get nothing that is computed for one reader alone.
        let is_open = context.config.http.read == ReadAccess::Open && access == RouteAccess::Reads;
        if !is_open {
            return Err(RequestDenial::new(StatusCode::UNAUTHORIZED, PROOF_NEEDED));
        }
        browser_guard::check_host_name(&context.config, sent)?;
        return Ok((ApiReader::default(), None));
    };
    let scheme = value.to_str().ok().and_then(|value| value.split_once(' ')).map(|(scheme, _)| scheme);
    let scheme = scheme.ok_or_else(RequestDenial::not_authenticated)?;
    if scheme == headers::TICKET_SCHEME {
        let access = &context.access;
        let secret = auth::bearer_secret(sent)?;
        let person =
            access.tickets.find_user(&secret, now).or_else(|| access.sessions.find_user(&secret, now));
        return Ok((to_reader(context, person.ok_or_else(RequestDenial::not_authenticated)?), None));
    }
    let presented = auth::PresentedCredential::from_headers(sent)?;
    let verified =
        auth::verify_proof(context, &context.access.limits.people, slot, READ_PURPOSE, &presented).await?;
    let person = AuthenticatedUser { uid: verified.uid, name: name_of(verified.uid).await };
    let ticket = match verified.session {
        Some(session) => {
            context.access.readers.add_session(&Secret(session), person.clone(), Instant::now());
            None
        }
        None => {
            let ticket = random::new_secret()?;
            context.access.tickets.add_session(&ticket, person.clone(), Instant::now());
            Some(ticket)
        }
    };
    Ok((to_reader(context, person), ticket))
}

/// Proves the daemon's identity in the answer about its health, if the client has proved its own.
pub(crate) async fn prove_health(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    if request.headers().contains_key(headers::TO) {
        let slot = request.extensions().get::<SessionSlot>().cloned().unwrap_or_default();
        let presented = auth::PresentedCredential::from_headers(request.headers())?;
        let limit = &context.access.limits.health;
        auth::verify_proof(&context, limit, &slot, headers::HEALTH_PURPOSE, &presented).await?;
    }
    Ok(next.run(request).await)
}

fn to_reader(context: &DaemonContext, person: AuthenticatedUser) -> ApiReader {
    let is_admin = person.name.as_ref().is_some_and(|name| context.config.daemon.admins.contains(name));
    let trusted = is_admin || auth::is_daemon_user(person.uid);
    context.access.to_reader(person, trusted)
}
