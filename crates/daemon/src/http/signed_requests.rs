//! What is bound to the credential of those who send it: agents' hellos, and orders, which change something.
//! With proof of who sends it, and that this is what they have sent.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::access_control::AccessControl;
use crate::context::DaemonContext;
use infill_api::{
    AgentHello, BodyProof, ControlRequest, ForgetRequest, ImportCollectivesRequest, ImportEndedRequest,
    ImportRequest, LINK_PURPOSE, LinkRequest, REVOKE_PURPOSE, RevokeRequest, seal::request_digest,
};
use infill_model::{JobId, UserId};

use super::auth::GATE_PATIENCE;
use super::connection_limit::RequestGuard;
use super::sealed_sessions::SessionSlot;
use super::{BODY_TIMEOUT, RequestDenial, auth};

/// What somebody orders.
pub(crate) trait Ordered: DeserializeOwned + Send {
    /// Purpose of the credential.
    const PURPOSE: &str;
    /// Proof in the body, of those who know of no sealed sessions.
    fn proof(&self) -> &BodyProof;
    /// The job in the credential.
    fn job(&self) -> Option<JobId> {
        None
    }
    /// Whether it may be long, so that only some are read at a time.
    const IS_LONG: bool = false;
    /// Where it waits for its turn.
    fn permit_gate(doors: &AccessControl) -> &Semaphore {
        &doors.gates.people
    }
}

macro_rules! ordered {
    ($($request:ty: $purpose:expr, long: $long:expr;)*) => {
        $(impl Ordered for $request {
            const PURPOSE: &str = $purpose;
            const IS_LONG: bool = $long;
            fn proof(&self) -> &BodyProof {
                &self.proof
            }
        })*
    };
}

ordered! {
    ControlRequest: "control", long: false;
    ForgetRequest: "profiles", long: false;
    ImportRequest: "profiles", long: true;
    ImportEndedRequest: "history", long: true;
    ImportCollectivesRequest: "collectives", long: true;
    LinkRequest: LINK_PURPOSE, long: false;
    RevokeRequest: REVOKE_PURPOSE, long: false;
}

impl Ordered for AgentHello {
    const PURPOSE: &str = "hello";
    fn proof(&self) -> &BodyProof {
        &self.proof
    }
    fn job(&self) -> Option<JobId> {
        Some(self.job)
    }
    fn permit_gate(doors: &AccessControl) -> &Semaphore {
        &doors.gates.hellos
    }
}

/// An order, and who has proved to give it.
pub(crate) struct VerifiedOrder<T> {
    /// The user.
    pub uid: UserId,
    /// The session that the answer opens to them, if they know of such.
    pub session: Option<String>,
    /// The order.
    pub order: T,
}

impl<T: Ordered> FromRequest<Arc<DaemonContext>> for VerifiedOrder<T> {
    type Rejection = RequestDenial;

    async fn from_request(request: Request, context: &Arc<DaemonContext>) -> Result<Self, RequestDenial> {
        let slot = request.extensions().get::<SessionSlot>().cloned().unwrap_or_default();
        let under_way = request.extensions().get::<Arc<RequestGuard>>().cloned();
        let (parts, body) = request.into_parts();
        // Held until who sends it is known: unproved bytes must not fill the memory.
        let _turn = match T::IS_LONG {
            true => Some(
                auth::acquire_permit(&context.doors.gates.long, GATE_PATIENCE)
                    .await
                    .map_err(RequestDenial::from)?,
            ),
            false => None,
        };
        let whole = Bytes::from_request(Request::from_parts(parts.clone(), body), context);
        let bytes = tokio::time::timeout(BODY_TIMEOUT, whole).await.map_err(|_| {
            RequestDenial::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time")
        })?;
        let bytes = bytes.map_err(|e: BytesRejection| RequestDenial::new(e.status(), e.body_text()))?;
        under_way.iter().for_each(|request| request.mark_received());
        let again = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
        let Json(order) = Json::<T>::from_request(again, context).await.map_err(RequestDenial::from)?;
        let shown = match parts.headers.contains_key(AUTHORIZATION) {
            true => {
                // Who shows it there is new enough to name the daemon, and binds the order.
                let shown = auth::PresentedCredential::from_headers(&parts.headers)?.require_target()?;
                auth::PresentedCredential {
                    job: order.job(),
                    order: Some(request_digest(parts.uri.path(), &bytes)),
                    ..shown
                }
            }
            false => {
                let BodyProof { credential, nonce } = order.proof().clone();
                let (credential, nonce) =
                    credential.zip(nonce).ok_or_else(RequestDenial::not_authenticated)?;
                auth::PresentedCredential { credential, nonce, job: order.job(), to: None, order: None }
            }
        };
        let gate = T::permit_gate(&context.doors);
        let (uid, session) = auth::verify_proof(context, gate, &slot, T::PURPOSE, &shown).await?;
        Ok(VerifiedOrder { uid, session, order })
    }
}
