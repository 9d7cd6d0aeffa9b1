//! The daemon's use of resources, checked from time to time: it must stay flat as long as the daemon runs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::harness::Site;
use crate::harness::jobs::clock;

/// Seconds between two measurements.
const EVERY_SECS: f64 = 20.0;

/// Measurements until a daemon is warm: caches fill, and the first rounds are the largest.
const WARM_LOOKS: usize = 3;

/// Up to this increase memory counts as flat, KiB.
const MEMORY_SLACK_KIB: u64 = 24 * 1024;

/// Up to this increase descriptors count as flat, because agents come and go.
const DESCRIPTOR_SLACK: u64 = 40;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Seconds since the beginning.
    pub at: f64,
    /// The number of the daemon: kill -9 begins another.
    pub pid: i32,
    /// Memory, KiB.
    pub rss_kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Rows of the store's tables.
    pub rows: BTreeMap<String, u64>,
}

/// The measurements so far.
pub struct Gauge {
    begun: f64,
    next_at: f64,
    pub looks: Vec<Look>,
}

impl Gauge {
    /// A gauge without measurements.
    pub fn new() -> Gauge {
        Gauge { begun: clock(), next_at: clock(), looks: Vec::new() }
    }

    /// Measures if it is time and the daemon runs.
    pub fn turn(&mut self, site: &Site) {
        if clock() < self.next_at {
            return;
        }
        self.next_at = clock() + EVERY_SECS;
        let Some(pid) = site.daemon_pid() else { return };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let memory =
            status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |d| d.count() as u64);
        let Some(rss_kib) = memory else { return };
        self.looks.push(Look { at: clock() - self.begun, pid, rss_kib, descriptors, rows: rows(site) });
    }

    /// The resources that grew but should not have.
    pub fn judge(&self, jobs: usize) -> Vec<String> {
        let mut found = Vec::new();
        found.extend(grown("memory in KiB", &self.by_daemon(|l| l.rss_kib), MEMORY_SLACK_KIB));
        found.extend(grown("descriptors", &self.by_daemon(|l| l.descriptors), DESCRIPTOR_SLACK));
        // History grows by design and is pruned by age. Tables of live jobs must not grow.
        let leads = self.looks.iter().filter_map(|l| l.rows.get("leads")).max().copied().unwrap_or(0);
        if leads > jobs as u64 {
            found.push(format!("the table leads has {leads} rows for {jobs} malleable jobs"));
        }
        found
    }

    /// The measurements of each daemon once it was warm.
    fn by_daemon(&self, value: impl Fn(&Look) -> u64) -> Vec<u64> {
        let mut values = Vec::new();
        for daemon in self.looks.chunk_by(|a, b| a.pid == b.pid) {
            values.extend(daemon.iter().skip(WARM_LOOKS).map(&value));
        }
        values
    }
}

/// Whether the last third lies above the first.
fn grown(what: &str, values: &[u64], slack: u64) -> Option<String> {
    let third = values.len() / 3;
    let most = |part: &[u64]| part.iter().max().copied();
    let first = most(&values[..third])?;
    let last = most(&values[values.len() - third..])?;
    (last > first + slack).then(|| format!("{what} grew from {first} to {last}"))
}

fn rows(site: &Site) -> BTreeMap<String, u64> {
    let script = "db=/var/lib/infill/infill.db
        for t in $(sqlite3 -readonly $db \"select name from sqlite_master where type='table'\"); do
            echo \"$t $(sqlite3 -readonly $db \"select count(*) from \\\"$t\\\"\")\"
        done 2>/dev/null";
    let text = site.run("infill", &["bash", "-c", script]);
    text.lines()
        .filter_map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        })
        .collect()
}

#[test]
fn what_stays_flat_and_what_grows() {
    assert_eq!(grown("x", &[1, 9, 3, 4, 5, 10], 1), None);
    assert_eq!(grown("x", &[1, 2, 3, 4, 5, 10], 1).as_deref(), Some("x grew from 2 to 10"));
    assert_eq!(grown("x", &[1, 2], 0), None, "too few to tell");
}
