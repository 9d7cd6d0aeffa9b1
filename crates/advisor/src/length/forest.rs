//! A random forest that gives distributions: each tree is grown until its leaves hold a few jobs, so that
//! what it says is the length of jobs that were alike, and all trees together are a sample of such.

use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};
use smartcore::error::Failed;
use smartcore::linalg::basic::matrix::DenseMatrix;

/// Trees.
const TREE_COUNT: u64 = 64;

/// Jobs that a leaf holds at least. Of 1, 2 and 3, with what is pooled of it, the best on three public logs.
const MIN_LEAF_JOBS: usize = 2;

/// Share of the numbers among which each branch chooses.
const TRIED_SHARE: f64 = 0.4;

/// Fewer jobs than that make no forest.
pub(crate) const FEWEST: usize = 200;

type ForestTree = RandomForestRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>;

/// Why there is no forest.
#[derive(Debug, thiserror::Error)]
pub enum ForestError {
    /// Too little is known.
    #[error("{0} jobs are too few for a forest, which needs {FEWEST}")]
    TooFew(usize),
    /// The library refuses the numbers.
    #[error("growing the forest: {0}")]
    Refused(String),
}

/// What was learned from jobs that have ended. It is grown anew from them, and never stored.
#[derive(Debug)]
pub struct Forest(Vec<ForestTree>);

impl Forest {
    /// Grows one from what was known of each job when it was submitted (rows of equally many numbers), and by
    /// how much the logarithm of its length then differed from its mixture's median. The same rows and seed
    /// give the same forest.
    ///
    /// # Errors
    /// [`ForestError`].
    pub fn grow(rows: &[&[f64]], missed: Vec<f64>, seed: u64) -> Result<Forest, ForestError> {
        if rows.len() < FEWEST {
            return Err(ForestError::TooFew(rows.len()));
        }
        let table = DenseMatrix::from_2d_array(rows).map_err(forest_error)?;
        let tried = (rows[0].len() as f64 * TRIED_SHARE).ceil() as usize;
        let grow = |tree: u64| {
            let parameters = RandomForestRegressorParameters::default()
                .with_n_trees(1)
                .with_min_samples_leaf(MIN_LEAF_JOBS)
                .with_min_samples_split(2)
                .with_m(tried.max(1))
                .with_seed(seed.wrapping_mul(TREE_COUNT).wrapping_add(tree));
            ForestTree::fit(&table, &missed, parameters).map_err(forest_error)
        };
        (0..TREE_COUNT).map(grow).collect::<Result<Vec<ForestTree>, ForestError>>().map(Forest)
    }

    /// For each row what each tree says.
    ///
    /// # Errors
    /// [`ForestError::Refused`] where the rows do not have the numbers that the forest was grown from.
    pub fn tree_samples(&self, rows: &[&[f64]]) -> Result<Vec<Vec<f64>>, ForestError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let table = DenseMatrix::from_2d_array(rows).map_err(forest_error)?;
        let mut said = vec![Vec::with_capacity(self.0.len()); rows.len()];
        for tree in &self.0 {
            let all = tree.predict(&table).map_err(forest_error)?;
            said.iter_mut().zip(all).for_each(|(row, value)| row.push(value));
        }
        Ok(said)
    }
}

fn forest_error(error: Failed) -> ForestError {
    ForestError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_long_jobs_that_are_alike_took() {
        // Jobs of kind 0 miss by 0, those of kind 1 by -1 or 1.
        let rows: Vec<Vec<f64>> = (0..400).map(|i| vec![f64::from(i % 2), f64::from(i % 7)]).collect();
        let missed: Vec<f64> = (0..400).map(|i| f64::from(i % 2) * f64::from((i / 2 % 2) * 2 - 1)).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let forest = Forest::grow(&rows, missed.clone(), 1).unwrap();
        let said = forest.tree_samples(&[&[0.0, 3.0], &[1.0, 3.0]]).unwrap();
        let right = said[0].iter().filter(|m| m.abs() < 1e-9).count();
        assert!(right * 10 > said[0].len() * 9, "{:?}", said[0]);
        let low = said[1].iter().any(|m| *m < -0.2);
        let high = said[1].iter().any(|m| *m > 0.2);
        assert!(low && high, "{:?}", said[1]);
        let again = Forest::grow(&rows, missed.clone(), 1).unwrap();
        assert_eq!(again.tree_samples(&rows[..5]).unwrap(), forest.tree_samples(&rows[..5]).unwrap());
        assert!(Forest::grow(&rows[..9], missed[..9].to_vec(), 1).is_err());
    }
}
