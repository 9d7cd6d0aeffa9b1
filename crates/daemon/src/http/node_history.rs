//! One node: what it is and was used for.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};

use super::concurrency::{run_blocking, run_limited};
use super::timeline::{map_owners, usage_runs};
use super::{RequestDenial, check_span, live_status};
use crate::context::DaemonContext;
use crate::hour_cache::HoursRequest;
use crate::redaction::{ApiReader, RedactionFilter};
use crate::timeline::{self, MapRequest, MapRows};
use crate::views::WhichNodes;
use infill_api::{MAX_TIMELINE_SECS, NodeHistoryQuery, NodeHistoryView, SCHEMA_VERSION};
use infill_model::{UnixTime, clock::now};

/// `GET /v1/nodes/{name}`. A node that is hidden from the reader looks like a missing one. A missing one has
/// no state and no uses: a search for it is no error.
pub(crate) async fn get_node(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    name: Result<Path<String>, PathRejection>,
    query: Result<Query<NodeHistoryQuery>, QueryRejection>,
) -> Result<Json<NodeHistoryView>, RequestDenial> {
    let Path(name) = name?;
    let Query(query) = query?;
    check_span(query.from, query.to, MAX_TIMELINE_SECS)?;
    let limit = context.access.fits.clone();
    Ok(Json(run_limited(&limit, node_view(context, viewer, name, query)).await?))
}

async fn node_view(
    context: Arc<DaemonContext>,
    viewer: ApiReader,
    name: String,
    query: NodeHistoryQuery,
) -> Result<NodeHistoryView, RequestDenial> {
    let NodeHistoryQuery { from, to } = query;
    let recent = context.lock_state().recent_hours();
    let seen = recent.last().map_or(UnixTime(0), |hour| hour.from + i64::from(hour.secs));
    let keep_days = context.config.store.keep_node_days;
    let request = HoursRequest { recent, from, to, now: now(), keep_days };
    let hours = context.response_cache.timelines.hours_between(context.store.as_ref(), request).await?;
    let planned = context.lock_state().planned_uses(seen, now());
    let view = run_blocking(move || {
        let private = context.access.private_data();
        let status = live_status::visible_status(&context, &viewer, private, WhichNodes::Called(&name));
        let hides_nodes = private.nodes && !viewer.all;
        let index = timeline::node_index(&hours, &planned, &name).filter(|_| !hides_nodes);
        let runs = index.map_or_else(Vec::new, |first| {
            let asked = MapRequest { from, to, first, count: 1, rows: 1, columns: 1 };
            let mut map = timeline::build_map(&hours, &planned, &asked);
            let owners = map_owners(&context, &map);
            RedactionFilter::new(&viewer, private, &|job| owners.get(&job).copied().flatten())
                .redact_map(&mut map);
            match map.rows {
                MapRows::Nodes(rows) => rows.into_iter().flat_map(|(_, runs)| usage_runs(runs)).collect(),
                MapRows::Mixtures { .. } => Vec::new(),
            }
        });
        NodeHistoryView { schema: SCHEMA_VERSION, from, to, seen, now: status.nodes, index, runs }
    });
    view.await
}
