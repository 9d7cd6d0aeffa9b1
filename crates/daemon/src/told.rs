//! What readers are told, made once for all who see the same.

use tokio::sync::watch;

use super::answers::Answers;
use super::sight::Class;
use super::timelines::Timelines;
use infill_api::{FigureKind, FigureQuery, StatusQuery, TimelineQuery};
use infill_model::{ControlState, UnixTime};

/// What a status must show at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stand {
    /// The last round.
    pub round: UnixTime,
    /// The administrator's order.
    pub control: ControlState,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// A map of what nodes were used for, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapAsked {
    /// What of it.
    pub query: TimelineQuery,
    /// By readers who see this.
    pub class: Class,
    /// Whether it is to be packed.
    pub packed: bool,
}

/// A drawing over time, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FigureAsked {
    /// Of what.
    pub kind: FigureKind,
    /// From when until when.
    pub query: FigureQuery,
    /// Whether it must not tell when which job began.
    pub is_private: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Told {
    /// When the last round looked at Slurm; told at its end.
    pub looked: watch::Sender<UnixTime>,
    /// What nodes were used for, unpacked.
    pub timelines: Timelines,
    /// What readers of that were told since the last look.
    pub maps: Answers<MapAsked>,
    /// What readers of a status were told since then who take what others were told.
    pub statuses: Answers<(StatusQuery, Class, Stand)>,
    /// What was drawn since then.
    pub figures: Answers<FigureAsked>,
}

impl Default for Told {
    fn default() -> Self {
        Told {
            looked: watch::Sender::new(UnixTime(0)),
            timelines: Timelines::default(),
            maps: Answers::default(),
            statuses: Answers::default(),
            figures: Answers::default(),
        }
    }
}
