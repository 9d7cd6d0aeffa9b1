//! Orders: what changes something, with proof of who gives it, and that this is the order.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use serde::de::DeserializeOwned;

use crate::context::Context;
use infill_api::{
    BodyProof, ControlRequest, ForgetRequest, ImportEndedRequest, ImportRequest, LINK_PURPOSE, LinkRequest,
    seal::digest,
};
use infill_model::UserId;

use super::seals::Slot;
use super::{BODY_PATIENCE, Denial, auth};

/// What somebody orders.
pub(crate) trait Ordered: DeserializeOwned + Send {
    /// Purpose of the credential.
    const PURPOSE: &str;
    /// Proof in the body, of clients that are older than sealed sessions.
    fn proof(&self) -> &BodyProof;
}

macro_rules! ordered {
    ($($request:ty: $purpose:expr),* $(,)?) => {
        $(impl Ordered for $request {
            const PURPOSE: &str = $purpose;
            fn proof(&self) -> &BodyProof {
                &self.proof
            }
        })*
    };
}

ordered! {
    ControlRequest: "control",
    ForgetRequest: "profiles",
    ImportRequest: "profiles",
    ImportEndedRequest: "history",
    LinkRequest: LINK_PURPOSE,
}

/// An order, and the user who has proved to give it.
pub(crate) struct Order<T>(pub UserId, pub T);

impl<T: Ordered> FromRequest<Arc<Context>> for Order<T> {
    type Rejection = Denial;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Denial> {
        let slot = request.extensions().get::<Slot>().cloned().unwrap_or_default();
        let (parts, body) = request.into_parts();
        let whole = Bytes::from_request(Request::from_parts(parts.clone(), body), context);
        let late = |_| Denial::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time");
        let bytes = tokio::time::timeout(BODY_PATIENCE, whole).await.map_err(late)?;
        let bytes = bytes.map_err(|e: BytesRejection| Denial::new(e.status(), e.body_text()))?;
        let again = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
        let Json(order) = Json::<T>::from_request(again, context).await.map_err(Denial::from)?;
        let gate = &context.doors.people;
        let uid = match parts.headers.contains_key(AUTHORIZATION) {
            true => {
                let shown = auth::Shown::in_headers(&parts.headers)?;
                // Who shows it there is new enough to name the daemon, and binds the order.
                let shown = auth::Shown { order: Some(digest(parts.uri.path(), &bytes)), ..shown.bound()? };
                auth::proved(context, gate, &slot, T::PURPOSE, &shown).await?.0
            }
            false => {
                let BodyProof { credential, nonce } = order.proof().clone();
                let (credential, nonce) = credential.zip(nonce).ok_or_else(Denial::unproved)?;
                let shown = auth::Shown { credential, nonce, job: None, to: None, order: None };
                auth::proved(context, gate, &slot, T::PURPOSE, &shown).await?.0
            }
        };
        Ok(Order(uid, order))
    }
}
