//! Reads rows into records. A row that cannot be read is logged and stays in the table.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;

use super::{SqlDatabase, SqlRow};
use crate::port::{Measurement, RoundRecord};
use infill_model::{
    EndedGap, EndedJob, ExecPlan, GenerationRecord, JobId, LeadRecord, MainDelay, NodeName, NodeTimeKey,
    NodeTimeRow, NodeTimeUsage, NodeType, NodeUsageSecs, PackedHour, Profile, ProfileKey, UnixTime, UserId,
};

/// Why a row cannot be read, in words.
pub(super) type RowError = String;

/// Reads all rows that can be read. Logs a warning for each other row.
pub(super) fn read_valid<T>(
    table: &'static str,
    rows: &[SqlRow],
    read: fn(&SqlRow) -> Result<T, RowError>,
) -> Vec<T> {
    rows.iter()
        .filter_map(|row| {
            read(row)
                .inspect_err(|why| {
                    tracing::warn!(table, why, "skipping a row in the store that cannot be read")
                })
                .ok()
        })
        .collect()
}

pub(super) fn read_lead(row: &SqlRow) -> Result<LeadRecord, RowError> {
    Ok(LeadRecord {
        job: get_job(row)?,
        submitted_at: get_time(row, "submitted_at")?,
        user_id: get_column::<Option<i64>>(row, "user_id")?.and_then(|id| id.try_into().ok()).map(UserId),
        updated_at: get_time(row, "updated_at")?,
        ended: get_column(row, "ended")?,
        state: get_json(row, "state")?,
    })
}

pub(super) fn read_generation(row: &SqlRow) -> Result<GenerationRecord, RowError> {
    Ok(GenerationRecord {
        job: get_job(row)?,
        generation: get_natural(row, "generation")?,
        started_at: get_time(row, "started_at")?,
        nodes: get_json(row, "nodes")?,
        why: get_column(row, "why")?,
    })
}

pub(super) fn read_count(row: &SqlRow) -> Result<u64, RowError> {
    get_natural(row, "n")
}

pub(super) fn read_id(row: &SqlRow) -> Result<i64, RowError> {
    get_column(row, "id")
}

pub(super) fn read_round(row: &SqlRow) -> Result<RoundRecord, RowError> {
    Ok(RoundRecord {
        at: get_time(row, "planned_at")?,
        plan: get_json(row, "plan")?,
        report: get_json(row, "report")?,
        acted: get_column(row, "acted")?,
    })
}

pub(super) fn read_gap(row: &SqlRow) -> Result<EndedGap, RowError> {
    Ok(EndedGap {
        node: NodeName::new(get_column::<String>(row, "node")?),
        node_type: NodeType::new(get_column::<String>(row, "node_type")?),
        start: get_time(row, "started_at")?,
        end: get_time(row, "ended_at")?,
        taken: get_column(row, "taken")?,
        block: get_natural(row, "block")?,
        planned: get_json(row, "planned")?,
    })
}

pub(super) fn read_ended_job(row: &SqlRow) -> Result<EndedJob, RowError> {
    Ok(EndedJob {
        job: get_job(row)?,
        submitted_at: get_time(row, "submitted_at")?,
        ended_at: get_time(row, "ended_at")?,
        user: get_column(row, "owner")?,
        account: get_column(row, "account")?,
        name: get_column(row, "name")?,
        command_hash: get_column(row, "command_hash")?,
        min_nodes: get_natural(row, "min_nodes")?,
        max_nodes: get_natural(row, "max_nodes")?,
        gpus_per_node: get_natural(row, "gpus_per_node")?,
        limit_secs: get_column(row, "limit_secs")?,
        work_secs: get_column(row, "work_secs")?,
        said_secs: get_column(row, "said_secs")?,
        flat_secs: get_column(row, "flat_secs")?,
        samples: get_column(row, "samples")?,
        secs: get_column(row, "secs")?,
        exit_code: get_column::<Option<i64>>(row, "exit_code")?.and_then(|code| code.try_into().ok()),
        why: get_column(row, "why")?,
    })
}

pub(super) fn read_hour(row: &SqlRow) -> Result<PackedHour, RowError> {
    Ok(PackedHour { from: get_time(row, "began_at")?, packed: get_column(row, "packed")? })
}

