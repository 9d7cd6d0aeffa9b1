//! Requests of jobs in the malleable partition, in their names and comments.
//!
//! - A lead's comment is `infill:nodes=SIZES`. The job_submit plug-in writes it, or the user if there is no
//!   plug-in.
//! - A wing's name is `wing:LEAD`, and its comment is `infill:order=NUMBER;wing=LEAD`. The lead's agent
//!   writes both. The plug-in adds `infill:wing=LEAD` where only an administrator can change it.
//!
//! If parts of nodes are lent, sizes may be numbers of GPUs (`gpus=SIZES`) or of CPUs (`cpus=SIZES`). Then
//! `each=N` is the number of them that each worker has.
//!
//! Comments may have further `;key=value` options. The plug-in writes `time=MINUTES` for `--time`,
//! `held=owner` for `--hold`, and `each=N` for `--gpus-per-node` and `--cpus-per-task`. Unknown options are
//! ignored, so that later versions can add some.

use serde::{Deserialize, Serialize};

use super::{AllowedSizes, Job, JobId, LendingRules, NodeName, SizesError};

/// The beginning of comments for infill.
pub(crate) const TAG: &str = "infill:";

/// Most GPUs that a worker may have on one node. The job_submit plug-in has the same bound.
const MOST_GPUS_A_NODE: u32 = 64;

/// Most CPUs that a worker may have on one node. The job_submit plug-in has the same bound.
const MOST_CPUS_A_NODE: u32 = 4096;

/// The beginning of the names of wings.
const WING: &str = "wing:";

/// The role of a job in the malleable partition, from its name and comments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobRequest {
    /// A lead that may run on these numbers of nodes.
    Lead(AllowedSizes),
    /// A wing of this lead.
    Wing(JobId),
}

/// The reason why a comment is not a valid request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The list of sizes is not valid.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// The comment does not say how many CPUs each worker has.
    #[error("{0:?} does not say how many CPUs each worker has (each=CPUS, or --cpus-per-task)")]
    NoShare(String),
    /// The comment has neither sizes nor a lead.
    #[error("{0:?} has neither infill:nodes=SIZES nor infill:wing=JOBID")]
    Unknown(String),
}

impl JobRequest {
    /// The request of a job. The job's name has precedence over its comments, and the plug-in's comment over
    /// the user's. `Ok(None)` if none of them addresses infill, and for a record that stands for several
    /// tasks of an array.
    /// # Errors
    /// If one of them addresses infill but cannot be parsed.
    pub fn from_job(job: &Job) -> Result<Option<JobRequest>, RequestError> {
        if job.unsplit_tasks().is_some() {
            return Ok(None);
        }
        if let Some(lead) = lead_of_wing(job) {
            return Ok(Some(JobRequest::Wing(lead)));
        }
        JobRequest::parse(infill_comment(job))
    }

    /// Parses `infill:nodes=2-8` or `infill:wing=123` in a comment. `Ok(None)` if the comment does not
    /// address infill.
    ///
    /// # Errors
    /// If it addresses infill but cannot be parsed.
    pub fn parse(comment: &str) -> Result<Option<JobRequest>, RequestError> {
        let Some(text) = tagged_word(comment) else { return Ok(None) };
        for (key, value) in parse_options(text) {
            match key {
                "nodes" => return Ok(Some(JobRequest::Lead(AllowedSizes::parse(value)?))),
                "gpus" => {
                    let gpus_each = parse_share(text).map_or(1, |share| share.unit_count());
                    let sizes = AllowedSizes::parse(value)?.divided_by_block(gpus_each)?;
                    return Ok(Some(JobRequest::Lead(sizes)));
                }
                "cpus" => {
                    let share = parse_share(text).ok_or_else(|| RequestError::NoShare(text.to_owned()))?;
                    let sizes = AllowedSizes::parse(value)?.divided_by_block(share.unit_count())?;
                    return Ok(Some(JobRequest::Lead(sizes)));
                }
                "wing" => {
                    let lead = value.parse().map_err(|_| RequestError::Unknown(text.to_owned()))?;
                    return Ok(Some(JobRequest::Wing(JobId(lead))));
                }
                _ => {}
            }
        }
        Err(RequestError::Unknown(text.to_owned()))
    }
}

