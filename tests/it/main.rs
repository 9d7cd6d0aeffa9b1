//! The integration suite: infill and its agents on real Slurm clusters.
//!
//! Each test borrows a whole cluster (`harness::Site`) made by `slurm/minicluster`, does what it likes to it,
//! and gives it back mended. Needs root on Linux; without, every test that needs a cluster fails and says so.
//!
//! | variable | default | what it does |
//! |---|---|---|
//! | `INFILL_TEST_RELEASE` | `trixie` | Slurm's release: `trixie`, `sid` or `native` |
//! | `INFILL_TEST_CLUSTERS` | 3 | clusters at a time; give as many `--test-threads` |
//! | `INFILL_TEST_AWAY_SECS` | 20 | how long slurmrestd stays away in the test of that |
//! | `INFILL_TEST_DIR` | `/var/tmp/infill-it` | where the clusters live |
//! | `INFILL_TEST_KEEP` | | if set, clusters stay up after the suite |

mod accounts;
mod advisor;
mod blame;
mod commands;
mod conformance;
mod extended;
mod faults;
mod garbage;
mod guard;
mod guides;
mod harness;
mod identity;
mod leaving;
mod life;
mod live;
mod load;
mod orders;
mod outliving;
mod page;
mod page_speed;
mod pauses;
mod placement;
mod plugin;
mod privacy;
mod profiles;
mod python;
mod pytorch;
mod requests;
mod settings;
mod shares;
mod simulated;
mod sites;
mod standby;
mod staying;
mod tidy;
mod turns;
