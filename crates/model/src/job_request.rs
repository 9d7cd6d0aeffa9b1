//! What jobs in the malleable partition say of themselves in their names and comments.
//!
//! - A lead's comment is `infill:nodes=SIZES`, written by the job_submit plug-in, or by the user where there
//!   is none.
//! - A wing's name is `wing:LEAD`, and its comment `infill:order=NUMBER;wing=LEAD`, both written by the
//!   lead's agent; the plug-in adds an `infill:wing=LEAD` that nobody but an administrator can change.
//!
//! Where parts of nodes are lent, sizes may be numbers of GPUs (`gpus=SIZES`) or of CPUs (`cpus=SIZES`), and
//! `each=N` says how many of them each worker has.
//!
//! Comments may have further `;key=value` options: the plug-in writes `time=MINUTES` for `--time`,
//! `held=owner` for `--hold`, and `each=N` for `--gpus-per-node` and `--cpus-per-task`. Others are kept for
//! later versions.

use serde::{Deserialize, Serialize};

use super::{AllowedSizes, Job, JobId, LendingRules, NodeName, SizesError};

/// What comments for infill begin with.
const TAG: &str = "infill:";

/// Most GPUs that a node may be thought to have. The job_submit plug-in has the same bound.
const MOST_GPUS_A_NODE: u32 = 64;

/// Most CPUs that a worker may have of one. So does the plug-in.
const MOST_CPUS_A_NODE: u32 = 4096;

/// What the names of wings begin with.
const WING: &str = "wing:";

/// What a job in the malleable partition is, from its name and comments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobRequest {
    /// A lead that may run on these numbers of nodes.
    Lead(AllowedSizes),
    /// A wing of this lead.
    Wing(JobId),
}

/// Why a comment is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The list of sizes is wrong.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// It does not say how many CPUs each worker has.
    #[error("{0:?} does not say how many CPUs each worker has (each=CPUS, or --cpus-per-task)")]
    NoShare(String),
    /// The tag names nothing that we know.
    #[error("{0:?} has neither infill:nodes=SIZES nor infill:wing=JOBID")]
    Unknown(String),
}

impl JobRequest {
    /// What a job asks for. Its name goes before its comments, and the plug-in's comment before the user's.
    /// `Ok(None)` when nothing in it speaks to infill.
    ///
    /// # Errors
    /// When it speaks to infill, and cannot be understood.
    pub fn from_job(job: &Job) -> Result<Option<JobRequest>, RequestError> {
        if let Some(lead) = lead_of_wing(job) {
            return Ok(Some(JobRequest::Wing(lead)));
        }
        JobRequest::parse(infill_comment(job))
    }

    /// Reads `infill:nodes=2-8` or `infill:wing=123` out of a comment. `Ok(None)` when the comment does not
    /// speak to infill.
    ///
    /// # Errors
    /// When it does, and cannot be understood.
    pub fn parse(comment: &str) -> Result<Option<JobRequest>, RequestError> {
        let Some(text) = tagged_word(comment) else { return Ok(None) };
        let unknown = || RequestError::Unknown(text.to_owned());
        for (key, value) in parse_options(text) {
            match key {
                "nodes" => return Ok(Some(JobRequest::Lead(AllowedSizes::parse(value)?))),
                "gpus" => {
                    let each = parse_share(text).map_or(1, |share| share.unit_count());
                    return Ok(Some(JobRequest::Lead(AllowedSizes::parse(value)?.divided_by_block(each)?)));
                }
                "cpus" => {
                    let share = parse_share(text).ok_or_else(|| RequestError::NoShare(text.to_owned()))?;
                    return Ok(Some(JobRequest::Lead(
                        AllowedSizes::parse(value)?.divided_by_block(share.unit_count())?,
                    )));
                }
                "wing" => {
                    return value.parse().map(|id| Some(JobRequest::Wing(JobId(id)))).map_err(|_| unknown());
                }
                _ => {}
            }
        }
        Err(unknown())
    }
}

