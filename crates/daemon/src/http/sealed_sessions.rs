//! The daemon proves itself: sessions whose every message proves who sent it (`infill_api::seal`). To whom
//! one is opened is seen to in `auth`.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::agent_channels::ProvedRequest;
use crate::context::DaemonContext;
use infill_api::{
    headers,
    seal::{SessionKey, SessionSeal, is_session_name, seal_payload},
};
use infill_model::{Credential, JobId, UserId};
use infill_slurm::identity::IdentityError;

use super::{BODY_TIMEOUT, MAX_BODY, RequestDenial, random};

/// Bytes of a session's name: 128 bits are never met twice.
const SESSION_BYTES: usize = 16;

/// Longest answer that is proved, bytes. That of a day of a large cluster has some megabytes.
const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// Where who handles a request leaves the session that its answer opens.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSlot(Arc<Mutex<Option<(SessionSeal, SessionKey)>>>);

impl SessionSlot {
    /// Opens a session to a user whose proof with this nonce was good: its answer will carry it. Returns the
    /// session's name.
    ///
    /// # Errors
    /// Where MUNGE makes no credential now.
    pub(crate) async fn open_session(
        &self,
        context: &DaemonContext,
        (uid, credential): (UserId, &Credential),
        job: Option<JobId>,
        nonce: &str,
    ) -> Result<String, RequestDenial> {
        let session = random::random_hex(SESSION_BYTES)?;
        let key = context.doors.session_key(&session).ok_or_else(no_keys_denial)?;
        let payload = seal_payload(job, nonce, &session, &key);
        let seal = match credential {
            Credential::Munge(_) => SessionSeal::Munge(
                context.identity.seal_for_reader(uid, &payload).await.map_err(seal_denial)?,
            ),
            Credential::Jwt(_) => SessionSeal::Open(payload),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((seal, key));
        Ok(session)
    }

    fn take_session(&self) -> Option<(SessionSeal, SessionKey)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a daemon says that the system gave no random numbers when it began.
fn no_keys_denial() -> RequestDenial {
    RequestDenial::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "this daemon cannot prove itself: it has no random numbers",
    )
}

fn seal_denial(e: IdentityError) -> RequestDenial {
    tracing::error!("this daemon cannot prove itself: {e}");
    RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "this daemon cannot prove itself now; try again")
}

/// Refuses a request of a session that is not proved, and proves the answers of those that are, and of those
/// that open one.
pub(crate) async fn prove_answers(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let (mut request, of) = match request.headers().contains_key(headers::SESSION) {
        false => (request, None),
        true => match verify_request(&context, request, &route).await {
            Ok((request, proved, key)) => (request, Some((proved, key))),
            Err(denial) => return denial.into_response(),
        },
    };
    let slot = SessionSlot::default();
    request.extensions_mut().insert(slot.clone());
    if let Some((proved, _)) = &of {
        request.extensions_mut().insert(proved.clone());
    }
    let answer = next.run(request).await;
    match (slot.take_session(), of) {
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
async fn verify_request(
    context: &DaemonContext,
    request: Request,
    route: &str,
) -> Result<(Request, ProvedRequest, SessionKey), RequestDenial> {
    let (parts, body) = request.into_parts();
    let (proved, mac) = read_claim(&parts.headers).ok_or_else(RequestDenial::not_authenticated)?;
    let bytes = read_body(body).await?;
    let key = context.doors.session_key(&proved.session).ok_or_else(no_keys_denial)?;
    if !key.verify_request(&mac, route, proved.counter, &bytes) {
        return Err(RequestDenial::not_authenticated());
    }
    Ok((Request::from_parts(parts, Body::from(bytes)), proved, key))
}

/// What a request says of itself, and what shall prove it.
fn read_claim(sent: &HeaderMap) -> Option<(ProvedRequest, String)> {
    let text = |name: &str| sent.get(name).and_then(|value| value.to_str().ok());
    let session = text(headers::SESSION).filter(|name| is_session_name(name))?.to_owned();
    let counter = text(headers::COUNTER)?.parse().ok().filter(|number| *number > 0)?;
    Some((ProvedRequest { session, counter }, text(headers::MAC)?.to_owned()))
}

/// A whole body, if it comes in time.
async fn read_body(body: Body) -> Result<Bytes, RequestDenial> {
    let what = || format!("the request's body broke off, or has more than {MAX_BODY} bytes");
    tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY))
        .await
        .map_err(|_| {
            RequestDenial::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time")
        })?
        .map_err(|_| RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what()))
}

/// The answer with what proves it.
async fn with_mac(answer: Response, key: &SessionKey, route: &str, counter: u64) -> Response {
    let (mut parts, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_ANSWER).await else {
        let what = format!("the answer is longer than {MAX_ANSWER} bytes");
        return RequestDenial::new(StatusCode::INTERNAL_SERVER_ERROR, what).into_response();
    };
    let mac = key.sign_answer(route, counter, parts.status.as_u16(), &bytes);
    if let Ok(mac) = HeaderValue::from_str(&mac) {
        parts.headers.insert(headers::MAC, mac);
    }
    Response::from_parts(parts, Body::from(bytes))
}
