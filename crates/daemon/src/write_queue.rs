//! What is to be written: records of jobs, which go before anything is done about them, and history, which
//! waits, bounded, while the store is away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::timeline::{MAX_HOUR_ROWS, UsageHour};
use infill_model::{
    EndedGap, EndedJob, GenerationRecord, JobId, MainDelay, NodeTimeKey, NodeTimeRow, NodeTimeUsage,
    ProfileFilter, words,
};
use infill_store::{Measurement, RoundRecord};

use super::usage_recorder::RecordedUsage;

/// Rows of any kind that wait in memory while the store is away: an hour of a job that reports every second,
/// and some megabytes.
pub(crate) const MAX_WAITING_ROWS: usize = 10_000;

/// Rounds that wait: each may have a hundred kilobytes.
pub(crate) const MAX_WAITING_ROUNDS: usize = 100;

/// Hours of what nodes were used for that wait: each may have some megabytes.
pub(crate) const MAX_WAITING_HOURS: usize = 24;

/// Rows of node-time that wait: two full hours.
pub(crate) const MAX_WAITING_SPENT: usize = 2 * MAX_HOUR_ROWS;

/// Seconds of measuring that make one row of history.
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
        /// What nodes were used for.
        Hours = "hours",
        /// What became of node-time.
        Spent = "spent",
        /// Main jobs that started where ours were.
        Delays = "delays",
    }
}

/// History that is to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WriteBatch {
    /// Rounds, oldest first.
    pub rounds: VecDeque<RoundRecord>,
    /// Ended gaps.
    pub gaps: Vec<EndedGap>,
    /// Measurements.
    pub measurements: Vec<Measurement>,
    /// Jobs that have ended.
    pub ended: Vec<EndedJob>,
    /// What nodes were used for, the earliest hour first.
    pub hours: VecDeque<Arc<UsageHour>>,
    /// What became of node-time.
    pub spent: Vec<NodeTimeRow>,
    /// Main jobs that started where ours were.
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
    /// Those that were taken to be written last.
    hours_taken: VecDeque<Arc<UsageHour>>,
    spent: BTreeMap<NodeTimeKey, NodeTimeUsage>,
    delays: VecDeque<MainDelay>,
    /// Measurements by job that are not a row yet.
    open: BTreeMap<JobId, Measurement>,
    /// Rows that found no room, by kind.
    lost: BTreeMap<HistoryKind, usize>,
}

impl WriteQueue {
    /// These jobs' records have changed, or were not stored.
    pub fn mark_dirty(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        self.dirty.extend(jobs);
    }

    /// Whether the job's record is stored as it is.
    pub fn is_stored(&self, job: JobId) -> bool {
        !self.dirty.contains(&job)
    }

