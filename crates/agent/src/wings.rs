//! Submits the wings of a lead with `sbatch`, as the user, each once.
//!
//! A wing's comment names its order, and its job id is noted in the agent's private directory. An agent that
//! was restarted looks there and in Slurm's queue before it submits anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use infill_model::{AgentEvent, JobId, NodeName, WingOrder, order_from_comment, wing_comment, wing_name};

use super::executable;
use super::node_gpus;
use super::slurm_programs::{RunError, SlurmPrograms, run_program};
use super::step::{KEPT_CPUS_PER_TASK, SHARE_VARIABLES, SRUN_OPTIONS};
use super::watcher;

/// How long a program may take. slurmctld may be busy for a while, but an order whose nodes were free a
/// minute ago is stale.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// How much later than the lead a wing starts. Slurm preempts the youngest job first, and counts in whole
/// seconds. If a wing started in the same second, Slurm might take the lead, and with it the whole job.
const YOUNGER_DELAY: Duration = Duration::from_secs(1);

/// The command of wings, and the files for their output.
#[derive(Clone, Debug)]
pub(crate) struct WingJob {
    /// The lead's job id.
    pub lead: JobId,
    /// Flags and command for `infill worker`.
    pub worker_args: Vec<String>,
    /// The daemon's URL.
    pub url: String,
    /// The directory in which the lead runs its command, and whether the command names files there.
    pub dir: Option<(PathBuf, bool)>,
    /// The owner's options of sbatch for the CPUs and memory that come with a GPU, where GPUs are lent.
    pub share: Vec<String>,
    /// The option of `srun`, for a shell, for the GPUs of a wing on whole nodes, unless the job requested
    /// some.
    pub gpus: Option<String>,
    /// The variables of the lead's job array, as NAME=VALUE. Slurm gives a wing none, because it is in no
    /// array.
    pub array_variables: Vec<String>,
    /// The lead's standard output, if it is a file.
    pub output: Option<PathBuf>,
    /// The lead's standard error, if it is a file.
    pub error: Option<PathBuf>,
}

/// Submits wings for the daemon's orders, one after the other.
pub(crate) struct WingSubmitter {
    job: WingJob,
    /// The file with the orders that were submitted, and their wings' job ids.
    notes: PathBuf,
    programs: SlurmPrograms,
    /// The result of each order.
    done: BTreeMap<u64, AgentEvent>,
    /// Whether the results of earlier agents were read from the notes and the queue.
    has_loaded: bool,
    /// From when on new wings are younger than the lead.
    starts_at: Instant,
}

impl WingSubmitter {
    /// `notes` is the file that survives a restart of the agent.
    pub fn new(job: WingJob, notes: PathBuf, programs: SlurmPrograms) -> WingSubmitter {
        WingSubmitter {
            job,
            notes,
            programs,
            done: BTreeMap::new(),
            has_loaded: false,
            starts_at: Instant::now() + YOUNGER_DELAY,
        }
    }

    /// Submits the wings of all present orders, and passes the results to `report`, until the sender of
    /// orders is gone. An order that comes again does no harm. While sbatch is slow, an order may be
    /// withdrawn before its turn comes, so the present list is read before each one.
    pub async fn serve_orders(
        mut self,
        mut orders: watch::Receiver<Vec<WingOrder>>,
        report: impl Fn(AgentEvent),
    ) {
        while orders.changed().await.is_ok() {
            sleep_until(self.starts_at).await;
            let mut taken_up = BTreeSet::new();
            loop {
                let next = orders.borrow_and_update().iter().find(|o| !taken_up.contains(&o.number)).cloned();
                let Some(order) = next else { break };
                taken_up.insert(order.number);
                if let Some(event) = self.submit_once(&order).await {
                    report(event);
                }
            }
        }
    }

