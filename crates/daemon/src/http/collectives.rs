//! How long collectives take on the site's nodes: brought by administrators, shown to all.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::context::{COLLECTIVES_SETTING, Context};
use infill_api::{CollectivesView, ImportCollectivesRequest, SCHEMA};
use infill_model::{SiteCollectives, TypeCollectives, clock::now};

use super::orders::Order;
use super::{Denial, auth};

/// Largest body of an import: as many rows as a type may have, of 150 bytes.
pub(crate) const MAX_IMPORT_BODY: usize = 512 * 1024;

fn view(site: SiteCollectives) -> CollectivesView {
    CollectivesView { schema: SCHEMA, types: site.types }
}

/// `GET /v1/collectives`. They tell of nodes alone, and are for all who may read anything.
pub(crate) async fn show(State(context): State<Arc<Context>>) -> Json<CollectivesView> {
    let site = context.state().scene.library().collectives().clone();
    Json(view(site))
}

/// `POST /v1/collectives/import`.
pub(crate) async fn import(
    State(context): State<Arc<Context>>,
    Order { uid, order: request, .. }: Order<ImportCollectivesRequest>,
) -> Result<Json<CollectivesView>, Denial> {
    auth::administers(&context, uid).await?;
    let ImportCollectivesRequest { node_type, rows, .. } = request;
    let (told, count) = (node_type.clone(), rows.len());
    // One import at a time: the next one keeps what this one brings.
    let _learned = context.saving.learned.lock().await;
    let mut site = context.state().scene.library().collectives().clone();
    let refused = |e: &dyn ToString| Denial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string());
    site.import(TypeCollectives { node_type, imported_at: now(), rows }).map_err(|e| refused(&e))?;
    let text = serde_json::to_string(&site).map_err(|e| refused(&e))?;
    context.store.put_setting(COLLECTIVES_SETTING, &text).await?;
    context.state().scene.library_mut().know_collectives(site.clone());
    tracing::info!(%uid, node_type = %told, rows = count, "a table of collectives was brought");
    Ok(Json(view(site)))
}
