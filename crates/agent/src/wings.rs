//! Submits the wings of a lead with `sbatch`, as the user, each once.
//!
//! A wing's comment names its order, and its number is noted in the agent's private directory: an agent that
//! has lost its memory looks there and in Slurm's queue before it submits anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use infill_model::{AgentEvent, JobId, WingOrder, order_from_comment, wing_comment, wing_name};

use super::executable;
use super::slurm_programs::{RunError, SlurmPrograms, run_program};
use super::step::{KEPT_CPUS_PER_TASK, SHARE_VARIABLES, SRUN_OPTIONS};
use super::watcher;

/// slurmctld may be busy for a while, but an order whose nodes were free a minute ago is stale.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Slurm preempts the youngest first and knows whole seconds: for a wing that started in the same second as
/// its lead it may take the lead, and with it the whole job.
const YOUNGER_DELAY: Duration = Duration::from_secs(1);

/// What wings run, and where their output goes.
#[derive(Clone, Debug)]
pub(crate) struct WingJob {
    /// The lead.
    pub lead: JobId,
    /// Flags and command for `infill worker`.
    pub worker_args: Vec<String>,
    /// The daemon's URL.
    pub url: String,
    /// Where the lead runs its command, and whether that names files there.
    pub dir: Option<(PathBuf, bool)>,
    /// What comes with a GPU, where GPUs are lent: sbatch's options, as the lead's owner gave them.
    pub share: Vec<String>,
    /// The lead's standard output, if it is a file.
    pub output: Option<PathBuf>,
    /// The lead's standard error, if it is a file.
    pub error: Option<PathBuf>,
}

/// Submits orders, one after the other.
pub(crate) struct WingSubmitter {
    job: WingJob,
    notes: PathBuf,
    programs: SlurmPrograms,
    /// What became of each order.
    done: BTreeMap<u64, AgentEvent>,
    /// Whether notes and queue were looked through.
    remembered: bool,
    /// When wings will be younger than the lead, which runs by now.
    begins: Instant,
}

impl WingSubmitter {
    /// `notes` is the file that survives a restart of the agent.
    pub fn new(job: WingJob, notes: PathBuf, programs: SlurmPrograms) -> WingSubmitter {
        WingSubmitter {
            job,
            notes,
            programs,
            done: BTreeMap::new(),
            remembered: false,
            begins: Instant::now() + YOUNGER_DELAY,
        }
    }

    /// Takes up the orders that hold and tells what became of them, until nobody sends any more. Getting an
    /// order again is harmless. Where sbatch is slow, an order may have been withdrawn before its turn comes:
    /// before each one the list is looked at anew.
    pub async fn serve_orders(
        mut self,
        mut orders: watch::Receiver<Vec<WingOrder>>,
        tell: impl Fn(AgentEvent),
    ) {
        while orders.changed().await.is_ok() {
            sleep_until(self.begins).await;
            let mut taken_up = BTreeSet::new();
            loop {
                let next = orders.borrow_and_update().iter().find(|o| !taken_up.contains(&o.order)).cloned();
                let Some(order) = next else { break };
                taken_up.insert(order.order);
                if let Some(event) = self.submit_once(&order).await {
                    tell(event);
                }
            }
        }
    }