pub(super) fn read_uses(row: &SqlRow) -> Result<(UnixTime, NodeUsageSecs), RowError> {
    let used = NodeUsageSecs {
        main_secs: get_column(row, "main_secs")?,
        malleable_secs: get_column(row, "malleable_secs")?,
        idle_secs: get_column(row, "idle_secs")?,
        wanted_secs: get_column(row, "wanted_secs")?,
        refused_secs: get_column(row, "refused_secs")?,
        down_secs: get_column(row, "down_secs")?,
    };
    Ok((get_time(row, "began_at")?, used))
}

pub(super) fn read_node_time(row: &SqlRow) -> Result<NodeTimeRow, RowError> {
    let key = NodeTimeKey {
        from: get_time(row, "began_at")?,
        account: get_column(row, "account")?,
        user: get_column(row, "owner")?,
        node_type: get_column(row, "node_type")?,
    };
    Ok(NodeTimeRow { key, spent: read_usage(row)? })
}

pub(super) fn read_hourly_node_time(row: &SqlRow) -> Result<(UnixTime, NodeTimeUsage), RowError> {
    Ok((get_time(row, "began_at")?, read_usage(row)?))
}

fn read_usage(row: &SqlRow) -> Result<NodeTimeUsage, RowError> {
    Ok(NodeTimeUsage {
        useful_secs: get_column(row, "useful_secs")?,
        rescale_secs: get_column(row, "rescale_secs")?,
        preempted_secs: get_column(row, "preempted_secs")?,
        probing_secs: get_column(row, "probing_secs")?,
        gpu_secs: get_column(row, "gpu_secs")?,
    })
}

pub(super) fn read_delay(row: &SqlRow) -> Result<MainDelay, RowError> {
    Ok(MainDelay {
        job: get_job(row)?,
        at: get_time(row, "started_at")?,
        secs: get_column(row, "secs")?,
        planned: get_column(row, "planned")?,
    })
}

pub(super) fn read_measurement(row: &SqlRow) -> Result<Measurement, RowError> {
    Ok(Measurement {
        key: read_key(row)?,
        job: get_job(row)?,
        nodes: get_natural(row, "nodes")?,
        samples: get_column(row, "samples")?,
        secs: get_column(row, "secs")?,
        probe: get_column(row, "probe")?,
        at: get_time(row, "measured_at")?,
    })
}

pub(super) fn read_profile(row: &SqlRow) -> Result<Profile, RowError> {
    Ok(Profile {
        key: read_key(row)?,
        points: get_json(row, "points")?,
        costs: get_json(row, "costs")?,
        stops: get_json(row, "stops")?,
        unfit: get_json(row, "unfit")?,
        probes: get_natural(row, "probes")?,
        probe_secs: get_column(row, "probe_secs")?,
        jobs: get_natural(row, "jobs")?,
        job_name: get_column(row, "job_name")?,
        updated_at: get_time(row, "updated_at")?,
    })
}

pub(super) fn read_setting(row: &SqlRow) -> Result<String, RowError> {
    get_column(row, "content")
}

fn read_key(row: &SqlRow) -> Result<ProfileKey, RowError> {
    let batch: String = get_column(row, "batch")?;
    Ok(ProfileKey {
        user: get_column(row, "owner")?,
        name: get_column(row, "name")?,
        node_type: NodeType::new(get_column::<String>(row, "node_type")?),
        exec_plan: ExecPlan(get_column(row, "exec_plan")?),
        batch: batch.parse().map_err(|e| format!("column batch: {e}"))?,
    })
}

fn get_column<'r, T>(row: &'r SqlRow, name: &str) -> Result<T, RowError>
where
    T: sqlx::Decode<'r, SqlDatabase> + sqlx::Type<SqlDatabase>,
{
    row.try_get(name).map_err(|e| e.to_string())
}

fn get_natural<T: TryFrom<i64>>(row: &SqlRow, name: &str) -> Result<T, RowError> {
    let n: i64 = get_column(row, name)?;
    T::try_from(n).map_err(|_| format!("column {name} holds {n}"))
}

fn get_job(row: &SqlRow) -> Result<JobId, RowError> {
    get_natural(row, "job").map(JobId)
}

fn get_time(row: &SqlRow, name: &str) -> Result<UnixTime, RowError> {
    get_column(row, name).map(UnixTime)
}

fn get_json<T: DeserializeOwned>(row: &SqlRow, name: &str) -> Result<T, RowError> {
    let text: String = get_column(row, name)?;
    serde_json::from_str(&text).map_err(|e| format!("column {name}: {e}"))
}

/// The text of a value, on one line.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|e| sqlx::Error::Encode(Box::new(e)))
}

/// The databases' integers are signed. No number that infill keeps exceeds `i64::MAX`.
pub(super) fn to_signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
