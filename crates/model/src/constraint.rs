//! sbatch's `--constraint` on the features of nodes, with `&`, `|`, parentheses, counts and alternatives.
//!
//! The number of nodes of a malleable job is open, and each of its nodes must suit any of its workers. So a
//! count is read strictly: every node must have the feature. With alternatives in brackets (`[rack1|rack2]`),
//! all nodes have the same one, as Slurm requires. Features that must be on different nodes (`[a*2&b*4]`) are
//! not supported.

/// The longest text that is read. Users write dozens of characters.
const MAX_CHARS: usize = 1_000;

/// Most alternatives of a constraint.
const MAX_ALTERNATIVES: usize = 16;

/// Deepest nesting. Slurm itself allows one level.
const MAX_DEPTH: usize = 8;

/// The reason why infill cannot follow a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The text does not have Slurm's form.
    #[error("--constraint={text}, which infill does not understand at character {at}")]
    Syntax {
        /// The constraint.
        text: String,
        /// The position of the error, counted from 1.
        at: usize,
    },
    /// The constraint asks for nodes of different kinds.
    #[error("--constraint={0}, which asks for nodes of different kinds for one job")]
    Mixed(String),
    /// The text is too long, or has too many alternatives.
    #[error("a --constraint of more than {MAX_CHARS} characters or {MAX_ALTERNATIVES} alternatives")]
    TooLong,
}

/// The features that one node must have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FeatureExpr {
    Feature(String),
    All(Box<FeatureExpr>, Box<FeatureExpr>),
    Any(Box<FeatureExpr>, Box<FeatureExpr>),
}

impl FeatureExpr {
    fn admits(&self, features: &[String]) -> bool {
        match self {
            FeatureExpr::Feature(name) => features.contains(name),
            FeatureExpr::All(a, b) => a.admits(features) && b.admits(features),
            FeatureExpr::Any(a, b) => a.admits(features) || b.admits(features),
        }
    }
}

/// A parsed constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The alternatives, at least one. The same one must hold for all nodes of the job.
    alternatives: Vec<FeatureExpr>,
}

impl Constraint {
    /// Parses the text after `--constraint=`. Returns `Ok(None)` if it is empty.
    ///
    /// # Errors
    /// If the text cannot be parsed, or infill cannot follow it.
    pub fn parse(text: &str) -> Result<Option<Constraint>, ConstraintError> {
        if text.trim().is_empty() || text == "(null)" {
            return Ok(None);
        }
        if text.len() > MAX_CHARS {
            return Err(ConstraintError::TooLong);
        }
        let mut parser = ConstraintParser { text, rest: text, is_mixed: false };
        let alternatives = parser.parse_list(None, 0).map_err(|e| parser.to_error(e))?;
        if !parser.rest.is_empty() {
            return Err(parser.to_error(ParseFailure::Syntax));
        }
        Ok(Some(Constraint { alternatives }))
    }

    /// Whether the constraint applies to each node independently of the others, so that Slurm can check it
    /// node by node.
    pub fn is_simple(text: &str) -> bool {
        !text.contains(['[', '*'])
    }

    /// The number of alternatives, at least 1.
    pub fn alternatives(&self) -> usize {
        self.alternatives.len()
    }

    /// Whether a node with these features meets the alternative of this index.
    pub fn admits_node(&self, alternative: usize, features: &[String]) -> bool {
        self.alternatives.get(alternative).is_some_and(|expr| expr.admits(features))
    }
}

/// The reason why a parser stopped.
#[derive(Clone, Copy, Debug)]
enum ParseFailure {
    Syntax,
    TooLong,
}

/// A text and the rest of it that is not parsed yet.
struct ConstraintParser<'a> {
    text: &'a str,
    rest: &'a str,
    /// Whether some part asks for different nodes.
    is_mixed: bool,
}

impl<'a> ConstraintParser<'a> {
    fn to_error(&self, failure: ParseFailure) -> ConstraintError {
        match failure {
            _ if self.is_mixed => ConstraintError::Mixed(self.text.to_owned()),
            ParseFailure::TooLong => ConstraintError::TooLong,
            ParseFailure::Syntax => {
                let parsed = self.text.len() - self.rest.len();
                ConstraintError::Syntax { text: self.text.to_owned(), at: parsed + 1 }
            }
        }
    }

