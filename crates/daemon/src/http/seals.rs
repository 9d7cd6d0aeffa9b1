//! The daemon proves itself: sessions whose every message proves who sent it (`infill_api::seal`). To whom
//! one is opened is seen to in `auth`.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::context::Context;
use crate::lines::Proved;
use infill_api::{
    headers,
    seal::{Seal, SessionKey, is_session, seal_payload},
};
use infill_model::{Credential, JobId, UserId};
use infill_slurm::identity::IdentityError;

use super::{BODY_PATIENCE, Denial, MAX_BODY, random};

/// Bytes of a session's name: 128 bits are never met twice.
const SESSION_BYTES: usize = 16;

/// Longest answer that is proved, bytes. That of a day of a large cluster has some megabytes.
const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// Where who handles a request leaves the session that its answer opens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<(Seal, SessionKey)>>>);

impl Slot {
    /// Opens a session to a user whose proof with this nonce was good: its answer will carry it. Returns the
    /// session's name.
    ///
    /// # Errors
    /// Where MUNGE makes no credential now.
    pub(crate) async fn open(
        &self,
        context: &Context,
        (uid, credential): (UserId, &Credential),
        job: Option<JobId>,
        nonce: &str,
    ) -> Result<String, Denial> {
        let session = random::digits(SESSION_BYTES)?;
        let key = context.doors.key_of(&session).ok_or_else(no_keys)?;
        let payload = seal_payload(job, nonce, &session, &key);
        let seal = match credential {
            Credential::Munge(_) => Seal::Munge(context.identity.seal(uid, &payload).await.map_err(failed)?),
            Credential::Jwt(_) => Seal::Open(payload),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((seal, key));
        Ok(session)
    }

    fn take(&self) -> Option<(Seal, SessionKey)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a daemon says that the system gave no random numbers when it began.
fn no_keys() -> Denial {
    Denial::new(StatusCode::SERVICE_UNAVAILABLE, "this daemon cannot prove itself: it has no random numbers")
}

fn failed(e: IdentityError) -> Denial {
    tracing::error!("this daemon cannot prove itself: {e}");
    Denial::new(StatusCode::SERVICE_UNAVAILABLE, "this daemon cannot prove itself now; try again")
}

/// Refuses a request of a session that is not proved, and proves the answers of those that are, and of those
/// that open one.
pub(crate) async fn proving(State(context): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let route = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let (mut request, of) = match request.headers().contains_key(headers::SESSION) {
        false => (request, None),
        true => match checked(&context, request, &route).await {
            Ok((request, proved, key)) => (request, Some((proved, key))),
            Err(denial) => return denial.into_response(),
        },
    };
    let slot = Slot::default();
    request.extensions_mut().insert(slot.clone());
    if let Some((proved, _)) = &of {
        request.extensions_mut().insert(proved.clone());
    }
    let answer = next.run(request).await;
    match (slot.take(), of) {
        (Some((seal, key)), _) => {
            let mut answer = with_mac(answer, &key, &route, 0).await;
            if let Ok(mut value) = HeaderValue::from_str(&seal.to_header()) {
                value.set_sensitive(true);
                answer.headers_mut().insert(headers::SEAL, value);
            }
            answer
        }
        (None, Some((proved, key))) => with_mac(answer, &key, &route, proved.counter).await,
        (None, None) => answer,
    }
}

/// A request whose session, counter and body are proved, and the session's key. Its body was read for it.
async fn checked(
    context: &Context,
    request: Request,
    route: &str,
) -> Result<(Request, Proved, SessionKey), Denial> {
    let (parts, body) = request.into_parts();
    let (proved, mac) = claimed(&parts.headers).ok_or_else(Denial::unproved)?;
    let bytes = read(body).await?;
    let key = context.doors.key_of(&proved.session).ok_or_else(no_keys)?;
    if !key.is_request(&mac, route, proved.counter, &bytes) {
        return Err(Denial::unproved());
    }
    Ok((Request::from_parts(parts, Body::from(bytes)), proved, key))
}

/// What a request says of itself, and what shall prove it.
fn claimed(sent: &HeaderMap) -> Option<(Proved, String)> {
    let text = |name: &str| sent.get(name).and_then(|value| value.to_str().ok());
    let session = text(headers::SESSION).filter(|name| is_session(name))?.to_owned();
    let counter = text(headers::COUNTER)?.parse().ok().filter(|number| *number > 0)?;
    Some((Proved { session, counter }, text(headers::MAC)?.to_owned()))
}

/// A whole body, if it comes in time.
async fn read(body: Body) -> Result<Bytes, Denial> {
    let late = |_| Denial::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time");
    let what = || format!("the request's body broke off, or has more than {MAX_BODY} bytes");
    let broken = |_| Denial::new(StatusCode::PAYLOAD_TOO_LARGE, what());
    tokio::time::timeout(BODY_PATIENCE, to_bytes(body, MAX_BODY)).await.map_err(late)?.map_err(broken)
}

/// The answer with what proves it.
async fn with_mac(answer: Response, key: &SessionKey, route: &str, counter: u64) -> Response {
    let (mut parts, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_ANSWER).await else {
        let what = format!("the answer is longer than {MAX_ANSWER} bytes");
        return Denial::new(StatusCode::INTERNAL_SERVER_ERROR, what).into_response();
    };
    let mac = key.of_answer(route, counter, parts.status.as_u16(), &bytes);
    if let Ok(mac) = HeaderValue::from_str(&mac) {
        parts.headers.insert(headers::MAC, mac);
    }
    Response::from_parts(parts, Body::from(bytes))
}
