//! The true training speeds of models: measured tables by type, plan and placement.

use std::collections::BTreeMap;

use super::machine::{ClosedMachine, GpuAllocation, GpuPool};
use infill_model::{ExecPlan, SpeedRow};

/// A way to run a model: a pool of the machine, a plan, and a number of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunChoice {
    /// Index of the pool.
    pub pool: usize,
    /// Number of GPUs.
    pub gpus: u32,
    /// The execution plan.
    pub plan: ExecPlan,
}

/// One measured placement of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPlacement {
    /// GPUs on each node, ascending.
    pub by_node: Vec<u32>,
    /// Steps a second.
    pub rate: f64,
}

/// The speeds of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSpeeds {
    /// The measured placements of each choice, sorted by number of nodes, then by ascending rate.
    choices: BTreeMap<RunChoice, Vec<MeasuredPlacement>>,
    /// Samples per step.
    pub batch: f64,
}

/// The speeds of all models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedTable {
    /// The table's rows.
    pub rows: Vec<SpeedRow>,
    models: BTreeMap<String, ModelSpeeds>,
}

impl SpeedTable {
    /// A table of these rows for an empty machine. A row without a type holds for all pools. Choices that do
    /// not fit on the machine are left out.
    pub fn new(rows: Vec<SpeedRow>, machine: &ClosedMachine) -> SpeedTable {
        let mut models: BTreeMap<String, ModelSpeeds> = BTreeMap::new();
        for row in &rows {
            let speeds = models.entry(row.model.clone()).or_default();
            speeds.batch = row.batch;
            for (pool, _) in machine.pools.iter().enumerate().filter(|(_, pool)| is_row_for(row, pool)) {
                let choice = RunChoice { pool, gpus: row.gpus(), plan: row.plan.clone() };
                let measured =
                    MeasuredPlacement { by_node: row.gpus_by_node.clone(), rate: 1.0 / row.step_secs };
                speeds.choices.entry(choice).or_default().push(measured);
            }
        }
        for model in models.values_mut() {
            for measured in model.choices.values_mut() {
                measured
                    .sort_by(|a, b| a.by_node.len().cmp(&b.by_node.len()).then(a.rate.total_cmp(&b.rate)));
            }
            model.choices.retain(|choice, measured| place_choice(machine, choice, measured).is_some());
        }
        SpeedTable { rows, models }
    }

    /// The speeds of one model; `None` if the table does not have it.
    pub fn for_model(&self, model: &str) -> Option<&ModelSpeeds> {
        self.models.get(model)
    }
}

/// Whether a row holds for the nodes of a pool.
pub(super) fn is_row_for(row: &SpeedRow, pool: &GpuPool) -> bool {
    row.node_type.as_ref().is_none_or(|node_type| *node_type == pool.node_type)
}

impl ModelSpeeds {
    /// All ways to run the model, each with its placements, the closest first.
    pub fn run_choices(&self) -> impl Iterator<Item = (&RunChoice, &[MeasuredPlacement])> {
        self.choices.iter().map(|(choice, measured)| (choice, measured.as_slice()))
    }

    /// The GPUs that a job with this choice would get now, and the measurement for them. `None` if there are
    /// not enough GPUs, or if no measurement holds for their placement.
    pub fn find_placement(
        &self,
        machine: &ClosedMachine,
        choice: &RunChoice,
    ) -> Option<(GpuAllocation, &MeasuredPlacement)> {
        place_choice(machine, choice, self.choices.get(choice)?)
    }

    /// The measurement on the closest placement.
    pub(crate) fn closest_placement(&self, choice: &RunChoice) -> Option<&MeasuredPlacement> {
        let all = self.choices.get(choice)?;
        let fewest = all.first()?.by_node.len();
        all.iter().take_while(|m| m.by_node.len() == fewest).last()
    }
}

/// The GPUs that a job with this choice would get now, and which of the choice's measurements holds for them.
fn place_choice<'m>(
    machine: &ClosedMachine,
    choice: &RunChoice,
    measured: &'m [MeasuredPlacement],
) -> Option<(GpuAllocation, &'m MeasuredPlacement)> {
    let seat = machine.find_allocation(choice.pool, choice.gpus)?;
    let holds = measurement_for(measured, &seat.by_node())?;
    Some((seat, holds))
}

/// The measurement that holds for a placement: its own, else the slowest on the same number of nodes, else on
/// the next greater number. `None` if there are measurements on fewer nodes only: then it is unknown whether
/// the model runs there.
fn measurement_for<'m>(measured: &'m [MeasuredPlacement], by_node: &[u32]) -> Option<&'m MeasuredPlacement> {
    let same = measured.iter().find(|m| m.by_node == by_node);
    same.or_else(|| measured.iter().find(|m| m.by_node.len() >= by_node.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(plan: &str, by_node: &[u32], step_secs: f64) -> SpeedRow {
        SpeedRow {
            model: "m".to_owned(),
            node_type: None,
            plan: ExecPlan(plan.to_owned()),
            parallelism: None,
            batch: 8.0,
            gpus_by_node: by_node.to_vec(),
            step_secs,
        }
    }

    #[test]
    fn a_placement_has_the_rate_of_the_next_one_that_is_at_least_as_spread() {
        let rows =
            vec![row("p", &[4], 1.0), row("p", &[2, 2], 2.0), row("p", &[1, 3], 4.0), row("q", &[1; 4], 5.0)];
        let mut speeds = SpeedTable::new(rows.clone(), &"4x4:a,4x4:b".parse().unwrap());
        let model = speeds.for_model("m").unwrap();
        let on = |plan: &str, by_node: &[u32]| {
            let choice = RunChoice { pool: 1, gpus: 4, plan: ExecPlan(plan.to_owned()) };
            measurement_for(model.choices.get(&choice)?, by_node).map(|m| m.rate)
        };
        assert_eq!(on("p", &[4]), Some(1.0));
        assert_eq!(on("p", &[2, 2]), Some(0.5));
        assert_eq!(on("p", &[1, 1, 2]), None, "it was never spread so far");
        assert_eq!(on("q", &[2, 2]), Some(0.2));
        let closest = RunChoice { pool: 0, gpus: 4, plan: ExecPlan("p".to_owned()) };
        let first = MeasuredPlacement { by_node: vec![4], rate: 1.0 };
        assert_eq!(model.closest_placement(&closest), Some(&first));
        assert_eq!(model.run_choices().count(), 4, "two plans on two types");
        speeds = SpeedTable::new(rows, &"4x2:a".parse().unwrap());
        assert_eq!(
            speeds.for_model("m").map(|m| m.run_choices().count()),
            Some(2),
            "p was measured on two nodes"
        );
        speeds = SpeedTable::new(vec![row("p", &[4], 1.0)], &"4x2:a".parse().unwrap());
        assert_eq!(
            speeds.for_model("m").map(|m| m.run_choices().count()),
            Some(0),
            "and never on one of four"
        );
    }
}
