//! Sessions in which both sides sign every message, so that the daemon proves its identity too
//! (`infill_api::seal`). The module `auth` decides who gets a session.

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
use infill_model::{Credential, UserId};
use infill_slurm::identity::IdentityError;

use super::presented_credential::{PresentedCredential, header_text};
use super::{BODY_TIMEOUT, MAX_BODY, RequestDenial, body_timeout, random};

/// Bytes of a session's name. 128 random bits never repeat in practice.
const SESSION_BYTES: usize = 16;

/// Longest answer that is signed, bytes. The timeline of a day of a large cluster has some megabytes.
const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// Holds the session that the answer to a request opens. The request's handler fills it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSlot(Arc<Mutex<Option<(SessionSeal, SessionKey)>>>);

impl SessionSlot {
    /// Opens a session for a user whose credential was verified. The answer will carry the session. Returns
    /// its name.
    ///
    /// # Errors
    /// When MUNGE makes no credential now, or the system gave no random numbers.
    pub(crate) async fn open_session(
        &self,
        context: &DaemonContext,
        uid: UserId,
        presented: &PresentedCredential,
    ) -> Result<String, RequestDenial> {
        let session = random::random_hex(SESSION_BYTES)?;
        let key = context.access.session_key(&session).ok_or_else(no_keys_denial)?;
        let payload = seal_payload(presented.job, &presented.nonce, &session, &key);
        let seal = match &presented.credential {
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

/// The refusal of a daemon to which the system gave no random numbers at its start.
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

/// Refuses requests of a session with a wrong signature. Signs the answers to requests of sessions, and to
/// requests that open one.
pub(crate) async fn prove_answers(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let mut signed_by = None;
    let mut request = request;
    if request.headers().contains_key(headers::SESSION) {
        match verify_request(&context, request, &route).await {
            Ok((verified, proved, key)) => {
                request = verified;
                request.extensions_mut().insert(proved.clone());
                signed_by = Some((proved, key));
            }
            Err(denial) => return denial.into_response(),
        }
    }
    let slot = SessionSlot::default();
    request.extensions_mut().insert(slot.clone());
    let answer = next.run(request).await;
    if let Some((seal, key)) = slot.take_session() {
        let mut answer = with_mac(answer, &key, &route, 0).await;
        if let Ok(mut value) = HeaderValue::from_str(&seal.to_header()) {
            value.set_sensitive(true);
            answer.headers_mut().insert(headers::SEAL, value);
        }
        return answer;
    }
    match signed_by {
        Some((proved, key)) => with_mac(answer, &key, &route, proved.counter).await,
        None => answer,
    }
}

/// Verifies the signature of a request. Returns the request with its body read, its session and counter, and
/// the session's key.
async fn verify_request(
    context: &DaemonContext,
    request: Request,
    route: &str,
) -> Result<(Request, ProvedRequest, SessionKey), RequestDenial> {
    let (parts, body) = request.into_parts();
    let (proved, mac) = read_claim(&parts.headers).ok_or_else(RequestDenial::not_authenticated)?;
    let bytes = read_body(body).await?;
    let key = context.access.session_key(&proved.session).ok_or_else(no_keys_denial)?;
    if !key.verify_request(&mac, route, proved.counter, &bytes) {
        return Err(RequestDenial::not_authenticated());
    }
    Ok((Request::from_parts(parts, Body::from(bytes)), proved, key))
}

/// Reads the session, the counter and the signature from the headers of a request.
fn read_claim(sent: &HeaderMap) -> Option<(ProvedRequest, String)> {
    let session = header_text(sent, headers::SESSION).filter(|name| is_session_name(name))?.to_owned();
    let counter = header_text(sent, headers::COUNTER)?.parse().ok().filter(|number| *number > 0)?;
    let mac = header_text(sent, headers::MAC)?.to_owned();
    Some((ProvedRequest { session, counter }, mac))
}

/// Reads a whole body, if it arrives in time.
async fn read_body(body: Body) -> Result<Bytes, RequestDenial> {
    let reading = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY));
    reading.await.map_err(|_| body_timeout())?.map_err(|_| {
        let what = format!("the request's body broke off, or has more than {MAX_BODY} bytes");
        RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what)
    })
}

/// Adds the signature to an answer.
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
