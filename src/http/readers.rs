//! Readers: who they are, by a MUNGE credential or a token of Slurm's with the first request, and by the
//! ticket that it is answered with in those that follow.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::headers;
use crate::daemon::context::Context;
use crate::daemon::sight::Viewer;
use crate::model::{Credential, Readers, Secret, UserId};
use crate::slurm::identity::name_of;

use super::access::Access;
use super::{Denial, auth};

/// Purpose of the credential.
const PURPOSE: &str = headers::READ_PURPOSE;

/// Longest nonce that is looked at.
const MAX_NONCE: usize = 128;

/// What a daemon says that asks for proof; it tells nothing that the file of the configuration does not.
const ASKS: &str = "reading needs proof of who reads: a MUNGE credential, or a token of Slurm's";

/// Tells the handlers behind it who reads, and refuses who must prove it and does not.
pub async fn known(
    State((context, access)): State<(Arc<Context>, Access)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Denial> {
    let (viewer, ticket) = viewer(&context, access, request.headers()).await?;
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
        // What takes a processor is for nobody whom nobody knows.
        let open = context.config.http.read == Readers::Open && access == Access::Reads;
        let asks = || Denial::new(StatusCode::UNAUTHORIZED, ASKS);
        return if open { Ok((Viewer::default(), None)) } else { Err(asks()) };
    };
    let (scheme, text) = value.to_str().ok().and_then(|v| v.split_once(' ')).ok_or_else(Denial::unproved)?;
    let secret = Secret(text.to_owned());
    if scheme == headers::TICKET_SCHEME {
        let known = context.doors.recall(&auth::bearer(sent)?, Instant::now());
        let (uid, name) = known.ok_or_else(Denial::unproved)?;
        return Ok((of(context, uid, name), None));
    }
    let credential = match scheme {
        headers::MUNGE_SCHEME => Credential::Munge(secret),
        headers::JWT_SCHEME => Credential::Jwt(secret),
        _ => return Err(Denial::unproved()),
    };
    let nonce = sent.get(headers::NONCE).and_then(|v| v.to_str().ok()).filter(|n| n.len() <= MAX_NONCE);
    let uid = auth::proved(context, PURPOSE, &credential, nonce.unwrap_or_default()).await?;
    let name = name_of(uid).await;
    let ticket = auth::new_secret()?;
    context.doors.admit(&ticket, uid, name.clone(), Instant::now());
    Ok((of(context, uid, name), Some(ticket)))
}

fn of(context: &Context, uid: UserId, name: Option<String>) -> Viewer {
    let named = name.as_ref().is_some_and(|n| context.config.daemon.admins.contains(n));
    context.doors.viewer(uid, name, named || auth::is_own(uid))
}
