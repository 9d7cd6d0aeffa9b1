//! What infill costs slurmctld, slurmdbd and the nodes: RPCs by kind and user, Slurm jobs, rows of
//! accounting, runs of prolog and epilog, and e-mails. `docs/evidence.md` has the results.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::harness::{Settings, Site, Slurm, Train};
use crate::sites::write_summary;

/// Seconds of each phase.
const QUIET_SECS: u64 = 20;
const IDLE_SECS: u64 = 30;
const BUSY_SECS: u64 = 60;

/// Nodes of the cluster, and malleable jobs of the busy phase. Each may have up to four nodes.
const NODES: usize = 16;
const JOBS: usize = 8;

/// Seconds between main jobs, and how long each runs.
const MAIN_EVERY_SECS: u64 = 10;
const MAIN_SECS: u32 = 5;

/// RPCs a minute that the daemon may cause while nothing happens: six a round, a round in five seconds, and
/// room for rounds that are read again.
const MOST_IDLE_RPCS: f64 = 120.0;

/// A program that notes each of its runs.
fn noting(what: &str) -> String {
    format!("#!/bin/sh\necho x >>/scratch/{what}\n")
}

/// The counts of one phase, per minute.
#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    secs: f64,
    /// RPCs a minute, by user and by message.
    by_user: BTreeMap<String, f64>,
    by_message: BTreeMap<String, f64>,
    /// Slurm jobs that started or waited, as accounting has them: a row for each run.
    job_rows: f64,
    /// Rows of accounting for steps.
    step_rows: f64,
    prologs: f64,
    epilogs: f64,
    mails: f64,
    /// Changes of the malleable jobs' membership.
    rescales: f64,
    main_jobs: f64,
}

/// Counters that only grow.
struct Counters {
    job_rows: usize,
    all_rows: usize,
    prologs: usize,
    epilogs: usize,
    mails: usize,
    rescales: u64,
}

impl Counters {
    fn read(site: &Site, jobs: &[u32]) -> Counters {
        let noted = |what: &str| {
            let text = std::fs::read_to_string(site.scratch().join(what)).unwrap_or_default();
            text.lines().count()
        };
        let rows = |options: &[&str]| {
            let words = [&["sacct", "-a", "-D", "-n", "-P", "-S", "now-1hours", "-o", "jobid"], options];
            site.must("root", &words.concat()).lines().count()
        };
        Counters {
            job_rows: rows(&["-X"]),
            all_rows: rows(&[]),
            prologs: noted("prolog"),
            epilogs: noted("epilog"),
            mails: noted("mail"),
            rescales: jobs
                .iter()
                .filter_map(|job| site.view(*job))
                .map(|view| u64::from(view.rescales))
                .sum(),
        }
    }
}

/// The counts of one of sdiag's tables: lines such as `root ( 0) count:12 ave_time:…`.
fn counts(sdiag: &str, heading: &str) -> BTreeMap<String, u64> {
    let table = sdiag.split(heading).nth(1).unwrap_or_default();
    let rows = table.lines().skip(1).map_while(|line| line.trim().split_once(" count:"));
    rows.filter_map(|(name, rest)| {
        let name = name.split('(').next().unwrap_or(name).trim().to_owned();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((name, digits.parse().ok()?))
    })
    .collect()
}

/// Measures a phase: `turn` is called again and again, and says how many main jobs it has submitted.
fn measure(site: &Site, name: &'static str, secs: u64, jobs: &[u32], mut turn: impl FnMut() -> u32) -> Phase {
    let before = Counters::read(site, jobs);
    site.must("root", &["sdiag", "--reset"]);
    let began = Instant::now();
    let mut main_jobs = 0;
    while began.elapsed() < Duration::from_secs(secs) {
        main_jobs += turn();
        std::thread::sleep(Duration::from_millis(250));
    }
    let took = began.elapsed().as_secs_f64();
    let sdiag = site.must("root", &["sdiag"]);
    let after = Counters::read(site, jobs);
    let minutes = took / 60.0;
    let a_minute = |count: usize| count as f64 / minutes;
    let table = |heading: &str| {
        counts(&sdiag, heading).into_iter().map(|(name, count)| (name, count as f64 / minutes)).collect()
    };
    Phase {
        name,
        secs: took,
        by_user: table("Remote Procedure Call statistics by user"),
        by_message: table("Remote Procedure Call statistics by message type"),
        job_rows: a_minute(after.job_rows - before.job_rows),
        step_rows: a_minute((after.all_rows - after.job_rows) - (before.all_rows - before.job_rows)),
        prologs: a_minute(after.prologs - before.prologs),
        epilogs: a_minute(after.epilogs - before.epilogs),
        mails: a_minute(after.mails - before.mails),
        rescales: after.rescales.saturating_sub(before.rescales) as f64 / minutes,
        main_jobs: f64::from(main_jobs) / minutes,
    }
}

