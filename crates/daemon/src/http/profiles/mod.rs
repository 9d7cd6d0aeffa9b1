//! Profiles. Readers list them. Their owners and administrators import and forget them.

#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::json;
use tokio::sync::SemaphorePermit;

use crate::context::DaemonContext;
use crate::redaction::{ApiReader, RedactionFilter};
use infill_advisor::{FittedCurve, ScalingModel as _, batch_mode, sizes_of_interest};
use infill_api::{
    CurveRow, FigureView, ForgetRequest, HistoryRow, HistoryView, ImportRequest, MAX_HISTORY, MAX_IMPORTED,
    MAX_PROFILES, ProfileCount, ProfileFigureQuery, ProfileView, ProfilesView, SCHEMA_VERSION,
};
use infill_model::{AllowedSizes, MAX_NODES_A_JOB, Profile, ProfileFilter, ProfileKey, UserId, clock::now};
use infill_present::charts::{CurrentPoint, CurveFigure, draw_curves};
use infill_store::{Measurement, ProfileQuota, QuotaExceeded};

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// Largest body of an import: twice the size of [`MAX_IMPORTED`] profiles with [`validate::MAX_POINTS`]
/// sizes of 150 bytes each.
pub(crate) const MAX_IMPORT_BODY: usize = 4 * 1024 * 1024;

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;

/// Longest wait for the permit to change profiles.
const CHANGE_TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Samples per second that no program reaches.
const MAX_SAMPLES_PER_SEC: f64 = 1e12;

/// Largest size of a shown curve in units of the largest measured size.
const CURVE_REACH_FACTOR: u32 = 2;

/// `GET /v1/profiles`.
pub(crate) async fn list_profiles(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    filter: Result<Query<ProfileFilter>, QueryRejection>,
) -> Result<Json<ProfilesView>, RequestDenial> {
    let Query(filter) = filter?;
    let private = context.access.private_data();
    let visible = RedactionFilter::new(&viewer, private, &|_| None).restrict_filter(filter);
    let found = match visible {
        Some(filter) => context.store.find_profiles(&filter, MAX_PROFILES).await?,
        None => Vec::new(),
    };
    // Each fit takes a part of a millisecond. Together that is too long for a thread that serves agents.
    let fitting = run_blocking(|| found.into_iter().map(profile_view).collect());
    let profiles = run_limited(&context.access.fits, fitting).await?;
    Ok(Json(ProfilesView { schema: SCHEMA_VERSION, profiles }))
}

/// `GET /v1/profiles/figure`: a profile's curve, with its measurements and a job's present point.
pub(crate) async fn profile_figure(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<ProfileFigureQuery>, QueryRejection>,
) -> Result<Json<FigureView>, RequestDenial> {
    let Query(ProfileFigureQuery { key, at, rate }) = query?;
    // A hidden profile looks like a missing one.
    let mut found = None;
    if may_see_profile(&context, &viewer, &key) {
        let profiles = context.store.find_profiles(&key.to_filter(), MAX_PROFILES).await?;
        found = profiles.into_iter().find(|profile| profile.key == key);
    }
    let now = at.zip(rate).and_then(|(nodes, rate)| current_point(nodes, rate));
    let drawing =
        run_blocking(move || found.map(|profile| draw_profile(&profile_view(profile), now)).transpose());
    let drawn = run_limited(&context.access.fits, drawing).await?.map_err(internal_error)?;
    Ok(Json(drawn.unwrap_or_else(|| curve_figure("there is no such profile".to_owned(), Vec::new(), None))))
}

fn may_see_profile(context: &DaemonContext, viewer: &ApiReader, key: &ProfileKey) -> bool {
    RedactionFilter::new(viewer, context.access.private_data(), &|_| None).may_see_profile(key)
}

/// A job's present point on a curve; `None` where it is impossible.
fn current_point(nodes: u32, rate: f64) -> Option<CurrentPoint> {
    let is_possible = (1..=MAX_NODES_A_JOB).contains(&nodes) && (0.0..=MAX_SAMPLES_PER_SEC).contains(&rate);
    is_possible.then_some(CurrentPoint { nodes, rate })
}

fn draw_profile(view: &ProfileView, now: Option<CurrentPoint>) -> anyhow::Result<FigureView> {
    let picture = CurveFigure { now, ..CurveFigure::from(view) };
    let mut rows = Vec::new();
    for CurveRow { nodes, rate, low, high } in &view.curve {
        let is_measured = view.profile.points.iter().any(|point| point.nodes == *nodes);
        let source = if is_measured { "measured" } else { "expected" };
        rows.push(vec![json!(nodes), json!(rate), json!(low), json!(high), json!(source)]);
    }
    let svg =
        if view.curve.is_empty() { None } else { Some(draw_curves(std::slice::from_ref(&picture), "")?) };
    Ok(curve_figure(picture.title, rows, svg))
}

fn curve_figure(title: String, rows: Vec<Vec<serde_json::Value>>, svg: Option<String>) -> FigureView {
    let heads = ["nodes", "samples/s", "from", "to", "known by"].map(str::to_owned).to_vec();
    FigureView { schema: SCHEMA_VERSION, title, heads, rows, svg }
}

