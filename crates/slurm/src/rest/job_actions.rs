//! The changes that infill makes to jobs. Each change first reads the job, for two reasons: infill never
//! touches a job outside the malleable partition, and Slurm accepts some harmful changes of a job in the
//! wrong state.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::RestSlurm;
use super::failure::{FailureKind, RequestFailure};
use crate::SlurmError;
use crate::command::ProgramCall;
use infill_model::{BaseState, Job, JobId, NodeName, comment_with_status};

/// A begin time in the past, which Slurm takes as "now" by its own clock. With 0 the begin time would stay as
/// it is, and a requeued job would wait for two minutes.
const BEGIN_NOW: u32 = 1;

/// The form of an empty node list in an update. slurmrestd ignores a list without elements.
const NO_NODES: [&str; 1] = [""];

/// How much longer scontrol may take than one request.
const SCONTROL_EXTRA: Duration = Duration::from_secs(2);

fn set_number(n: u32) -> Value {
    json!({ "set": true, "infinite": false, "number": n })
}

fn node_names(nodes: &[NodeName]) -> Value {
    nodes.iter().map(NodeName::as_str).collect()
}

/// Refuses a record that stands for several tasks of an array.
fn require_single(job: Job, doing: &str) -> Result<Job, SlurmError> {
    if job.unsplit_tasks().is_some() {
        return Err(permanent_error(doing, format!("{} is more than one job", job.slurm_name())));
    }
    Ok(job)
}

fn permanent_error(doing: &str, what: impl Into<String>) -> SlurmError {
    SlurmError::Permanent { doing: doing.to_owned(), what: what.into() }
}

fn transient_error(doing: &str, what: impl Into<String>) -> SlurmError {
    SlurmError::Transient { doing: doing.to_owned(), what: what.into() }
}

/// Whether a REST version, such as `v0.0.45`, has an endpoint for requeueing.
fn has_requeue_endpoint(rest_version: &str) -> bool {
    let number = rest_version.trim_start_matches("v0.0.").parse::<u32>();
    number.is_ok_and(|number| number >= 45)
}

impl RestSlurm {
    /// The job, or `None` if Slurm does not know it. Denied if it is outside the malleable partition.
    async fn malleable_job_if_known(&self, id: JobId, doing: &str) -> Result<Option<Job>, SlurmError> {
        match self.read_job_record(id, doing).await? {
            Some(job) if job.partition != self.partition => Err(SlurmError::Denied {
                doing: doing.to_owned(),
                what: format!(
                    "it is in partition {}, and infill only touches {}",
                    job.partition, self.partition
                ),
            }),
            job => Ok(job),
        }
    }

    async fn malleable_job(&self, id: JobId, doing: &str) -> Result<Job, SlurmError> {
        let job = self.malleable_job_if_known(id, doing).await?;
        job.ok_or_else(|| permanent_error(doing, "Slurm knows no such job"))
    }

    /// The malleable job with this id. Refused for a record that stands for several tasks of an array: Slurm
    /// would change all of them.
    async fn single_job(&self, id: JobId, doing: &str) -> Result<Job, SlurmError> {
        require_single(self.malleable_job(id, doing).await?, doing)
    }

    async fn running_job(&self, id: JobId, doing: &str) -> Result<Job, SlurmError> {
        let job = self.single_job(id, doing).await?;
        if job.state.is_running() { Ok(job) } else { Err(permanent_error(doing, "the job does not run")) }
    }

    async fn pending_job(&self, id: JobId, doing: &str) -> Result<Job, SlurmError> {
        let job = self.single_job(id, doing).await?;
        if job.state.is_pending() { Ok(job) } else { Err(permanent_error(doing, "the job is not pending")) }
    }

    async fn update_job(&self, id: JobId, body: &Value, doing: &str) -> Result<(), SlurmError> {
        let result = self.session.send_change(Method::POST, &format!("job/{id}"), Some(body)).await;
        result.map_err(|f| f.into_slurm_error(doing))
    }