    fn consume_char(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Terms up to `close`, from left to right as Slurm reads them: `&` and `|` bind equally.
    fn parse_list(&mut self, close: Option<char>, depth: usize) -> Result<Vec<FeatureExpr>, ParseFailure> {
        let mut alternatives = self.parse_term(depth)?;
        while !self.rest.is_empty() && close.is_none_or(|c| !self.rest.starts_with(c)) {
            let is_and = self.consume_char('&') || self.consume_char(',');
            if !is_and && !self.consume_char('|') {
                return Err(ParseFailure::Syntax);
            }
            let next = self.parse_term(depth)?;
            if alternatives.len() * next.len() > MAX_ALTERNATIVES {
                return Err(ParseFailure::TooLong);
            }
            let join = if is_and { FeatureExpr::All } else { FeatureExpr::Any };
            let mut joined = Vec::new();
            for left in &alternatives {
                for right in &next {
                    joined.push(join(Box::new(left.clone()), Box::new(right.clone())));
                }
            }
            alternatives = joined;
        }
        Ok(alternatives)
    }

    /// A feature or a group, perhaps with a count.
    fn parse_term(&mut self, depth: usize) -> Result<Vec<FeatureExpr>, ParseFailure> {
        if depth > MAX_DEPTH {
            return Err(ParseFailure::TooLong);
        }
        let alternatives = if self.consume_char('(') {
            let inner = self.parse_list(Some(')'), depth + 1)?;
            if !self.consume_char(')') {
                return Err(ParseFailure::Syntax);
            }
            inner
        } else if self.consume_char('[') {
            self.parse_choices(depth + 1)?
        } else {
            vec![FeatureExpr::Feature(self.parse_name()?)]
        };
        self.parse_count()?;
        Ok(alternatives)
    }

    /// The alternatives between brackets. All nodes have the same one.
    fn parse_choices(&mut self, depth: usize) -> Result<Vec<FeatureExpr>, ParseFailure> {
        let mut alternatives = self.parse_term(depth)?;
        while !self.consume_char(']') {
            if self.consume_char('&') || self.consume_char(',') {
                self.is_mixed = true;
            } else if !self.consume_char('|') {
                return Err(ParseFailure::Syntax);
            }
            alternatives.extend(self.parse_term(depth)?);
            if alternatives.len() > MAX_ALTERNATIVES {
                return Err(ParseFailure::TooLong);
            }
        }
        // The error is reported only here, so that its position is after the bracket.
        if self.is_mixed { Err(ParseFailure::Syntax) } else { Ok(alternatives) }
    }

    fn parse_name(&mut self) -> Result<String, ParseFailure> {
        let end = self.rest.find(|c: char| !is_name_char(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err(ParseFailure::Syntax);
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// A count such as `*4`. Slurm applies it to that number of nodes; infill applies the feature to all
    /// nodes.
    fn parse_count(&mut self) -> Result<(), ParseFailure> {
        if !self.consume_char('*') {
            return Ok(());
        }
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        if digits.parse::<u32>().is_ok_and(|n| n > 0) {
            self.rest = rest;
            Ok(())
        } else {
            Err(ParseFailure::Syntax)
        }
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || "_-.:=+/@%".contains(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use infill_testkit::effort;

    /// For each alternative the nodes that meet it, or the error. Each node is named by its features.
    fn matching_nodes(text: &str) -> String {
        let nodes = ["", "a", "b", "ab", "c", "bc"];
        let constraint = match Constraint::parse(text) {
            Ok(Some(constraint)) => constraint,
            Ok(None) => return "anything".to_owned(),
            Err(e) => return e.to_string(),
        };
        (0..constraint.alternatives())
            .map(|alternative| {
                let has_match = |node: &&&str| {
                    let features: Vec<String> = node.chars().map(String::from).collect();
                    constraint.admits_node(alternative, &features)
                };
                nodes.iter().filter(has_match).copied().collect::<Vec<_>>().join(" ")
            })
            .collect::<Vec<_>>()
            .join(" or ")
    }

    #[test]
    fn features_are_matched_as_slurm_does() {
        let cases = [
            ("", "anything"),
            ("(null)", "anything"),
            ("a", "a ab"),
            ("a&b", "ab"),
            ("a,b", "ab"),
            ("a|b", "a b ab bc"),
            ("a|b&c", "bc"),
            ("a|(b&c)", "a ab bc"),
            ("c&(a|b)", "bc"),
            ("a*2", "a ab"),
            ("(a|c)*2&b", "ab bc"),
            ("[a|c]", "a ab or c bc"),
            ("b&[a|c]", "ab or bc"),
            ("[(a&b)|c]", "ab or c bc"),
            ("[a*1|b*4]", "a ab or b ab bc"),
            ("nosuch", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(matching_nodes(text), expected, "{text}");
        }
    }

    #[test]
    fn a_constraint_that_infill_cannot_follow_is_refused_with_the_position() {
        let cases = [
            ("[a*2&b*4]", "--constraint=[a*2&b*4], which asks for nodes of different kinds for one job"),
            ("a&", "--constraint=a&, which infill does not understand at character 3"),
            ("a b", "--constraint=a b, which infill does not understand at character 2"),
            ("!a", "--constraint=!a, which infill does not understand at character 1"),
            ("(a", "--constraint=(a, which infill does not understand at character 3"),
            ("a)", "--constraint=a), which infill does not understand at character 2"),
            ("[a|b", "--constraint=[a|b, which infill does not understand at character 5"),
            ("a*0", "--constraint=a*0, which infill does not understand at character 3"),
            ("a*99999999999", "--constraint=a*99999999999, which infill does not understand at character 3"),
            ("\u{fffd}", "--constraint=\u{fffd}, which infill does not understand at character 1"),
        ];
        for (text, expected) in cases {
            assert_eq!(matching_nodes(text), expected, "{text}");
        }
        for long in ["a&".repeat(1_000), "(".repeat(500), ["[a|b|c]"; 4].join("&")] {
            assert_eq!(Constraint::parse(&long), Err(ConstraintError::TooLong), "{long}");
        }
    }

    proptest! {
        #![proptest_config(effort::property(256))]

        #[test]
        fn nonsense_is_refused_or_has_alternatives(text in "[ab&|,()\\[\\]*1 !é]{0,40}") {
            if let Ok(Some(constraint)) = Constraint::parse(&text) {
                prop_assert!((1..=MAX_ALTERNATIVES).contains(&constraint.alternatives()));
            }
        }
    }
}
