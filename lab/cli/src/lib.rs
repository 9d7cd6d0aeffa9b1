//! Commands of `infill` that work on recorded logs and tables, not on a daemon: `simulate`, `advise`,
//! `gaps --log`, `history check`, and the figures of `observe`.

pub mod advise;
pub mod gap_log;
pub mod history_check;
pub mod observe;
pub mod simulate;