    /// Submits the wing of an order, unless that was done before. Returns `None` if this is not known yet;
    /// the daemon will send the order again.
    async fn submit_once(&mut self, order: &WingOrder) -> Option<AgentEvent> {
        if !self.has_loaded {
            self.has_loaded = self.load_submitted().await;
        }
        if let Some(event) = self.done.get(&order.number) {
            return Some(event.clone());
        }
        if !self.has_loaded {
            return None;
        }
        let event = match self.run_sbatch(order).await {
            Ok(job) => {
                tracing::info!(order = order.number, wing = %job, nodes = order.nodes.len(), "submitted a wing");
                self.record_wing(order.number, job);
                AgentEvent::WingSubmitted { order: order.number, job }
            }
            Err(RunError::TimedOut) => {
                tracing::warn!(
                    order = order.number,
                    "no answer from sbatch; asking squeue whether the wing was submitted"
                );
                self.has_loaded = false;
                return None;
            }
            Err(RunError::Failed(error)) => {
                tracing::warn!(order = order.number, error, "sbatch refused a wing");
                AgentEvent::WingRefused { order: order.number, error }
            }
        };
        self.done.insert(order.number, event.clone());
        Some(event)
    }

    /// Reads from the notes and from Slurm's queue which orders were submitted before. Returns whether Slurm
    /// answered.
    async fn load_submitted(&mut self) -> bool {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        for (order, job) in notes.lines().filter_map(parse_note) {
            self.done.insert(order, AgentEvent::WingSubmitted { order, job });
        }
        let name = format!("--name={}", wing_name(self.job.lead));
        let args = ["--me", "--noheader", "--states=all", "--format=%i %k", &name];
        match run_program(&self.programs.squeue, &args, "", PROGRAM_TIMEOUT).await {
            Ok(text) => {
                for (order, job) in text.lines().filter_map(parse_queue_line) {
                    self.done.insert(order, AgentEvent::WingSubmitted { order, job });
                }
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
            // Slurm's queue has the same information.
            tracing::debug!(%error, "cannot note a wing");
        }
    }

    async fn run_sbatch(&self, order: &WingOrder) -> Result<JobId, RunError> {
        let args = self.sbatch_args(order);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let program = executable::program_path()
            .map_err(|e| RunError::Failed(format!("cannot find the path of infill: {e}")))?;
        let text =
            run_program(&self.programs.sbatch, &args, &self.wing_script(order, &program)?, PROGRAM_TIMEOUT)
                .await?;
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
            // The wing gets all of the node's memory, because it has all of its processors.
            None => args.extend(["--exclusive", "--mem=0"].map(str::to_owned)),
            Some(_) => args.extend(self.share_options(order)),
        }
        args.extend([
            format!("--nodelist={nodes}"),
            format!("--time={}", order.time_limit_mins),
            format!("--job-name={}", wing_name(lead)),
            format!("--comment={}", wing_comment(order.number, lead, place)),
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
        // If this directory does not exist there, Slurm uses /tmp.
        args.extend(self.job.dir.as_ref().map(|(dir, _)| format!("--chdir={}", dir.display())));
        args
    }

    /// The CPUs and memory of a place, as options of sbatch. The order's numbers replace the owner's options.
    fn share_options(&self, order: &WingOrder) -> Vec<String> {
        let mut options = self.job.share.clone();
        if let Some(cpus) = order.cpus {
            options.retain(|option| !option.starts_with("--cpus-per-"));
            options.push(format!("--cpus-per-task={cpus}"));
        }
        if let Some(mib) = order.memory_mib {
            options.retain(|option| !option.starts_with("--mem"));
            options.push(format!("--mem={mib}M"));
        }
        options
    }

    /// The batch script of a wing: one worker on each of its nodes. Its output goes to the files of the
    /// lead's output, if these can be written there.
    fn wing_script(&self, order: &WingOrder, program: &Path) -> Result<String, RunError> {
        let mut words = vec![program.display().to_string()];
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
        let line = shlex::try_join(words.iter().map(String::as_str)).map_err(quote_failure)?;
        let mut srun = shlex::try_join(std::iter::once("srun").chain(SRUN_OPTIONS)).map_err(quote_failure)?;
        let mut script = format!("#!/bin/sh\nunset {}\n", SHARE_VARIABLES.join(" "));
        if !self.job.array_variables.is_empty() {
            let variables = self.job.array_variables.iter().map(String::as_str);
            let line = shlex::try_join(["export"].into_iter().chain(variables)).map_err(quote_failure)?;
            script += &format!("{line}\n");
        }
        script += node_gpus::WING_LINES;
        if let Some(gpus) = self.gpu_option(order) {
            srun = format!("{srun} {gpus}");
        }
        for (file, redirection, also) in [(&self.job.output, ">>", " 2>&1"), (&self.job.error, "2>>", "")] {
            let Some(file) = file else { continue };
            let name = file.display().to_string();
            let name = shlex::try_quote(&name).map_err(quote_failure)?;
            script += &format!("(: >>{name}) 2>/dev/null && exec {redirection}{name}{also}\n");
        }
        Ok(format!("{script}{}exec {srun} {line}\n", watcher::WATCHER_LINES))
    }

    /// The option of `srun` for the GPUs of a wing's step. A request of the job counts for its steps anyway.
    fn gpu_option(&self, order: &WingOrder) -> Option<&str> {
        let is_chosen = order.gres.as_deref().is_some_and(node_gpus::names_gpus);
        let is_shared = order.nodes.iter().any(NodeName::is_place);
        self.job.gpus.as_deref().filter(|_| !is_chosen && !is_shared)
    }
}

fn quote_failure(error: shlex::QuoteError) -> RunError {
    RunError::Failed(format!("cannot put the command into a script: {error}"))
}

/// The options with which a lead's owner asked for the CPUs and memory of its GPU. The site's defaults hold
/// for the rest.
pub(crate) fn lead_share_options(var: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let cpus =
        first_option(&var, &[("SLURM_CPUS_PER_GPU", "cpus-per-gpu"), (KEPT_CPUS_PER_TASK, "cpus-per-task")]);
    let memory = first_option(
        &var,
        &[
            ("SLURM_MEM_PER_GPU", "mem-per-gpu"),
            ("SLURM_MEM_PER_NODE", "mem"),
            ("SLURM_MEM_PER_CPU", "mem-per-cpu"),
        ],
    );
    cpus.into_iter().chain(memory).collect()
}

/// The variables that Slurm sets for a task of a job array.
const ARRAY_VARIABLES: [&str; 6] = [
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
];

/// The variables of a lead's job array, as NAME=VALUE; empty outside arrays.
pub(crate) fn array_variables(var: impl Fn(&str) -> Option<String>) -> Vec<String> {
    ARRAY_VARIABLES.iter().filter_map(|name| Some(format!("{name}={}", var(name)?))).collect()
}

/// The option for the first of these variables that is set. `options`: variables with their options' names.
fn first_option(var: impl Fn(&str) -> Option<String>, options: &[(&str, &str)]) -> Option<String> {
    options.iter().find_map(|(name, option)| var(name).map(|value| format!("--{option}={value}")))
}

/// Reads `7 123`: an order, and the job id of its wing.
fn parse_note(line: &str) -> Option<(u64, JobId)> {
    let (order, job) = line.split_once(' ')?;
    Some((order.parse().ok()?, JobId(job.parse().ok()?)))
}

/// Reads `123 infill:order=7;wing=100`: the job id of a wing and its comment. Returns the order and the job
/// id.
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
    fn the_numbers_of_an_order_replace_the_leads_options() {
        let given = ["--cpus-per-gpu=3", "--mem-per-gpu=1000"].map(str::to_owned).to_vec();
        let job = WingJob {
            lead: JobId(100),
            worker_args: Vec::new(),
            url: String::new(),
            share: given,
            gpus: Some(ALL_GPUS.to_owned()),
            array_variables: Vec::new(),
            dir: None,
            output: None,
            error: None,
        };
        let submitter = WingSubmitter::new(job, PathBuf::from("/none"), SlurmPrograms::default());
        let options = |words: &str, node: &str| {
            let order = order_on(node, &format!("\"gpu:1\"{words}"));
            let args = submitter.sbatch_args(&order);
            args.into_iter()
                .filter(|arg| arg.starts_with("--cpus") || arg.starts_with("--mem"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let of_lead = "--cpus-per-gpu=3 --mem-per-gpu=1000";
        assert_eq!(options("", "n1:2"), of_lead, "the daemon sends no numbers");
        assert_eq!(options(r#", "cpus": 12"#, "n1:2"), "--mem-per-gpu=1000 --cpus-per-task=12");
        assert_eq!(options(r#", "memory_mib": 64000"#, "n1:2"), "--cpus-per-gpu=3 --mem=64000M");
        let both = r#", "cpus": 12, "memory_mib": 64000"#;
        assert_eq!(options(both, "n1:2"), "--cpus-per-task=12 --mem=64000M");
        assert_eq!(options(both, "n1"), "--mem=0", "a wing on a whole node gets all of it");
    }

    /// As the agent of a lead with all GPUs of its node writes it.
    const ALL_GPUS: &str = r#"${SLURM_GPUS_ON_NODE:+"--gres=gpu:$SLURM_GPUS_ON_NODE"}"#;

    /// An order for a wing on this node, with these generic resources.
    fn order_on(node: &str, gres: &str) -> WingOrder {
        let text = format!(
            r#"{{"order": 7, "nodes": ["{node}"], "time_limit_mins": 5, "partition": "infill", "qos": null,
                "account": null, "gres": {gres}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_wing_on_a_whole_node_uses_all_its_gpus_unless_the_job_requested_a_number() {
        let takes_all = |gpus: Option<&str>, node: &str, gres: &str| {
            let job = WingJob {
                lead: JobId(100),
                worker_args: Vec::new(),
                url: String::new(),
                share: Vec::new(),
                array_variables: Vec::new(),
                gpus: gpus.map(str::to_owned),
                dir: None,
                output: None,
                error: None,
            };
            let submitter = WingSubmitter::new(job, PathBuf::from("/none"), SlurmPrograms::default());
            let script = submitter.wing_script(&order_on(node, gres), Path::new("infill")).unwrap();
            script.contains(" '--input=none' --gres=ALL infill")
        };
        assert!(
            takes_all(Some("--gres=ALL"), "n1", "null") && takes_all(Some("--gres=ALL"), "n1", "\"nvme:1\"")
        );
        assert!(!takes_all(Some("--gres=ALL"), "n1", "\"gpu:2\""), "as requested");
        assert!(!takes_all(Some("--gres=ALL"), "n1", "\"gpu:0\""), "none was requested");
        assert!(!takes_all(Some("--gres=ALL"), "n1:2", "null"), "a place has its share");
        assert!(!takes_all(None, "n1", "null"), "the lead has none");
    }

    #[test]
    fn lines_of_the_queue_are_read() {
        assert_eq!(parse_queue_line("123 infill:order=7;wing=100"), Some((7, JobId(123))));
        assert_eq!(parse_queue_line("123 infill:order=7"), Some((7, JobId(123))));
        assert_eq!(parse_queue_line("123 (null)"), None);
    }

    #[test]
    fn the_script_of_a_wing() {
        let job = WingJob {
            lead: JobId(100),
            worker_args: ["--grace=5", "--", "sh", "-c", "echo 'hi' $HOME", ""].map(str::to_owned).to_vec(),
            url: "http://ctl:6810".to_owned(),
            share: Vec::new(),
            gpus: Some(ALL_GPUS.to_owned()),
            array_variables: array_variables(|name| (name == "SLURM_ARRAY_TASK_ID").then(|| "4".to_owned())),
            dir: Some((PathBuf::from("/home/a b"), true)),
            output: Some(PathBuf::from("/a/50% x.out")),
            error: Some(PathBuf::from("/a/err")),
        };
        let submitter = WingSubmitter::new(job, PathBuf::from("/none"), SlurmPrograms::default());
        insta::assert_snapshot!(submitter.wing_script(&order_on("n1", "null"), Path::new("/usr/bin/infill")).unwrap(), @r#"
        #!/bin/sh
        unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK
        export 'SLURM_ARRAY_TASK_ID=4'
        export INFILL_GPUS_HELD="$SLURM_GPUS_ON_NODE"
        (: >>'/a/50% x.out') 2>/dev/null && exec >>'/a/50% x.out' 2>&1
        (: >>/a/err) 2>/dev/null && exec 2>>/a/err
        (while sleep 3; do
            squeue -h -O PreemptTime:40,StartTime:40 -j "$SLURM_JOB_ID" 2>/dev/null |
                awk '$1 ~ /^[0-9]/ && $1 >= $2 { told = 1 } END { exit !told }' && kill $$ && exit
        done) &
        export INFILL_WATCHER=$!
        exec srun --overlap --no-kill '--kill-on-bad-exit=0' '--wait=0' '--ntasks-per-node=1' '--cpu-bind=none' '--input=none' ${SLURM_GPUS_ON_NODE:+"--gres=gpu:$SLURM_GPUS_ON_NODE"} /usr/bin/infill worker '--lead=100' '--url=http://ctl:6810' '--dir=/home/a b' --needs-dir '--grace=5' -- sh -c "echo 'hi' "'$HOME' ''
        "#);
    }
}
