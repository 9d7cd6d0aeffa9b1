//! Estimated rates of programs, made before they ran.

use std::collections::BTreeMap;

use infill_model::{ExecPlan, NodeType, ProfileKey};

/// Most programs whose estimates are kept. Those whose estimates changed longest ago go first.
const MAX_PROGRAMS: usize = 256;

/// Most estimates of a program.
const MAX_OF_PROGRAM: usize = 4096;

/// The estimated rate of a program with a plan on a number of nodes of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedRate {
    /// The plan; the default plan for a program with only one.
    pub exec_plan: ExecPlan,
    /// The type of the nodes.
    pub node_type: NodeType,
    /// Their number.
    pub nodes: u32,
    /// Samples a second.
    pub rate: f64,
}

/// The user and name of a program. All its plans on all types belong to it.
pub(super) type ProgramName = (String, String);

pub(super) fn program_name(key: &ProfileKey) -> ProgramName {
    (key.user.clone(), key.name.clone())
}

/// Samples a second by execution plan, node type and number of nodes.
pub(super) type ProgramRates = BTreeMap<(ExecPlan, NodeType, u32), f64>;

/// The estimates of all programs.
#[derive(Clone, Debug, Default)]
pub(super) struct PredictedRates {
    /// For each program the number of its last change, and its rates.
    programs: BTreeMap<ProgramName, (u64, ProgramRates)>,
    /// The number of changes so far.
    changes: u64,
}

impl PredictedRates {
    /// Takes in a program's estimates, which replace the earlier ones. Rates that are not positive numbers
    /// are left out.
    pub(super) fn replace_program(&mut self, program: ProgramName, rates: Vec<PredictedRate>) {
        let usable = rates.into_iter().filter(|e| e.rate.is_normal() && e.rate > 0.0 && e.nodes > 0);
        let estimated: ProgramRates =
            usable.take(MAX_OF_PROGRAM).map(|e| ((e.exec_plan, e.node_type, e.nodes), e.rate)).collect();
        if self.rates_of(&program).is_some_and(|earlier| *earlier == estimated) {
            return;
        }
        self.changes += 1;
        self.programs.insert(program, (self.changes, estimated));
        if self.programs.len() > MAX_PROGRAMS
            && let Some(oldest) =
                self.programs.iter().min_by_key(|(_, (change, _))| *change).map(|(name, _)| name)
        {
            let oldest = oldest.clone();
            self.programs.remove(&oldest);
        }
    }

    /// The estimates of a program; `None` where there are none.
    pub(super) fn rates_of(&self, program: &ProgramName) -> Option<&ProgramRates> {
        self.programs.get(program).map(|(_, estimated)| estimated).filter(|estimated| !estimated.is_empty())
    }

    /// The number of the last change of a program's estimates; 0 where there was none.
    pub(super) fn program_version(&self, program: &ProgramName) -> u64 {
        self.programs.get(program).map_or(0, |(change, _)| *change)
    }
}
