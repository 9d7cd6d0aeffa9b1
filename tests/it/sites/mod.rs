//! A site test without a site: generated sites (`tests/sites/*.toml`), each with a main queue, four malleable
//! jobs and random faults. At the end it checks the promises: no main job waits, no step is lost beyond the
//! last signal's checkpoint, nothing is left behind.
//!
//! Four of them run for some minutes with the suite, one of these with the limits of a whole site test.
//! `tests/run.sh --sites` runs all, `tests/run.sh --soak` one for long. Everything random follows from a
//! seed, which is printed.
//!
//! | variable | default | what it does |
//! |---|---|---|
//! | `INFILL_SITES` | all | names of the sites that `--sites`, `--soak` and `--preemption` (the first) run |
//! | `INFILL_SITES_SECS` | 300 (180 for three of the suite) | how long the main queue and the faults last |
//! | `INFILL_SEED` | from the clock (1 in the suite) | the seed |
//! | `INFILL_SOAK_MINS` | 90 | how long a soak lasts |
//! | `INFILL_SITES_JSON` | `target/sites.json` | where the summary goes |
//! | `INFILL_PREEMPTION_JSON` | `target/preemption.json` | where the delays without infill go |

mod alone;
mod balance;
mod drive;
mod faults;
mod gauge;
mod queue;
mod spec;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use balance::{Balance, Outcome};
use drive::Plan;
use spec::Spec;

/// A number from an environment variable.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name} is {text}, and should be a number")))
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
    number("INFILL_SEED").unwrap_or(now % 1_000_000)
}

fn chosen() -> Vec<Spec> {
    let names = std::env::var("INFILL_SITES").unwrap_or_default();
    let mut names: Vec<String> =
        names.split([',', ' ']).filter(|n| !n.is_empty()).map(str::to_owned).collect();
    if names.is_empty() {
        names = spec::names();
    }
    names.iter().map(|name| Spec::read(name)).collect()
}

/// Runs one site with the suite.
fn short(name: &str) {
    with_suite(name, |secs, seed| Plan::short(secs.unwrap_or(180.0), seed));
}

fn with_suite(name: &str, plan: impl FnOnce(Option<f64>, u64) -> Plan) {
    let secs = number("INFILL_SITES_SECS").map(|secs| secs as f64);
    let plan = plan(secs, number("INFILL_SEED").unwrap_or(1));
    let balance = drive::run(&Spec::read(name), &plan);
    println!("{}", balance::table(std::slice::from_ref(&balance)));
    assert_eq!(balance.broken, Vec::<String>::new(), "site {name}, INFILL_SEED={}", plan.seed);
}

/// The other runs may delay a main job by more, because clusters run beside them.
#[test]
fn a_plain_site_keeps_the_limits_of_a_whole_site_test() {
    with_suite("plain", |secs, seed| Plan::whole(secs.unwrap_or(300.0), seed));
}

#[test]
fn a_site_with_a_prolog_and_an_epilog_keeps_its_promises() {
    short("slow");
}

#[test]
fn a_site_whose_data_is_private_keeps_its_promises() {
    short("private");
}

#[test]
fn a_site_with_limits_and_several_partitions_keeps_its_promises() {
    short("limits");
}

/// Runs all sites, as many at a time as there may be clusters.
#[test]
#[ignore = "takes long: tests/run.sh --sites"]
fn every_site_keeps_its_promises() {
    let seed = seed();
    let plan = Plan::whole(number("INFILL_SITES_SECS").unwrap_or(300) as f64, seed);
    let sites = Mutex::new(VecDeque::from(chosen()));
    let done = Mutex::new(Vec::new());
    let next = || sites.lock().unwrap_or_else(|e| e.into_inner()).pop_front();
    let work = || {
        while let Some(spec) = next() {
            // A site that breaks down must not end the others.
            let balance = std::panic::catch_unwind(AssertUnwindSafe(|| drive::run(&spec, &plan)))
                .unwrap_or_else(|why| Balance::broken(&spec, &plan, &panic_text(&*why)));
            done.lock().unwrap_or_else(|e| e.into_inner()).push(balance);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..crate::harness::cluster::capacity() {
            scope.spawn(work);
        }
    });
    let mut balances = done.into_inner().unwrap_or_else(|e| e.into_inner());
    balances.sort_by(|a, b| a.site.cmp(&b.site));
    conclude(Outcome::of(seed, balances));
}

/// Runs one site for long, with a fault every 15 seconds.
#[test]
#[ignore = "takes long: tests/run.sh --soak"]
fn a_site_stays_as_it_is_for_long() {
    let seed = seed();
    let spec = chosen().into_iter().next().expect("a site");
    let plan = Plan::soak(number("INFILL_SOAK_MINS").unwrap_or(90) as f64 * 60.0, seed);
    conclude(Outcome::of(seed, vec![drive::run(&spec, &plan)]));
}

/// Runs the same main queue without infill, by itself and over plain jobs, to measure Slurm's preemption.
#[test]
#[ignore = "takes long: tests/run.sh --preemption"]
fn what_preemption_takes_by_itself() {
    let spec = chosen().into_iter().next().expect("a site");
    let found = alone::run(&spec, number("INFILL_SITES_SECS").unwrap_or(300) as f64, seed());
    println!("{}", found.show());
    let path = write_summary("INFILL_PREEMPTION_JSON", "preemption.json", &found);
    println!("the delays are in {}", path.display());
}

/// Writes a summary to the file in the variable, else to this file in `target`. Returns the path.
pub fn write_summary(variable: &str, name: &str, summary: &impl serde::Serialize) -> std::path::PathBuf {
    let path = std::env::var_os(variable).map_or_else(
        || crate::harness::cluster::repository().join("target").join(name),
        std::path::PathBuf::from,
    );
    let text = serde_json::to_string_pretty(summary).expect("a summary is JSON");
    // If cargo builds elsewhere, there may be no `target` here.
    path.parent().into_iter().for_each(|folder| drop(std::fs::create_dir_all(folder)));
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

fn conclude(outcome: Outcome) {
    println!("{}", outcome.show());
    let path = write_summary("INFILL_SITES_JSON", "sites.json", &outcome);
    println!("the summary is in {}", path.display());
    let broken: Vec<&String> = outcome.sites.iter().flat_map(|b| &b.broken).chain(&outcome.broken).collect();
    assert!(broken.is_empty(), "promises were broken (INFILL_SEED={}): {broken:#?}", outcome.seed);
}

fn panic_text(why: &(dyn std::any::Any + Send)) -> String {
    let text = why.downcast_ref::<String>().cloned();
    text.or_else(|| why.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or("it broke down".to_owned())
}