    pub(super) async fn do_launch(&self, id: JobId, node: &NodeName, mins: u32) -> Result<(), SlurmError> {
        let doing = format!("launching job {id} on {node} for {mins} min");
        let job = self.pending_job(id, &doing).await?;
        if job.state.flags.contains("COMPLETING") {
            // Slurm sets the requeue delay once the job has left its old node. That would overwrite this
            // update.
            return Err(transient_error(&doing, "the job is still leaving its former node"));
        }
        let body = json!({
            "required_nodes": node_names(std::slice::from_ref(node)),
            "time_limit": set_number(mins.max(1)),
            "begin_time": set_number(BEGIN_NOW),
            "hold": false,
        });
        self.update_job(id, &body, &doing).await
    }

    pub(super) async fn do_set_time_limit(&self, id: JobId, mins: u32) -> Result<(), SlurmError> {
        let doing = format!("setting the time limit of job {id} to {mins} min");
        self.running_job(id, &doing).await?;
        self.update_job(id, &json!({ "time_limit": set_number(mins.max(1)) }), &doing).await
    }

    pub(super) async fn do_shrink(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError> {
        let doing = format!("shrinking job {id} to {} nodes", keep.len());
        let job = self.running_job(id, &doing).await?;
        let mut wanted = keep.to_vec();
        wanted.sort();
        wanted.dedup();
        if wanted == job.nodes {
            return Ok(());
        }
        if let Some(node) = wanted.iter().find(|n| !job.nodes.contains(n)) {
            return Err(permanent_error(&doing, format!("it does not hold {node}")));
        }
        if wanted.is_empty() || job.batch_host.as_ref().is_some_and(|host| !wanted.contains(host)) {
            return Err(permanent_error(&doing, "its batch script's node must stay"));
        }
        self.update_job(id, &json!({ "required_nodes": node_names(&wanted) }), &doing).await
    }

    pub(super) async fn do_cancel(&self, id: JobId) -> Result<(), SlurmError> {
        let doing = format!("cancelling job {id}");
        let name = match self.malleable_job_if_known(id, &doing).await? {
            Some(job) if job.state.is_ended() => return Ok(()),
            Some(job) => require_single(job, &doing)?.slurm_name(),
            None => return Ok(()),
        };
        match self.session.send_change(Method::DELETE, &format!("job/{name}"), None).await {
            Err(f) if f.kind == FailureKind::NoSuchJob => Ok(()),
            // Slurm says this also of a requeued job that is still leaving its node: check its state.
            Err(f) if f.kind == FailureKind::AlreadyDone => match self.read_job_record(id, &doing).await? {
                Some(job) if job.state.is_pending() => {
                    let what = format!("{}, yet it is pending", f.what);
                    Err(RequestFailure::new(FailureKind::Transient, what).into_slurm_error(doing))
                }
                _ => Ok(()),
            },
            result => result.map_err(|f| f.into_slurm_error(doing)),
        }
    }

    pub(super) async fn do_requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        let doing = format!("requeueing job {id}, held");
        // Slurm would bring a cancelled job back to life.
        let job = self.running_job(id, &doing).await?;
        if job.state.base == BaseState::Suspended {
            return Err(permanent_error(&doing, "the job is suspended"));
        }
        let endpoint = self.session.find_endpoint().await.map_err(|f| f.into_slurm_error(&doing))?;
        if !has_requeue_endpoint(&endpoint.rest_version) || job.array.is_some() {
            return self.run_scontrol(&["requeuehold", &job.slurm_name()], &doing).await;
        }
        let tail = format!("job/{id}/requeue?Hold=true");
        self.session.send_change(Method::GET, &tail, None).await.map_err(|f| f.into_slurm_error(doing))
    }

