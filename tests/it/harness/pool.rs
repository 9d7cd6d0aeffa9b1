//! Decides which test gets a cluster next, and keeps the clusters that wait for another test.
//!
//! All tests ask at once, each in its own thread. The longest ones go first, so that the suite does not end
//! with one test that runs alone.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use super::cluster::{self, Cluster};
use super::slurm::Slurm;

/// Tests that take the longest, longest first. `target/times.tsv` says how long each test took.
const LONGEST: &[&str] = &[
    "sites::a_plain_site_keeps_the_limits_of_a_whole_site_test",
    "sites::a_site_with_a_prolog_and_an_epilog_keeps_its_promises",
    "sites::a_site_with_limits_and_several_partitions_keeps_its_promises",
    "sites::a_site_whose_data_is_private_keeps_its_promises",
    "python::ten_rescales_at_random_moments_change_nothing_of_what_is_learned",
    "staying::a_lead_without_daemon_does_not_meet_its_limit",
    "crowd::jobs_of_a_crowd_take_turns_and_train_nearly_all_the_time",
    "simulated::the_simulator_gives_what_the_cluster_gives",
    "leaving::the_epilog_is_part_of_leaving",
    "pytorch::a_rescaled_training_learns_what_an_undisturbed_one_learns",
    "starting::no_lead_is_sent_where_backfill_starts_nothing_any_more",
    "advisor::a_curve_that_falls_is_learned_and_the_same_job_starts_at_its_peak",
    "advisor::rescale_costs_are_what_the_job_says_they_are",
    "leaving::a_job_that_saves_slowly_leaves_a_planned_start_in_time_whatever_others_take",
    "advisor::a_drift_is_followed_and_a_stall_is_not",
    "outliving::a_daemon_that_hangs_for_a_minute_disturbs_no_job",
    "requests::a_suspended_lead_keeps_its_nodes_and_goes_on",
    "life::infill_leaves_before_a_planned_start",
    "advisor::trials_of_one_script_share_one_profile_and_its_probes",
    "advisor::a_curve_with_a_step_is_learned",
    "advisor::a_curve_that_is_nearly_linear_is_learned",
    "advisor::a_curve_that_saturates_is_learned",
    "advisor::a_curve_that_starts_superlinear_is_learned",
    "accounts::harvested_time_counts_in_no_share_and_in_no_limit_of_main_jobs",
    "leaving::a_prolog_that_takes_longer_than_a_wing_may_is_waited_for_and_no_node_is_blamed",
    "placement::a_job_that_is_slow_across_switches_ends_on_one",
    "requests::a_job_that_must_not_start_takes_nothing_from_the_first_round",
    "page::the_map_and_the_report_agree_with_accounting",
    "profiles::a_job_is_measured_and_its_profile_is_carried_around",
    "pytorch::a_failure_is_retried_and_is_no_rescale",
    "leaving::a_job_that_loses_its_checkpoints_is_warned_and_left_alone",
    "accounts::without_a_separate_account_doctor_and_explain_name_the_limits",
    "extended::a_main_job_trains_on_its_own_nodes_without_a_daemon",
    "guides::every_command_of_the_guides_runs",
    "faults::the_node_of_the_lead_dies",
];

/// Most clusters that wait for a test. The daemons of each need memory and a little time.
const MOST_IDLE: usize = 6;

struct Pool {
    /// Waiting clusters. The one that has waited longest comes first.
    idle: Vec<Cluster>,
    lent: usize,
    next_number: usize,
    waiting: Vec<Rank>,
}

/// A test's position: its place among the longest tests, then the order of arrival.
type Rank = (usize, usize);

/// The permission to have a cluster.
pub struct ClusterTurn {
    /// A number that no other cluster of this process has.
    pub number: usize,
    /// How long the test waited, seconds.
    pub waited_secs: f64,
}

static POOL: Mutex<Pool> =
    Mutex::new(Pool { idle: Vec::new(), lent: 0, next_number: 0, waiting: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(|e| e.into_inner())
}

/// The name that the test harness gave this thread.
pub fn test_name() -> String {
    std::thread::current().name().unwrap_or("unknown").to_owned()
}

/// Waits until this test may have a cluster.
pub fn enter() -> ClusterTurn {
    let asked_at = Instant::now();
    let name = test_name();
    let place = LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    let mut pool = pool();
    pool.next_number += 1;
    let number = pool.next_number;
    let rank = (place, number);
    pool.waiting.push(rank);
    while pool.lent >= cluster::capacity() || pool.waiting.iter().any(|other| *other < rank) {
        pool = CHANGED.wait(pool).unwrap_or_else(|e| e.into_inner());
    }
    pool.waiting.retain(|other| *other != rank);
    pool.lent += 1;
    CHANGED.notify_all();
    ClusterTurn { number, waited_secs: asked_at.elapsed().as_secs_f64() }
}

/// A waiting cluster that was made with these options.
pub fn idle(slurm: &Slurm) -> Option<Cluster> {
    let mut pool = pool();
    let place = pool.idle.iter().rposition(|cluster| cluster.slurm == *slurm)?;
    let mut cluster = pool.idle.remove(place);
    // The next test's records belong to it alone.
    cluster.made_secs = 0.0;
    *cluster.commands.get_mut() = 0;
    Some(cluster)
}

/// Lets the next test have a cluster, and keeps this one for a test with the same options. Returns surplus
/// clusters, which must be ended.
pub fn leave(kept: Option<Cluster>) -> Vec<Cluster> {
    let mut pool = pool();
    pool.idle.extend(kept);
    pool.lent -= 1;
    CHANGED.notify_all();
    let surplus = pool.idle.len().saturating_sub(MOST_IDLE);
    pool.idle.drain(..surplus).collect()
}
