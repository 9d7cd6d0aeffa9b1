//! Profiles: listed for readers, forgotten and brought by their owners and by administrators.

mod sound;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::json;
use tokio::sync::SemaphorePermit;

use crate::context::Context;
use crate::sight::{Sight, Viewer};
use infill_advisor::{Fitted, Scaling as _, batch_mode, sizes_of_interest};
use infill_api::{
    Counted, CurveRow, FigureView, ForgetRequest, HistoryRow, HistoryView, ImportRequest, MAX_HISTORY,
    MAX_IMPORTED, MAX_PROFILES, ProfileFigureQuery, ProfileView, ProfilesView, SCHEMA,
};
use infill_model::{AllowedSizes, MAX_NODES_A_JOB, Profile, ProfileFilter, ProfileKey, UserId, clock::now};
use infill_present::charts::{Picture, Standing, curves};
use infill_store::{Measurement, NoRoom, ProfileRoom};

use super::orders::Order;
use super::turns::{broken, computed, in_turn};
use super::{Denial, auth};

/// Largest body of an import: [`MAX_IMPORTED`] profiles of [`sound::MAX_POINTS`] sizes, 150 bytes each, and
/// as much again.
pub(crate) const MAX_IMPORT_BODY: usize = 4 * 1024 * 1024;

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;

/// Longest wait for a turn at changing profiles.
const PATIENCE: Duration = Duration::from_secs(10);

/// No program makes as many samples a second.
const MOST_SAMPLES_A_SEC: f64 = 1e12;

/// How far beyond the largest measured size a curve is shown.
const BEYOND: u32 = 2;

/// `GET /v1/profiles`.
pub(crate) async fn list(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    filter: Result<Query<ProfileFilter>, QueryRejection>,
) -> Result<Json<ProfilesView>, Denial> {
    let Query(filter) = filter?;
    let seen = Sight::new(&viewer, context.doors.private(), &|_| None).profiles(filter);
    let found = match seen {
        Some(filter) => context.store.profiles(&filter, MAX_PROFILES).await?,
        None => Vec::new(),
    };
    // A part of a millisecond each, together too long for a thread that serves agents.
    let fitted = computed(|| found.into_iter().map(view).collect());
    let profiles = in_turn(&context.doors.fits, fitted).await?;
    Ok(Json(ProfilesView { schema: SCHEMA, profiles }))
}

/// `GET /v1/profiles/figure`: a profile's curve, with what was measured and where a job is on it.
pub(crate) async fn figure(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ProfileFigureQuery>, QueryRejection>,
) -> Result<Json<FigureView>, Denial> {
    let Query(ProfileFigureQuery { key, at, rate }) = query?;
    let seen = Sight::new(&viewer, context.doors.private(), &|_| None).profile(&key);
    let found = match seen {
        true => {
            context.store.profiles(&key.to_filter(), MAX_PROFILES).await?.into_iter().find(|p| p.key == key)
        }
        // As of one that is not there.
        false => None,
    };
    let is_sound = |(nodes, rate): &(u32, f64)| {
        (1..=MAX_NODES_A_JOB).contains(nodes) && (0.0..=MOST_SAMPLES_A_SEC).contains(rate)
    };
    let now = at.zip(rate).filter(is_sound).map(|(nodes, rate)| Standing { nodes, rate });
    let drawn = computed(move || found.map(|profile| drawn(&view(profile), now)).transpose());
    let drawn = in_turn(&context.doors.fits, drawn).await?.map_err(broken)?;
    Ok(Json(drawn.unwrap_or_else(|| figure_of("nothing is known".to_owned(), Vec::new(), None))))
}

fn drawn(view: &ProfileView, now: Option<Standing>) -> anyhow::Result<FigureView> {
    let picture = Picture { now, ..Picture::from(view) };
    let row = |r: &CurveRow| {
        let is_measured = view.profile.points.iter().any(|p| p.nodes == r.nodes);
        let how = if is_measured { "measured" } else { "expected" };
        vec![json!(r.nodes), json!(r.rate), json!(r.low), json!(r.high), json!(how)]
    };
    let rows = view.curve.iter().map(row).collect();
    let svg = if view.curve.is_empty() { None } else { Some(curves(std::slice::from_ref(&picture), "")?) };
    Ok(figure_of(picture.title, rows, svg))
}

fn figure_of(title: String, rows: Vec<Vec<serde_json::Value>>, svg: Option<String>) -> FigureView {
    let heads = ["nodes", "samples/s", "from", "to", "known by"].map(str::to_owned).to_vec();
    FigureView { schema: SCHEMA, title, heads, rows, svg }
}

