//! What a rescale costs, learned from each one.

use infill_model::{ChangeCost, LiveChange, LiveCosts, MeasuredCosts, RescaleCosts};

/// The mean forgets: a new cost counts at least one part in so many.
const MEAN_MEMORY: u32 = 8;

/// A change that took so many times longer than the mean of several counts as if it had taken so many:
/// something else may have gone wrong in it.
const OUTLIER_FACTOR: f64 = 4.0;

/// Changes before one can be told to be an outlier.
const MIN_CHANGES: u32 = 3;

/// Takes in one change.
pub(crate) fn learn_cost(mean: &mut ChangeCost, new: &ChangeCost) {
    let total = new.total_secs();
    if !total.is_finite() || total < 0.0 {
        return;
    }
    let most = if mean.count >= MIN_CHANGES { OUTLIER_FACTOR * mean.total_secs() } else { f64::INFINITY };
    let part = if total > most && total > 0.0 { most / total } else { 1.0 };
    let count = mean.count.min(MEAN_MEMORY - 1);
    let share = 1.0 / f64::from(count + 1);
    let mix = |old: f64, new: f64| old + share * (new * part - old);
    *mean = ChangeCost {
        checkpoint_secs: mix(mean.checkpoint_secs, new.checkpoint_secs),
        exit_secs: mix(mean.exit_secs, new.exit_secs),
        start_secs: mix(mean.start_secs, new.start_secs),
        warmup_secs: mix(mean.warmup_secs, new.warmup_secs),
        count: mean.count.saturating_add(1),
    };
}

/// Takes in a change that the command lived through.
pub(crate) fn learn_live_change(costs: &mut MeasuredCosts, change: &LiveChange) {
    let mean = if change.to > change.from { &mut costs.live_up } else { &mut costs.live_down };
    learn_cost(mean, &ChangeCost { start_secs: change.secs, count: 1, ..ChangeCost::default() });
}

/// What a kind of change takes, if it ever happened, seconds.
fn known_secs(cost: &ChangeCost) -> Option<f64> {
    (cost.count > 0).then(|| cost.total_secs())
}

/// What changes cost a command that stays alive: what was measured, as in [`believed`]. A start is one like
/// any other.
pub(crate) fn believed_live_costs(
    measured: &MeasuredCosts,
    restarts: &RescaleCosts,
    otherwise: &LiveCosts,
) -> RescaleCosts {
    let up = known_secs(&measured.live_up);
    let down = known_secs(&measured.live_down);
    RescaleCosts {
        up_secs: up.or(down).unwrap_or(otherwise.up_secs),
        down_secs: down.or(up).unwrap_or(otherwise.down_secs),
        ..*restarts
    }
}

/// What the planner is to count on: what was measured; for a kind of change that never happened, what the
/// other kinds took; for a job that never changed, `otherwise`.
pub fn believed_costs(measured: &MeasuredCosts, otherwise: &RescaleCosts) -> RescaleCosts {
    let up = known_secs(&measured.up);
    let down = known_secs(&measured.down);
    let start = known_secs(&measured.start);
    RescaleCosts {
        up_secs: up.or(down).or(start).unwrap_or(otherwise.up_secs),
        down_secs: down.or(up).or(start).unwrap_or(otherwise.down_secs),
        start_secs: start.unwrap_or(otherwise.start_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(start_secs: f64) -> ChangeCost {
        ChangeCost { start_secs, exit_secs: 1.0, count: 1, ..ChangeCost::default() }
    }

    #[test]
    fn the_mean_follows_and_one_disaster_moves_it_little() {
        let mut mean = ChangeCost::default();
        for _ in 0..4 {
            learn_cost(&mut mean, &cost(3.0));
        }
        assert_eq!((mean.total_secs(), mean.count), (4.0, 4));
        learn_cost(&mut mean, &cost(f64::NAN));
        learn_cost(&mut mean, &cost(300.0));
        assert!(mean.total_secs() < 7.0, "{mean:?}");
        for _ in 0..30 {
            learn_cost(&mut mean, &cost(7.0));
        }
        assert!((mean.total_secs() - 8.0).abs() < 0.1);
    }

    #[test]
    fn changes_that_the_command_lives_through_have_costs_of_their_own() {
        let restarts = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 20.0 };
        let otherwise = LiveCosts { up_secs: 3.0, down_secs: 2.0 };
        let mut measured = MeasuredCosts { up: cost(7.0), ..MeasuredCosts::default() };
        let costs = believed_live_costs(&measured, &restarts, &otherwise);
        assert_eq!((costs.up_secs, costs.down_secs, costs.start_secs), (3.0, 2.0, 20.0));
        learn_live_change(&mut measured, &LiveChange { from: 4, to: 3, secs: 0.25 });
        let costs = believed_live_costs(&measured, &restarts, &otherwise);
        assert_eq!((costs.up_secs, costs.down_secs), (0.25, 0.25));
        learn_live_change(&mut measured, &LiveChange { from: 3, to: 4, secs: 0.75 });
        learn_live_change(&mut measured, &LiveChange { from: 4, to: 5, secs: f64::NAN });
        let costs = believed_live_costs(&measured, &restarts, &otherwise);
        assert_eq!((costs.up_secs, costs.down_secs), (0.75, 0.25));
        assert_eq!((measured.live_up.count, measured.up.count), (1, 1));
    }

    #[test]
    fn unknown_kinds_are_taken_from_the_others() {
        let otherwise = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 20.0 };
        let mut measured = MeasuredCosts::default();
        assert_eq!(believed_costs(&measured, &otherwise), otherwise);
        measured.down = cost(2.0);
        let costs = believed_costs(&measured, &otherwise);
        assert_eq!((costs.up_secs, costs.down_secs, costs.start_secs), (3.0, 3.0, 20.0));
    }
}
