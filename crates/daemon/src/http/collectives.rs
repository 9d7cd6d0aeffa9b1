//! How long collectives take on the site's nodes. Administrators import the table, and all readers may see
//! it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::context::{COLLECTIVES_SETTING, DaemonContext};
use infill_api::{CollectivesView, ImportCollectivesRequest, SCHEMA_VERSION};
use infill_model::{SiteCollectives, TypeCollectives, clock::now};

use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// Largest body of an import: the most rows that a node type may have, of 125 bytes each. The body of a
/// signed request may not be longer either.
pub(crate) const MAX_IMPORT_BODY: usize = 250 * 1024;

fn collectives_view(site: SiteCollectives) -> CollectivesView {
    CollectivesView { schema: SCHEMA_VERSION, types: site.types }
}

/// `GET /v1/collectives`. The table is about nodes alone, so all readers may see it.
pub(crate) async fn show_collectives(State(context): State<Arc<DaemonContext>>) -> Json<CollectivesView> {
    let site = context.lock_state().round_state.job_advisor().collectives().clone();
    Json(collectives_view(site))
}

/// `POST /v1/collectives/import`.
pub(crate) async fn import_collectives(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ImportCollectivesRequest>,
) -> Result<Json<CollectivesView>, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    let ImportCollectivesRequest { node_type, rows, .. } = request;
    let logged_type = node_type.clone();
    let count = rows.len();
    // One import at a time, because each import changes a copy of the whole table.
    let _lock = context.save_locks.learned.lock().await;
    let mut site = context.lock_state().round_state.job_advisor().collectives().clone();
    site.import_table(TypeCollectives { node_type, imported_at: now(), rows }).map_err(unprocessable)?;
    let text = serde_json::to_string(&site).map_err(unprocessable)?;
    context.store.put_setting(COLLECTIVES_SETTING, &text).await?;
    context.lock_state().round_state.job_advisor_mut().set_collectives(site.clone());
    tracing::info!(%uid, node_type = %logged_type, rows = count, "a table of collectives was imported");
    Ok(Json(collectives_view(site)))
}

fn unprocessable(error: impl std::fmt::Display) -> RequestDenial {
    RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
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

    async fn import(
        context: &Arc<DaemonContext>,
        who: &str,
        rows: Vec<CollectiveRow>,
    ) -> Result<usize, RequestDenial> {
        let body = serde_json::to_vec(&request(who, rows)).unwrap();
        let request =
            Request::post("/").header("content-type", "application/json").body(body.into()).unwrap();
        let Json(view) = import_collectives(
            State(context.clone()),
            VerifiedRequest::from_request(request, context).await?,
        )
        .await?;
        Ok(view.types.iter().map(|table| table.rows.len()).sum())
    }

    #[tokio::test]
    async fn imported_tables_are_shown_and_stored() {
        let daemon = daemon().await;
        assert_eq!(import(&daemon, "root's", vec![row(1024), row(2048)]).await.unwrap(), 2);
        assert_eq!(
            import(&daemon, "root's", vec![row(4096)]).await.unwrap(),
            1,
            "the new table replaces the old one"
        );
        let Json(view) = show_collectives(State(daemon.clone())).await;
        assert_eq!((view.types[0].node_type.as_str(), view.types[0].rows[0].bytes), ("a100", 4096));
        let mut next = Values::new(Arc::new(Config::default()), now());
        let _ = crate::serve::restore_state(&mut next, daemon.store.as_ref()).await.unwrap();
        assert_eq!(next.round_state.job_advisor().collectives().types, view.types, "the next daemon has it");
        // A stored table that cannot be read does not keep a daemon from starting.
        daemon.store.put_setting(COLLECTIVES_SETTING, "nonsense").await.unwrap();
        let mut next = Values::new(Arc::new(Config::default()), now());
        let _ = crate::serve::restore_state(&mut next, daemon.store.as_ref()).await.unwrap();
        assert_eq!(next.round_state.job_advisor().collectives().types, []);
    }

    #[tokio::test]
    async fn imports_of_other_users_and_wrong_tables_are_refused() {
        let daemon = daemon().await;
        for (who, rows, status) in [
            ("forged", vec![row(1024)], 401),
            ("other's", vec![row(1024)], 403),
            ("root's", vec![], 422),
            ("root's", vec![row(0)], 422),
            ("root's", vec![row(1024); 2], 422),
        ] {
            let denial = import(&daemon, who, rows).await.unwrap_err();
            assert_eq!(denial.status.as_u16(), status, "{who}");
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