/// What a lead's comment says besides sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommentOptions {
    /// `time=MINUTES`: the user's own time limit.
    pub limit_mins: Option<u32>,
    /// `held=owner`: submitted with `--hold`.
    pub held: bool,
    /// `each=N`: what each worker has, where parts of nodes are lent; `None` means one GPU.
    pub share: Option<WorkerShare>,
}

/// What each worker of a job has of a node, where parts of nodes are lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerShare {
    /// So many GPUs, each with what comes with it.
    Gpus(u32),
    /// So many CPUs of a node without GPUs, with their memory.
    Cpus(u32),
}

impl WorkerShare {
    /// How many of them.
    pub fn unit_count(self) -> u32 {
        match self {
            WorkerShare::Gpus(count) | WorkerShare::Cpus(count) => count,
        }
    }

    /// How many places of a node that is, where such parts are lent.
    pub fn place_count(self, parts: &LendingRules) -> u32 {
        match self {
            WorkerShare::Gpus(gpus) => gpus,
            // They are not lent.
            WorkerShare::Cpus(_) if parts.cpus == 0 => 1,
            WorkerShare::Cpus(cpus) => cpus.div_ceil(parts.cpus),
        }
    }
}

impl CommentOptions {
    /// What a job's comment says; the plug-in's before the user's, as for sizes. What cannot be read is no
    /// wish.
    pub fn from_job(job: &Job) -> CommentOptions {
        let value = |key| {
            parse_options(tagged_word(infill_comment(job))?).find(|(k, _)| *k == key).map(|(_, value)| value)
        };
        CommentOptions {
            limit_mins: value("time").and_then(|mins| mins.parse().ok()).filter(|mins| *mins > 0),
            held: value("held") == Some("owner"),
            share: tagged_word(infill_comment(job)).and_then(parse_share),
        }
    }
}

/// What each worker has, by a comment's word; `None` where it does not say, or nothing that can be.
fn parse_share(text: &str) -> Option<WorkerShare> {
    let (kind, _) = parse_options(text).find(|(key, _)| matches!(*key, "gpus" | "cpus"))?;
    let (_, each) = parse_options(text).find(|(key, _)| *key == "each")?;
    let each = |most| each.parse().ok().filter(|each| (1..=most).contains(each));
    match kind {
        "gpus" => each(MOST_GPUS_A_NODE).map(WorkerShare::Gpus),
        _ => each(MOST_CPUS_A_NODE).map(WorkerShare::Cpus),
    }
}

/// The comment that speaks to infill: the plug-in's, else the user's.
fn infill_comment(job: &Job) -> &str {
    if job.admin_comment.contains(TAG) { &job.admin_comment } else { &job.comment }
}

/// The lead of this job, if it is a wing.
pub fn lead_of_wing(job: &Job) -> Option<JobId> {
    lead_from_wing_name(&job.name)
}

/// The lead that a wing's name names.
pub fn lead_from_wing_name(name: &str) -> Option<JobId> {
    name.strip_prefix(WING)?.parse().ok().map(JobId)
}

/// The name of a wing of this lead.
pub fn wing_name(lead: JobId) -> String {
    format!("{WING}{lead}")
}

/// The comment of the wing of this lead that was ordered under this number, for this place if it is one.
pub fn wing_comment(order: u64, lead: JobId, place: Option<&NodeName>) -> String {
    let place = place.map(|place| format!(";place={place}")).unwrap_or_default();
    format!("{TAG}order={order};wing={lead}{place}")
}

/// The place that a wing's comment names, or the places as one.
pub fn place_from_comment(comment: &str) -> Option<NodeName> {
    let (host, numbers) = wing_option(comment, "place")?.split_once(':')?;
    let numbers: Option<Vec<usize>> = numbers.split('+').map(|n| leading_digits(n).parse().ok()).collect();
    Some(NodeName::new(host).block_name(&numbers?))
}

