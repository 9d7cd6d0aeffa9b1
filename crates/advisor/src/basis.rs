//! The terms of a step-time model.
//!
//! All are terms of `y(n) = n ÷ rate(n)`: node-seconds a sample. For a fixed batch a node, `y` is the time of
//! a step, up to a factor. For a fixed global batch it is that time × n. One set of terms therefore serves
//! both:
//!
//! | term | fixed batch a node | fixed global batch |
//! |---|---|---|
//! | 1 | compute | compute |
//! | (n−1)/n | ring all-reduce, 2(n−1)/n of the gradient | |
//! | log₂ n | latency of a tree | |
//! | n−1 | straggling by node | ring all-reduce, and the fixed part of a step |
//! | n·log₂ n | | latency of a tree |
//! | n·(n−1) | | straggling by node |
//! | 1/n | superlinear: caches, host memory | the same |

use infill_model::BatchMode;

/// Number of terms.
pub(crate) const TERM_COUNT: usize = 7;

/// The term 1/n.
pub(crate) const SUPERLINEAR_TERM: usize = 6;

/// The values of all terms at a size.
pub(crate) fn term_values(nodes: f64) -> [f64; TERM_COUNT] {
    let log = nodes.log2();
    [1.0, (nodes - 1.0) / nodes, log, nodes - 1.0, nodes * log, nodes * (nodes - 1.0), 1.0 / nodes]
}

/// The name of each term in a formula.
pub(crate) const TERM_NAMES: [&str; TERM_COUNT] =
    ["", "(n-1)/n", "log2(n)", "(n-1)", "n·log2(n)", "n·(n-1)", "/n"];

/// The terms that can occur in this mode.
pub(crate) fn terms_of_mode(mode: BatchMode) -> &'static [usize] {
    match mode {
        BatchMode::Auto => &[0, 1, 2, 3, 4, 5, 6],
        BatchMode::PerNode => &[0, 1, 2, 3, 6],
        BatchMode::Global => &[0, 3, 4, 5, 6],
    }
}
