//! `infill jobs`: a table of the malleable jobs.

use std::sync::LazyLock;

use clap::Args;

use super::session::CliSession;
use infill_api::{DaemonStatus, EndPrediction, JobView, routes};
use infill_model::{MalleableState, duration, hostlist};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    filter::{self, FilterArgs, TableArgs},
    hidden::describe_hidden,
    output,
    phrases::{percent, text_or_dash},
    table::{FieldHelp, TableColumn},
};

/// Flags of `infill jobs`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HELP.as_str())]
pub struct JobsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    table: TableArgs,
}

const DEFAULT: &str = "%i %j %u %t %D %s %S %R %e %N %r";

static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const JOB_HELP: &str = "the lead's job id, or the task of an array, as in squeue";

const COLUMNS: &[TableColumn<JobView>] = &[
    TableColumn { letter: 'i', header: "JOBID", help: JOB_HELP, cell: JobView::display_name },
    TableColumn { letter: 'j', header: "NAME", help: "job name", cell: |j| j.name.clone() },
    TableColumn { letter: 'u', header: "USER", help: "owner", cell: |j| text_or_dash(&j.user) },
    TableColumn { letter: 't', header: "STATE", help: MalleableState::WORDS, cell: |j| j.state.to_string() },
    TableColumn { letter: 'D', header: "NODES", help: "nodes held", cell: |j| j.nodes.len().to_string() },
    TableColumn { letter: 'G', header: "GPUS", help: "GPUs used / GPUs held", cell: |j| or_dash(j.gpus) },
    TableColumn { letter: 's', header: "SIZES", help: "allowed sizes", cell: |j| j.sizes.clone() },
    TableColumn { letter: 'N', header: "NODELIST", help: "nodes held", cell: node_list_text },
    TableColumn {
        letter: 'g',
        header: "GEN",
        help: "present generation",
        cell: |j| j.generation.to_string(),
    },
    TableColumn { letter: 'c', header: "CHANGES", help: "rescales so far", cell: |j| j.rescales.to_string() },
    TableColumn {
        letter: 'f',
        header: "RESTARTS",
        help: "restarts after failures so far",
        cell: |j| j.restarts.to_string(),
    },
    TableColumn {
        letter: 'k',
        header: "KILLS",
        help: "rescales at which it had to be killed",
        cell: |j| j.kills.to_string(),
    },
    TableColumn { letter: 'S', header: "STEP", help: "last step reported", cell: |j| or_dash(j.step) },
    TableColumn { letter: 'L', header: "LOSS", help: "last loss reported", cell: |j| or_dash(j.loss) },
    TableColumn {
        letter: 'm',
        header: "SAMPLES",
        help: "samples reported in all",
        cell: |j| output::format_number(j.samples),
    },
    TableColumn {
        letter: 'R',
        header: "RATE",
        help: "samples a second now",
        cell: |j| or_dash(j.rate.map(output::format_number)),
    },
    TableColumn {
        letter: 'e',
        header: "EFFIC",
        help: "rate now, as a share of proportional scaling from its smallest size",
        cell: |j| or_dash(j.efficiency.map(percent::whole_percent)),
    },
    TableColumn {
        letter: 'E',
        header: "ENDS_IN",
        help: "expected time until its end at its present rate, with the most likely range; ~ for a rough guess",
        cell: |j| or_dash(j.ends.as_ref().map(end_text)),
    },
    TableColumn { letter: 'w', header: "WINGS", help: "the wings' job ids", cell: wing_text },
    TableColumn {
        letter: 'r',
        header: "REASON",
        help: "why it has its nodes",
        cell: |j| text_or_dash(&j.why),
    },
    TableColumn {
        letter: 'A',
        header: "LEARNING",
        help: "what infill has measured of its scaling, and which size it will try next",
        cell: |j| text_or_dash(&j.advice),
    },
];

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// `40:00(25:00-1:23:20)`, with `~` in front of a rough guess.
fn end_text(ends: &EndPrediction) -> String {
    let [low, median, high] =
        [ends.low_secs, ends.median_secs, ends.high_secs].map(duration::format_duration);
    let about = if ends.predictable { "" } else { "~" };
    format!("{about}{median}({low}-{high})")
}