/// The options of a lead's comment besides sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommentOptions {
    /// `time=MINUTES`: the user's own time limit in minutes.
    pub limit_mins: Option<u32>,
    /// `held=owner`: the job was submitted with `--hold`.
    pub held: bool,
    /// `each=N`: the share of each worker if parts of nodes are lent; `None` for one GPU.
    pub share: Option<WorkerShare>,
}

/// The share of a node that each worker of a job has, if parts of nodes are lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerShare {
    /// This number of GPUs, each with its share of CPUs and memory.
    Gpus(u32),
    /// This number of CPUs of a node without GPUs, with their share of memory.
    Cpus(u32),
}

impl WorkerShare {
    /// The number of GPUs or CPUs.
    pub fn unit_count(self) -> u32 {
        match self {
            WorkerShare::Gpus(count) | WorkerShare::Cpus(count) => count,
        }
    }

    /// The number of places of a node that make up this share.
    pub fn place_count(self, parts: &LendingRules) -> u32 {
        match self {
            WorkerShare::Gpus(gpus) => gpus,
            // CPUs are not lent.
            WorkerShare::Cpus(_) if parts.cpus == 0 => 1,
            WorkerShare::Cpus(cpus) => cpus.div_ceil(parts.cpus),
        }
    }
}

impl CommentOptions {
    /// Reads the options of a job's comment. The plug-in's comment has precedence over the user's. Unreadable
    /// options are ignored.
    pub fn from_job(job: &Job) -> CommentOptions {
        let Some(text) = tagged_word(infill_comment(job)) else { return CommentOptions::default() };
        let limit_mins = find_option(text, "time").and_then(|mins| mins.parse().ok());
        CommentOptions {
            limit_mins: limit_mins.filter(|mins| *mins > 0),
            held: find_option(text, "held") == Some("owner"),
            share: parse_share(text),
        }
    }
}

/// The share of each worker in a comment's word. `None` if it has no share, or an invalid one.
fn parse_share(text: &str) -> Option<WorkerShare> {
    let (kind, _) = parse_options(text).find(|(key, _)| matches!(*key, "gpus" | "cpus"))?;
    let count: u32 = find_option(text, "each")?.parse().ok()?;
    let (most, share) = if kind == "gpus" {
        (MOST_GPUS_A_NODE, WorkerShare::Gpus(count))
    } else {
        (MOST_CPUS_A_NODE, WorkerShare::Cpus(count))
    };
    if (1..=most).contains(&count) { Some(share) } else { None }
}

/// The value of the first option with this key.
fn find_option<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    parse_options(text).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// The comment that addresses infill: the plug-in's, else the user's.
fn infill_comment(job: &Job) -> &str {
    if job.admin_comment.contains(TAG) { &job.admin_comment } else { &job.comment }
}

/// The lead of this job, if the job is a wing.
pub fn lead_of_wing(job: &Job) -> Option<JobId> {
    lead_from_wing_name(&job.name)
}

/// The lead in a wing's name.
pub fn lead_from_wing_name(name: &str) -> Option<JobId> {
    name.strip_prefix(WING)?.parse().ok().map(JobId)
}

/// The name of a wing of this lead.
pub fn wing_name(lead: JobId) -> String {
    format!("{WING}{lead}")
}

/// The comment of this lead's wing with this number, and with its place if it has one.
pub fn wing_comment(order: u64, lead: JobId, place: Option<&NodeName>) -> String {
    let place = place.map(|place| format!(";place={place}")).unwrap_or_default();
    format!("{TAG}order={order};wing={lead}{place}")
}

/// The place in a wing's comment. Several places are one block.
pub fn place_from_comment(comment: &str) -> Option<NodeName> {
    let (host, numbers) = wing_option(comment, "place")?.split_once(':')?;
    let numbers: Option<Vec<usize>> = numbers.split('+').map(|n| leading_digits(n).parse().ok()).collect();
    Some(NodeName::new(host).block_name(&numbers?))
}