/// The order number that a wing's comment names.
pub fn order_from_comment(comment: &str) -> Option<u64> {
    leading_digits(wing_option(comment, "order")?).parse().ok()
}

/// The value of an option in a wing's comment. Others may have written before it and behind it.
fn wing_option<'a>(comment: &'a str, key: &str) -> Option<&'a str> {
    let words = comment.split(TAG).skip(1).map(|rest| rest.split(char::is_whitespace).next().unwrap_or(rest));
    words.flat_map(parse_options).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// The digits that a text begins with.
fn leading_digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

/// The word of a comment that speaks to infill, without its tag.
fn tagged_word(comment: &str) -> Option<&str> {
    let (_, rest) = comment.split_once(TAG)?;
    Some(rest.split(char::is_whitespace).next().unwrap_or(rest))
}

/// The options of such a word.
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
    fn what_a_job_asks_for() {
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
                r#"node sizes "2,3": no multiples of 2, which is what each node has (expected N, MIN-MAX or a list like 1,2,4)"#,
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
            let said = match JobRequest::from_job(&job(name, admin_comment, comment)) {
                Ok(Some(JobRequest::Lead(sizes))) => format!("lead {sizes}"),
                Ok(Some(JobRequest::Wing(lead))) => format!("wing of {lead}"),
                Ok(None) => "nothing".to_owned(),
                Err(e) => e.to_string(),
            };
            assert_eq!(said, expected, "{name:?} {admin_comment:?} {comment:?}");
        }
    }

    #[test]
    fn what_else_a_job_wishes() {
        let wishes = |admin_comment, comment| {
            let CommentOptions { limit_mins, held, share } =
                CommentOptions::from_job(&job("train", admin_comment, comment));
            let share = share.map(|share| format!(" {share:?}")).unwrap_or_default();
            format!("{limit_mins:?} {held}{share}")
        };
        assert_eq!(wishes("infill:gpus=2-8;each=2", ""), "None false Gpus(2)");
        assert_eq!(wishes("", "infill:each=128;cpus=128-1024"), "None false Cpus(128)");
        for nonsense in
            ["infill:gpus=2;each=0", "infill:gpus=2;each=65", "infill:gpus=2;each=x", "infill:nodes=2;each=2"]
        {
            assert_eq!(wishes(nonsense, ""), "None false", "{nonsense}");
        }
        assert_eq!(wishes("infill:nodes=2-8", "infill:time=3"), "None false");
        assert_eq!(wishes("infill:nodes=2-8;time=90;held=owner", ""), "Some(90) true");
        assert_eq!(wishes("", "infill:nodes=2;time=5 and more"), "Some(5) false");
        for nonsense in ["infill:time=0", "infill:time=-1", "infill:time=99999999999;held=no", "time=5"] {
            assert_eq!(wishes("", nonsense), "None false", "{nonsense}");
        }
    }

    #[test]
    fn what_is_written_of_a_wing_is_read_again() {
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
    fn the_plug_in_has_the_same_bound_and_writes_what_is_read_here() {
        let bound = PLUGIN.lines().find_map(|l| l.strip_prefix("local MAX_NODES = ")).expect("a bound");
        assert_eq!(bound.parse(), Ok(MAX_NODES_A_JOB));
        for (name, most) in [("MAX_GPUS_A_NODE", MOST_GPUS_A_NODE), ("MAX_CPUS_A_NODE", MOST_CPUS_A_NODE)] {
            let line = format!("local {name} = {most}");
            assert!(PLUGIN.lines().any(|l| l == line), "the plug-in has no {line:?}");
        }
        for text in
            [format!("\"^{WING}(%d+)$\""), format!("\"{TAG}\" .. what .. \"=\""), format!("\"{TAG}wing=\"")]
        {
            assert!(PLUGIN.contains(&text), "the plug-in says nothing of {text}");
        }
    }
}