    /// Runs `scontrol ARG…`.
    async fn run_scontrol(&self, args: &[&str], doing: &str) -> Result<(), SlurmError> {
        let token = self.session.current_token().await;
        let env: Vec<(&str, &str)> = token.iter().map(|t| ("SLURM_JWT", t.0.as_str())).collect();
        let limit = self.timeout + SCONTROL_EXTRA;
        let program = ProgramCall { path: &self.scontrol, args, env: &env, stdin: b"", limit };
        let out = program.run().await.map_err(|e| transient_error(doing, e.to_string()))?;
        let lower = out.stderr.to_ascii_lowercase();
        match out.code {
            Some(0) => Ok(()),
            _ if lower.contains("denied") => {
                Err(SlurmError::Denied { doing: doing.to_owned(), what: out.stderr })
            }
            _ if lower.contains("invalid job id") => Err(permanent_error(doing, out.stderr)),
            code => Err(transient_error(doing, format!("scontrol ended with {code:?}: {}", out.stderr))),
        }
    }

    /// Holds the job as its owner would (`uhold`), which slurmrestd cannot do. Otherwise infill's hold would
    /// look like an administrator's, and the owner could not release the job.
    pub(super) async fn do_hold(&self, id: JobId) -> Result<(), SlurmError> {
        let doing = format!("holding job {id}");
        let job = self.pending_job(id, &doing).await?;
        if job.held {
            return Ok(());
        }
        self.run_scontrol(&["uhold", &job.slurm_name()], &doing).await
    }

    /// Clears the required nodes. Some slurmrestds answer success without doing it, so this checks the result
    /// and falls back on scontrol.
    pub(super) async fn do_unpin(&self, id: JobId) -> Result<(), SlurmError> {
        let doing = format!("unpinning job {id}");
        self.held_pending_job(id, &doing).await?;
        self.update_job(id, &json!({ "required_nodes": NO_NODES }), &doing).await?;
        let job = self.held_pending_job(id, &doing).await?;
        if job.asks.pinned.is_empty() {
            return Ok(());
        }
        self.run_scontrol(&["update", &format!("JobId={}", job.slurm_name()), "ReqNodeList="], &doing).await
    }

    /// Gives tasks of an array records of their own. Slurm does that for every task that somebody changes, so
    /// this sets an option that they have already. At least one task stays behind and keeps the record.
    pub(super) async fn do_split(&self, array: JobId, tasks: &[u32]) -> Result<(), SlurmError> {
        let doing = format!("giving tasks of array {array} records of their own");
        let record = self.malleable_job(array, &doing).await?;
        let Some(unsplit) = record.unsplit_tasks().filter(|_| record.state.is_pending()) else {
            return Ok(());
        };
        let mut due: Vec<u32> = tasks.iter().copied().filter(|task| unsplit.tasks.contains(task)).collect();
        if !unsplit.has_more && due.len() == unsplit.tasks.len() {
            // Slurm would not split a request for all of them.
            due.pop();
        }
        if due.is_empty() {
            return Ok(());
        }
        let list: Vec<String> = due.iter().map(u32::to_string).collect();
        let names = format!("JobId={array}_[{}]", list.join(","));
        self.run_scontrol(&["update", &names, "Requeue=1"], &doing).await
    }

    /// Writes a status into the comment, which Slurm lets an operator change.
    pub(super) async fn do_write_status(&self, id: JobId, status: &str) -> Result<(), SlurmError> {
        let doing = format!("writing into the comment of job {id}");
        let job = self.malleable_job(id, &doing).await?;
        match comment_with_status(&job.comment, status) {
            Some(comment) if comment != job.comment && !job.state.is_ended() => {
                self.update_job(id, &json!({ "comment": comment }), &doing).await
            }
            _ => Ok(()),
        }
    }

    async fn held_pending_job(&self, id: JobId, doing: &str) -> Result<Job, SlurmError> {
        let job = self.pending_job(id, doing).await?;
        if job.held { Ok(job) } else { Err(permanent_error(doing, "the job is not held")) }
    }
}
