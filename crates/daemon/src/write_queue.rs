//! Rows that wait for the store: records of jobs, which are stored before any effect on these jobs, and
//! history. While the store is down, a bounded amount of history waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::timeline::{MAX_HOUR_ROWS, UsageHour};
use infill_model::{
    EndedGap, EndedJob, GenerationRecord, JobId, MainDelay, NodeTimeKey, NodeTimeRow, NodeTimeUsage,
    ProfileFilter, words,
};
use infill_store::{Measurement, RoundRecord};

use super::usage_recorder::RecordedUsage;

/// Most waiting rows of any other kind. This is an hour of a job that reports every second, some megabytes.
pub(crate) const MAX_WAITING_ROWS: usize = 10_000;

/// Most waiting rounds. Each may have a hundred kilobytes.
pub(crate) const MAX_WAITING_ROUNDS: usize = 100;

/// Most waiting hours of node uses. Each may have some megabytes.
pub(crate) const MAX_WAITING_HOURS: usize = 24;

/// Most waiting rows of node-time: two full hours.
pub(crate) const MAX_WAITING_SPENT: usize = 2 * MAX_HOUR_ROWS;

/// Seconds of measurement that make one row of history.
const ROW_SECS: f64 = 60.0;

words! {
    /// A kind of history.
    pub enum HistoryKind {
        /// Rounds.
        Rounds = "rounds",
        /// Ended gaps.
        Gaps = "gaps",
        /// Measurements.
        Measurements = "measurements",
        /// Generations.
        Generations = "generations",
        /// Jobs that have ended.
        Ended = "ended",
        /// Hours of what nodes were used for.
        Hours = "hours",
        /// Rows of what node-time was used for.
        Spent = "spent",
        /// Main jobs that started on nodes of malleable jobs.
        Delays = "delays",
    }
}

/// History that was taken from the queue to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WriteBatch {
    /// Rounds, the oldest first.
    pub rounds: VecDeque<RoundRecord>,
    /// Gaps that have ended.
    pub gaps: Vec<EndedGap>,
    /// Measured rates of jobs.
    pub measurements: Vec<Measurement>,
    /// Jobs that have ended.
    pub ended: Vec<EndedJob>,
    /// What nodes were used for, the earliest hour first.
    pub hours: VecDeque<Arc<UsageHour>>,
    /// What node-time was used for.
    pub spent: Vec<NodeTimeRow>,
    /// Main jobs that started on nodes of malleable jobs.
    pub delays: Vec<MainDelay>,
}

/// Everything that waits for the store.
#[derive(Clone, Debug, Default)]
pub struct WriteQueue {
    /// Jobs whose record has changed.
    dirty: BTreeSet<JobId>,
    generations: VecDeque<GenerationRecord>,
    rounds: VecDeque<RoundRecord>,
    gaps: VecDeque<EndedGap>,
    measurements: VecDeque<Measurement>,
    ended: VecDeque<EndedJob>,
    hours: VecDeque<Arc<UsageHour>>,
    /// The hours of the last batch.
    hours_taken: VecDeque<Arc<UsageHour>>,
    spent: BTreeMap<NodeTimeKey, NodeTimeUsage>,
    delays: VecDeque<MainDelay>,
    /// The measurement of each job that is not long enough for a row yet.
    open: BTreeMap<JobId, Measurement>,
    /// Rows that were dropped, by kind.
    lost: BTreeMap<HistoryKind, usize>,
}

impl WriteQueue {
    /// Marks jobs whose records have changed, or could not be stored.
    pub fn mark_dirty(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        self.dirty.extend(jobs);
    }

    /// Whether the job's present record is in the store.
    pub fn is_stored(&self, job: JobId) -> bool {
        !self.dirty.contains(&job)
    }

