//! Whose turn it is, by what a look shows.

use super::*;
use infill_model::TurnState;

#[test]
fn one_for_whom_there_are_too_few_nodes_keeps_nobody_from_a_turn() {
    let mut large = job(2, "");
    large.sizes = AllowedSizes::Range { min: 5, max: 8 };
    let mut picky = job(3, "");
    picky.excluded = ["n1", "n2", "n3", "n4"].map(NodeName::from).to_vec().into();
    let mut scene = scene();
    look(&mut scene, &[large.clone(), picky.clone(), job(4, "")]);
    let turn = |scene: &RoundState, id| scene.priorities().turn_of(JobId(id));
    assert_eq!((turn(&scene, 2), turn(&scene, 3), turn(&scene, 4)), (None, None, Some(TurnState::Next)));
    large.sizes = AllowedSizes::Range { min: 4, max: 8 };
    picky.excluded = ["n1", "n2", "n3"].map(NodeName::from).to_vec().into();
    look(&mut scene, &[large, picky, job(4, "")]);
    assert_eq!(turn(&scene, 2), Some(TurnState::Next));
    assert!(turn(&scene, 3).and_then(TurnState::queue_position).is_some(), "{:?}", turn(&scene, 3));
}
