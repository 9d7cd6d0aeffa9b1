//! Answers to readers, made once for all readers who may see the same.

use tokio::sync::watch;

use super::answer_cache::AnswerCache;
use super::hour_cache::HourCache;
use super::redaction::VisibilityClass;
use infill_api::{FigureKind, FigureQuery, LanesQuery, StatusQuery, SummaryQuery, TimelineQuery};
use infill_model::{ControlState, UnixTime};

/// What a status must show without delay. A change of any of these makes a new status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusVersion {
    /// When the last round was planned.
    pub round: UnixTime,
    /// The administrator's last command.
    pub control: ControlState,
    /// The present problems, each as a sentence.
    pub problems: Vec<String>,
}

/// Identifies a map of what nodes were used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapCacheKey {
    /// Which part of the map the reader asks for.
    pub query: TimelineQuery,
    /// What the reader may see.
    pub class: VisibilityClass,
    /// Whether the answer is compressed.
    pub packed: bool,
}

/// Identifies a drawing over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FigureCacheKey {
    /// What the drawing shows.
    pub kind: FigureKind,
    /// The stretch of time, and how to draw it.
    pub query: FigureQuery,
    /// Whether the drawing must hide when each job began.
    pub is_private: bool,
}

/// Identifies the sizes of jobs over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LanesCacheKey {
    /// The stretch of time.
    pub query: LanesQuery,
    /// What the reader may see.
    pub class: VisibilityClass,
    /// Whether the answer is compressed.
    pub packed: bool,
}

/// The caches of all kinds of answers.
#[derive(Debug)]
pub struct ResponseCache {
    /// When the last round read its snapshot. Sent at the end of that round.
    pub snapshot_times: watch::Sender<UnixTime>,
    /// What nodes were used for, unpacked.
    pub timelines: HourCache,
    /// Maps made since the last snapshot.
    pub maps: AnswerCache<MapCacheKey>,
    /// Statuses made since then, for readers who accept an answer that was made for others.
    pub statuses: AnswerCache<(StatusQuery, VisibilityClass, StatusVersion)>,
    /// Drawings made since then.
    pub figures: AnswerCache<FigureCacheKey>,
    /// Sizes of jobs over time made since then.
    pub lanes: AnswerCache<LanesCacheKey>,
    /// Days at a glance made within the last seconds.
    pub summaries: AnswerCache<SummaryQuery>,
}

impl Default for ResponseCache {
    fn default() -> Self {
        ResponseCache {
            snapshot_times: watch::Sender::new(UnixTime(0)),
            timelines: HourCache::default(),
            maps: AnswerCache::default(),
            statuses: AnswerCache::default(),
            figures: AnswerCache::default(),
            lanes: AnswerCache::default(),
            summaries: AnswerCache::default(),
        }
    }
}
