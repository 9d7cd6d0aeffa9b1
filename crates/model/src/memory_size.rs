//! Memory sizes as users write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest memory that a worker or a GPU may have, in MiB: 1 PiB.
pub const MOST_MEMORY_MIB: u64 = 1 << 30;

/// The units in MiB, ascending.
const UNITS: [(char, f64); 4] = [('K', 1.0 / 1024.0), ('M', 1.0), ('G', 1024.0), ('T', 1024.0 * 1024.0)];

/// A memory size in whole MiB, from 1 to [`MOST_MEMORY_MIB`]. As text it is `64G`. Units are powers of 1024,
/// and a number without a unit is MiB, as for `sbatch --mem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemorySize {
    mib: u64,
}

impl MemorySize {
    /// A size of `mib` MiB, limited to 1 to [`MOST_MEMORY_MIB`].
    pub fn from_mib(mib: u64) -> Self {
        MemorySize { mib: mib.clamp(1, MOST_MEMORY_MIB) }
    }

    /// The size in MiB.
    pub fn mib(self) -> u64 {
        self.mib
    }
}

impl FromStr for MemorySize {
    type Err = MemorySizeError;
    fn from_str(text: &str) -> Result<Self, MemorySizeError> {
        let word = text.trim().to_ascii_uppercase();
        let without_b = word.strip_suffix("IB").or_else(|| word.strip_suffix('B'));
        let word = without_b.unwrap_or(&word);
        let unit = UNITS.iter().find_map(|(letter, mib)| Some((word.strip_suffix(*letter)?, *mib)));
        let (number, mib) = match unit {
            Some(unit) => unit,
            // A size in bytes is surely an error.
            None if without_b.is_some() => return Err(MemorySizeError::new(text, "not a number")),
            None => (word, 1.0),
        };
        let number = number.trim_end();
        // Rust also parses forms such as `inf` and `1e3`, which users do not write.
        let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number: Option<f64> = number.parse().ok().filter(|_| is_plain);
        let number = number.ok_or_else(|| MemorySizeError::new(text, "not a number"))?;
        let mib = (number * mib).ceil();
        if (1.0..=MOST_MEMORY_MIB as f64).contains(&mib) {
            return Ok(MemorySize { mib: mib as u64 });
        }
        let problem = if mib < 1.0 { "it must be more than zero" } else { "no host has that much" };
        Err(MemorySizeError::new(text, problem))
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
            number /= 1024;
            unit = larger;
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

/// The reason why a text is not a memory size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory {text:?}: {what} (expected a number with K, M, G or T, such as 64G)")]
pub struct MemorySizeError {
    /// The text as written.
    pub text: String,
    /// The problem with it.
    pub what: &'static str,
}

impl MemorySizeError {
    fn new(text: &str, what: &'static str) -> MemorySizeError {
        MemorySizeError { text: text.to_owned(), what }
    }
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
    fn an_invalid_size_is_refused_with_its_text() {
        for (text, problem) in [
            ("", "not a number"),
            ("G", "not a number"),
            ("64X", "not a number"),
            ("64B", "not a number"),
            ("-1G", "not a number"),
            ("1e3", "not a number"),
            ("inf", "not a number"),
            ("64GG", "not a number"),
            ("0", "it must be more than zero"),
            ("1025T", "no host has that much"),
        ] {
            let message = text.parse::<MemorySize>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("memory {text:?}: {problem}")), "{message}");
        }
    }

    #[test]
    fn a_written_size_is_read_as_the_same() {
        for (mib, text) in [(64 * 1024, "64G"), (1536, "1536M"), (2 << 20, "2T"), (MOST_MEMORY_MIB, "1024T")]
        {
            let size = MemorySize::from_mib(mib);
            assert_eq!((size.to_string().as_str(), text.parse()), (text, Ok(size)));
        }
        assert_eq!([0, u64::MAX].map(|mib| MemorySize::from_mib(mib).mib()), [1, MOST_MEMORY_MIB]);
    }
}
