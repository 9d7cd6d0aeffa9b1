//! How long collectives take on the site's nodes: brought by administrators, shown to all.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::context::{COLLECTIVES_SETTING, DaemonContext};
use infill_api::{CollectivesView, ImportCollectivesRequest, SCHEMA};
use infill_model::{SiteCollectives, TypeCollectives, clock::now};

use super::signed_requests::VerifiedOrder;
use super::{RequestDenial, auth};

/// Largest body of an import: as many rows as a type may have, of 125 bytes; what is sealed may not be
/// longer.
pub(crate) const MAX_IMPORT_BODY: usize = 250 * 1024;

fn collectives_view(site: SiteCollectives) -> CollectivesView {
    CollectivesView { schema: SCHEMA, types: site.types }
}

/// `GET /v1/collectives`. They tell of nodes alone, and are for all who may read anything.
pub(crate) async fn show_collectives(State(context): State<Arc<DaemonContext>>) -> Json<CollectivesView> {
    let site = context.lock_state().scene.job_advisor().collectives().clone();
    Json(collectives_view(site))
}

/// `POST /v1/collectives/import`.
pub(crate) async fn import_collectives(
    State(context): State<Arc<DaemonContext>>,
    VerifiedOrder { uid, order: request, .. }: VerifiedOrder<ImportCollectivesRequest>,
) -> Result<Json<CollectivesView>, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    let ImportCollectivesRequest { node_type, rows, .. } = request;
    let told = node_type.clone();
    let count = rows.len();
    // One import at a time: the next one keeps what this one brings.
    let _learned = context.saving.learned.lock().await;
    let mut site = context.lock_state().scene.job_advisor().collectives().clone();
    let refused = |e: &dyn ToString| RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string());
    site.import_table(TypeCollectives { node_type, imported_at: now(), rows }).map_err(|e| refused(&e))?;
    let text = serde_json::to_string(&site).map_err(|e| refused(&e))?;
    context.store.put_setting(COLLECTIVES_SETTING, &text).await?;
    context.lock_state().scene.job_advisor_mut().set_collectives(site.clone());
    tracing::info!(%uid, node_type = %told, rows = count, "a table of collectives was brought");
    Ok(Json(collectives_view(site)))
}

#[cfg(test)]
mod tests {
    use axum::extract::{FromRequest as _, Request};

    use super::super::tests::administered::{daemon, proof};
    use super::*;
    use crate::state::DaemonState as Values;
    use infill_model::{CollectiveOp, CollectiveRow, MAX_COLLECTIVE_ROWS, config::Config};

    fn row(bytes: u64) -> CollectiveRow {
        CollectiveRow { op: CollectiveOp::AllReduce, bytes, ranks: 8, nodes: 2, secs: 0.001 }
    }

    fn request(who: &str, rows: Vec<CollectiveRow>) -> ImportCollectivesRequest {
        ImportCollectivesRequest { proof: proof(who), node_type: "a100".to_owned(), rows }
    }

    async fn bring(
        context: &Arc<DaemonContext>,
        who: &str,
        rows: Vec<CollectiveRow>,
    ) -> Result<usize, RequestDenial> {
        let body = serde_json::to_vec(&request(who, rows)).unwrap();
        let request =
            Request::post("/").header("content-type", "application/json").body(body.into()).unwrap();
        let Json(view) =
            import_collectives(State(context.clone()), VerifiedOrder::from_request(request, context).await?)
                .await?;
        Ok(view.types.iter().map(|table| table.rows.len()).sum())
    }

    #[tokio::test]
    async fn what_administrators_bring_is_shown_and_kept() {
        let daemon = daemon().await;
        assert_eq!(bring(&daemon, "root's", vec![row(1024), row(2048)]).await.unwrap(), 2);
        assert_eq!(bring(&daemon, "root's", vec![row(4096)]).await.unwrap(), 1, "in place of what was known");
        let Json(view) = show_collectives(State(daemon.clone())).await;
        assert_eq!((view.types[0].node_type.as_str(), view.types[0].rows[0].bytes), ("a100", 4096));
        let mut next = Values::new(Arc::new(Config::default()), now());
        let _ = crate::serve::restore_state(&mut next, daemon.store.as_ref()).await.unwrap();
        assert_eq!(next.scene.job_advisor().collectives().types, view.types, "the next daemon knows it");
        // What is there and cannot be read keeps no daemon from starting.
        daemon.store.put_setting(COLLECTIVES_SETTING, "nonsense").await.unwrap();
        let mut next = Values::new(Arc::new(Config::default()), now());
        let _ = crate::serve::restore_state(&mut next, daemon.store.as_ref()).await.unwrap();
        assert_eq!(next.scene.job_advisor().collectives().types, []);
    }

    #[tokio::test]
    async fn nobody_else_does_nor_what_cannot_be() {
        let daemon = daemon().await;
        let denied = async |who: &str, rows| bring(&daemon, who, rows).await.map_err(|d| d.status.as_u16());
        assert_eq!(denied("forged", vec![row(1024)]).await, Err(401));
        assert_eq!(denied("other's", vec![row(1024)]).await, Err(403));
        for odd in [vec![], vec![row(0)], vec![row(1024); 2]] {
            assert_eq!(denied("root's", odd).await, Err(422));
        }
        let Json(view) = show_collectives(State(daemon.clone())).await;
        assert_eq!(view.types, []);
    }

    #[test]
    fn the_largest_table_fits_into_a_request() {
        let op = CollectiveOp::ReduceScatter;
        let row =
            CollectiveRow { op, bytes: 1 << 50, ranks: 1 << 20, nodes: 9999, secs: 1.234_567_890_123e-5 };
        let largest = request(&"x".repeat(1000), vec![row; MAX_COLLECTIVE_ROWS]);
        assert!(serde_json::to_vec(&largest).unwrap().len() < MAX_IMPORT_BODY);
    }
}