    /// Takes the jobs whose records must be stored.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.dirty)
    }

    /// Adds generations that began.
    pub fn add_generations(&mut self, generations: impl IntoIterator<Item = GenerationRecord>) {
        self.generations.extend(generations);
        self.drop_excess(HistoryKind::Generations);
    }

    /// Takes the generations that must be stored.
    pub(crate) fn take_generations(&mut self) -> Vec<GenerationRecord> {
        std::mem::take(&mut self.generations).into()
    }

    /// Puts generations back that could not be stored.
    pub(crate) fn put_generations_back(&mut self, generations: Vec<GenerationRecord>) {
        put_back(&mut self.generations, generations);
        self.drop_excess(HistoryKind::Generations);
    }

    /// Adds a round.
    pub fn add_round(&mut self, round: RoundRecord) {
        self.rounds.push_back(round);
        self.drop_excess(HistoryKind::Rounds);
    }

    /// Adds gaps that ended.
    pub fn add_gaps(&mut self, gaps: Vec<EndedGap>) {
        self.gaps.extend(gaps);
        self.drop_excess(HistoryKind::Gaps);
    }

    /// Adds a job that has ended. The store keeps the first row of each job.
    pub fn add_ended_job(&mut self, job: EndedJob) {
        self.ended.push_back(job);
        self.drop_excess(HistoryKind::Ended);
    }

    /// Adds recorded uses of nodes and node-time. They replace waiting rows of the same hours.
    pub(crate) fn add_usage(&mut self, usage: RecordedUsage) {
        self.add_hours(usage.hours);
        self.spent.extend(usage.spent.into_iter().map(|row| (row.key, row.spent)));
        self.delays.extend(usage.delays);
        self.drop_excess(HistoryKind::Spent);
        self.drop_excess(HistoryKind::Delays);
    }

    fn add_hours(&mut self, hours: Vec<Arc<UsageHour>>) {
        self.hours.retain(|waiting| hours.iter().all(|hour| hour.from != waiting.from));
        self.hours.extend(hours);
        self.drop_excess(HistoryKind::Hours);
    }

    /// The hours that wait or are being written. The latest version of each hour comes last.
    pub fn unsaved_hours(&self) -> impl Iterator<Item = &Arc<UsageHour>> {
        self.hours_taken.iter().chain(&self.hours)
    }

    /// Adds a measurement of a job. Measurements of the same profile and size are summed up until they make a
    /// row.
    pub(crate) fn add_measurement(&mut self, new: Measurement) {
        let job = new.job;
        match self.open.get_mut(&job) {
            Some(open) if open.key == new.key && open.nodes == new.nodes && open.probe == new.probe => {
                open.samples += new.samples;
                open.secs += new.secs;
                open.at = new.at;
            }
            _ => {
                self.close_measurement(job);
                self.open.insert(job, new);
            }
        }
        if self.open.get(&job).is_some_and(|open| open.secs >= ROW_SECS) {
            self.close_measurement(job);
        }
    }

    /// Makes a row of the job's open measurement, because its generation has ended.
    pub(crate) fn close_measurement(&mut self, job: JobId) {
        self.measurements.extend(self.open.remove(&job));
        self.drop_excess(HistoryKind::Measurements);
    }

    /// Does the same for all jobs.
    pub(crate) fn close_measurements(&mut self) {
        self.measurements.extend(std::mem::take(&mut self.open).into_values());
        self.drop_excess(HistoryKind::Measurements);
    }

    /// Drops waiting measurements of these profiles, which would bring the profiles back.
    pub fn drop_measurements(&mut self, filter: &ProfileFilter) {
        self.measurements.retain(|m| !filter.matches_key(&m.key));
        self.open.retain(|_, open| !filter.matches_key(&open.key));
    }

    /// Takes all history that must be written.
    pub(crate) fn take_batch(&mut self) -> WriteBatch {
        self.hours_taken = std::mem::take(&mut self.hours);
        WriteBatch {
            rounds: std::mem::take(&mut self.rounds),
            gaps: std::mem::take(&mut self.gaps).into(),
            measurements: std::mem::take(&mut self.measurements).into(),
            ended: std::mem::take(&mut self.ended).into(),
            hours: self.hours_taken.clone(),
            spent: std::mem::take(&mut self.spent)
                .into_iter()
                .map(|(key, spent)| NodeTimeRow { key, spent })
                .collect(),
            delays: std::mem::take(&mut self.delays).into(),
        }
    }

    /// Puts rows back that could not be written, before the rows that came meanwhile.
    pub(crate) fn put_batch_back(&mut self, batch: WriteBatch) {
        put_back(&mut self.rounds, batch.rounds);
        put_back(&mut self.gaps, batch.gaps);
        put_back(&mut self.measurements, batch.measurements);
        put_back(&mut self.ended, batch.ended);
        put_back(&mut self.delays, batch.delays);
        let newer = std::mem::replace(&mut self.hours, batch.hours);
        self.add_hours(newer.into());
        for NodeTimeRow { key, spent } in batch.spent {
            self.spent.entry(key).or_insert(spent);
        }
        for kind in [
            HistoryKind::Rounds,
            HistoryKind::Gaps,
            HistoryKind::Measurements,
            HistoryKind::Ended,
            HistoryKind::Spent,
            HistoryKind::Delays,
        ] {
            self.drop_excess(kind);
        }
    }

    /// Counts rows of history that are lost.
    pub fn count_lost(&mut self, kind: HistoryKind, rows: usize) {
        *self.lost.entry(kind).or_default() += rows;
    }

    /// Takes the numbers of rows that were lost since the last call.
    pub(crate) fn take_lost(&mut self) -> BTreeMap<HistoryKind, usize> {
        std::mem::take(&mut self.lost)
    }

    /// Drops the oldest rows above the limit of this kind.
    fn drop_excess(&mut self, kind: HistoryKind) {
        let rows = match kind {
            HistoryKind::Rounds => drop_oldest(&mut self.rounds, MAX_WAITING_ROUNDS),
            HistoryKind::Gaps => drop_oldest(&mut self.gaps, MAX_WAITING_ROWS),
            HistoryKind::Measurements => drop_oldest(&mut self.measurements, MAX_WAITING_ROWS),
            HistoryKind::Generations => drop_oldest(&mut self.generations, MAX_WAITING_ROWS),
            HistoryKind::Ended => drop_oldest(&mut self.ended, MAX_WAITING_ROWS),
            HistoryKind::Hours => drop_oldest(&mut self.hours, MAX_WAITING_HOURS),
            HistoryKind::Delays => drop_oldest(&mut self.delays, MAX_WAITING_ROWS),
            HistoryKind::Spent => {
                let excess = self.spent.len().saturating_sub(MAX_WAITING_SPENT);
                (0..excess).for_each(|_| drop(self.spent.pop_first()));
                excess
            }
        };
        if rows > 0 {
            self.count_lost(kind, rows);
        }
    }
}

/// Puts rows back before those that came meanwhile.
fn put_back<T>(waiting: &mut VecDeque<T>, rows: impl IntoIterator<Item = T>) {
    let newer = std::mem::take(waiting);
    waiting.extend(rows);
    waiting.extend(newer);
}

/// Drops the oldest rows so that at most `max` stay. Returns how many were dropped.
fn drop_oldest<T>(rows: &mut VecDeque<T>, max: usize) -> usize {
    let excess = rows.len().saturating_sub(max);
    rows.drain(..excess);
    excess
}

#[cfg(test)]
mod tests;