/// The largest entries of a table, in words.
fn largest(table: &BTreeMap<String, f64>) -> String {
    let mut rows: Vec<(&String, f64)> = table.iter().map(|(name, count)| (name, *count)).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows.iter().take(8).map(|(name, count)| format!("{name} {count:.0}")).collect::<Vec<_>>().join(", ")
}

fn show(phases: &[Phase]) -> String {
    let mut text = format!(
        "{:<34} {:>5} {:>8} {:>5} {:>5} {:>6} {:>6} {:>5} {:>5}\n",
        "PER MINUTE", "RPCS", "RESCALES", "MAIN", "JOBS", "STEPS", "PROLOG", "EPIL.", "MAILS"
    );
    for phase in phases {
        text += &format!(
            "{:<34} {:>5.0} {:>8.0} {:>5.0} {:>5.0} {:>6.0} {:>6.0} {:>5.0} {:>5.0}\n",
            phase.name,
            phase.by_user.values().sum::<f64>(),
            phase.rescales,
            phase.main_jobs,
            phase.job_rows,
            phase.step_rows,
            phase.prologs,
            phase.epilogs,
            phase.mails
        );
    }
    for phase in phases {
        text += &format!("\n{}\n  by user: {}\n", phase.name, largest(&phase.by_user));
        text += &format!("  by message: {}\n", largest(&phase.by_message));
    }
    text
}

/// Submits a main job of four nodes from time to time.
fn main_queue(site: &Site) -> impl FnMut() -> u32 {
    let mut next = Instant::now();
    move || {
        if Instant::now() < next {
            return 0;
        }
        next = Instant::now() + Duration::from_secs(MAIN_EVERY_SECS);
        site.main_job(MAIN_SECS, &["--nodes=4"]);
        1
    }
}

#[test]
#[ignore = "takes minutes: tests/run.sh --controller"]
fn what_infill_costs_the_controller() {
    let slurm = Slurm::default()
        .nodes(NODES)
        .file("prolog", &noting("prolog"))
        .file("epilog", &noting("epilog"))
        .file("mail", &noting("mail"))
        .set("Prolog=/etc/slurm/prolog")
        .set("Epilog=/etc/slurm/epilog")
        .set("MailProg=/etc/slurm/mail");
    let site = Site::bare_on(&slurm);
    for what in ["prolog", "epilog", "mail"] {
        site.must("root", &["sh", "-c", &format!("touch /scratch/{what}; chmod 666 /scratch/{what}")]);
    }
    let mut phases = vec![measure(&site, "no infill, nothing happens", QUIET_SECS, &[], || 0)];
    phases.push(measure(&site, "no infill, a main queue", IDLE_SECS, &[], main_queue(&site)));
    site.configure(&Settings::quick(site.port()).set("daemon.poll_interval_secs", 5.0));
    site.start();
    phases.push(measure(&site, "infill, nothing happens", IDLE_SECS, &[], || 0));
    let train =
        || Train::on("1-4").run("--grace 10 --curve 1:10,2:19,4:35").option("--mail-type=ALL").submit(&site);
    let jobs: Vec<u32> = (0..JOBS).map(|_| train()).collect();
    site.until("all jobs to train", 120.0, || jobs.iter().all(|job| site.diary(*job).last_step() > 0));
    phases.push(measure(&site, "infill, 8 jobs, a main queue", BUSY_SECS, &jobs, main_queue(&site)));
    println!("{}", show(&phases));
    let path = write_summary("INFILL_CONTROLLER_JSON", "controller.json", &phases);
    println!("the counts are in {}", path.display());
    let idle = phases[2].by_user.get("infill").copied().unwrap_or(0.0);
    assert!(idle > 0.0, "sdiag shows no call of the daemon: nothing was measured");
    assert!(idle <= MOST_IDLE_RPCS, "the daemon makes {idle:.0} calls a minute while nothing happens");
    assert!(phases[3].rescales > 0.0, "no job was rescaled: nothing was measured");
}

#[test]
fn the_tables_of_sdiag_are_read() {
    let text = "Remote Procedure Call statistics by message type\n\
                \tREQUEST_JOB_INFO                        ( 2003) count:5      ave_time:176    total_time:880\n\
                \tREQUEST_NODE_INFO                       ( 2007) count:12     ave_time:1      total_time:1\n\n\
                Remote Procedure Call statistics by user\n\
                \troot            (       0) count:17     ave_time:100    total_time:900\n\n\
                Pending RPC statistics\n\tNo pending RPCs\n";
    let messages = counts(text, "Remote Procedure Call statistics by message type");
    assert_eq!(messages["REQUEST_JOB_INFO"], 5);
    assert_eq!(messages["REQUEST_NODE_INFO"], 12);
    assert_eq!(messages.len(), 2);
    assert_eq!(counts(text, "Remote Procedure Call statistics by user")["root"], 17);
}
