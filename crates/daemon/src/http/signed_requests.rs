//! Requests that are bound to their sender's credential: agents' hellos, and requests that change something.
//! The credential proves who sent the request, and that this is what they sent.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::access_control::AccessControl;
use crate::context::DaemonContext;
use infill_api::{
    AgentHello, BodyProof, ControlRequest, FORGET_USER_PURPOSE, ForgetRequest, ForgetUserRequest,
    ImportCollectivesRequest, ImportEndedRequest, ImportRequest, LINK_PURPOSE, LinkRequest, REVOKE_PURPOSE,
    RevokeRequest, seal::request_digest,
};
use infill_model::{JobId, UserId};

use super::auth::PERMIT_TIMEOUT;
use super::connection_limit::RequestGuard;
use super::sealed_sessions::SessionSlot;
use super::{BODY_TIMEOUT, RequestDenial, auth, body_timeout};

/// A request that is bound to its sender's credential.
pub(crate) trait CredentialBound: DeserializeOwned + Send {
    /// Purpose of the credential.
    const PURPOSE: &str;
    /// The proof in the body, from clients that do not support sealed sessions.
    fn proof(&self) -> &BodyProof;
    /// The job in the credential.
    fn job(&self) -> Option<JobId> {
        None
    }
    /// Whether the body may be long, so that only a few are read at a time.
    const IS_LONG: bool = false;
    /// Limits the checks of these credentials.
    fn check_limit(access: &AccessControl) -> &Semaphore {
        &access.limits.people
    }
}

macro_rules! credential_bound {
    ($($request:ty: $purpose:expr, long: $long:expr;)*) => {
        $(impl CredentialBound for $request {
            const PURPOSE: &str = $purpose;
            const IS_LONG: bool = $long;
            fn proof(&self) -> &BodyProof {
                &self.proof
            }
        })*
    };
}

credential_bound! {
    ControlRequest: "control", long: false;
    ForgetRequest: "profiles", long: false;
    ImportRequest: "profiles", long: true;
    ImportEndedRequest: "history", long: true;
    ForgetUserRequest: FORGET_USER_PURPOSE, long: false;
    ImportCollectivesRequest: "collectives", long: true;
    LinkRequest: LINK_PURPOSE, long: false;
    RevokeRequest: REVOKE_PURPOSE, long: false;
}

impl CredentialBound for AgentHello {
    const PURPOSE: &str = "hello";
    fn proof(&self) -> &BodyProof {
        &self.proof
    }
    fn job(&self) -> Option<JobId> {
        Some(self.job)
    }
    fn check_limit(access: &AccessControl) -> &Semaphore {
        &access.limits.hellos
    }
}

/// A request and its proved sender.
pub(crate) struct VerifiedRequest<T> {
    /// The user who sent the request.
    pub uid: UserId,
    /// The session that the answer opens; `None` for clients that do not support sessions.
    pub session: Option<String>,
    /// The request.
    pub request: T,
}

impl<T: CredentialBound> FromRequest<Arc<DaemonContext>> for VerifiedRequest<T> {
    type Rejection = RequestDenial;

    async fn from_request(request: Request, context: &Arc<DaemonContext>) -> Result<Self, RequestDenial> {
        let slot = request.extensions().get::<SessionSlot>().cloned().unwrap_or_default();
        let guard = request.extensions().get::<Arc<RequestGuard>>().cloned();
        let (parts, body) = request.into_parts();
        // The permit is held until the sender is proved, so that unproved bytes cannot fill the memory.
        let _permit = if T::IS_LONG {
            let permit = auth::acquire_permit(&context.access.limits.long, PERMIT_TIMEOUT).await;
            Some(permit.map_err(RequestDenial::from)?)
        } else {
            None
        };
        let reading = Bytes::from_request(Request::from_parts(parts.clone(), body), context);
        let bytes = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(|_| body_timeout())?;
        let bytes = bytes.map_err(|e| RequestDenial::new(e.status(), e.body_text()))?;
        if let Some(guard) = guard {
            guard.mark_received();
        }
        let copy = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
        let Json(content) = Json::<T>::from_request(copy, context).await.map_err(RequestDenial::from)?;
        let presented = presented_credential(&parts, &bytes, &content)?;
        let limit = T::check_limit(&context.access);
        let verified = auth::verify_proof(context, limit, &slot, T::PURPOSE, &presented).await?;
        Ok(VerifiedRequest { uid: verified.uid, session: verified.session, request: content })
    }
}

/// The credential of a request. New clients send it in headers, where it must name the daemon and binds the
/// body. Old clients send it in the body.
fn presented_credential<T: CredentialBound>(
    parts: &Parts,
    body: &Bytes,
    request: &T,
) -> Result<auth::PresentedCredential, RequestDenial> {
    if parts.headers.contains_key(AUTHORIZATION) {
        let from_headers = auth::PresentedCredential::from_headers(&parts.headers)?.require_target()?;
        let digest = request_digest(parts.uri.path(), body);
        return Ok(auth::PresentedCredential { job: request.job(), order: Some(digest), ..from_headers });
    }
    let proof = request.proof().clone();
    let credential = proof.credential.ok_or_else(RequestDenial::not_authenticated)?;
    let nonce = proof.nonce.ok_or_else(RequestDenial::not_authenticated)?;
    Ok(auth::PresentedCredential { credential, nonce, job: request.job(), to: None, order: None })
}
