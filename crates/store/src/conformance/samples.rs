//! Records that the suites store.

use super::*;

/// A job in which every field differs from the others.
pub(super) fn ended_job(job: u32, submitted: i64, ended: i64) -> EndedJob {
    EndedJob {
        job: JobId(job),
        submitted_at: UnixTime(submitted),
        ended_at: UnixTime(ended),
        user: "ann".to_owned(),
        account: "it's \"physics\"".to_owned(),
        name: "train_-lr. – ü|%_".to_owned(),
        command_hash: "0a1b".to_owned(),
        min_nodes: 1,
        max_nodes: u32::MAX,
        gpus_per_node: 8,
        limit_secs: Some(3600.5),
        work_secs: 1e9 / 3.0,
        said_secs: Some(2e9 / 3.0),
        flat_secs: Some(1e9 / 7.0),
        samples: 0.1 + 0.2,
        secs: 1e-9,
        exit_code: Some(-7),
        why: "out of memory".to_owned(),
    }
}
