//! Submits the wings of a lead with `sbatch`, as the user, each once.
//!
//! A wing's comment names its order, and its number is noted in the agent's private directory: an agent that
//! has lost its memory looks there and in Slurm's queue before it submits anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::model::{AgentEvent, JobId, WingOrder, order_in, wing_comment, wing_name};

use super::step::{SHARE_VARIABLES, SRUN_OPTIONS};

/// slurmctld may be busy for a while, but an order whose nodes were free a minute ago is stale.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest text of sbatch's that is passed on.
const MAX_ERROR_CHARS: usize = 500;

/// Variables of the lead that a wing must not inherit: they describe another job.
const FOREIGN_PREFIXES: [&str; 7] = ["SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SQUEUE_", "PMI_", "PMIX_"];

/// The one that says where Slurm's own configuration is.
const KEPT_VARIABLE: &str = "SLURM_CONF";

/// What wings run, and where their output goes.
#[derive(Clone, Debug)]
pub struct WingJob {
    /// The lead.
    pub lead: JobId,
    /// Flags and command for `infill worker`.
    pub worker_args: Vec<String>,
    /// The daemon's URL.
    pub url: String,
    /// The lead's standard output, if it is a file.
    pub output: Option<PathBuf>,
    /// The lead's standard error, if it is a file.
    pub error: Option<PathBuf>,
}

/// Slurm's programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `sbatch`.
    pub sbatch: PathBuf,
    /// `squeue`.
    pub squeue: PathBuf,
}

impl Default for Programs {
    fn default() -> Self {
        Programs { sbatch: PathBuf::from("sbatch"), squeue: PathBuf::from("squeue") }
    }
}

/// Submits orders, one after the other.
pub struct Submitter {
    job: WingJob,
    notes: PathBuf,
    programs: Programs,
    /// What became of each order.
    done: BTreeMap<u64, AgentEvent>,
    /// Whether notes and queue were looked through.
    remembered: bool,
}

impl Submitter {
    /// `notes` is the file that survives a restart of the agent.
    pub fn new(job: WingJob, notes: PathBuf, programs: Programs) -> Submitter {
        Submitter { job, notes, programs, done: BTreeMap::new(), remembered: false }
    }

    /// Takes up the orders that come in and tells what became of them, until nobody sends any more. Getting
    /// an order again is harmless.
    pub async fn serve(mut self, mut orders: mpsc::Receiver<Vec<WingOrder>>, tell: impl Fn(AgentEvent)) {
        while let Some(orders) = orders.recv().await {
            for order in orders {
                if let Some(event) = self.take_up(&order).await {
                    tell(event);
                }
            }
        }
    }

    /// Submits an order, unless that was done before. `None` when it cannot be known yet whether it was: the
    /// daemon will name the order again.
    async fn take_up(&mut self, order: &WingOrder) -> Option<AgentEvent> {
        if !self.remembered {
            self.remembered = self.remember().await;
        }
        if let Some(event) = self.done.get(&order.order) {
            return Some(event.clone());
        }
        if !self.remembered {
            return None;
        }
        let event = match self.submit(order).await {
            Ok(job) => {
                tracing::info!(order = order.order, wing = %job, nodes = order.nodes.len(), "submitted a wing");
                self.note(order.order, job);
                AgentEvent::WingSubmitted { order: order.order, job }
            }
            Err(RunError::TimedOut) => {
                tracing::warn!(
                    order = order.order,
                    "no answer from sbatch; asking squeue what became of the wing"
                );
                self.remembered = false;
                return None;
            }
            Err(RunError::Failed(error)) => {
                tracing::warn!(order = order.order, error, "sbatch refused a wing");
                AgentEvent::WingRefused { order: order.order, error }
            }
        };
        self.done.insert(order.order, event.clone());
        Some(event)
    }

    /// Learns from the notes and from Slurm's queue which orders were submitted before us.
    async fn remember(&mut self) -> bool {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let known = notes.lines().filter_map(|line| {
            let (order, job) = line.split_once(' ')?;
            Some((order.parse().ok()?, JobId(job.parse().ok()?)))
        });
        self.done.extend(known.map(|(order, job)| (order, AgentEvent::WingSubmitted { order, job })));
        let name = format!("--name={}", wing_name(self.job.lead));
        match run(&self.programs.squeue, &["--me", "--noheader", "--states=all", "--format=%i %k", &name], "")
            .await
        {
            Ok(text) => {
                self.done.extend(
                    text.lines()
                        .filter_map(parse_queue_line)
                        .map(|(order, job)| (order, AgentEvent::WingSubmitted { order, job })),
                );
                true
            }
            Err(error) => {
                tracing::warn!(?error, "cannot ask squeue which wings there are; submitting none for now");
                false
            }
        }
    }