/// `GET /v1/profiles/history`.
pub(crate) async fn history(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    key: Result<Query<ProfileKey>, QueryRejection>,
) -> Result<Json<HistoryView>, Denial> {
    let Query(profile) = key?;
    let seen = Sight::new(&viewer, context.doors.private(), &|_| None).profile(&profile);
    let found = match seen {
        true => context.store.measurements(&profile, MAX_HISTORY).await?,
        // As of one that is not there.
        false => Vec::new(),
    };
    let row = |m: Measurement| {
        let Measurement { key: _, job, nodes, samples, secs, probe, at } = m;
        HistoryRow { at, job, nodes, samples, secs, probe }
    };
    Ok(Json(HistoryView { schema: SCHEMA, profile, rows: found.into_iter().rev().map(row).collect() }))
}

/// `POST /v1/profiles/forget`.
pub(crate) async fn forget(
    State(context): State<Arc<Context>>,
    Order { uid, order: request, .. }: Order<ForgetRequest>,
) -> Result<Json<Counted>, Denial> {
    let owners = request.filter.user.as_deref().map(|user| BTreeSet::from([user]));
    auth::owns(&context, uid, owners).await?;
    let _gate = may_change(&context, uid).await?;
    let _turn = context.saving.learned.lock().await;
    let profiles = context.store.forget_profiles(&request.filter).await?;
    context.state().forget_profiles(&request.filter);
    tracing::info!(%uid, filter = ?request.filter, profiles, "profiles forgotten");
    Ok(Json(Counted { schema: SCHEMA, profiles }))
}

/// `POST /v1/profiles/import`.
pub(crate) async fn import(
    State(context): State<Arc<Context>>,
    Order { uid, order: request, .. }: Order<ImportRequest>,
) -> Result<Json<Counted>, Denial> {
    if request.profiles.len() > MAX_IMPORTED {
        let what = format!("more than {MAX_IMPORTED} profiles at once");
        return Err(Denial::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    let owners = request.profiles.iter().map(|p| p.key.user.as_str()).collect();
    auth::owns(&context, uid, Some(owners)).await?;
    let _gate = may_change(&context, uid).await?;
    let sound = |p| sound::checked(p, now());
    let profiles: Result<Vec<Profile>, _> = request.profiles.into_iter().map(sound).collect();
    let profiles = profiles.map_err(|e| Denial::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()))?;
    let _turn = context.saving.learned.lock().await;
    let kept = &context.config.store;
    let room = ProfileRoom {
        profiles: u64::from(kept.max_profiles_a_user),
        bytes: u64::from(kept.max_profile_mib_a_user) * MIB,
    };
    context.store.bring_profiles(&profiles, &room).await?.map_err(|full| no_room(&full, &room))?;
    let count = profiles.len() as u64;
    context.state().replace_profiles(profiles, now());
    tracing::info!(%uid, profiles = count, "profiles brought");
    Ok(Json(Counted { schema: SCHEMA, profiles: count }))
}

/// A turn at changing profiles, of which each user has a few at once and then one after the other.
async fn may_change(context: &Context, uid: UserId) -> Result<SemaphorePermit<'_>, Denial> {
    if !auth::is_admin(context, uid).await {
        let often = "your profiles were changed too often in a moment; try again later";
        let taken = context.doors.changes.of_users.take(uid.0, Instant::now());
        taken.map_err(|after| Denial::too_often(often, after))?;
    }
    let busy = || Denial::too_often("others change profiles; try again", PATIENCE);
    let turn = tokio::time::timeout(PATIENCE, context.doors.changes.turn.acquire()).await;
    turn.map_err(|_| busy())?.map_err(|_| busy())
}

fn no_room(full: &NoRoom, room: &ProfileRoom) -> Denial {
    let NoRoom { user, would_be } = full;
    let what = format!(
        "{user} would have {} profiles of {:.1} MiB, and may have {} of {} MiB (store.max_profiles_a_user, \
         store.max_profile_mib_a_user): forget some first",
        would_be.profiles,
        would_be.bytes as f64 / MIB as f64,
        room.profiles,
        room.bytes / MIB
    );
    Denial::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// A profile with its curve, from one node to twice the largest measured size.
fn view(profile: Profile) -> ProfileView {
    let batch_seen = batch_mode(&profile);
    let measured = profile.points.iter().map(|p| p.nodes).max().unwrap_or(1);
    let max = measured.saturating_mul(BEYOND).min(MAX_NODES_A_JOB);
    let Some(fitted) = Fitted::new(&profile.points, batch_seen, max) else {
        return ProfileView { profile, batch_seen, curve: Vec::new(), model: String::new() };
    };
    let row = |nodes: u32| {
        let estimate = fitted.at(nodes);
        let (low, high) = estimate.interval();
        CurveRow { nodes, rate: estimate.rate, low, high }
    };
    let sizes = sizes_of_interest(&AllowedSizes::Range { min: 1, max }, fitted.points());
    let curve = sizes.into_iter().map(row).collect();
    ProfileView { profile, batch_seen, curve, model: fitted.formula() }
}
