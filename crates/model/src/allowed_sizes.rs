//! The numbers of nodes that a malleable job may have.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest node count that a request may name, so that a typo cannot make the planner allocate gigabytes.
/// The job_submit plug-in has the same bound.
pub const MAX_NODES_A_JOB: u32 = 10_000;

/// The sizes that a malleable job may have, besides zero. As text and in JSON: `4`, `2-8` or `1,2,4,8`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub enum AllowedSizes {
    /// Every size from `min` to `max` nodes, both included.
    Range {
        /// The smallest size, at least 1.
        min: u32,
        /// The largest size, at least `min`.
        max: u32,
    },
    /// Exactly these sizes, ascending, at least one.
    Set(Vec<u32>),
}

impl AllowedSizes {
    /// The smallest size, at least 1.
    pub fn min(&self) -> u32 {
        match self {
            AllowedSizes::Range { min, .. } => *min,
            AllowedSizes::Set(sizes) => sizes.first().copied().unwrap_or(1),
        }
    }

    /// The largest size.
    pub fn max(&self) -> u32 {
        match self {
            AllowedSizes::Range { max, .. } => *max,
            AllowedSizes::Set(sizes) => sizes.last().copied().unwrap_or(1),
        }
    }

    /// Whether the job may have `nodes` nodes. Zero is never allowed: it means parked.
    pub fn contains(&self, nodes: u32) -> bool {
        match self {
            AllowedSizes::Range { min, max } => (*min..=*max).contains(&nodes),
            AllowedSizes::Set(sizes) => sizes.binary_search(&nodes).is_ok(),
        }
    }

    /// The allowed sizes up to `limit`, ascending.
    pub fn up_to(&self, limit: u32) -> Vec<u32> {
        match self {
            AllowedSizes::Range { min, max } => (*min..=(*max).min(limit)).collect(),
            AllowedSizes::Set(sizes) => sizes.iter().copied().filter(|n| *n <= limit).collect(),
        }
    }

    /// These sizes without those above `limit`. The smallest size always stays.
    pub fn capped_at(&self, limit: u32) -> AllowedSizes {
        match self {
            AllowedSizes::Range { min, max } => {
                AllowedSizes::Range { min: *min, max: (*max).min(limit).max(*min) }
            }
            AllowedSizes::Set(_) => AllowedSizes::Set(self.up_to(limit.max(self.min()))),
        }
    }

    /// These sizes, each increased by `more`.
    pub fn shifted_up(&self, more: u32) -> AllowedSizes {
        match self {
            AllowedSizes::Range { min, max } => {
                AllowedSizes::Range { min: min.saturating_add(more), max: max.saturating_add(more) }
            }
            AllowedSizes::Set(sizes) => {
                AllowedSizes::Set(sizes.iter().map(|n| n.saturating_add(more)).collect())
            }
        }
    }

    /// The sizes of one node alone, and of one node together with each of these sizes.
    pub fn added_to_one(&self) -> AllowedSizes {
        match self.shifted_up(1) {
            AllowedSizes::Range { min: 2, max } => AllowedSizes::Range { min: 1, max },
            shifted => AllowedSizes::Set(std::iter::once(1).chain(shifted.up_to(u32::MAX)).collect()),
        }
    }

    /// These sizes, each decreased by `fewer`, without those that drop to zero. `None` if none is left.
    pub fn shifted_down(&self, fewer: u32) -> Option<AllowedSizes> {
        match self {
            AllowedSizes::Range { min, max } => {
                let max = max.checked_sub(fewer).filter(|max| *max > 0)?;
                Some(AllowedSizes::Range { min: min.saturating_sub(fewer).max(1), max })
            }
            AllowedSizes::Set(sizes) => {
                let left: Vec<u32> =
                    sizes.iter().filter_map(|n| n.checked_sub(fewer)).filter(|n| *n > 0).collect();
                if left.is_empty() { None } else { Some(AllowedSizes::Set(left)) }
            }
        }
    }

    /// Converts numbers of GPUs or CPUs to numbers of nodes with `units_each` of them each. A range keeps its
    /// multiples.
    ///
    /// # Errors
    /// If a listed number is not a multiple of `units_each`, or a range contains no multiple.
    pub(crate) fn divided_by_block(self, units_each: u32) -> Result<Self, SizesError> {
        let units_each = units_each.max(1);
        match &self {
            AllowedSizes::Range { min, max } => {
                let min = min.div_ceil(units_each);
                let max = max / units_each;
                if min <= max {
                    return Ok(AllowedSizes::Range { min, max });
                }
            }
            AllowedSizes::Set(sizes) => {
                if sizes.iter().all(|n| n.is_multiple_of(units_each)) {
                    return Ok(AllowedSizes::Set(sizes.iter().map(|n| n / units_each).collect()));
                }
            }
        }
        let what = format!("no multiples of {units_each}, the GPUs or CPUs of each node");
        Err(SizesError { text: self.to_string(), what })
    }

    /// Parses `4`, `2-8` or `1,2,4,8`.
    ///
    /// # Errors
    /// If the text has another form, names zero nodes, or names more than [`MAX_NODES_A_JOB`].
    pub fn parse(text: &str) -> Result<Self, SizesError> {
        let sizes = AllowedSizes::parse_form(text)?;
        let problem = match &sizes {
            AllowedSizes::Range { min, max } if min > max => "the minimum exceeds the maximum",
            sizes if sizes.min() == 0 => "0 nodes",
            sizes if sizes.max() > MAX_NODES_A_JOB => "too many nodes",
            _ => return Ok(sizes),
        };
        Err(SizesError::new(text, problem))
    }

    /// Parses the text without a check of the bounds.
    fn parse_form(text: &str) -> Result<Self, SizesError> {
        if text.contains(',') {
            let mut sizes =
                text.split(',').map(|number| parse_nodes(text, number)).collect::<Result<Vec<_>, _>>()?;
            sizes.sort_unstable();
            sizes.dedup();
            return Ok(AllowedSizes::Set(sizes));
        }
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        Ok(AllowedSizes::Range { min: parse_nodes(text, min)?, max: parse_nodes(text, max)? })
    }
}

/// One number of `text`.
fn parse_nodes(text: &str, number: &str) -> Result<u32, SizesError> {
    number.trim().parse().map_err(|_| SizesError::new(text, "not a number of nodes"))
}

impl TryFrom<String> for AllowedSizes {
    type Error = SizesError;
    fn try_from(text: String) -> Result<Self, SizesError> {
        AllowedSizes::parse(&text)
    }
}

impl From<AllowedSizes> for String {
    fn from(sizes: AllowedSizes) -> String {
        sizes.to_string()
    }
}

impl fmt::Display for AllowedSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllowedSizes::Range { min, max } if min == max => write!(f, "{min}"),
            AllowedSizes::Range { min, max } => write!(f, "{min}-{max}"),
            AllowedSizes::Set(sizes) => {
                f.write_str(&sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The reason why a text does not name sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node sizes {text:?}: {what} (expected N, MIN-MAX or a list like 1,2,4)")]
pub struct SizesError {
    /// The text as written.
    pub text: String,
    /// The problem with it.
    pub what: String,
}

impl SizesError {
    fn new(text: &str, problem: &str) -> SizesError {
        SizesError { text: text.to_owned(), what: problem.to_owned() }
    }
}
