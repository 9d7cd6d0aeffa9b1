//! The statements that write. Each function runs inside one transaction that [`super::SqlStore`] has opened.

use std::collections::BTreeMap;

use sqlx::QueryBuilder;

use super::rows::{to_json, to_signed};
use super::{SqlConnection, filter, storable_text};
use crate::port::{Measurement, RetentionLimits, RoundRecord};
use infill_model::{
    EndedGap, EndedJob, GenerationRecord, LeadRecord, MainDelay, NodeTimeRow, NodeUsageSecs, PackedHour,
    Profile, ProfileFilter, ProfileKey, UnixTime,
};

/// Largest number of rounds that are kept, whatever their age: more than a day of rounds every five seconds.
/// On a large machine a round's report has a hundred kilobytes, so these rounds take up to 2 GB.
const MAX_ROUNDS: i64 = 20_000;

/// Name of the counter of wing numbers.
const ORDER_COUNTER: &str = "orders";

/// Rows of one statement. With at most eighteen values each, they stay below the 32766 values that a
/// statement may bind in SQLite.
const ROWS_AT_ONCE: usize = 1000;

pub(super) type SqlResult<T> = Result<T, sqlx::Error>;

pub(super) async fn write_leads(tx: &mut SqlConnection, leads: &[LeadRecord]) -> SqlResult<()> {
    for lead in leads {
        sqlx::query(
            "INSERT INTO leads (job, submitted_at, updated_at, ended, state, user_id)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (job, submitted_at) DO UPDATE SET updated_at = excluded.updated_at,
             ended = excluded.ended, state = excluded.state, user_id = excluded.user_id",
        )
        .bind(i64::from(lead.job.0))
        .bind(lead.submitted_at.0)
        .bind(lead.updated_at.0)
        .bind(lead.ended)
        .bind(to_json(&lead.state)?)
        .bind(lead.user_id.map(|u| i64::from(u.0)))
        .execute(&mut *tx)
        .await?;
        if !lead.ended {
            sqlx::query("UPDATE leads SET ended = TRUE WHERE job = $1 AND submitted_at < $2 AND NOT ended")
                .bind(i64::from(lead.job.0))
                .bind(lead.submitted_at.0)
                .execute(&mut *tx)
                .await?;
        }
    }
    Ok(())
}