/// `GET /v1/profiles/history`.
pub(crate) async fn profile_history(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    key: Result<Query<ProfileKey>, QueryRejection>,
) -> Result<Json<HistoryView>, RequestDenial> {
    let Query(profile) = key?;
    // A hidden profile looks like a missing one.
    let measurements = if may_see_profile(&context, &viewer, &profile) {
        context.store.recent_measurements(&profile, MAX_HISTORY).await?
    } else {
        Vec::new()
    };
    let mut rows = Vec::new();
    for Measurement { key: _, job, nodes, samples, secs, probe, at } in measurements.into_iter().rev() {
        rows.push(HistoryRow { at, job, nodes, samples, secs, probe });
    }
    Ok(Json(HistoryView { schema: SCHEMA_VERSION, profile, rows }))
}

/// `POST /v1/profiles/forget`.
pub(crate) async fn forget_profiles(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ForgetRequest>,
) -> Result<Json<ProfileCount>, RequestDenial> {
    let owners = request.filter.user.as_deref().map(|user| BTreeSet::from([user]));
    auth::require_owner(&context, uid, owners).await?;
    let _permit = acquire_change_permit(&context, uid).await?;
    let _lock = context.save_locks.learned.lock().await;
    let profiles = context.store.forget_profiles(&request.filter).await?;
    context.lock_state().forget_profiles(&request.filter);
    tracing::info!(%uid, filter = ?request.filter, profiles, "profiles were forgotten");
    Ok(Json(ProfileCount { schema: SCHEMA_VERSION, profiles }))
}

/// `POST /v1/profiles/import`.
pub(crate) async fn import_profiles(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ImportRequest>,
) -> Result<Json<ProfileCount>, RequestDenial> {
    if request.profiles.len() > MAX_IMPORTED {
        let what = format!("expected at most {MAX_IMPORTED} profiles at once");
        return Err(RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    let owners = request.profiles.iter().map(|profile| profile.key.user.as_str()).collect();
    auth::require_owner(&context, uid, Some(owners)).await?;
    let _permit = acquire_change_permit(&context, uid).await?;
    let profiles: Result<Vec<Profile>, _> =
        request.profiles.into_iter().map(|profile| validate::validate_profile(profile, now())).collect();
    let profiles =
        profiles.map_err(|e| RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()))?;
    let _lock = context.save_locks.learned.lock().await;
    let config = &context.config.store;
    let quota = ProfileQuota {
        profiles: u64::from(config.max_profiles_a_user),
        bytes: u64::from(config.max_profile_mib_a_user) * MIB,
    };
    let imported = context.store.import_profiles(&profiles, &quota).await?;
    imported.map_err(|exceeded| quota_denial(&exceeded, &quota))?;
    let count = profiles.len() as u64;
    context.lock_state().replace_profiles(profiles, now());
    tracing::info!(%uid, profiles = count, "profiles were imported");
    Ok(Json(ProfileCount { schema: SCHEMA_VERSION, profiles: count }))
}

/// Waits for the permit to change profiles. Limits how often each user gets it, except for administrators.
async fn acquire_change_permit(
    context: &DaemonContext,
    uid: UserId,
) -> Result<SemaphorePermit<'_>, RequestDenial> {
    if !auth::is_admin(context, uid).await {
        let what = "you change profiles too often; try again later";
        let taken = context.access.changes.per_user.try_take(uid.0, Instant::now());
        taken.map_err(|after| RequestDenial::too_often(what, after))?;
    }
    match tokio::time::timeout(CHANGE_TURN_TIMEOUT, context.access.changes.turn.acquire()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => {
            Err(RequestDenial::too_often("others change profiles; try again", CHANGE_TURN_TIMEOUT))
        }
    }
}

fn quota_denial(exceeded: &QuotaExceeded, quota: &ProfileQuota) -> RequestDenial {
    let QuotaExceeded { user, would_be } = exceeded;
    let what = format!(
        "{user} would have {} profiles with {:.1} MiB, but may have {} with {} MiB \
         (store.max_profiles_a_user, store.max_profile_mib_a_user): forget some first",
        would_be.profiles,
        would_be.bytes as f64 / MIB as f64,
        quota.profiles,
        quota.bytes / MIB
    );
    RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// A profile with its curve, from one node to twice the largest measured size.
fn profile_view(profile: Profile) -> ProfileView {
    let batch_seen = batch_mode(&profile);
    let max_measured = profile.points.iter().map(|point| point.nodes).max().unwrap_or(1);
    let max = max_measured.saturating_mul(CURVE_REACH_FACTOR).min(MAX_NODES_A_JOB);
    let Some(fitted) = FittedCurve::new(&profile.points, batch_seen, max) else {
        return ProfileView { profile, batch_seen, curve: Vec::new(), model: String::new() };
    };
    let mut curve = Vec::new();
    for nodes in sizes_of_interest(&AllowedSizes::Range { min: 1, max }, fitted.points()) {
        let estimate = fitted.estimate_at(nodes);
        let (low, high) = estimate.interval_90();
        curve.push(CurveRow { nodes, rate: estimate.rate, low, high });
    }
    ProfileView { profile, batch_seen, curve, model: fitted.best_formula() }
}
