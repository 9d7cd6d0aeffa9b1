//! What a rescale costs, learned from each one.

use infill_model::{ChangeCost, LiveChange, LiveCosts, MeasuredCosts, RescaleCosts};

/// Changes after which the mean forgets: a new cost has at least a weight of one part in this number.
const MEAN_MEMORY: u32 = 8;

/// A change that took longer than this multiple of the mean counts only as that multiple, because something
/// else may have gone wrong in it.
const OUTLIER_FACTOR: f64 = 4.0;

/// Changes that must be known before one can count as an outlier.
const MIN_CHANGES: u32 = 3;

/// Takes in the cost of one change.
pub(crate) fn learn_cost(mean: &mut ChangeCost, new: &ChangeCost) {
    let total = new.total_secs();
    if !total.is_finite() || total < 0.0 {
        return;
    }
    let most = if mean.count >= MIN_CHANGES { OUTLIER_FACTOR * mean.total_secs() } else { f64::INFINITY };
    let part = if total > most && total > 0.0 { most / total } else { 1.0 };
    let count = mean.count.min(MEAN_MEMORY - 1);
    let share = 1.0 / f64::from(count + 1);
    *mean = ChangeCost {
        checkpoint_secs: moved_mean(mean.checkpoint_secs, new.checkpoint_secs * part, share),
        exit_secs: moved_mean(mean.exit_secs, new.exit_secs * part, share),
        start_secs: moved_mean(mean.start_secs, new.start_secs * part, share),
        warmup_secs: moved_mean(mean.warmup_secs, new.warmup_secs * part, share),
        count: mean.count.saturating_add(1),
    };
}

/// A mean in which a new value has this share.
fn moved_mean(mean: f64, new: f64, share: f64) -> f64 {
    mean + share * (new - mean)
}

/// Takes in a change during which the command stayed alive.
pub(crate) fn learn_live_change(costs: &mut MeasuredCosts, change: &LiveChange) {
    let mean = if change.to > change.from { &mut costs.live_up } else { &mut costs.live_down };
    learn_cost(mean, &ChangeCost { start_secs: change.secs, count: 1, ..ChangeCost::default() });
}

/// Mean seconds of a kind of change; `None` if it never happened.
fn known_secs(cost: &ChangeCost) -> Option<f64> {
    (cost.count > 0).then(|| cost.total_secs())
}

/// What changes cost a command that stays alive: measured where possible, as in [`believed_costs`]. A start
/// costs the same as for other commands.
pub(crate) fn believed_live_costs(
    measured: &MeasuredCosts,
    restarts: &RescaleCosts,
    defaults: &LiveCosts,
) -> RescaleCosts {
    let up = known_secs(&measured.live_up);
    let down = known_secs(&measured.live_down);
    RescaleCosts {
        up_secs: up.or(down).unwrap_or(defaults.up_secs),
        down_secs: down.or(up).unwrap_or(defaults.down_secs),
        ..*restarts
    }
}

/// The costs that the planner counts on: the measured ones. A kind of change that never happened counts as
/// much as the other kinds. A job that never changed has the `defaults`.
pub fn believed_costs(measured: &MeasuredCosts, defaults: &RescaleCosts) -> RescaleCosts {
    let up = known_secs(&measured.up);
    let down = known_secs(&measured.down);
    let start = known_secs(&measured.start);
    RescaleCosts {
        up_secs: up.or(down).or(start).unwrap_or(defaults.up_secs),
        down_secs: down.or(up).or(start).unwrap_or(defaults.down_secs),
        start_secs: start.unwrap_or(defaults.start_secs),
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
        let defaults = LiveCosts { up_secs: 3.0, down_secs: 2.0 };
        let mut measured = MeasuredCosts { up: cost(7.0), ..MeasuredCosts::default() };
        let costs = believed_live_costs(&measured, &restarts, &defaults);
        assert_eq!((costs.up_secs, costs.down_secs, costs.start_secs), (3.0, 2.0, 20.0));
        learn_live_change(&mut measured, &LiveChange { from: 4, to: 3, secs: 0.25 });
        let costs = believed_live_costs(&measured, &restarts, &defaults);
        assert_eq!((costs.up_secs, costs.down_secs), (0.25, 0.25));
        learn_live_change(&mut measured, &LiveChange { from: 3, to: 4, secs: 0.75 });
        learn_live_change(&mut measured, &LiveChange { from: 4, to: 5, secs: f64::NAN });
        let costs = believed_live_costs(&measured, &restarts, &defaults);
        assert_eq!((costs.up_secs, costs.down_secs), (0.75, 0.25));
        assert_eq!((measured.live_up.count, measured.up.count), (1, 1));
    }

    #[test]
    fn unknown_kinds_are_taken_from_the_others() {
        let defaults = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 20.0 };
        let mut measured = MeasuredCosts::default();
        assert_eq!(believed_costs(&measured, &defaults), defaults);
        measured.down = cost(2.0);
        let costs = believed_costs(&measured, &defaults);
        assert_eq!((costs.up_secs, costs.down_secs, costs.start_secs), (3.0, 3.0, 20.0));
    }
}
