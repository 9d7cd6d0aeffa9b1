//! Profiles: listed for readers, forgotten and brought by their owners and by administrators.

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
    MAX_PROFILES, ProfileCount, ProfileFigureQuery, ProfileView, ProfilesView, SCHEMA,
};
use infill_model::{AllowedSizes, MAX_NODES_A_JOB, Profile, ProfileFilter, ProfileKey, UserId, clock::now};
use infill_present::charts::{CurrentPoint, CurveFigure, draw_curves};
use infill_store::{Measurement, ProfileQuota, QuotaExceeded};

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::signed_requests::VerifiedOrder;
use super::{RequestDenial, auth};

/// Largest body of an import: [`MAX_IMPORTED`] profiles of [`sound::MAX_POINTS`] sizes, 150 bytes each, and
/// as much again.
pub(crate) const MAX_IMPORT_BODY: usize = 4 * 1024 * 1024;

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;

/// Longest wait for a turn at changing profiles.
const CHANGE_TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// No program makes as many samples a second.
const MOST_SAMPLES_A_SEC: f64 = 1e12;

/// How far beyond the largest measured size a curve is shown.
const CURVE_REACH_FACTOR: u32 = 2;

/// `GET /v1/profiles`.
pub(crate) async fn list_profiles(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    filter: Result<Query<ProfileFilter>, QueryRejection>,
) -> Result<Json<ProfilesView>, RequestDenial> {
    let Query(filter) = filter?;
    let seen = RedactionFilter::new(&viewer, context.doors.private_data(), &|_| None).restrict_filter(filter);
    let found = match seen {
        Some(filter) => context.store.find_profiles(&filter, MAX_PROFILES).await?,
        None => Vec::new(),
    };
    // A part of a millisecond each, together too long for a thread that serves agents.
    let fitted = run_blocking(|| found.into_iter().map(profile_view).collect());
    let profiles = run_limited(&context.doors.fits, fitted).await?;
    Ok(Json(ProfilesView { schema: SCHEMA, profiles }))
}

/// `GET /v1/profiles/figure`: a profile's curve, with what was measured and where a job is on it.
pub(crate) async fn profile_figure(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<ProfileFigureQuery>, QueryRejection>,
) -> Result<Json<FigureView>, RequestDenial> {
    let Query(ProfileFigureQuery { key, at, rate }) = query?;
    let seen = RedactionFilter::new(&viewer, context.doors.private_data(), &|_| None).may_see_profile(&key);
    let found = match seen {
        true => context
            .store
            .find_profiles(&key.to_filter(), MAX_PROFILES)
            .await?
            .into_iter()
            .find(|p| p.key == key),
        // As of one that is not there.
        false => None,
    };
    let now = at
        .zip(rate)
        .filter(|(nodes, rate): &(u32, f64)| {
            (1..=MAX_NODES_A_JOB).contains(nodes) && (0.0..=MOST_SAMPLES_A_SEC).contains(rate)
        })
        .map(|(nodes, rate)| CurrentPoint { nodes, rate });
    let drawn =
        run_blocking(move || found.map(|profile| draw_profile(&profile_view(profile), now)).transpose());
    let drawn = run_limited(&context.doors.fits, drawn).await?.map_err(internal_error)?;
    Ok(Json(drawn.unwrap_or_else(|| curve_figure("nothing is known".to_owned(), Vec::new(), None))))
}

fn draw_profile(view: &ProfileView, now: Option<CurrentPoint>) -> anyhow::Result<FigureView> {
    let picture = CurveFigure { now, ..CurveFigure::from(view) };
    let row = |r: &CurveRow| {
        let is_measured = view.profile.points.iter().any(|p| p.nodes == r.nodes);
        let how = if is_measured { "measured" } else { "expected" };
        vec![json!(r.nodes), json!(r.rate), json!(r.low), json!(r.high), json!(how)]
    };
    let rows = view.curve.iter().map(row).collect();
    let svg =
        if view.curve.is_empty() { None } else { Some(draw_curves(std::slice::from_ref(&picture), "")?) };
    Ok(curve_figure(picture.title, rows, svg))
}

fn curve_figure(title: String, rows: Vec<Vec<serde_json::Value>>, svg: Option<String>) -> FigureView {
    let heads = ["nodes", "samples/s", "from", "to", "known by"].map(str::to_owned).to_vec();
    FigureView { schema: SCHEMA, title, heads, rows, svg }
}

/// `GET /v1/profiles/history`.
pub(crate) async fn profile_history(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    key: Result<Query<ProfileKey>, QueryRejection>,
) -> Result<Json<HistoryView>, RequestDenial> {
    let Query(profile) = key?;
    let seen =
        RedactionFilter::new(&viewer, context.doors.private_data(), &|_| None).may_see_profile(&profile);
    let found = match seen {
        true => context.store.recent_measurements(&profile, MAX_HISTORY).await?,
        // As of one that is not there.
        false => Vec::new(),
    };
    Ok(Json(HistoryView {
        schema: SCHEMA,
        profile,
        rows: found
            .into_iter()
            .rev()
            .map(|m: Measurement| {
                let Measurement { key: _, job, nodes, samples, secs, probe, at } = m;
                HistoryRow { at, job, nodes, samples, secs, probe }
            })
            .collect(),
    }))
}