    fn note(&self, order: u64, job: JobId) {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.notes);
        if let Err(error) = file.and_then(|mut f| writeln!(f, "{order} {job}")) {
            // Slurm's queue says the same.
            tracing::debug!(%error, "cannot note a wing");
        }
    }

    async fn submit(&self, order: &WingOrder) -> Result<JobId, RunError> {
        let args = self.sbatch_args(order);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let program = std::env::current_exe()
            .map_err(|e| RunError::Failed(format!("no path of our own program: {e}")))?;
        let text = run(&self.programs.sbatch, &args, &self.script(&program)?).await?;
        // "123" or "123;cluster".
        let id = text.trim().split(';').next().and_then(|id| id.parse().ok());
        id.map(JobId).ok_or_else(|| RunError::Failed(format!("sbatch answered {:?}", text.trim())))
    }

    fn sbatch_args(&self, order: &WingOrder) -> Vec<String> {
        let nodes = order.nodes.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(",");
        let lead = self.job.lead;
        let mut args = vec![
            "--parsable".to_owned(),
            format!("--partition={}", order.partition),
            format!("--nodes={}", order.nodes.len()),
            format!("--ntasks={}", order.nodes.len()),
            "--ntasks-per-node=1".to_owned(),
            "--exclusive".to_owned(),
            // All of the node's memory, as it has all of its processors.
            "--mem=0".to_owned(),
            format!("--nodelist={nodes}"),
            format!("--time={}", order.time_limit_mins),
            format!("--job-name={}", wing_name(lead)),
            format!("--comment={}", wing_comment(order.order, lead)),
            "--no-requeue".to_owned(),
            "--export=ALL".to_owned(),
            "--open-mode=append".to_owned(),
            format!("--output={}", file_pattern(self.job.output.as_deref())),
        ];
        args.extend(self.job.error.as_deref().map(|path| format!("--error={}", file_pattern(Some(path)))));
        args.extend(order.qos.as_ref().map(|qos| format!("--qos={qos}")));
        args.extend(order.account.as_ref().map(|account| format!("--account={account}")));
        args.extend(order.gres.as_ref().map(|gres| format!("--gres={gres}")));
        args.extend(std::env::current_dir().ok().map(|dir| format!("--chdir={}", dir.display())));
        args
    }

    /// The batch script of a wing: one worker on each of its nodes.
    fn script(&self, program: &Path) -> Result<String, RunError> {
        let mut words = vec!["srun".to_owned()];
        words.extend(SRUN_OPTIONS.map(str::to_owned));
        words.push(program.display().to_string());
        words.extend([
            "worker".to_owned(),
            format!("--lead={}", self.job.lead),
            format!("--url={}", self.job.url),
        ]);
        words.extend(self.job.worker_args.iter().cloned());
        let line = shlex::try_join(words.iter().map(String::as_str))
            .map_err(|e| RunError::Failed(format!("the command has no place in a script: {e}")))?;
        Ok(format!("#!/bin/sh\nunset {}\nexec {line}\n", SHARE_VARIABLES.join(" ")))
    }
}

/// A file's name as sbatch's patterns say it; /dev/null where there is none.
fn file_pattern(path: Option<&Path>) -> String {
    path.map_or_else(|| "/dev/null".to_owned(), |p| p.display().to_string().replace('%', "%%"))
}

/// Reads `123 infill:order=7;wing=100`.
fn parse_queue_line(line: &str) -> Option<(u64, JobId)> {
    let (id, comment) = line.trim().split_once(' ')?;
    Some((order_in(comment)?, JobId(id.parse().ok()?)))
}

/// Why a program of Slurm's gave no answer.
#[derive(Debug)]
enum RunError {
    /// It did nothing, for this reason.
    Failed(String),
    /// Nobody knows what it did.
    TimedOut,
}

/// Runs a program of Slurm's without the lead's variables, and returns its output.
async fn run(program: &Path, args: &[&str], input: &str) -> Result<String, RunError> {
    let failed = |e: std::io::Error| RunError::Failed(format!("cannot run {}: {e}", program.display()));
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text != KEPT_VARIABLE && FOREIGN_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why by its status.
        stdin.write_all(input.as_bytes()).await.ok();
    }
    let done = tokio::time::timeout(PROGRAM_TIMEOUT, child.wait_with_output())
        .await
        .map_err(|_| RunError::TimedOut)?
        .map_err(failed)?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(RunError::Failed(format!("{}: {}", done.status, said.trim()).chars().take(MAX_ERROR_CHARS).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_lines() {
        assert_eq!(parse_queue_line("123 infill:order=7;wing=100"), Some((7, JobId(123))));
        assert_eq!(parse_queue_line("123 infill:order=7"), Some((7, JobId(123))));
        assert_eq!(parse_queue_line("123 (null)"), None);
    }

    #[test]
    fn a_wings_script() {
        let job = WingJob {
            lead: JobId(100),
            worker_args: ["--grace=5", "--", "sh", "-c", "echo 'hi' $HOME", ""].map(str::to_owned).to_vec(),
            url: "http://ctl:6810".to_owned(),
            output: None,
            error: None,
        };
        let submitter = Submitter::new(job, PathBuf::from("/none"), Programs::default());
        insta::assert_snapshot!(submitter.script(Path::new("/usr/bin/infill")).unwrap(), @r#"
        #!/bin/sh
        unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK
        exec srun --overlap --no-kill '--kill-on-bad-exit=0' '--wait=0' '--ntasks-per-node=1' '--cpu-bind=none' '--input=none' /usr/bin/infill worker '--lead=100' '--url=http://ctl:6810' '--grace=5' -- sh -c "echo 'hi' "'$HOME' ''
        "#);
        assert_eq!(file_pattern(Some(Path::new("/a/50%.out"))), "/a/50%%.out");
    }
}
