//! Sizes of memory as people write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most memory that one worker, or one GPU, is believed to have, MiB: a PiB.
pub const MOST_MEMORY_MIB: u64 = 1 << 30;

/// Units with their MiB; the last is the largest.
const UNITS: [(char, f64); 4] = [('K', 1.0 / 1024.0), ('M', 1.0), ('G', 1024.0), ('T', 1024.0 * 1024.0)];

/// An amount of memory, whole MiB, from 1 to [`MOST_MEMORY_MIB`]. As text it is `64G`: units are powers of
/// 1024, and a number alone is MiB, as for `sbatch --mem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemorySize {
    mib: u64,
}

impl MemorySize {
    /// So many MiB; at least one, at most [`MOST_MEMORY_MIB`].
    pub fn from_mib(mib: u64) -> Self {
        MemorySize { mib: mib.clamp(1, MOST_MEMORY_MIB) }
    }

    /// MiB.
    pub fn mib(self) -> u64 {
        self.mib
    }
}

impl FromStr for MemorySize {
    type Err = MemorySizeError;
    fn from_str(text: &str) -> Result<Self, MemorySizeError> {
        let refused = |what: &'static str| MemorySizeError { text: text.to_owned(), what };
        let word = text.trim().to_ascii_uppercase();
        let stripped = word.strip_suffix("IB").or_else(|| word.strip_suffix('B'));
        let word = stripped.unwrap_or(&word);
        let unit = UNITS.iter().find_map(|(letter, mib)| Some((word.strip_suffix(*letter)?, *mib)));
        let (number, mib) = match unit {
            Some(unit) => unit,
            // Bytes are too small a unit to be meant.
            None if stripped.is_some() => return Err(refused("not a number")),
            None => (word, 1.0),
        };
        let number = number.trim_end();
        // What Rust reads besides, such as `inf` and `1e3`, people do not write.
        let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number: f64 = number.parse().ok().filter(|_| is_plain).ok_or_else(|| refused("not a number"))?;
        let mib = (number * mib).ceil();
        if (1.0..=MOST_MEMORY_MIB as f64).contains(&mib) {
            Ok(MemorySize { mib: mib as u64 })
        } else {
            Err(refused(if mib < 1.0 { "no memory at all" } else { "more than any machine has" }))
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number = self.mib;
        let mut unit = 'M';
        for larger in ['G', 'T'] {
            if !number.is_multiple_of(1024) {
                break;
            }
            (number, unit) = (number / 1024, larger);
        }
        write!(f, "{number}{unit}")
    }
}

impl TryFrom<String> for MemorySize {
    type Error = MemorySizeError;
    fn try_from(text: String) -> Result<Self, MemorySizeError> {
        text.parse()
    }
}

impl From<MemorySize> for String {
    fn from(size: MemorySize) -> String {
        size.to_string()
    }
}

/// Why a text is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory {text:?}: {what} (expected a number with K, M, G or T, such as 64G)")]
pub struct MemorySizeError {
    /// As written.
    pub text: String,
    /// What is wrong.
    pub what: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_in_every_usual_form() {
        for (text, mib) in [
            ("64G", 64 * 1024),
            ("64g", 64 * 1024),
            ("64GB", 64 * 1024),
            ("64 GiB", 64 * 1024),
            ("1.5T", 1536 * 1024),
            ("500", 500),
            ("500M", 500),
            ("1025K", 2),
            ("1024T", MOST_MEMORY_MIB),
        ] {
            assert_eq!(text.parse::<MemorySize>().map(MemorySize::mib), Ok(mib), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_text() {
        for (text, want) in [
            ("", "not a number"),
            ("G", "not a number"),
            ("64X", "not a number"),
            ("64B", "not a number"),
            ("-1G", "not a number"),
            ("1e3", "not a number"),
            ("inf", "not a number"),
            ("64GG", "not a number"),
            ("0", "no memory at all"),
            ("1025T", "more than any machine has"),
        ] {
            let said = text.parse::<MemorySize>().unwrap_err().to_string();
            assert!(said.starts_with(&format!("memory {text:?}: {want}")), "{said}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (mib, text) in [(64 * 1024, "64G"), (1536, "1536M"), (2 << 20, "2T"), (MOST_MEMORY_MIB, "1024T")]
        {
            let size = MemorySize::from_mib(mib);
            assert_eq!((size.to_string().as_str(), text.parse()), (text, Ok(size)));
        }
        assert_eq!([0, u64::MAX].map(|mib| MemorySize::from_mib(mib).mib()), [1, MOST_MEMORY_MIB]);
    }
}