    /// Submits an order, unless that was done before. `None` when it cannot be known yet whether it was: the
    /// daemon will name the order again.
    async fn submit_once(&mut self, order: &WingOrder) -> Option<AgentEvent> {
        if !self.remembered {
            self.remembered = self.load_submitted().await;
        }
        if let Some(event) = self.done.get(&order.order) {
            return Some(event.clone());
        }
        if !self.remembered {
            return None;
        }
        let event = match self.run_sbatch(order).await {
            Ok(job) => {
                tracing::info!(order = order.order, wing = %job, nodes = order.nodes.len(), "submitted a wing");
                self.record_wing(order.order, job);
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
    async fn load_submitted(&mut self) -> bool {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let known = notes.lines().filter_map(|line| {
            let (order, job) = line.split_once(' ')?;
            Some((order.parse().ok()?, JobId(job.parse().ok()?)))
        });
        self.done.extend(known.map(|(order, job)| (order, AgentEvent::WingSubmitted { order, job })));
        let name = format!("--name={}", wing_name(self.job.lead));
        let args = ["--me", "--noheader", "--states=all", "--format=%i %k", &name];
        match run_program(&self.programs.squeue, &args, "", PROGRAM_TIMEOUT).await {
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

    fn record_wing(&self, order: u64, job: JobId) {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.notes);
        if let Err(error) = file.and_then(|mut f| writeln!(f, "{order} {job}")) {
            // Slurm's queue says the same.
            tracing::debug!(%error, "cannot note a wing");
        }
    }

    async fn run_sbatch(&self, order: &WingOrder) -> Result<JobId, RunError> {
        let args = self.sbatch_args(order);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let program = executable::program_path()
            .map_err(|e| RunError::Failed(format!("no path of our own program: {e}")))?;
        let text =
            run_program(&self.programs.sbatch, &args, &self.wing_script(&program)?, PROGRAM_TIMEOUT).await?;
        // "123" or "123;cluster".
        let id = text.trim().split(';').next().and_then(|id| id.parse().ok());
        id.map(JobId).ok_or_else(|| RunError::Failed(format!("sbatch answered {:?}", text.trim())))
    }

    fn sbatch_args(&self, order: &WingOrder) -> Vec<String> {
        let nodes = order.nodes.iter().map(|n| n.host().to_string()).collect::<Vec<_>>().join(",");
        let lead = self.job.lead;
        let place = order.nodes.first().filter(|n| n.is_place());
        let mut args = vec![
            "--parsable".to_owned(),
            format!("--partition={}", order.partition),
            format!("--nodes={}", order.nodes.len()),
            format!("--ntasks={}", order.nodes.len()),
            "--ntasks-per-node=1".to_owned(),
        ];
        match place {
            // All of the node's memory, as it has all of its processors.
            None => args.extend(["--exclusive", "--mem=0"].map(str::to_owned)),
            Some(_) => args.extend(self.share_options(order)),
        }
        args.extend([
            format!("--nodelist={nodes}"),
            format!("--time={}", order.time_limit_mins),
            format!("--job-name={}", wing_name(lead)),
            format!("--comment={}", wing_comment(order.order, lead, place)),
            "--no-requeue".to_owned(),
            "--export=ALL".to_owned(),
            // The script opens the lead's files itself: Slurm fails a job whose output cannot be opened.
            "--output=/dev/null".to_owned(),
        ]);
        args.extend(order.qos.as_ref().map(|qos| format!("--qos={qos}")));
        args.extend(order.account.as_ref().map(|account| format!("--account={account}")));
        args.extend(order.constraint.as_ref().map(|features| format!("--constraint={features}")));
        args.extend(order.exclude.as_ref().map(|nodes| format!("--exclude={nodes}")));
        args.extend(order.gres.as_ref().map(|gres| format!("--gres={gres}")));
        // Where that is not there, Slurm takes /tmp.
        args.extend(self.job.dir.as_ref().map(|(dir, _)| format!("--chdir={}", dir.display())));
        args
    }

    /// What comes with a place, as sbatch's options. What the order says goes before what the lead's owner
    /// gave.
    fn share_options(&self, order: &WingOrder) -> Vec<String> {
        let is_replaced = |option: &&String| {
            (order.cpus.is_some() && option.starts_with("--cpus-per-"))
                || (order.memory_mib.is_some() && option.starts_with("--mem"))
        };
        let given = self.job.share.iter().filter(|option| !is_replaced(option)).cloned();
        let cpus = order.cpus.map(|cpus| format!("--cpus-per-task={cpus}"));
        let memory = order.memory_mib.map(|mib| format!("--mem={mib}M"));
        given.chain(cpus).chain(memory).collect()
    }

    /// The batch script of a wing: one worker on each of its nodes. What it prints goes where the lead's
    /// output goes, if that can be written there.
    fn wing_script(&self, program: &Path) -> Result<String, RunError> {
        let mut words = vec!["srun".to_owned()];
        words.extend(SRUN_OPTIONS.map(str::to_owned));
        words.push(program.display().to_string());
        words.extend([
            "worker".to_owned(),
            format!("--lead={}", self.job.lead),
            format!("--url={}", self.job.url),
        ]);
        if let Some((dir, needed)) = &self.job.dir {
            words.push(format!("--dir={}", dir.display()));
            words.extend(needed.then(|| "--needs-dir".to_owned()));
        }
        words.extend(self.job.worker_args.iter().cloned());
        let quoted =
            |e: shlex::QuoteError| RunError::Failed(format!("the command has no place in a script: {e}"));
        let line = shlex::try_join(words.iter().map(String::as_str)).map_err(quoted)?;
        let mut script = format!("#!/bin/sh\nunset {}\n", SHARE_VARIABLES.join(" "));
        for (file, opens, also) in [(&self.job.output, ">>", " 2>&1"), (&self.job.error, "2>>", "")] {
            let Some(file) = file else { continue };
            let name = file.display().to_string();
            let name = shlex::try_quote(&name).map_err(quoted)?;
            script += &format!("(: >>{name}) 2>/dev/null && exec {opens}{name}{also}\n");
        }
        Ok(format!("{script}{}exec {line}\n", watcher::WATCHER_LINES))
    }
}

/// The options by which a lead's owner said what comes with its GPU; the site's defaults hold for the rest.
pub(crate) fn lead_share_options(var: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let first = |options: &[(&str, &str)]| {
        options
            .iter()
            .find_map(|(name, option): &(&str, &str)| var(name).map(|value| format!("--{option}={value}")))
    };
    let cpus = first(&[("SLURM_CPUS_PER_GPU", "cpus-per-gpu"), (KEPT_CPUS_PER_TASK, "cpus-per-task")]);
    let memory = first(&[
        ("SLURM_MEM_PER_GPU", "mem-per-gpu"),
        ("SLURM_MEM_PER_NODE", "mem"),
        ("SLURM_MEM_PER_CPU", "mem-per-cpu"),
    ]);
    cpus.into_iter().chain(memory).collect()
}

/// Reads `123 infill:order=7;wing=100`.
fn parse_queue_line(line: &str) -> Option<(u64, JobId)> {
    let (id, comment) = line.trim().split_once(' ')?;
    Some((order_from_comment(comment)?, JobId(id.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wing_has_the_share_that_its_lead_has() {
        let share = |vars: &[(&str, &str)]| {
            lead_share_options(|name| vars.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
                .join(" ")
        };
        assert_eq!(share(&[]), "");
        let both =
            [("SLURM_CPUS_PER_GPU", "3"), ("INFILL_CPUS_PER_TASK", "3"), ("SLURM_MEM_PER_GPU", "1000")];
        assert_eq!(share(&both), "--cpus-per-gpu=3 --mem-per-gpu=1000");
        let task = [("INFILL_CPUS_PER_TASK", "4"), ("SLURM_MEM_PER_CPU", "500")];
        assert_eq!(share(&task), "--cpus-per-task=4 --mem-per-cpu=500");
        assert_eq!(share(&[("SLURM_MEM_PER_NODE", "2000")]), "--mem=2000");
    }

    #[test]
    fn a_wing_asks_for_what_its_order_says_before_what_its_lead_has() {
        let given = ["--cpus-per-gpu=3", "--mem-per-gpu=1000"].map(str::to_owned).to_vec();
        let job = WingJob {
            lead: JobId(100),
            worker_args: Vec::new(),
            url: String::new(),
            share: given,
            dir: None,
            output: None,
            error: None,
        };
        let submitter = WingSubmitter::new(job, PathBuf::from("/none"), SlurmPrograms::default());
        let asks = |words: &str, node: &str| {
            let order = format!(
                r#"{{"order": 7, "nodes": ["{node}"], "time_limit_mins": 5, "partition": "infill", "qos": null,
                    "account": null, "gres": "gpu:1"{words}}}"#
            );
            let order: WingOrder = serde_json::from_str(&order).unwrap();
            let args = submitter.sbatch_args(&order);
            args.into_iter()
                .filter(|arg: &String| arg.starts_with("--cpus") || arg.starts_with("--mem"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let as_before = "--cpus-per-gpu=3 --mem-per-gpu=1000";
        assert_eq!(asks("", "n1:2"), as_before, "a daemon that does not tell");
        assert_eq!(asks(r#", "cpus": 12"#, "n1:2"), "--mem-per-gpu=1000 --cpus-per-task=12");
        assert_eq!(asks(r#", "memory_mib": 64000"#, "n1:2"), "--cpus-per-gpu=3 --mem=64000M");
        let both = r#", "cpus": 12, "memory_mib": 64000"#;
        assert_eq!(asks(both, "n1:2"), "--cpus-per-task=12 --mem=64000M");
        assert_eq!(asks(both, "n1"), "--mem=0", "whole nodes are had whole");
    }

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
            share: Vec::new(),
            dir: Some((PathBuf::from("/home/a b"), true)),
            output: Some(PathBuf::from("/a/50% x.out")),
            error: Some(PathBuf::from("/a/err")),
        };
        let submitter = WingSubmitter::new(job, PathBuf::from("/none"), SlurmPrograms::default());
        insta::assert_snapshot!(submitter.wing_script(Path::new("/usr/bin/infill")).unwrap(), @r#"
        #!/bin/sh
        unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK
        (: >>'/a/50% x.out') 2>/dev/null && exec >>'/a/50% x.out' 2>&1
        (: >>/a/err) 2>/dev/null && exec 2>>/a/err
        (while sleep 3; do
            squeue -h -O PreemptTime:40,StartTime:40 -j "$SLURM_JOB_ID" 2>/dev/null |
                awk '$1 ~ /^[0-9]/ && $1 >= $2 { told = 1 } END { exit !told }' && kill $$ && exit
        done) &
        export INFILL_WATCHER=$!
        exec srun --overlap --no-kill '--kill-on-bad-exit=0' '--wait=0' '--ntasks-per-node=1' '--cpu-bind=none' '--input=none' /usr/bin/infill worker '--lead=100' '--url=http://ctl:6810' '--dir=/home/a b' --needs-dir '--grace=5' -- sh -c "echo 'hi' "'$HOME' ''
        "#);
    }
}
