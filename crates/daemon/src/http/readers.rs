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

use crate::context::Context;
use crate::lines::Proved;
use crate::passes::Person;
use crate::sight::Viewer;
use infill_api::headers;
use infill_model::{ReadAccess, Secret};
use infill_slurm::identity::name_of;

use super::access::Access;
use super::seals::Slot;
use super::{Denial, auth, browsers, random};

/// Purpose of the credential.
const PURPOSE: &str = headers::READ_PURPOSE;

/// What a daemon says that asks for proof; it tells nothing that the file of the configuration does not.
const ASKS: &str = "reading needs proof of who reads: a MUNGE credential, or a token of Slurm's";

/// A reader whom the site's web server vouches for.
#[derive(Clone, Debug)]
pub(crate) struct Vouched(pub Person);

/// Tells the handlers behind it who reads, and refuses who must prove it and does not.
pub(crate) async fn known(
    State((context, access)): State<(Arc<Context>, Access)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Denial> {
    let vouched = request.extensions().get::<Vouched>().map(|Vouched(person)| of(&context, person.clone()));
    let (viewer, ticket) = match vouched {
        Some(viewer) => (viewer, None),
        None => {
            // A request's body may be read by one at a time: it stays here.
            let slot = request.extensions().get::<Slot>().cloned().unwrap_or_default();
            let proved = request.extensions().get::<Proved>().cloned();
            viewer(&context, access, request.headers(), (&slot, proved.as_ref())).await?
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
async fn viewer(
    context: &Context,
    access: Access,
    sent: &HeaderMap,
    (slot, proved): (&Slot, Option<&Proved>),
) -> Result<(Viewer, Option<Secret>), Denial> {
    let now = Instant::now();
    if let Some(Proved { session, counter }) = proved {
        let known = context.doors.readers.count(&Secret(session.clone()), *counter, now);
        return Ok((of(context, known.ok_or_else(Denial::unproved)?), None));
    }
    let Some(value) = sent.get(AUTHORIZATION) else {
        // What is computed for one reader alone is for nobody whom nobody knows.
        let open = context.config.http.read == ReadAccess::Open && access == Access::Reads;
        let asks = || Denial::new(StatusCode::UNAUTHORIZED, ASKS);
        if !open {
            return Err(asks());
        }
        browsers::came_by_our_name(&context.config, sent)?;
        return Ok((Viewer::default(), None));
    };
    let scheme = value.to_str().ok().and_then(|v| v.split_once(' ')).ok_or_else(Denial::unproved)?.0;
    if scheme == headers::TICKET_SCHEME {
        let (doors, secret) = (&context.doors, auth::bearer(sent)?);
        let known = doors.tickets.recall(&secret, now).or_else(|| doors.sessions.recall(&secret, now));
        return Ok((of(context, known.ok_or_else(Denial::unproved)?), None));
    }
    let shown = auth::Shown::in_headers(sent)?;
    let (uid, session) = auth::proved(context, &context.doors.gates.people, slot, PURPOSE, &shown).await?;
    let person = Person { uid, name: name_of(uid).await };
    let ticket = match session {
        Some(session) => {
            context.doors.readers.admit(&Secret(session), person.clone(), Instant::now());
            None
        }
        None => {
            let ticket = random::new_secret()?;
            context.doors.tickets.admit(&ticket, person.clone(), Instant::now());
            Some(ticket)
        }
    };
    Ok((of(context, person), ticket))
}

/// Proves that it is this daemon that says how it is, to whoever proves who asks.
pub(crate) async fn of_health(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Result<Response, Denial> {
    if request.headers().contains_key(headers::TO) {
        let slot = request.extensions().get::<Slot>().cloned().unwrap_or_default();
        let shown = auth::Shown::in_headers(request.headers())?;
        auth::proved(&context, &context.doors.gates.health, &slot, headers::HEALTH_PURPOSE, &shown).await?;
    }
    Ok(next.run(request).await)
}

fn of(context: &Context, person: Person) -> Viewer {
    let named = person.name.as_ref().is_some_and(|n| context.config.daemon.admins.contains(n));
    let trusted = named || auth::is_own(person.uid);
    context.doors.viewer(person, trusted)
}
