//! Generations of leads: by number, and by the time at which they began.

use super::{ok, same};
use crate::port::Store;
use infill_model::{GenerationRecord, JobId, NodeName, UnixTime};

fn generation(number: u64, why: &str) -> GenerationRecord {
    GenerationRecord {
        job: JobId(7),
        generation: number,
        started_at: UnixTime(100 + number as i64),
        nodes: vec![NodeName::new("n2"), NodeName::new("n1")],
        why: why.to_owned(),
    }
}

/// Generations are kept by lead and by time.
pub(super) async fn generations(store: &dyn Store) -> Result<(), String> {
    let first = generation(1, "start");
    let second = generation(2, "grow");
    ok(store.add_generations(&[second.clone(), first.clone()]).await)?;
    ok(store.add_generations(&[generation(2, "again")]).await)?;
    let listed = ok(store.list_generations(JobId(7)).await)?;
    same("generations, oldest first", &listed, &vec![first.clone(), second.clone()])?;
    same("generations of another job", &ok(store.list_generations(JobId(8)).await)?, &vec![])?;
    // Slurm gives the number of a job that is gone to a new job.
    let again = GenerationRecord { started_at: UnixTime(900), ..first.clone() };
    ok(store.add_generations(std::slice::from_ref(&again)).await)?;
    let listed = ok(store.list_generations(JobId(7)).await)?;
    same("a reused job number keeps all generations", &listed, &vec![first, second.clone(), again.clone()])?;
    let between = ok(store.generations_between(UnixTime(102), UnixTime(901), 10).await)?;
    same("generations in a stretch of time", &between, &vec![second, again.clone()])?;
    let last = ok(store.generations_between(UnixTime(0), UnixTime(901), 1).await)?;
    same("the last of them", &last, &vec![again])?;
    same("rescales", &ok(store.count_rescales(UnixTime(102), UnixTime(901)).await)?, &1)?;
    same("rescales before", &ok(store.count_rescales(UnixTime(0), UnixTime(102)).await)?, &0)
}
