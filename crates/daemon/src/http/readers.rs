//! Readers: who they are, by a MUNGE credential or a token of Slurm's with the first request, and by the
//! ticket that it is answered with in those that follow; browsers by the session that a link has given them.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::context::Context;
use crate::passes::Person;
use crate::sight::Viewer;
use infill_api::headers;
use infill_model::{Credential, Readers, Secret};
use infill_slurm::identity::name_of;

use super::access::Access;
use super::{Denial, auth, browsers};

/// Purpose of the credential.
const PURPOSE: &str = headers::READ_PURPOSE;

/// Longest nonce that is looked at.
const MAX_NONCE: usize = 128;

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
        None => viewer(&context, access, request.headers()).await?,
    };
    request.extensions_mut().insert(viewer);
    let mut response = next.run(request).await;
    if let Some(value) = ticket.and_then(|t| HeaderValue::from_str(&t.0).ok()) {
        response.headers_mut().insert(headers::TICKET, value);
    }
    Ok(response)
}

/// Who sent these headers, and the ticket that they are given if they have just proved it.
async fn viewer(
    context: &Context,
    access: Access,
    sent: &HeaderMap,
) -> Result<(Viewer, Option<Secret>), Denial> {
    let Some(value) = sent.get(AUTHORIZATION) else {
        // What is computed for one reader alone is for nobody whom nobody knows.
        let open = context.config.http.read == Readers::Open && access == Access::Reads;
        let asks = || Denial::new(StatusCode::UNAUTHORIZED, ASKS);
        if !open {
            return Err(asks());
        }
        browsers::came_by_our_name(&context.config, sent)?;
        return Ok((Viewer::default(), None));
    };
    let (scheme, text) = value.to_str().ok().and_then(|v| v.split_once(' ')).ok_or_else(Denial::unproved)?;
    let secret = Secret(text.to_owned());
    if scheme == headers::TICKET_SCHEME {
        let (doors, secret, now) = (&context.doors, auth::bearer(sent)?, Instant::now());
        let known = doors.tickets.recall(&secret, now).or_else(|| doors.sessions.recall(&secret, now));
        return Ok((of(context, known.ok_or_else(Denial::unproved)?), None));
    }
    let credential = match scheme {
        headers::MUNGE_SCHEME => Credential::Munge(secret),
        headers::JWT_SCHEME => Credential::Jwt(secret),
        _ => return Err(Denial::unproved()),
    };
    let nonce = sent.get(headers::NONCE).and_then(|v| v.to_str().ok()).filter(|n| n.len() <= MAX_NONCE);
    let uid = auth::proved(context, PURPOSE, &credential, nonce.unwrap_or_default()).await?;
    let person = Person { uid, name: name_of(uid).await };
    let ticket = auth::new_secret()?;
    context.doors.tickets.admit(&ticket, person.clone(), Instant::now());
    Ok((of(context, person), Some(ticket)))
}

fn of(context: &Context, person: Person) -> Viewer {
    let named = person.name.as_ref().is_some_and(|n| context.config.daemon.admins.contains(n));
    let trusted = named || auth::is_own(person.uid);
    context.doors.viewer(person, trusted)
}
