//! Placement: from a schedule of numbers of nodes to a plan on named nodes. `plan_choice` tries schedules,
//! `extract` makes the plan, and `seats` picks the nodes. `topology_slots` and `free_blocks` pick them where
//! switches or blocks of places matter.

pub(crate) mod evaluate;
pub(crate) mod extract;
mod free_blocks;
mod host_budget;
pub(crate) mod last_resort;
mod near_slot_pool;
pub(crate) mod network_spread;
mod placement_request;
pub(crate) mod plan_choice;
pub(crate) mod seats;
mod topology_slots;
mod worker_reservation;