fn node_list_text(job: &JobView) -> String {
    text_or_dash(&hostlist::compress_nodes(&job.nodes))
}

fn wing_text(job: &JobView) -> String {
    let ids: Vec<String> = job.wings.iter().map(ToString::to_string).collect();
    if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
}

/// Runs `infill jobs`.
pub async fn run(args: JobsArgs, session: &CliSession) -> CommandResult {
    args.table.check_format(COLUMNS)?;
    let mut status: DaemonStatus = session.daemon_client()?.get(routes::STATUS).await?;
    let filter = args.filter.resolve_me()?;
    for id in &filter.job {
        if !status.jobs.iter().any(|job| is_of(job, *id)) {
            return Err(ProgramExit::NotFound.caused_by(anyhow::anyhow!("no malleable job {id}")));
        }
    }
    status.jobs = select_jobs(status.jobs, &filter);
    if args.table.json {
        output::print_json(&status)?;
    } else {
        output::print_text(&filter::render_table(&args.table, DEFAULT, COLUMNS, &status.jobs)?)?;
        output::print_note(describe_hidden(&status.hidden));
    }
    Ok(ProgramExit::Ok.code())
}

/// Whether this is the job's id or its array's.
fn is_of(job: &JobView, id: u32) -> bool {
    let array = job.array_task.as_ref().and_then(|name| name.split('_').next()?.parse().ok());
    job.job.0 == id || array == Some(id)
}

fn admits_job(ids: &[u32], job: &JobView) -> bool {
    ids.is_empty() || ids.iter().any(|id| is_of(job, *id))
}

fn select_jobs(jobs: Vec<JobView>, filter: &FilterArgs) -> Vec<JobView> {
    jobs.into_iter()
        .filter(|j| {
            admits_job(&filter.job, j) && filter.admits_user(&j.user) && filter.admits_any_node(&j.nodes)
        })
        .collect()
}

/// A table of the jobs in the default format, for `infill status`.
pub fn job_table(jobs: &[JobView]) -> Result<String, infill_present::exit::CommandFailure> {
    filter::render_table(&TableArgs::default(), DEFAULT, COLUMNS, jobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn the_default_table() {
        insta::assert_snapshot!(job_table(&samples::sample_status().jobs).unwrap(), @r"
        JOBID NAME      USER  STATE   NODES SIZES STEP RATE EFFIC NODELIST REASON
        101   train-101 alice running 2     1-8   4200 812  87%   n[1-2]   2 of 3 gaps: the third closes in 4:00
        102   train-102 bob   queued  0     1-8   -    -    -     -        no gap lasts a minute
        ");
    }

    #[test]
    fn tasks_of_an_array_have_their_names_and_are_found_by_the_arrays_id() {
        let mut jobs = samples::sample_status().jobs;
        jobs[0].array_task = Some("90_3".to_owned());
        jobs[1].array_task = Some("90_[4-9%2]".to_owned());
        let select = |job: u32| -> Vec<String> {
            let filter = FilterArgs { job: vec![job], ..Default::default() };
            select_jobs(jobs.clone(), &filter).iter().map(JobView::display_name).collect()
        };
        assert_eq!(select(90), ["90_3", "90_[4-9%2]"]);
        assert_eq!(select(101), ["90_3"], "by the task's own id");
        assert_eq!(select(9), [""; 0]);
    }

    #[test]
    fn filters_are_joined_by_and() {
        let ids = |filter: FilterArgs| -> Vec<u32> {
            select_jobs(samples::sample_status().jobs, &filter).iter().map(|j| j.job.0).collect()
        };
        let users = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        assert_eq!(ids(FilterArgs::default()), [101, 102]);
        assert_eq!(ids(FilterArgs { user: users(&["bob"]), ..Default::default() }), [102]);
        assert_eq!(ids(FilterArgs { node: users(&["n2"]), ..Default::default() }), [101]);
        assert_eq!(ids(FilterArgs { node: users(&["n2"]), job: vec![102], ..Default::default() }), [0; 0]);
    }
}