/// `POST /v1/profiles/forget`.
pub(crate) async fn forget_profiles(
    State(context): State<Arc<DaemonContext>>,
    VerifiedOrder { uid, order: request, .. }: VerifiedOrder<ForgetRequest>,
) -> Result<Json<ProfileCount>, RequestDenial> {
    let owners = request.filter.user.as_deref().map(|user| BTreeSet::from([user]));
    auth::require_owner(&context, uid, owners).await?;
    let _gate = acquire_change_permit(&context, uid).await?;
    let _turn = context.saving.learned.lock().await;
    let profiles = context.store.forget_profiles(&request.filter).await?;
    context.lock_state().forget_profiles(&request.filter);
    tracing::info!(%uid, filter = ?request.filter, profiles, "profiles forgotten");
    Ok(Json(ProfileCount { schema: SCHEMA, profiles }))
}

/// `POST /v1/profiles/import`.
pub(crate) async fn import_profiles(
    State(context): State<Arc<DaemonContext>>,
    VerifiedOrder { uid, order: request, .. }: VerifiedOrder<ImportRequest>,
) -> Result<Json<ProfileCount>, RequestDenial> {
    if request.profiles.len() > MAX_IMPORTED {
        let what = format!("more than {MAX_IMPORTED} profiles at once");
        return Err(RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    let owners = request.profiles.iter().map(|p| p.key.user.as_str()).collect();
    auth::require_owner(&context, uid, Some(owners)).await?;
    let _gate = acquire_change_permit(&context, uid).await?;
    let profiles: Result<Vec<Profile>, _> =
        request.profiles.into_iter().map(|p| validate::validate_profile(p, now())).collect();
    let profiles =
        profiles.map_err(|e| RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()))?;
    let _turn = context.saving.learned.lock().await;
    let kept = &context.config.store;
    let room = ProfileQuota {
        profiles: u64::from(kept.max_profiles_a_user),
        bytes: u64::from(kept.max_profile_mib_a_user) * MIB,
    };
    context.store.import_profiles(&profiles, &room).await?.map_err(|full| quota_denial(&full, &room))?;
    let count = profiles.len() as u64;
    context.lock_state().replace_profiles(profiles, now());
    tracing::info!(%uid, profiles = count, "profiles brought");
    Ok(Json(ProfileCount { schema: SCHEMA, profiles: count }))
}

/// A turn at changing profiles, of which each user has a few at once and then one after the other.
async fn acquire_change_permit(
    context: &DaemonContext,
    uid: UserId,
) -> Result<SemaphorePermit<'_>, RequestDenial> {
    if !auth::is_admin(context, uid).await {
        let often = "your profiles were changed too often in a moment; try again later";
        let taken = context.doors.changes.of_users.try_take(uid.0, Instant::now());
        taken.map_err(|after| RequestDenial::too_often(often, after))?;
    }
    let busy = || RequestDenial::too_often("others change profiles; try again", CHANGE_TURN_TIMEOUT);
    let turn = tokio::time::timeout(CHANGE_TURN_TIMEOUT, context.doors.changes.turn.acquire()).await;
    turn.map_err(|_| busy())?.map_err(|_| busy())
}

fn quota_denial(full: &QuotaExceeded, room: &ProfileQuota) -> RequestDenial {
    let QuotaExceeded { user, would_be } = full;
    let what = format!(
        "{user} would have {} profiles of {:.1} MiB, and may have {} of {} MiB (store.max_profiles_a_user, \
         store.max_profile_mib_a_user): forget some first",
        would_be.profiles,
        would_be.bytes as f64 / MIB as f64,
        room.profiles,
        room.bytes / MIB
    );
    RequestDenial::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// A profile with its curve, from one node to twice the largest measured size.
fn profile_view(profile: Profile) -> ProfileView {
    let batch_seen = batch_mode(&profile);
    let measured = profile.points.iter().map(|p| p.nodes).max().unwrap_or(1);
    let max = measured.saturating_mul(CURVE_REACH_FACTOR).min(MAX_NODES_A_JOB);
    let Some(fitted) = FittedCurve::new(&profile.points, batch_seen, max) else {
        return ProfileView { profile, batch_seen, curve: Vec::new(), model: String::new() };
    };
    let row = |nodes: u32| {
        let estimate = fitted.estimate_at(nodes);
        let (low, high) = estimate.interval_90();
        CurveRow { nodes, rate: estimate.rate, low, high }
    };
    let sizes = sizes_of_interest(&AllowedSizes::Range { min: 1, max }, fitted.points());
    let curve = sizes.into_iter().map(row).collect();
    ProfileView { profile, batch_seen, curve, model: fitted.best_formula() }
}
