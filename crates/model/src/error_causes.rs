//! Formats an error and its causes as text.

use std::error::Error;

/// An error with all its causes in one line. Errors of `reqwest` and others name only the operation that
/// failed; only their last cause says why.
pub fn error_chain(error: &dyn Error) -> String {
    let messages: Vec<String> = causes(error).map(ToString::to_string).collect();
    messages.join(": ")
}

/// The last cause alone: it says why the operation failed (`Connection refused`).
pub fn innermost_cause(error: &dyn Error) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}

fn causes<'a>(error: &'a dyn Error) -> impl Iterator<Item = &'a (dyn Error + 'a)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source().map(|source| source as &dyn Error);
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot reach the daemon")]
    struct Unreachable(#[source] std::io::Error);

    #[test]
    fn causes_are_listed_from_the_outside_in() {
        let error = Unreachable(std::io::Error::other("connection refused"));
        assert_eq!(error_chain(&error), "cannot reach the daemon: connection refused");
        assert_eq!(innermost_cause(&error), "connection refused");
        assert_eq!(innermost_cause(&std::fmt::Error), error_chain(&std::fmt::Error));
    }
}
