//! A random forest that predicts distributions. Each tree is grown until its leaves hold a few jobs, so that
//! it predicts the length of a similar job. All trees together are a sample of such lengths.

use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};
use smartcore::error::Failed;
use smartcore::linalg::basic::matrix::DenseMatrix;

/// Number of trees.
const TREE_COUNT: u64 = 64;

/// Fewest jobs of a leaf. Of 1, 2 and 3, this gave the best pooled predictions on three public logs.
const MIN_LEAF_JOBS: usize = 2;

/// Share of the features among which each branch chooses.
const TRIED_SHARE: f64 = 0.4;

/// Fewer jobs than this make no forest.
pub(crate) const MIN_FOREST_JOBS: usize = 200;

type ForestTree = RandomForestRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>;

/// Why a forest could not be grown.
#[derive(Debug, thiserror::Error)]
pub enum ForestError {
    /// Too few jobs have ended.
    #[error("{0} jobs are too few for a forest, which needs {MIN_FOREST_JOBS}")]
    TooFew(usize),
    /// The library refuses the numbers.
    #[error("growing the forest: {0}")]
    Refused(String),
}

/// A forest learned from jobs that have ended. It is grown again from them, and never stored.
#[derive(Debug)]
pub struct LengthForest(Vec<ForestTree>);

impl LengthForest {
    /// Grows a forest. `rows` are the features of each job when it was submitted, all of the same number.
    /// `missed` is by how much the logarithm of its length then differed from its mixture's median. The same
    /// rows and seed give the same forest.
    ///
    /// # Errors
    /// [`ForestError::TooFew`] for too few rows, and [`ForestError::Refused`] where the library refuses the
    /// numbers.
    pub fn grow(rows: &[&[f64]], missed: Vec<f64>, seed: u64) -> Result<LengthForest, ForestError> {
        if rows.len() < MIN_FOREST_JOBS {
            return Err(ForestError::TooFew(rows.len()));
        }
        let table = DenseMatrix::from_2d_array(rows).map_err(forest_error)?;
        let tried = (rows[0].len() as f64 * TRIED_SHARE).ceil() as usize;
        let mut trees = Vec::new();
        for tree in 0..TREE_COUNT {
            let parameters = RandomForestRegressorParameters::default()
                .with_n_trees(1)
                .with_min_samples_leaf(MIN_LEAF_JOBS)
                .with_min_samples_split(2)
                .with_m(tried.max(1))
                .with_seed(seed.wrapping_mul(TREE_COUNT).wrapping_add(tree));
            trees.push(ForestTree::fit(&table, &missed, parameters).map_err(forest_error)?);
        }
        Ok(LengthForest(trees))
    }

    /// The prediction of each tree for each row.
    ///
    /// # Errors
    /// [`ForestError::Refused`] where the rows do not have the features that the forest was grown from.
    pub fn tree_samples(&self, rows: &[&[f64]]) -> Result<Vec<Vec<f64>>, ForestError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let table = DenseMatrix::from_2d_array(rows).map_err(forest_error)?;
        let mut samples = vec![Vec::with_capacity(self.0.len()); rows.len()];
        for tree in &self.0 {
            let predicted = tree.predict(&table).map_err(forest_error)?;
            samples.iter_mut().zip(predicted).for_each(|(row, value)| row.push(value));
        }
        Ok(samples)
    }
}

fn forest_error(error: Failed) -> ForestError {
    ForestError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_predicts_the_lengths_of_similar_jobs() {
        // Jobs of kind 0 miss by 0, those of kind 1 by -1 or 1.
        let rows: Vec<Vec<f64>> = (0..400).map(|i| vec![f64::from(i % 2), f64::from(i % 7)]).collect();
        let missed: Vec<f64> = (0..400).map(|i| f64::from(i % 2) * f64::from((i / 2 % 2) * 2 - 1)).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let forest = LengthForest::grow(&rows, missed.clone(), 1).unwrap();
        let samples = forest.tree_samples(&[&[0.0, 3.0], &[1.0, 3.0]]).unwrap();
        let right = samples[0].iter().filter(|m| m.abs() < 1e-9).count();
        assert!(right * 10 > samples[0].len() * 9, "{:?}", samples[0]);
        let low = samples[1].iter().any(|m| *m < -0.2);
        let high = samples[1].iter().any(|m| *m > 0.2);
        assert!(low && high, "{:?}", samples[1]);
        let again = LengthForest::grow(&rows, missed.clone(), 1).unwrap();
        assert_eq!(again.tree_samples(&rows[..5]).unwrap(), forest.tree_samples(&rows[..5]).unwrap());
        assert!(LengthForest::grow(&rows[..9], missed[..9].to_vec(), 1).is_err());
    }
}
