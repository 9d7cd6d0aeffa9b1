//! How fast programs were estimated to be before they ran, and how wrong that was.

use std::collections::BTreeMap;

use infill_model::{ExecPlan, NodeType, ProfileKey};

/// Most programs whose estimates are kept; those that were told longest ago go first.
const MOST_PROGRAMS: usize = 256;

/// Most estimates of a program.
const MOST_OF_PROGRAM: usize = 4096;

/// How fast a program was estimated to be with a plan on so many nodes of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct RateEstimate {
    /// The plan; the default one of a program with but one.
    pub exec_plan: ExecPlan,
    /// The type of nodes.
    pub node_type: NodeType,
    /// Nodes.
    pub nodes: u32,
    /// Samples a second.
    pub rate: f64,
}

/// A program of a user: that of all plans on all types.
pub(super) type ProgramName = (String, String);

pub(super) fn program_name(key: &ProfileKey) -> ProgramName {
    (key.user.clone(), key.name.clone())
}

/// Rates by way to run.
pub(super) type EstimatedRates = BTreeMap<(ExecPlan, NodeType, u32), f64>;

/// Those of all programs.
#[derive(Clone, Debug, Default)]
pub(super) struct RateEstimates {
    known: BTreeMap<ProgramName, (u64, EstimatedRates)>,
    /// How many changes there were.
    changes: u64,
}

impl RateEstimates {
    /// Takes in what was estimated of a program, in place of what was before; no rate that cannot be.
    pub(super) fn replace_program(&mut self, program: ProgramName, rates: Vec<RateEstimate>) {
        let sound = rates.into_iter().filter(|e| e.rate.is_normal() && e.rate > 0.0 && e.nodes > 0);
        let estimated: EstimatedRates =
            sound.take(MOST_OF_PROGRAM).map(|e| ((e.exec_plan, e.node_type, e.nodes), e.rate)).collect();
        if self.rates_of(&program).is_some_and(|known| *known == estimated) {
            return;
        }
        self.changes += 1;
        self.known.insert(program, (self.changes, estimated));
        if self.known.len() > MOST_PROGRAMS
            && let Some(oldest) =
                self.known.iter().min_by_key(|(_, (change, _))| *change).map(|(name, _)| name)
        {
            let oldest = oldest.clone();
            self.known.remove(&oldest);
        }
    }

    /// What was estimated of a program.
    pub(super) fn rates_of(&self, program: &ProgramName) -> Option<&EstimatedRates> {
        self.known.get(program).map(|(_, estimated)| estimated).filter(|estimated| !estimated.is_empty())
    }

    /// When that last changed, in changes.
    pub(super) fn program_version(&self, program: &ProgramName) -> u64 {
        self.known.get(program).map_or(0, |(change, _)| *change)
    }
}
