//! Imports of ended jobs, which administrators take from Slurm's accounting.

#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::context::DaemonContext;
use infill_api::{EndedImportResult, ImportEndedRequest, MAX_ENDED, SCHEMA_VERSION};
use infill_model::clock::now;

use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// Largest body of an import: [`MAX_ENDED`] jobs with five texts, each of 200 characters with four bytes.
pub(crate) const MAX_IMPORT_BODY: usize = 6 * 1024 * 1024;

/// `POST /v1/history/import`.
pub(crate) async fn import_history(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ImportEndedRequest>,
) -> Result<Json<EndedImportResult>, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    let jobs = request.jobs;
    if jobs.len() > MAX_ENDED {
        let what = format!("expected at most {MAX_ENDED} jobs at once");
        return Err(RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    validate::check_jobs(&jobs, now())
        .map_err(|e| RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()))?;
    let taken = context.store.add_ended_jobs(&jobs).await?;
    let known = (jobs.len() as u64).saturating_sub(taken);
    tracing::info!(%uid, taken, known, "ended jobs were imported");
    Ok(Json(EndedImportResult { schema: SCHEMA_VERSION, taken, known }))
}
