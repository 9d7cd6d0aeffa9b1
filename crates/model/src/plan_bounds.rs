//! What the numbers of an execution plan and of a model can be.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{ModelFacts, ParallelStrategy};

/// Most ways in which one dimension of parallelism may divide a model, and most micro-batches of a step.
pub const MOST_WAYS: u32 = 4096;

/// Highest stage of ZeRO.
pub const MOST_ZERO: u32 = 3;

/// Most parameters of a model, millions.
const MOST_PARAMS_MI: f64 = 1e9;

/// Fewest parameters of a model, millions: one.
const LEAST_PARAMS_MI: f64 = 1e-6;

/// Most layers of a model.
pub const MOST_LAYERS: u32 = 100_000;

/// Largest hidden size of a model, and most heads of its attention.
pub const MOST_HIDDEN: u32 = 10_000_000;

/// Most tokens of a sample.
pub const MOST_SEQUENCE: u32 = 100_000_000;

/// Most samples of a step.
pub const MOST_BATCH: u32 = 1_000_000_000;

/// A number outside its bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} = {value}: expected {least} to {most}")]
pub struct OutOfBounds {
    /// What it stands for, as users write it.
    pub field: &'static str,
    /// The number.
    pub value: f64,
    /// The least that it can be.
    pub least: f64,
    /// The most that it can be.
    pub most: f64,
}

/// Whether a value of this field is one of these.
pub(crate) fn check_within(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), OutOfBounds> {
    // Not a number is within no bounds.
    let is_within = (least..=most).contains(&value);
    if is_within { Ok(()) } else { Err(OutOfBounds { field, value, least, most }) }
}

/// Reads a value that only predictions rest on: one of another form counts as not told, and is no reason to
/// refuse the job.
pub(crate) fn known_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum KnownOrOther<T> {
        Known(T),
        Unknown(IgnoredAny),
    }
    Ok(match KnownOrOther::deserialize(deserializer)? {
        KnownOrOther::Known(value) => value,
        KnownOrOther::Unknown(_) => T::default(),
    })
}

impl ParallelStrategy {
    /// Whether it can be: `tp`, `pp` and `accumulate` from 1 to [`MOST_WAYS`], `zero` up to [`MOST_ZERO`].
    ///
    /// # Errors
    /// With the first number that cannot.
    pub fn check_bounds(&self) -> Result<(), OutOfBounds> {
        for (field, ways) in [("tp", self.tp), ("pp", self.pp), ("accumulate", self.accumulate)] {
            check_within(field, ways.into(), 1.0, MOST_WAYS.into())?;
        }
        check_within("zero", self.zero.into(), 0.0, MOST_ZERO.into())
    }
}

impl ModelFacts {
    /// Whether all of it can be.
    ///
    /// # Errors
    /// With the first number that cannot.
    pub fn check_bounds(&self) -> Result<(), OutOfBounds> {
        check_within("params_mi", self.params_mi, LEAST_PARAMS_MI, MOST_PARAMS_MI)?;
        self.bounded_counts().into_iter().try_for_each(|(field, value, most)| check_count(field, value, most))
    }

    /// The same without what cannot be; `None` where that holds of its parameters.
    pub fn without_invalid(self) -> Option<Self> {
        let kept = self
            .bounded_counts()
            .map(|(field, value, most)| value.filter(|v| check_count(field, Some(*v), most).is_ok()));
        let [layers, hidden, heads, sequence, global_batch] = kept;
        let facts = ModelFacts { layers, hidden, heads, sequence, global_batch, ..self };
        facts.check_bounds().is_ok().then_some(facts)
    }

    /// What it counts, each with its name and its most.
    fn bounded_counts(&self) -> [(&'static str, Option<u32>, u32); 5] {
        [
            ("layers", self.layers, MOST_LAYERS),
            ("hidden", self.hidden, MOST_HIDDEN),
            ("heads", self.heads, MOST_HIDDEN),
            ("sequence", self.sequence, MOST_SEQUENCE),
            ("global_batch", self.global_batch, MOST_BATCH),
        ]
    }
}

fn check_count(field: &'static str, value: Option<u32>, most: u32) -> Result<(), OutOfBounds> {
    value.map_or(Ok(()), |value| check_within(field, value.into(), 1.0, most.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;

    const FACTS: ModelFacts = ModelFacts {
        params_mi: 1500.0,
        layers: Some(48),
        hidden: Some(1600),
        heads: Some(25),
        sequence: Some(1024),
        global_batch: Some(64),
        precision: Precision::Half,
    };

    #[test]
    fn a_strategy_that_cannot_be_says_why() {
        let one = ParallelStrategy::default();
        let most = ParallelStrategy { tp: MOST_WAYS, pp: MOST_WAYS, zero: 3, accumulate: MOST_WAYS, ..one };
        assert_eq!((one.check_bounds(), most.check_bounds()), (Ok(()), Ok(())));
        for (strategy, want) in [
            (ParallelStrategy { tp: 0, ..one }, "tp = 0: expected 1 to 4096"),
            (ParallelStrategy { pp: 4097, ..one }, "pp = 4097: expected 1 to 4096"),
            (ParallelStrategy { accumulate: 0, ..one }, "accumulate = 0: expected 1 to 4096"),
            (ParallelStrategy { zero: 9, ..one }, "zero = 9: expected 0 to 3"),
        ] {
            assert_eq!(strategy.check_bounds().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn a_model_keeps_what_can_be_of_it() {
        assert_eq!((FACTS.check_bounds(), FACTS.without_invalid()), (Ok(()), Some(FACTS)));
        for params_mi in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e10] {
            let facts = ModelFacts { params_mi, ..FACTS };
            assert!(facts.check_bounds().is_err() && facts.without_invalid().is_none(), "{params_mi}");
        }
        let odd = ModelFacts { layers: Some(0), sequence: Some(u32::MAX), ..FACTS };
        assert_eq!(odd.check_bounds().unwrap_err().to_string(), "layers = 0: expected 1 to 100000");
        assert_eq!(odd.without_invalid(), Some(ModelFacts { layers: None, sequence: None, ..FACTS }));
    }
}
