//! Placement: from a schedule of numbers of nodes to a plan on named nodes.

pub(crate) mod evaluate;
pub(crate) mod extract;
mod free_blocks;
mod host_budget;
pub(crate) mod last_resort;
pub(crate) mod network_spread;
mod placement_request;
pub(crate) mod plan_choice;
pub(crate) mod seats;
mod slot_pool;
mod topology_slots;
mod worker_reservation;
