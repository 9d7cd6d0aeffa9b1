//! Jobs that have ended, brought by administrators from Slurm's accounting.

mod sound;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::context::Context;
use infill_api::{EndedTaken, ImportEndedRequest, MAX_ENDED, SCHEMA};
use infill_model::clock::now;

use super::orders::Order;
use super::{Denial, auth};

/// Largest body of an import: [`MAX_ENDED`] jobs of five texts, each of 200 characters of four bytes.
pub(crate) const MAX_IMPORT_BODY: usize = 6 * 1024 * 1024;

/// `POST /v1/history/import`.
pub(crate) async fn import(
    State(context): State<Arc<Context>>,
    Order { uid, order: request, .. }: Order<ImportEndedRequest>,
) -> Result<Json<EndedTaken>, Denial> {
    auth::administers(&context, uid).await?;
    let jobs = request.jobs;
    if jobs.len() > MAX_ENDED {
        let what = format!("more than {MAX_ENDED} jobs at once");
        return Err(Denial::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    sound::check(&jobs, now()).map_err(|e| Denial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()))?;
    let taken = context.store.add_ended(&jobs).await?;
    let known = (jobs.len() as u64).saturating_sub(taken);
    tracing::info!(%uid, taken, known, "jobs that have ended were brought");
    Ok(Json(EndedTaken { schema: SCHEMA, taken, known }))
}
