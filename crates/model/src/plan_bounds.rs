//! The bounds of the numbers in execution plans and models.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{ModelFacts, ParallelStrategy};

/// Most GPUs over which one dimension of parallelism divides a model, and most micro-batches of a step.
pub const MOST_WAYS: u32 = 4096;

/// The highest ZeRO stage.
pub const MOST_ZERO: u32 = 3;

/// Most parameters of a model, in millions.
const MOST_PARAMS_MI: f64 = 1e9;

/// Fewest parameters of a model, in millions: one parameter.
const LEAST_PARAMS_MI: f64 = 1e-6;

/// Most layers of a model.
pub const MOST_LAYERS: u32 = 100_000;

/// The largest hidden size of a model, and most heads of its attention.
pub const MOST_HIDDEN: u32 = 10_000_000;

/// Most tokens per sample.
pub const MOST_SEQUENCE: u32 = 100_000_000;

/// Most samples per step.
pub const MOST_BATCH: u32 = 1_000_000_000;

/// A number outside its bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} = {value}: expected {least} to {most}")]
pub struct OutOfBounds {
    /// The name of the number, as users write it.
    pub field: &'static str,
    /// The number.
    pub value: f64,
    /// The smallest allowed value.
    pub least: f64,
    /// The largest allowed value.
    pub most: f64,
}

/// Checks that the value of a field is within bounds, both included.
pub(crate) fn check_within(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), OutOfBounds> {
    // NaN is never within bounds.
    let is_within = (least..=most).contains(&value);
    if is_within { Ok(()) } else { Err(OutOfBounds { field, value, least, most }) }
}

/// Reads a value that only predictions need. A value of another form is ignored, so that it does not make the
/// job fail.
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
    /// Checks the bounds: `tp`, `pp` and `accumulate` from 1 to [`MOST_WAYS`], and `zero` up to
    /// [`MOST_ZERO`].
    ///
    /// # Errors
    /// The first number that is out of bounds.
    pub fn check_bounds(&self) -> Result<(), OutOfBounds> {
        for (field, ways) in [("tp", self.tp), ("pp", self.pp), ("accumulate", self.accumulate)] {
            check_within(field, ways.into(), 1.0, MOST_WAYS.into())?;
        }
        check_within("zero", self.zero.into(), 0.0, MOST_ZERO.into())
    }
}

impl ModelFacts {
    /// Checks the bounds of all numbers.
    ///
    /// # Errors
    /// The first number that is out of bounds.
    pub fn check_bounds(&self) -> Result<(), OutOfBounds> {
        check_within("params_mi", self.params_mi, LEAST_PARAMS_MI, MOST_PARAMS_MI)?;
        for (field, value, most) in self.bounded_counts() {
            check_count(field, value, most)?;
        }
        Ok(())
    }

    /// These facts without counts that are out of bounds. `None` if the number of parameters is out of
    /// bounds.
    pub fn without_invalid(self) -> Option<Self> {
        let valid_counts = self
            .bounded_counts()
            .map(|(field, value, most)| value.filter(|v| check_count(field, Some(*v), most).is_ok()));
        let [layers, hidden, heads, sequence, global_batch] = valid_counts;
        let facts = ModelFacts { layers, hidden, heads, sequence, global_batch, ..self };
        if facts.check_bounds().is_ok() { Some(facts) } else { None }
    }

    /// Its counts: the name, the value and the bound of each.
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
    fn an_invalid_strategy_is_refused_with_its_number() {
        let valid = ParallelStrategy::default();
        let largest =
            ParallelStrategy { tp: MOST_WAYS, pp: MOST_WAYS, zero: 3, accumulate: MOST_WAYS, ..valid };
        assert_eq!((valid.check_bounds(), largest.check_bounds()), (Ok(()), Ok(())));
        for (strategy, message) in [
            (ParallelStrategy { tp: 0, ..valid }, "tp = 0: expected 1 to 4096"),
            (ParallelStrategy { pp: 4097, ..valid }, "pp = 4097: expected 1 to 4096"),
            (ParallelStrategy { accumulate: 0, ..valid }, "accumulate = 0: expected 1 to 4096"),
            (ParallelStrategy { zero: 9, ..valid }, "zero = 9: expected 0 to 3"),
        ] {
            assert_eq!(strategy.check_bounds().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_model_keeps_its_valid_facts() {
        assert_eq!((FACTS.check_bounds(), FACTS.without_invalid()), (Ok(()), Some(FACTS)));
        for params_mi in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e10] {
            let facts = ModelFacts { params_mi, ..FACTS };
            assert!(facts.check_bounds().is_err() && facts.without_invalid().is_none(), "{params_mi}");
        }
        let invalid = ModelFacts { layers: Some(0), sequence: Some(u32::MAX), ..FACTS };
        assert_eq!(invalid.check_bounds().unwrap_err().to_string(), "layers = 0: expected 1 to 100000");
        assert_eq!(invalid.without_invalid(), Some(ModelFacts { layers: None, sequence: None, ..FACTS }));
    }
}
