//! Whose turn it is after a snapshot.

use super::*;
use infill_model::TurnState;

#[test]
fn a_job_for_which_too_few_nodes_exist_keeps_no_other_from_its_turn() {
    let mut large = job(2, "");
    large.sizes = AllowedSizes::Range { min: 5, max: 8 };
    let mut picky = job(3, "");
    picky.excluded = ["n1", "n2", "n3", "n4"].map(NodeName::from).to_vec().into();
    let mut state = round_state();
    look(&mut state, &[large.clone(), picky.clone(), job(4, "")]);
    let turn = |state: &RoundState, id| state.priorities().turn_of(JobId(id));
    assert_eq!((turn(&state, 2), turn(&state, 3), turn(&state, 4)), (None, None, Some(TurnState::Next)));
    large.sizes = AllowedSizes::Range { min: 4, max: 8 };
    picky.excluded = ["n1", "n2", "n3"].map(NodeName::from).to_vec().into();
    look(&mut state, &[large, picky, job(4, "")]);
    assert_eq!(turn(&state, 2), Some(TurnState::Next));
    assert!(turn(&state, 3).and_then(TurnState::queue_position).is_some(), "{:?}", turn(&state, 3));
}