/// The number in a wing's comment.
pub fn order_from_comment(comment: &str) -> Option<u64> {
    leading_digits(wing_option(comment, "order")?).parse().ok()
}

/// The value of an option in a wing's comment. Other programs may have written before and after it.
fn wing_option<'a>(comment: &'a str, key: &str) -> Option<&'a str> {
    let words = comment.split(TAG).skip(1).map(|rest| rest.split(char::is_whitespace).next().unwrap_or(rest));
    words.flat_map(parse_options).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// The digits at the beginning of a text.
fn leading_digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

/// The word of a comment that addresses infill, without its tag.
fn tagged_word(comment: &str) -> Option<&str> {
    let (_, rest) = comment.split_once(TAG)?;
    Some(rest.split(char::is_whitespace).next().unwrap_or(rest))
}

/// The `key=value` options of such a word.
fn parse_options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|option| option.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::super::{BaseState, MAX_NODES_A_JOB};
    use super::*;

    const PLUGIN: &str = include_str!("../../../slurm/job_submit.lua");

    fn job(name: &str, admin_comment: &str, comment: &str) -> Job {
        let name = name.to_owned();
        let admin_comment = admin_comment.to_owned();
        let comment = comment.to_owned();
        Job { name, admin_comment, comment, ..Job::new(JobId(7), "infill", BaseState::Pending) }
    }

    #[test]
    fn the_request_of_a_job_is_read_from_its_name_and_comments() {
        let cases = [
            ("train", "infill:nodes=2-8", "", "lead 2-8"),
            ("train", "", "mine infill:nodes=1,2,4;profile=bert and more", "lead 1,2,4"),
            ("train", "infill:nodes=2-4", "infill:nodes=1-99", "lead 2-4"),
            ("train", "", "infill:profile=bert;nodes=3", "lead 3"),
            ("train", "infill:wing=12", "", "wing of 12"),
            ("wing:12", "infill:nodes=2-4", "infill:order=1;wing=13", "wing of 12"),
            ("wing:x", "", "mine", "nothing"),
            ("train", "infill:gpus=1-16", "", "lead 1-16"),
            ("train", "infill:gpus=2-16;each=2", "", "lead 1-8"),
            ("train", "infill:each=4;gpus=4,8,16", "", "lead 1,2,4"),
            (
                "train",
                "infill:gpus=2,3;each=2",
                "",
                r#"node sizes "2,3": no multiples of 2, the GPUs or CPUs of each node (expected N, MIN-MAX or a list like 1,2,4)"#,
            ),
            ("train", "infill:gpus=1-7;each=2", "", "lead 1-3"),
            ("train", "infill:cpus=8-64;each=8", "", "lead 1-8"),
            (
                "train",
                "",
                "infill:cpus=8-64",
                r#""cpus=8-64" does not say how many CPUs each worker has (each=CPUS, or --cpus-per-task)"#,
            ),
            (
                "train",
                "",
                "infill:order=1",
                r#""order=1" has neither infill:nodes=SIZES nor infill:wing=JOBID"#,
            ),
            (
                "train",
                "",
                "infill:wing=x",
                r#""wing=x" has neither infill:nodes=SIZES nor infill:wing=JOBID"#,
            ),
            (
                "train",
                "",
                "infill:nodes=0-2",
                r#"node sizes "0-2": 0 nodes (expected N, MIN-MAX or a list like 1,2,4)"#,
            ),
        ];
        for (name, admin_comment, comment, expected) in cases {
            let request = match JobRequest::from_job(&job(name, admin_comment, comment)) {
                Ok(Some(JobRequest::Lead(sizes))) => format!("lead {sizes}"),
                Ok(Some(JobRequest::Wing(lead))) => format!("wing of {lead}"),
                Ok(None) => "nothing".to_owned(),
                Err(e) => e.to_string(),
            };
            assert_eq!(request, expected, "{name:?} {admin_comment:?} {comment:?}");
        }
    }

    #[test]
    fn further_options_are_read_from_comments() {
        assert_eq!(options("infill:gpus=2-8;each=2", ""), "None false Gpus(2)");
        assert_eq!(options("", "infill:each=128;cpus=128-1024"), "None false Cpus(128)");
        for nonsense in
            ["infill:gpus=2;each=0", "infill:gpus=2;each=65", "infill:gpus=2;each=x", "infill:nodes=2;each=2"]
        {
            assert_eq!(options(nonsense, ""), "None false", "{nonsense}");
        }
        assert_eq!(options("infill:nodes=2-8", "infill:time=3"), "None false");
        assert_eq!(options("infill:nodes=2-8;time=90;held=owner", ""), "Some(90) true");
        assert_eq!(options("", "infill:nodes=2;time=5 and more"), "Some(5) false");
        for nonsense in ["infill:time=0", "infill:time=-1", "infill:time=99999999999;held=no", "time=5"] {
            assert_eq!(options("", nonsense), "None false", "{nonsense}");
        }
    }

    fn options(admin_comment: &str, comment: &str) -> String {
        let CommentOptions { limit_mins, held, share } =
            CommentOptions::from_job(&job("train", admin_comment, comment));
        let share = share.map(|share| format!(" {share:?}")).unwrap_or_default();
        format!("{limit_mins:?} {held}{share}")
    }

    #[test]
    fn the_comment_of_a_wing_is_read_as_it_was_written() {
        let comment = wing_comment(17, JobId(100), None);
        let wing = job(&wing_name(JobId(100)), "", &comment);
        assert_eq!((lead_of_wing(&wing), order_from_comment(&comment)), (Some(JobId(100)), Some(17)));
        assert_eq!(JobRequest::parse(&comment), Ok(Some(JobRequest::Wing(JobId(100)))));
        assert_eq!(place_from_comment(&comment), None);
        let comment = wing_comment(17, JobId(100), Some(&NodeName::new("n1:2")));
        assert_eq!(
            (order_from_comment(&comment), place_from_comment(&comment)),
            (Some(17), Some(NodeName::new("n1:2")))
        );
        assert_eq!(place_from_comment("infill:order=1;place=n1"), None);
        assert_eq!(
            place_from_comment("mine infill:order=17;place=n1:12,site=x"),
            Some(NodeName::new("n1:12"))
        );
        assert_eq!(place_from_comment("infill:order=1;place=n1:x"), None);
        let block = NodeName::new("n1").block_name(&[0, 3]);
        assert_eq!(place_from_comment(&wing_comment(17, JobId(100), Some(&block))), Some(block));
        assert_eq!(place_from_comment("infill:order=1;place=n1:0+x"), None);
        assert_eq!(order_from_comment("infill:wing=100 infill:order=17,site=x"), Some(17));
        for comment in ["", "(null)", "infill:nodes=1", "infill:order=", "order=3"] {
            assert_eq!(order_from_comment(comment), None, "{comment:?}");
        }
    }

    #[test]
    fn the_plug_in_has_the_same_bounds_and_writes_the_same_words() {
        let bound = PLUGIN.lines().find_map(|line| line.strip_prefix("local MAX_NODES = ")).expect("a bound");
        assert_eq!(bound.parse(), Ok(MAX_NODES_A_JOB));
        for (name, most) in [("MAX_GPUS_A_NODE", MOST_GPUS_A_NODE), ("MAX_CPUS_A_NODE", MOST_CPUS_A_NODE)] {
            let line = format!("local {name} = {most}");
            assert!(PLUGIN.lines().any(|l| l == line), "the plug-in has no {line:?}");
        }
        for text in
            [format!("\"^{WING}(%d+)$\""), format!("\"{TAG}\" .. what .. \"=\""), format!("\"{TAG}wing=\"")]
        {
            assert!(PLUGIN.contains(&text), "the plug-in has no {text}");
        }
    }
}
