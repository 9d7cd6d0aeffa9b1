//! What sbatch's `--constraint` asks of nodes: features with `&`, `|`, parentheses, counts and alternatives.
//!
//! A malleable job has no number of nodes, and each of its nodes must do for any of its workers. So a count
//! is taken strictly: every node must have the feature. Of alternatives in brackets (`[rack1|rack2]`) all
//! nodes have the same, as Slurm wants it. Features that must lie on different nodes (`[a*2&b*4]`) cannot be
//! had.

/// Longest text that is read. People write dozens of characters.
const MAX_CHARS: usize = 1_000;

/// Most alternatives of one constraint.
const MAX_ALTERNATIVES: usize = 16;

/// Deepest nesting: Slurm itself allows one level.
const MAX_DEPTH: usize = 8;

/// Why a constraint cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// It is not written as Slurm writes it.
    #[error("--constraint={text}, which is not understood at character {at}")]
    Syntax {
        /// The constraint.
        text: String,
        /// Where, from 1.
        at: usize,
    },
    /// It wants some nodes to be of one kind and some of another.
    #[error("--constraint={0}, which wants nodes of different kinds for one job")]
    Mixed(String),
    /// It is too long, or has too many alternatives.
    #[error("a --constraint of more than {MAX_CHARS} characters or {MAX_ALTERNATIVES} alternatives")]
    TooLong,
}

/// What one node must have.
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

/// A constraint that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// One of these must hold for all nodes of the job; at least one.
    alternatives: Vec<FeatureExpr>,
}

impl Constraint {
    /// Reads what stands behind `--constraint=`. `Ok(None)` if nothing does.
    ///
    /// # Errors
    /// When it cannot be understood, or not be followed.
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

    /// Whether it says the same of each node, whichever others there are: then Slurm may check it node by
    /// node.
    pub fn is_simple(text: &str) -> bool {
        !text.contains(['[', '*'])
    }

    /// In how many ways it can be met.
    pub fn alternatives(&self) -> usize {
        self.alternatives.len()
    }

    /// Whether a node with these features meets the alternative of this number.
    pub fn admits_node(&self, alternative: usize, features: &[String]) -> bool {
        self.alternatives.get(alternative).is_some_and(|e| e.admits(features))
    }
}

/// Why a parser stopped.
#[derive(Clone, Copy, Debug)]
enum ParseFailure {
    Syntax,
    TooLong,
}

/// The text, and what of it is still to be read.
struct ConstraintParser<'a> {
    text: &'a str,
    rest: &'a str,
    /// Somewhere different nodes are asked for.
    is_mixed: bool,
}

impl<'a> ConstraintParser<'a> {
    fn to_error(&self, stop: ParseFailure) -> ConstraintError {
        match stop {
            _ if self.is_mixed => ConstraintError::Mixed(self.text.to_owned()),
            ParseFailure::TooLong => ConstraintError::TooLong,
            ParseFailure::Syntax => {
                let read = self.text.len() - self.rest.len();
                ConstraintError::Syntax { text: self.text.to_owned(), at: read + 1 }
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

    /// Terms up to `close`, from left to right as Slurm reads them: neither `&` nor `|` binds tighter.
    fn parse_list(&mut self, close: Option<char>, depth: usize) -> Result<Vec<FeatureExpr>, ParseFailure> {
        let mut found = self.parse_term(depth)?;
        while !self.rest.is_empty() && close.is_none_or(|c| !self.rest.starts_with(c)) {
            let and = self.consume_char('&') || self.consume_char(',');
            if !and && !self.consume_char('|') {
                return Err(ParseFailure::Syntax);
            }
            let next = self.parse_term(depth)?;
            if found.len() * next.len() > MAX_ALTERNATIVES {
                return Err(ParseFailure::TooLong);
            }
            let join = if and { FeatureExpr::All } else { FeatureExpr::Any };
            let pairs = found.iter().flat_map(|a| next.iter().map(move |b| (a.clone(), b.clone())));
            found = pairs.map(|(a, b)| join(Box::new(a), Box::new(b))).collect();
        }
        Ok(found)
    }

    /// A feature or a group, and perhaps a count.
    fn parse_term(&mut self, depth: usize) -> Result<Vec<FeatureExpr>, ParseFailure> {
        if depth > MAX_DEPTH {
            return Err(ParseFailure::TooLong);
        }
        let found = if self.consume_char('(') {
            let inner = self.parse_list(Some(')'), depth + 1)?;
            if self.consume_char(')') { inner } else { return Err(ParseFailure::Syntax) }
        } else if self.consume_char('[') {
            self.parse_choices(depth + 1)?
        } else {
            vec![FeatureExpr::Feature(self.parse_name()?)]
        };
        self.parse_count()?;
        Ok(found)
    }

    /// What stands between brackets: alternatives, of which all nodes have the same.
    fn parse_choices(&mut self, depth: usize) -> Result<Vec<FeatureExpr>, ParseFailure> {
        let mut found = self.parse_term(depth)?;
        while !self.consume_char(']') {
            if self.consume_char('&') || self.consume_char(',') {
                self.is_mixed = true;
            } else if !self.consume_char('|') {
                return Err(ParseFailure::Syntax);
            }
            found.extend(self.parse_term(depth)?);
            if found.len() > MAX_ALTERNATIVES {
                return Err(ParseFailure::TooLong);
            }
        }
        // A place for the error: behind the bracket.
        if self.is_mixed { Err(ParseFailure::Syntax) } else { Ok(found) }
    }

    fn parse_name(&mut self) -> Result<String, ParseFailure> {
        let belongs = |c: char| c.is_alphanumeric() || "_-.:=+/@%".contains(c);
        let end = self.rest.find(|c: char| !belongs(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err(ParseFailure::Syntax);
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// `*4`: of so many nodes; here of all.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use infill_testkit::effort;

    /// The nodes that meet each alternative, of nodes that are named by their features.
    fn met(text: &str) -> String {
        let nodes = ["", "a", "b", "ab", "c", "bc"];
        let constraint = match Constraint::parse(text) {
            Ok(Some(constraint)) => constraint,
            Ok(None) => return "anything".to_owned(),
            Err(e) => return e.to_string(),
        };
        let features = |node: &str| node.chars().map(String::from).collect::<Vec<_>>();
        (0..constraint.alternatives())
            .map(|n: usize| {
                let met = nodes.iter().filter(|node| constraint.admits_node(n, &features(node)));
                met.copied().collect::<Vec<_>>().join(" ")
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
            assert_eq!(met(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_the_place() {
        let cases = [
            ("[a*2&b*4]", "--constraint=[a*2&b*4], which wants nodes of different kinds for one job"),
            ("a&", "--constraint=a&, which is not understood at character 3"),
            ("a b", "--constraint=a b, which is not understood at character 2"),
            ("!a", "--constraint=!a, which is not understood at character 1"),
            ("(a", "--constraint=(a, which is not understood at character 3"),
            ("a)", "--constraint=a), which is not understood at character 2"),
            ("[a|b", "--constraint=[a|b, which is not understood at character 5"),
            ("a*0", "--constraint=a*0, which is not understood at character 3"),
            ("a*99999999999", "--constraint=a*99999999999, which is not understood at character 3"),
            ("\u{fffd}", "--constraint=\u{fffd}, which is not understood at character 1"),
        ];
        for (text, expected) in cases {
            assert_eq!(met(text), expected, "{text}");
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
