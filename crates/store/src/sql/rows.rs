//! From a row to a record. A row that cannot be read is left where it is, and told.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;

use super::{Db, Row};
use crate::port::{Measurement, RoundRecord};
use infill_model::{
    EndedGap, EndedJob, ExecPlan, GenerationRecord, JobId, LeadRecord, MainDelay, NodeName, NodeTimeKey,
    NodeTimeRow, NodeTimeUsage, NodeType, NodeUsageSecs, PackedHour, Profile, ProfileKey, UnixTime, UserId,
};

/// Why a row cannot be read, in words.
pub(super) type Bad = String;

/// All rows that can be read; one warning for each that cannot.
pub(super) fn readable<T>(table: &'static str, rows: &[Row], read: fn(&Row) -> Result<T, Bad>) -> Vec<T> {
    let warn = |why: &Bad| tracing::warn!(table, why, "a row in the store cannot be read and is passed over");
    rows.iter().filter_map(|row| read(row).inspect_err(warn).ok()).collect()
}

pub(super) fn lead(row: &Row) -> Result<LeadRecord, Bad> {
    Ok(LeadRecord {
        job: job(row)?,
        submitted_at: time(row, "submitted_at")?,
        user_id: column::<Option<i64>>(row, "user_id")?.and_then(|id| id.try_into().ok()).map(UserId),
        updated_at: time(row, "updated_at")?,
        ended: column(row, "ended")?,
        state: json(row, "state")?,
    })
}

pub(super) fn generation(row: &Row) -> Result<GenerationRecord, Bad> {
    Ok(GenerationRecord {
        job: job(row)?,
        generation: natural(row, "generation")?,
        started_at: time(row, "started_at")?,
        nodes: json(row, "nodes")?,
        why: column(row, "why")?,
    })
}

pub(super) fn id(row: &Row) -> Result<i64, Bad> {
    column(row, "id")
}

pub(super) fn round(row: &Row) -> Result<RoundRecord, Bad> {
    Ok(RoundRecord {
        at: time(row, "planned_at")?,
        plan: json(row, "plan")?,
        report: json(row, "report")?,
        acted: column(row, "acted")?,
    })
}

pub(super) fn gap(row: &Row) -> Result<EndedGap, Bad> {
    Ok(EndedGap {
        node: NodeName::new(column::<String>(row, "node")?),
        node_type: NodeType::new(column::<String>(row, "node_type")?),
        start: time(row, "started_at")?,
        end: time(row, "ended_at")?,
        taken: column(row, "taken")?,
        block: natural(row, "block")?,
        planned: json(row, "planned")?,
    })
}

pub(super) fn ended(row: &Row) -> Result<EndedJob, Bad> {
    Ok(EndedJob {
        job: job(row)?,
        submitted_at: time(row, "submitted_at")?,
        ended_at: time(row, "ended_at")?,
        user: column(row, "owner")?,
        account: column(row, "account")?,
        name: column(row, "name")?,
        command_hash: column(row, "command_hash")?,
        min_nodes: natural(row, "min_nodes")?,
        max_nodes: natural(row, "max_nodes")?,
        gpus_per_node: natural(row, "gpus_per_node")?,
        limit_secs: column(row, "limit_secs")?,
        work_secs: column(row, "work_secs")?,
        said_secs: column(row, "said_secs")?,
        flat_secs: column(row, "flat_secs")?,
        samples: column(row, "samples")?,
        secs: column(row, "secs")?,
        exit_code: column::<Option<i64>>(row, "exit_code")?.and_then(|code| code.try_into().ok()),
        why: column(row, "why")?,
    })
}

pub(super) fn hour(row: &Row) -> Result<PackedHour, Bad> {
    Ok(PackedHour { from: time(row, "began_at")?, packed: column(row, "packed")? })
}

pub(super) fn uses(row: &Row) -> Result<(UnixTime, NodeUsageSecs), Bad> {
    let used = NodeUsageSecs {
        main_secs: column(row, "main_secs")?,
        malleable_secs: column(row, "malleable_secs")?,
        idle_secs: column(row, "idle_secs")?,
        wanted_secs: column(row, "wanted_secs")?,
        refused_secs: column(row, "refused_secs")?,
        down_secs: column(row, "down_secs")?,
    };
    Ok((time(row, "began_at")?, used))
}