    /// Jobs whose records are to be stored now.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.dirty)
    }

    /// Takes in generations that began.
    pub fn add_generations(&mut self, generations: impl IntoIterator<Item = GenerationRecord>) {
        self.generations.extend(generations);
        self.drop_excess(HistoryKind::Generations);
    }

    /// Generations that are to be stored now.
    pub(crate) fn take_generations(&mut self) -> Vec<GenerationRecord> {
        std::mem::take(&mut self.generations).into()
    }

    /// Takes back generations that could not be stored.
    pub(crate) fn put_generations_back(&mut self, generations: Vec<GenerationRecord>) {
        put_back(&mut self.generations, generations);
        self.drop_excess(HistoryKind::Generations);
    }

    /// Takes in a round.
    pub fn add_round(&mut self, round: RoundRecord) {
        self.rounds.push_back(round);
        self.drop_excess(HistoryKind::Rounds);
    }

    /// Takes in gaps that ended.
    pub fn add_gaps(&mut self, gaps: Vec<EndedGap>) {
        self.gaps.extend(gaps);
        self.drop_excess(HistoryKind::Gaps);
    }

    /// Takes in a job that has ended. The store keeps what it is told first of a job.
    pub fn add_ended_job(&mut self, job: EndedJob) {
        self.ended.push_back(job);
        self.drop_excess(HistoryKind::Ended);
    }

    /// Takes in what was noted of nodes and of their time. What waits already is known better now.
    pub(crate) fn add_usage(&mut self, noted: RecordedUsage) {
        self.add_hours(noted.hours);
        self.spent.extend(noted.spent.into_iter().map(|row| (row.key, row.spent)));
        self.delays.extend(noted.delays);
        [HistoryKind::Spent, HistoryKind::Delays].into_iter().for_each(|kind| self.drop_excess(kind));
    }

    fn add_hours(&mut self, hours: Vec<Arc<UsageHour>>) {
        self.hours.retain(|waiting| hours.iter().all(|hour| hour.from != waiting.from));
        self.hours.extend(hours);
        self.drop_excess(HistoryKind::Hours);
    }

    /// The hours that wait or are being written, the latest look at each last.
    pub fn unsaved_hours(&self) -> impl Iterator<Item = &Arc<UsageHour>> {
        self.hours_taken.iter().chain(&self.hours)
    }

    /// Takes in what was measured of a job. What is alike is added up until it makes a row.
    pub(crate) fn add_measurement(&mut self, new: Measurement) {
        let job = new.job;
        match self
            .open
            .get_mut(&job)
            .filter(|r: &&mut Measurement| r.key == new.key && r.nodes == new.nodes && r.probe == new.probe)
        {
            Some(open) => {
                open.samples += new.samples;
                open.secs += new.secs;
                open.at = new.at;
            }
            None => {
                self.close_measurement(job);
                self.open.insert(job, new);
            }
        }
        if self.open.get(&job).is_some_and(|open| open.secs >= ROW_SECS) {
            self.close_measurement(job);
        }
    }

    /// What was measured of this job so far makes a row: its generation has ended.
    pub(crate) fn close_measurement(&mut self, job: JobId) {
        self.measurements.extend(self.open.remove(&job));
        self.drop_excess(HistoryKind::Measurements);
    }

    /// The same of all jobs.
    pub(crate) fn close_measurements(&mut self) {
        self.measurements.extend(std::mem::take(&mut self.open).into_values());
        self.drop_excess(HistoryKind::Measurements);
    }

    /// Drops what was measured for these profiles: it would bring them back.
    pub fn drop_measurements(&mut self, filter: &ProfileFilter) {
        self.measurements.retain(|m| !filter.matches_key(&m.key));
        self.open.retain(|_, open| !filter.matches_key(&open.key));
    }

    /// History that is to be written now.
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

    /// Takes back what could not be written, before what came meanwhile.
    pub(crate) fn put_batch_back(&mut self, pages: WriteBatch) {
        put_back(&mut self.rounds, pages.rounds);
        put_back(&mut self.gaps, pages.gaps);
        put_back(&mut self.measurements, pages.measurements);
        put_back(&mut self.ended, pages.ended);
        put_back(&mut self.delays, pages.delays);
        let newer = std::mem::replace(&mut self.hours, pages.hours);
        self.add_hours(newer.into());
        for NodeTimeRow { key, spent } in pages.spent {
            self.spent.entry(key).or_insert(spent);
        }
        [
            HistoryKind::Rounds,
            HistoryKind::Gaps,
            HistoryKind::Measurements,
            HistoryKind::Ended,
            HistoryKind::Spent,
            HistoryKind::Delays,
        ]
        .into_iter()
        .for_each(|kind| self.drop_excess(kind));
    }

    /// Counts history that is lost.
    pub fn count_lost(&mut self, kind: HistoryKind, rows: usize) {
        *self.lost.entry(kind).or_default() += rows;
    }

    /// What was lost since the last call.
    pub(crate) fn take_lost(&mut self) -> BTreeMap<HistoryKind, usize> {
        std::mem::take(&mut self.lost)
    }

    /// Drops the oldest rows beyond what may wait.
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
                let beyond = self.spent.len().saturating_sub(MAX_WAITING_SPENT);
                (0..beyond).for_each(|_| drop(self.spent.pop_first()));
                beyond
            }
        };
        if rows > 0 {
            self.count_lost(kind, rows);
        }
    }
}

/// Puts rows back before those that came meanwhile.
fn put_back<T>(waiting: &mut VecDeque<T>, rows: impl IntoIterator<Item = T>) {
    let came = std::mem::take(waiting);
    waiting.extend(rows);
    waiting.extend(came);
}

fn drop_oldest<T>(rows: &mut VecDeque<T>, most: usize) -> usize {
    let beyond = rows.len().saturating_sub(most);
    rows.drain(..beyond);
    beyond
}

#[cfg(test)]
mod tests;