pub(super) async fn write_generations(
    tx: &mut SqlConnection,
    generations: &[GenerationRecord],
) -> SqlResult<()> {
    for g in generations {
        sqlx::query(
            "INSERT INTO generations (job, generation, started_at, nodes, why) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (job, started_at, generation) DO NOTHING",
        )
        .bind(i64::from(g.job.0))
        .bind(to_signed(g.generation))
        .bind(g.started_at.0)
        .bind(to_json(&g.nodes)?)
        .bind(storable_text(&g.why))
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub(super) async fn allocate_orders(tx: &mut SqlConnection, count: u64, least: u64) -> SqlResult<u64> {
    let next: i64 = sqlx::query_scalar(
        "INSERT INTO counters (name, next) VALUES ($1, $3 + $2)
         ON CONFLICT (name) DO UPDATE
         SET next = CASE WHEN counters.next < $3 THEN $3 ELSE counters.next END + $2 RETURNING next",
    )
    .bind(ORDER_COUNTER)
    .bind(to_signed(count))
    .bind(to_signed(least.max(1)))
    .fetch_one(tx)
    .await?;
    Ok(u64::try_from(next).unwrap_or(u64::MAX).saturating_sub(count))
}

pub(super) async fn write_round(tx: &mut SqlConnection, round: &RoundRecord) -> SqlResult<()> {
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO rounds (planned_at, plan, report, acted) VALUES ($1, $2, $3, $4) RETURNING id",
    )
    .bind(round.at.0)
    .bind(to_json(&round.plan)?)
    .bind(to_json(&round.report)?)
    .bind(round.acted)
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query("DELETE FROM rounds WHERE id <= $1").bind(id - MAX_ROUNDS).execute(tx).await.map(drop)
}

pub(super) async fn write_gaps(tx: &mut SqlConnection, gaps: &[EndedGap]) -> SqlResult<()> {
    for gap in gaps {
        sqlx::query(
            "INSERT INTO gaps (node, node_type, started_at, ended_at, taken, block, planned)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(storable_text(gap.node.as_str()))
        .bind(storable_text(gap.node_type.as_str()))
        .bind(gap.start.0)
        .bind(gap.end.0)
        .bind(gap.taken)
        .bind(i64::from(gap.block))
        .bind(to_json(&gap.planned)?)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// SQLite cannot keep NaN, and a reader could not use it.
fn finite(secs: Option<f64>) -> Option<f64> {
    secs.filter(|secs| secs.is_finite())
}

/// Does not change jobs that are kept already. Returns how many are new. Skips jobs with numbers that are not
/// finite.
pub(super) async fn write_ended_jobs(tx: &mut SqlConnection, jobs: &[EndedJob]) -> SqlResult<u64> {
    let valid: Vec<_> =
        jobs.iter().filter(|j| [j.work_secs, j.samples, j.secs].iter().all(|x| x.is_finite())).collect();
    let mut new = 0;
    for rows in valid.chunks(ROWS_AT_ONCE) {
        let mut query = QueryBuilder::new(
            "INSERT INTO ended_jobs (job, submitted_at, ended_at, owner, account, name, command_hash, min_nodes,
             max_nodes, gpus_per_node, limit_secs, work_secs, said_secs, flat_secs, samples, secs, exit_code,
             why) ",
        );
        query.push_values(rows, |mut row, job| {
            row.push_bind(i64::from(job.job.0))
                .push_bind(job.submitted_at.0)
                .push_bind(job.ended_at.0)
                .push_bind(storable_text(&job.user))
                .push_bind(storable_text(&job.account))
                .push_bind(storable_text(&job.name))
                .push_bind(storable_text(&job.command_hash))
                .push_bind(i64::from(job.min_nodes))
                .push_bind(i64::from(job.max_nodes))
                .push_bind(i64::from(job.gpus_per_node))
                .push_bind(finite(job.limit_secs))
                .push_bind(job.work_secs)
                .push_bind(finite(job.said_secs))
                .push_bind(finite(job.flat_secs))
                .push_bind(job.samples)
                .push_bind(job.secs)
                .push_bind(job.exit_code.map(i64::from))
                .push_bind(storable_text(&job.why));
        });
        query.push(" ON CONFLICT (job, submitted_at) DO NOTHING");
        new += query.build().execute(&mut *tx).await?.rows_affected();
    }
    Ok(new)
}

pub(super) async fn write_hour(
    tx: &mut SqlConnection,
    hour: &PackedHour,
    sums: &NodeUsageSecs,
) -> SqlResult<()> {
    sqlx::query(
        "INSERT INTO node_hours (began_at, packed) VALUES ($1, $2)
         ON CONFLICT (began_at) DO UPDATE SET packed = excluded.packed",
    )
    .bind(hour.from.0)
    .bind(hour.packed.as_slice())
    .execute(&mut *tx)
    .await?;
    let query = sqlx::query(
        "INSERT INTO node_uses (began_at, main_secs, malleable_secs, idle_secs, wanted_secs, refused_secs, down_secs)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (began_at) DO UPDATE SET
             main_secs = excluded.main_secs,
             malleable_secs = excluded.malleable_secs,
             idle_secs = excluded.idle_secs,
             wanted_secs = excluded.wanted_secs,
             refused_secs = excluded.refused_secs,
             down_secs = excluded.down_secs",
    );
    let sums = sums.to_array();
    sums.into_iter().fold(query.bind(hour.from.0), |query, secs| query.bind(secs)).execute(tx).await.map(drop)
}

/// Skips rows with numbers that are not finite.
pub(super) async fn write_node_time(tx: &mut SqlConnection, rows: &[NodeTimeRow]) -> SqlResult<()> {
    let valid: Vec<_> = rows
        .iter()
        .filter(|row| row.spent.held_secs().is_finite() && row.spent.gpu_secs.is_finite())
        .collect();
    for rows in valid.chunks(ROWS_AT_ONCE) {
        let mut query = QueryBuilder::new(
            "INSERT INTO node_time (began_at, account, owner, node_type, useful_secs, rescale_secs, preempted_secs, \
                 probing_secs, gpu_secs) ",
        );
        query.push_values(rows, |mut values, NodeTimeRow { key, spent }| {
            values
                .push_bind(key.from.0)
                .push_bind(storable_text(&key.account))
                .push_bind(storable_text(&key.user))
                .push_bind(storable_text(&key.node_type))
                .push_bind(spent.useful_secs)
                .push_bind(spent.rescale_secs)
                .push_bind(spent.preempted_secs)
                .push_bind(spent.probing_secs)
                .push_bind(spent.gpu_secs);
        });
        query.push(
            " ON CONFLICT (began_at, account, owner, node_type) DO UPDATE SET useful_secs = excluded.useful_secs,
                 rescale_secs = excluded.rescale_secs, preempted_secs = excluded.preempted_secs,
                 probing_secs = excluded.probing_secs, gpu_secs = excluded.gpu_secs",
        );
        query.build().execute(&mut *tx).await?;
    }
    Ok(())
}

/// Skips delays that are not finite.
pub(super) async fn write_delays(tx: &mut SqlConnection, delays: &[MainDelay]) -> SqlResult<()> {
    let valid: Vec<_> = delays.iter().filter(|delay| delay.secs.is_finite()).collect();
    for rows in valid.chunks(ROWS_AT_ONCE) {
        let mut query = QueryBuilder::new("INSERT INTO main_delays (job, started_at, secs, planned) ");
        query.push_values(rows, |mut values, delay| {
            values
                .push_bind(i64::from(delay.job.0))
                .push_bind(delay.at.0)
                .push_bind(delay.secs)
                .push_bind(delay.planned);
        });
        query.push(" ON CONFLICT (job, started_at) DO NOTHING");
        query.build().execute(&mut *tx).await?;
    }
    Ok(())
}

/// Skips measurements with numbers that are not finite.
pub(super) async fn write_measurements(
    tx: &mut SqlConnection,
    measurements: &[Measurement],
) -> SqlResult<()> {
    let valid: Vec<_> = measurements.iter().filter(|m| m.samples.is_finite() && m.secs.is_finite()).collect();
    let mut ids = BTreeMap::new();
    for m in &valid {
        if !ids.contains_key(&m.key) {
            ids.insert(&m.key, profile_id(tx, &m.key, m.at).await?);
        }
    }
    for rows in valid.chunks(ROWS_AT_ONCE) {
        let mut query = QueryBuilder::new(
            "INSERT INTO measurements (profile, job, nodes, samples, secs, probe, measured_at) ",
        );
        query.push_values(rows, |mut row, m| {
            row.push_bind(ids[&m.key])
                .push_bind(i64::from(m.job.0))
                .push_bind(i64::from(m.nodes))
                .push_bind(m.samples)
                .push_bind(m.secs)
                .push_bind(m.probe)
                .push_bind(m.at.0);
        });
        query.build().execute(&mut *tx).await?;
    }
    Ok(())
}

/// The id of a profile's row. Inserts a profile without points if there is none.
async fn profile_id(tx: &mut SqlConnection, key: &ProfileKey, at: UnixTime) -> SqlResult<i64> {
    // Selects first: an update that changes nothing would still rewrite the row.
    let mut query = QueryBuilder::new("SELECT id FROM profiles WHERE TRUE");
    filter::push_key(&mut query, key);
    match query.build_query_scalar().fetch_optional(&mut *tx).await? {
        Some(id) => Ok(id),
        None => {
            let empty = Profile { updated_at: at, ..Profile::new(key.clone()) };
            put_profile(tx, &empty, "updated_at = excluded.updated_at").await
        }
    }
}

pub(super) async fn write_profiles(tx: &mut SqlConnection, profiles: &[Profile]) -> SqlResult<()> {
    for profile in profiles {
        let replace = "points = excluded.points, costs = excluded.costs, stops = excluded.stops,
             unfit = excluded.unfit, probes = excluded.probes, probe_secs = excluded.probe_secs, jobs = excluded.jobs, job_name = excluded.job_name,
             updated_at = excluded.updated_at";
        put_profile(tx, profile, replace).await?;
    }
    Ok(())
}

/// Inserts a profile, or makes this assignment to the existing row. Returns the row's id.
async fn put_profile(tx: &mut SqlConnection, profile: &Profile, assignment: &'static str) -> SqlResult<i64> {
    let points = to_json(&profile.points)?;
    let costs = to_json(&profile.costs)?;
    let stops = to_json(&profile.stops)?;
    let unfit = to_json(&profile.unfit)?;
    let mut query = QueryBuilder::new(
        "INSERT INTO profiles (owner, name, node_type, exec_plan, batch, points, costs, stops, unfit, probes, probe_secs,
         jobs, job_name, updated_at) ",
    );
    query.push_values([&profile.key], |mut row, key| {
        row.push_bind(storable_text(&key.user))
            .push_bind(storable_text(&key.name))
            .push_bind(storable_text(key.node_type.as_str()))
            .push_bind(storable_text(&key.exec_plan.0))
            .push_bind(key.batch.word())
            .push_bind(&points)
            .push_bind(&costs)
            .push_bind(&stops)
            .push_bind(&unfit)
            .push_bind(i64::from(profile.probes))
            .push_bind(profile.probe_secs)
            .push_bind(i64::from(profile.jobs))
            .push_bind(storable_text(&profile.job_name))
            .push_bind(profile.updated_at.0);
    });
    query.push(" ON CONFLICT (owner, name, node_type, exec_plan, batch) DO UPDATE SET ");
    query.push(assignment).push(" RETURNING id");
    query.build_query_scalar().fetch_one(tx).await
}

pub(super) async fn forget_profiles(tx: &mut SqlConnection, filter: &ProfileFilter) -> SqlResult<u64> {
    // The measurements are deleted with their profiles.
    let mut query = QueryBuilder::new("DELETE FROM profiles WHERE TRUE");
    filter::push_filter(&mut query, filter);
    query.build().execute(tx).await.map(|done| done.rows_affected())
}

pub(super) async fn write_setting(tx: &mut SqlConnection, key: &str, value: &str) -> SqlResult<()> {
    sqlx::query(
        "INSERT INTO settings (name, content) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET content = excluded.content",
    )
    .bind(storable_text(key))
    .bind(storable_text(value))
    .execute(tx)
    .await
    .map(drop)
}

pub(super) async fn prune_by_age(tx: &mut SqlConnection, since: &RetentionLimits) -> SqlResult<u64> {
    let RetentionLimits { rounds: before, profiles: profiles_before, ended: ended_before, .. } = *since;
    let mut rows = 0;
    for (statement, before) in [
        ("DELETE FROM rounds WHERE planned_at < $1", before),
        ("DELETE FROM generations WHERE started_at < $1", before),
        ("DELETE FROM leads WHERE ended AND updated_at < $1", before),
        ("DELETE FROM gaps WHERE ended_at < $1", before),
        // At most a second's work. The next call deletes the rest.
        (
            "DELETE FROM measurements WHERE id IN
             (SELECT id FROM measurements WHERE measured_at < $1 ORDER BY measured_at LIMIT 100000)",
            before,
        ),
        // Keeps a profile that has been measured since then, with its measurements.
        (
            "DELETE FROM profiles WHERE updated_at < $1
             AND NOT EXISTS (SELECT 1 FROM measurements WHERE profile = profiles.id AND measured_at >= $1)",
            profiles_before,
        ),
        ("DELETE FROM ended_jobs WHERE ended_at < $1", ended_before),
        ("DELETE FROM node_hours WHERE began_at < $1", since.hours),
    ] {
        rows += sqlx::query(statement).bind(before.0).execute(&mut *tx).await?.rows_affected();
    }
    Ok(rows)
}