pub(super) fn spent_row(row: &Row) -> Result<NodeTimeRow, Bad> {
    let key = NodeTimeKey {
        from: time(row, "began_at")?,
        account: column(row, "account")?,
        user: column(row, "owner")?,
        node_type: column(row, "node_type")?,
    };
    Ok(NodeTimeRow { key, spent: spent(row)? })
}

pub(super) fn spent_in_hour(row: &Row) -> Result<(UnixTime, NodeTimeUsage), Bad> {
    Ok((time(row, "began_at")?, spent(row)?))
}

fn spent(row: &Row) -> Result<NodeTimeUsage, Bad> {
    Ok(NodeTimeUsage {
        useful_secs: column(row, "useful_secs")?,
        rescale_secs: column(row, "rescale_secs")?,
        preempted_secs: column(row, "preempted_secs")?,
        probing_secs: column(row, "probing_secs")?,
        gpu_secs: column(row, "gpu_secs")?,
    })
}

pub(super) fn delay(row: &Row) -> Result<MainDelay, Bad> {
    Ok(MainDelay {
        job: job(row)?,
        at: time(row, "started_at")?,
        secs: column(row, "secs")?,
        planned: column(row, "planned")?,
    })
}

pub(super) fn measurement(row: &Row) -> Result<Measurement, Bad> {
    Ok(Measurement {
        key: key(row)?,
        job: job(row)?,
        nodes: natural(row, "nodes")?,
        samples: column(row, "samples")?,
        secs: column(row, "secs")?,
        probe: column(row, "probe")?,
        at: time(row, "measured_at")?,
    })
}

pub(super) fn profile(row: &Row) -> Result<Profile, Bad> {
    Ok(Profile {
        key: key(row)?,
        points: json(row, "points")?,
        costs: json(row, "costs")?,
        stops: json(row, "stops")?,
        unfit: json(row, "unfit")?,
        probes: natural(row, "probes")?,
        probe_secs: column(row, "probe_secs")?,
        jobs: natural(row, "jobs")?,
        job_name: column(row, "job_name")?,
        updated_at: time(row, "updated_at")?,
    })
}

pub(super) fn setting(row: &Row) -> Result<String, Bad> {
    column(row, "content")
}

fn key(row: &Row) -> Result<ProfileKey, Bad> {
    let batch: String = column(row, "batch")?;
    Ok(ProfileKey {
        user: column(row, "owner")?,
        name: column(row, "name")?,
        node_type: NodeType::new(column::<String>(row, "node_type")?),
        exec_plan: ExecPlan(column(row, "exec_plan")?),
        batch: batch.parse().map_err(|e| format!("column batch: {e}"))?,
    })
}

fn column<'r, T>(row: &'r Row, name: &str) -> Result<T, Bad>
where
    T: sqlx::Decode<'r, Db> + sqlx::Type<Db>,
{
    row.try_get(name).map_err(|e| e.to_string())
}

fn natural<T: TryFrom<i64>>(row: &Row, name: &str) -> Result<T, Bad> {
    let n: i64 = column(row, name)?;
    T::try_from(n).map_err(|_| format!("column {name} holds {n}"))
}

fn job(row: &Row) -> Result<JobId, Bad> {
    natural(row, "job").map(JobId)
}

fn time(row: &Row, name: &str) -> Result<UnixTime, Bad> {
    column(row, name).map(UnixTime)
}

fn json<T: DeserializeOwned>(row: &Row, name: &str) -> Result<T, Bad> {
    let text: String = column(row, name)?;
    serde_json::from_str(&text).map_err(|e| format!("column {name}: {e}"))
}

/// The text of a value, on one line.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|e| sqlx::Error::Encode(Box::new(e)))
}

/// The databases' integers are signed; nothing that we count reaches the half of `u64`.
pub(super) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
