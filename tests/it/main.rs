//! The integration suite: infill and its agents on real Slurm clusters.
//!
//! Each test borrows a whole cluster (`harness::Site`) made by `slurm/minicluster`, changes it, and returns
//! it restored. Tests need root on Linux; without it, every test that needs a cluster fails and says so.
//!
//! | variable | default | what it does |
//! |---|---|---|
//! | `INFILL_TEST_RELEASE` | `trixie` | Slurm's release: `trixie`, `sid` or `native` |
//! | `INFILL_TEST_CLUSTERS` | 5 | clusters at a time; give more test threads than there are tests |
//! | `INFILL_CROWD_SECS` | 240 | how long the crowd of `crowd.rs` is watched |
//! | `INFILL_TEST_AWAY_SECS` | 20 | how long slurmrestd stays away in the test of that |
//! | `INFILL_TEST_DIR` | `/var/tmp/infill-it` | where the clusters live |
//! | `INFILL_TEST_KEEP` | | if set, clusters stay up after the suite |
//! | `INFILL_TEST_REUSE` | | the folder of a cluster that is up, which all tests then use |
//! | `INFILL_OLD_BIN` | | the program of the version before, for `versions.rs` |
//! | `INFILL_TEST_RECORD` | | a folder for what the run's summary is made from |
//!
//! A cluster to be reused: `minicluster up --bin target/debug/infill --dir DIR`.
//! `crates/testkit/src/skips.rs` has those that concern skipped tests.

mod accounts;
mod advisor;
mod arrays;
mod blame;
mod commands;
mod conformance;
mod containers;
mod controller_load;
mod crowd;
mod delays;
mod doors;
mod extended;
mod faults;
mod first_hour;
mod frameworks;
mod garbage;
mod gpus;
mod guard;
mod guides;
mod harness;
mod hostile;
mod hostile_ranks;
mod hostile_store;
mod identity;
mod leaving;
mod life;
mod live;
mod load;
mod memory;
mod node_setup;
mod observe;
mod orders;
mod outliving;
mod page;
mod page_pictures;
mod page_speed;
mod pauses;
mod placement;
mod plans;
mod plugin;
mod privacy;
mod profiles;
mod promised;
mod promptness;
mod python;
mod pytorch;
mod rehearsal;
mod requests;
mod safety;
mod scripts;
mod settings;
mod shares;
mod simulated;
mod sites;
mod slurm_traps;
mod squeue;
mod standby;
mod starting;
mod staying;
mod sweep;
mod turns;
mod upgrades;
mod versions;
