//! What readers are told, made once for all who see the same.

use tokio::sync::watch;

use super::answer_cache::AnswerCache;
use super::hour_cache::HourCache;
use super::redaction::VisibilityClass;
use infill_api::{FigureKind, FigureQuery, StatusQuery, TimelineQuery};
use infill_model::{ControlState, UnixTime};

/// What a status must show at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusVersion {
    /// The last round.
    pub round: UnixTime,
    /// The administrator's order.
    pub control: ControlState,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// A map of what nodes were used for, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapCacheKey {
    /// What of it.
    pub query: TimelineQuery,
    /// By readers who see this.
    pub class: VisibilityClass,
    /// Whether it is to be packed.
    pub packed: bool,
}

/// A drawing over time, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FigureCacheKey {
    /// Of what.
    pub kind: FigureKind,
    /// From when until when.
    pub query: FigureQuery,
    /// Whether it must not tell when which job began.
    pub is_private: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct ResponseCache {
    /// When the last round looked at Slurm; told at its end.
    pub looked: watch::Sender<UnixTime>,
    /// What nodes were used for, unpacked.
    pub timelines: HourCache,
    /// What readers of that were told since the last look.
    pub maps: AnswerCache<MapCacheKey>,
    /// What readers of a status were told since then who take what others were told.
    pub statuses: AnswerCache<(StatusQuery, VisibilityClass, StatusVersion)>,
    /// What was drawn since then.
    pub figures: AnswerCache<FigureCacheKey>,
}

impl Default for ResponseCache {
    fn default() -> Self {
        ResponseCache {
            looked: watch::Sender::new(UnixTime(0)),
            timelines: HourCache::default(),
            maps: AnswerCache::default(),
            statuses: AnswerCache::default(),
            figures: AnswerCache::default(),
        }
    }
}
