//! How many nodes a malleable job may have.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest node count that a request may name: a typo must not make the planner allocate gigabytes. The
/// job_submit plug-in has the same bound.
pub const MAX_NODES_A_JOB: u32 = 10_000;

/// The sizes that a malleable job may have, besides zero. As text and as JSON: `4`, `2-8` or `1,2,4,8`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub enum AllowedSizes {
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

impl AllowedSizes {
    /// Smallest size.
    pub fn min(&self) -> u32 {
        match self {
            AllowedSizes::Range { min, .. } => *min,
            AllowedSizes::Set(s) => s.first().copied().unwrap_or(1),
        }
    }

    /// Largest size.
    pub fn max(&self) -> u32 {
        match self {
            AllowedSizes::Range { max, .. } => *max,
            AllowedSizes::Set(s) => s.last().copied().unwrap_or(1),
        }
    }

    /// Whether `nodes` is allowed (zero never is; it means parked).
    pub fn contains(&self, nodes: u32) -> bool {
        match self {
            AllowedSizes::Range { min, max } => (*min..=*max).contains(&nodes),
            AllowedSizes::Set(s) => s.binary_search(&nodes).is_ok(),
        }
    }

    /// Allowed sizes up to `limit`, ascending.
    pub fn up_to(&self, limit: u32) -> Vec<u32> {
        match self {
            AllowedSizes::Range { min, max } => (*min..=(*max).min(limit)).collect(),
            AllowedSizes::Set(s) => s.iter().copied().filter(|n| *n <= limit).collect(),
        }
    }

    /// The same without the sizes above `limit`, but for the smallest.
    pub fn capped_at(&self, limit: u32) -> AllowedSizes {
        match self {
            AllowedSizes::Range { min, max } => {
                AllowedSizes::Range { min: *min, max: (*max).min(limit).max(*min) }
            }
            AllowedSizes::Set(_) => AllowedSizes::Set(self.up_to(limit.max(self.min()))),
        }
    }

    /// Each of them and `more`.
    pub fn shifted_up(&self, more: u32) -> AllowedSizes {
        match self {
            AllowedSizes::Range { min, max } => {
                AllowedSizes::Range { min: min.saturating_add(more), max: max.saturating_add(more) }
            }
            AllowedSizes::Set(set) => AllowedSizes::Set(set.iter().map(|n| n.saturating_add(more)).collect()),
        }
    }

    /// One alone, or with so many others.
    pub fn added_to_one(&self) -> AllowedSizes {
        match self.shifted_up(1) {
            AllowedSizes::Range { min: 2, max } => AllowedSizes::Range { min: 1, max },
            more => AllowedSizes::Set(std::iter::once(1).chain(more.up_to(u32::MAX)).collect()),
        }
    }

    /// Each of them less `fewer`; `None` where nothing would be left of any.
    pub fn shifted_down(&self, fewer: u32) -> Option<AllowedSizes> {
        match self {
            AllowedSizes::Range { min, max } => {
                let max = max.checked_sub(fewer).filter(|max| *max > 0)?;
                Some(AllowedSizes::Range { min: min.saturating_sub(fewer).max(1), max })
            }
            AllowedSizes::Set(set) => {
                let left: Vec<u32> =
                    set.iter().filter_map(|n| n.checked_sub(fewer)).filter(|n| *n > 0).collect();
                (!left.is_empty()).then_some(AllowedSizes::Set(left))
            }
        }
    }

    /// From numbers of GPUs to numbers of nodes that have so many each. Of a range, those that are multiples.
    ///
    /// # Errors
    /// Where a listed number is no multiple, or a range has none.
    pub(crate) fn divided_by_block(self, each: u32) -> Result<Self, SizesError> {
        let each = each.max(1);
        let refused = || SizesError {
            text: self.to_string(),
            what: format!("no multiples of {each}, which is what each node has"),
        };
        match &self {
            AllowedSizes::Range { min, max } => {
                let min = min.div_ceil(each);
                let max = max / each;
                if min <= max { Ok(AllowedSizes::Range { min, max }) } else { Err(refused()) }
            }
            AllowedSizes::Set(set) if set.iter().all(|n| n.is_multiple_of(each)) => {
                Ok(AllowedSizes::Set(set.iter().map(|n| n / each).collect()))
            }
            AllowedSizes::Set(_) => Err(refused()),
        }
    }

    /// Parses `4`, `2-8` or `1,2,4,8`.
    pub fn parse(text: &str) -> Result<Self, SizesError> {
        let bad = |what: &str| SizesError { text: text.to_owned(), what: what.to_owned() };
        let number = |s: &str| s.trim().parse::<u32>().map_err(|_| bad("not a number of nodes"));
        let sizes = if text.contains(',') {
            let mut set = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
            set.sort_unstable();
            set.dedup();
            AllowedSizes::Set(set)
        } else if let Some((min, max)) = text.split_once('-') {
            AllowedSizes::Range { min: number(min)?, max: number(max)? }
        } else {
            let n = number(text)?;
            AllowedSizes::Range { min: n, max: n }
        };
        match &sizes {
            AllowedSizes::Range { min, max } if min > max => Err(bad("the minimum exceeds the maximum")),
            s if s.min() == 0 => Err(bad("0 nodes")),
            s if s.max() > MAX_NODES_A_JOB => Err(bad("too many nodes")),
            _ => Ok(sizes),
        }
    }
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
            AllowedSizes::Set(s) => f.write_str(&s.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

/// Why a text names no sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node sizes {text:?}: {what} (expected N, MIN-MAX or a list like 1,2,4)")]
pub struct SizesError {
    /// As written.
    pub text: String,
    /// What is wrong.
    pub what: String,
}
