//! Slurm's view of jobs, and main jobs that record when they started.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Site, record};

/// Longest that a main job may wait in a test: well before Slurm itself kills jobs that do not make way, 30 s
/// later. All main jobs of a run together keep tighter limits (`promptness.rs`).
pub const PROMPTLY_SECS: f64 = 15.0;

/// One line of `squeue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Job id.
    pub id: u32,
    /// Owner.
    pub user: String,
    /// Partition.
    pub partition: String,
    /// Name.
    pub name: String,
    /// State in one word.
    pub state: String,
    /// Nodes, sorted.
    pub nodes: Vec<String>,
    /// Why it waits.
    pub reason: String,
}

impl JobRow {
    /// The lead, if this is a wing.
    pub fn lead(&self) -> Option<u32> {
        self.name.strip_prefix("wing:")?.parse().ok()
    }

    /// Whether it holds nodes.
    pub fn runs(&self) -> bool {
        self.state == "RUNNING"
    }
}

/// A main job that was submitted.
#[derive(Clone, Copy, Debug)]
pub struct MainJob {
    /// Job id.
    pub id: u32,
    /// Our clock just before `sbatch`, seconds.
    pub submitted_at: f64,
}

/// Seconds since the epoch.
pub fn clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs_f64()
}

/// When a line of Slurm's log was written, by `clock`; `None` for a line without a time.
pub fn logged_at(line: &str) -> Option<f64> {
    let stamp = line.strip_prefix('[')?.split(']').next()?;
    let at = chrono::NaiveDateTime::parse_from_str(stamp, "%Y-%m-%dT%H:%M:%S%.f").ok()?;
    Some(at.and_utc().timestamp_micros() as f64 / 1e6)
}

impl Site {
    /// Runs `sbatch` as `user` with this script. Returns its error if it refuses.
    pub fn try_sbatch(&self, user: &str, options: &[&str], script: &str) -> Result<u32, String> {
        let fixed = ["sbatch", "--parsable", "--open-mode=append", "-o", "/scratch/%j.out"];
        let words: Vec<&str> = fixed.iter().chain(options).copied().collect();
        let output = self.exec_with(user, &words, &format!("#!/bin/bash\n{script}\n"));
        let said = String::from_utf8_lossy(&output.stderr);
        let id = String::from_utf8_lossy(&output.stdout);
        id.trim().parse().map_err(|_| said.trim().to_owned())
    }

    /// Runs `sbatch` as `user` with this script.
    pub fn sbatch(&self, user: &str, options: &[&str], script: &str) -> u32 {
        self.try_sbatch(user, options, script).unwrap_or_else(|e| panic!("sbatch {options:?}: {e}"))
    }

    /// Submits a main job of bob's that records its start and sleeps.
    pub fn main_job(&self, secs: u32, options: &[&str]) -> MainJob {
        let submitted_at = clock();
        let script = format!("date +%s.%N >/scratch/started.$SLURM_JOB_ID; exec sleep {secs}");
        let options: Vec<&str> = ["-p", "main", "-J", "main"].iter().chain(options).copied().collect();
        MainJob { id: self.sbatch("bob", &options, &script), submitted_at }
    }

    /// When a main job's script began; `None` before.
    pub fn started_at(&self, job: MainJob) -> Option<f64> {
        let text = std::fs::read_to_string(self.scratch().join(format!("started.{}", job.id))).ok()?;
        text.trim().parse().ok()
    }

    /// Waits for a main job's start, and checks that it came within `secs` of its submission.
    pub fn starts_within(&self, job: MainJob, secs: f64) {
        let what = format!("main job {} to start", job.id);
        let started = self.wait(&what, secs + 40.0, || self.started_at(job));
        let delay = started - job.submitted_at;
        record::delay(job.id, delay);
        eprintln!("main job {} started {delay:.2} s after its submission", job.id);
        assert!(delay <= secs, "main job {} waited {delay:.2} s; at most {secs} s are allowed", job.id);
    }

    /// The queue: jobs that have not ended.
    pub fn queue(&self) -> Vec<JobRow> {
        let text = self.run("root", &["squeue", "-h", "-a", "-o", "%A|%u|%P|%j|%T|%N|%r"]);
        text.lines().filter_map(parse_row).collect()
    }

    /// One job of the queue.
    pub fn queued(&self, id: u32) -> Option<JobRow> {
        self.queue().into_iter().find(|j| j.id == id)
    }

    /// Lead and wings of a malleable job that hold nodes.
    pub fn parts(&self, lead: u32) -> Vec<JobRow> {
        self.queue().into_iter().filter(|j| j.runs() && (j.id == lead || j.lead() == Some(lead))).collect()
    }

    /// Nodes that a malleable job holds according to Slurm, sorted.
    pub fn nodes_of(&self, lead: u32) -> Vec<String> {
        let mut nodes: Vec<String> = self.parts(lead).into_iter().flat_map(|j| j.nodes).collect();
        nodes.sort();
        nodes
    }

    /// `scontrol show job`, by key. Slurm remembers ended jobs for some minutes.
    pub fn job(&self, id: u32) -> BTreeMap<String, String> {
        let text = self.run("root", &["scontrol", "-o", "show", "job", &id.to_string()]);
        text.split_whitespace()
            .filter_map(|w| w.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    /// One field of `scontrol show job`; empty if there is none.
    pub fn field(&self, id: u32, key: &str) -> String {
        self.job(id).remove(key).unwrap_or_default()
    }

    /// Waits until the job has ended; returns `STATE CODE:SIGNAL`.
    pub fn end_of(&self, id: u32, secs: f64) -> String {
        self.wait(&format!("job {id} to end"), secs, || {
            let job = self.job(id);
            let state = job.get("JobState")?.clone();
            // A requeued job waits again in a moment.
            let lives = ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"]
                .contains(&state.as_str())
                || state.starts_with("REQUEUE");
            (!lives).then(|| format!("{state} {}", job.get("ExitCode").map_or("", String::as_str)))
        })
    }
}

fn parse_row(line: &str) -> Option<JobRow> {
    let fields: Vec<&str> = line.splitn(7, '|').collect();
    let [id, user, partition, name, state, nodes, reason] = fields[..] else { return None };
    let own = str::to_owned;
    Some(JobRow {
        id: id.parse().ok()?,
        user: own(user),
        partition: own(partition),
        name: own(name),
        state: own(state),
        nodes: expand(nodes),
        reason: own(reason),
    })
}

/// Expands `n[1-3,7]` to names.
fn expand(list: &str) -> Vec<String> {
    let Some(inside) = list.strip_prefix("n[").and_then(|l| l.strip_suffix(']')) else {
        return list.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().unwrap_or(1);
        let last: u32 = last.parse().unwrap_or(0);
        (first..=last).map(|i| format!("n{i}"))
    };
    inside.split(',').flat_map(range).collect()
}
