//! Commands of `infill` that work on recorded logs and tables, not on a daemon: `simulate`, `advise`,
//! `gaps --log` and `history check`.

pub mod advise;
pub mod gap_log;
pub mod history_check;
pub mod simulate;
