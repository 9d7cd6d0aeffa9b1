//! A number of nodes in a sentence.

use std::fmt::{self, Display};

/// Formats a number of nodes as `1 node` or `3 nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount<N>(pub N);

impl<N: Display + PartialEq + From<u8>> Display for NodeCount<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.0, if self.0 == N::from(1) { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_has_no_plural() {
        assert_eq!([0_u32, 1, 2].map(|n| NodeCount(n).to_string()), ["0 nodes", "1 node", "2 nodes"]);
        assert_eq!(NodeCount(1_usize).to_string(), "1 node");
    }
}
