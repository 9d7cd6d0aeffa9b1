//! What a user asked for, as the job_submit plug-in (or the user) wrote it into a job's comment.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::JobId;

/// Largest node count that a request may name: a typo must not make the planner allocate gigabytes.
pub const MAX_NODES_A_JOB: u32 = 10_000;

/// The sizes that a malleable job may have, besides zero. As text and as JSON: `4`, `2-8` or `1,2,4,8`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sizes {
    /// Every size from `min` to `max` nodes, both included.
    Range {
        /// Smallest size, at least 1.
        min: u32,
        /// Largest size.
        max: u32,
    },
    /// Just these sizes, ascending, at least one.
    Set(Vec<u32>),
}

impl Sizes {
    /// Smallest size.
    pub fn min(&self) -> u32 {
        match self {
            Sizes::Range { min, .. } => *min,
            Sizes::Set(s) => s.first().copied().unwrap_or(1),
        }
    }

    /// Largest size.
    pub fn max(&self) -> u32 {
        match self {
            Sizes::Range { max, .. } => *max,
            Sizes::Set(s) => s.last().copied().unwrap_or(1),
        }
    }

    /// Whether `nodes` is allowed (zero never is; it means parked).
    pub fn allows(&self, nodes: u32) -> bool {
        match self {
            Sizes::Range { min, max } => (*min..=*max).contains(&nodes),
            Sizes::Set(s) => s.binary_search(&nodes).is_ok(),
        }
    }

    /// Allowed sizes up to `limit`, ascending.
    pub fn up_to(&self, limit: u32) -> Vec<u32> {
        match self {
            Sizes::Range { min, max } => (*min..=(*max).min(limit)).collect(),
            Sizes::Set(s) => s.iter().copied().filter(|n| *n <= limit).collect(),
        }
    }

    /// Parses `4`, `2-8` or `1,2,4,8`.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let bad = |what: &str| RequestError::Sizes { text: text.to_owned(), what: what.to_owned() };
        let number = |s: &str| s.trim().parse::<u32>().map_err(|_| bad("not a number of nodes"));
        let sizes = if text.contains(',') {
            let mut set = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
            set.sort_unstable();
            set.dedup();
            Sizes::Set(set)
        } else if let Some((min, max)) = text.split_once('-') {
            Sizes::Range { min: number(min)?, max: number(max)? }
        } else {
            let n = number(text)?;
            Sizes::Range { min: n, max: n }
        };
        match &sizes {
            Sizes::Range { min, max } if min > max => Err(bad("the minimum exceeds the maximum")),
            s if s.min() == 0 => Err(bad("0 nodes")),
            s if s.max() > MAX_NODES_A_JOB => Err(bad("too many nodes")),
            _ => Ok(sizes),
        }
    }
}

impl TryFrom<String> for Sizes {
    type Error = RequestError;
    fn try_from(text: String) -> Result<Self, RequestError> {
        Sizes::parse(&text)
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> String {
        sizes.to_string()
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Range { min, max } if min == max => write!(f, "{min}"),
            Sizes::Range { min, max } => write!(f, "{min}-{max}"),
            Sizes::Set(s) => f.write_str(&s.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

/// What a job in the malleable partition is, from its comments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A lead that may run on these numbers of nodes.
    Lead(Sizes),
    /// A wing of this lead.
    Wing(JobId),
}

/// Why a comment is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The list of sizes is wrong.
    #[error("node sizes {text:?}: {what} (expected N, MIN-MAX or a list like 1,2,4)")]
    Sizes {
        /// As written.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// The tag names nothing that we know.
    #[error("{0:?} has neither infill:nodes=SIZES nor infill:wing=JOBID")]
    Unknown(String),
}

impl Request {
    /// Reads `infill:nodes=2-8` or `infill:wing=123` out of a comment; further `;key=value` options are kept
    /// for later versions and ignored here. `Ok(None)` when the comment does not speak to infill.
    pub fn parse(comment: &str) -> Result<Option<Request>, RequestError> {
        let Some(at) = comment.find("infill:") else { return Ok(None) };
        let rest = &comment[at + "infill:".len()..];
        let rest = rest.split(char::is_whitespace).next().unwrap_or("");
        for option in rest.split(';') {
            if let Some(sizes) = option.strip_prefix("nodes=") {
                return Ok(Some(Request::Lead(Sizes::parse(sizes)?)));
            }
            if let Some(lead) = option.strip_prefix("wing=") {
                let id = lead.parse().map_err(|_| RequestError::Unknown(rest.to_owned()))?;
                return Ok(Some(Request::Wing(JobId(id))));
            }
        }
        Err(RequestError::Unknown(rest.to_owned()))
    }
}
