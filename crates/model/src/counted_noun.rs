//! Counts with their nouns, for sentences.

/// A count with its noun, which takes a plural `s` unless the count is 1: `1 job`, `2 jobs`.
pub fn counted_noun(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        let counts = [0, 1, 2].map(|n| counted_noun(n, "idle node"));
        assert_eq!(counts, ["0 idle nodes", "1 idle node", "2 idle nodes"]);
    }
}
