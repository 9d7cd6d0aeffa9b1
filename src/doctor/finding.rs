//! The results of checks, and how they are printed.

use std::fmt::Write;

use serde::Serialize;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// All is well.
    Ok,
    /// It works, but not well, or it could not be checked.
    Warn,
    /// It does not work, or it harms the main queue.
    Error,
}

/// A result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check, in one word.
    pub check: &'static str,
    /// How serious it is.
    pub level: FindingLevel,
    /// What was found, as a sentence.
    pub what: String,
    /// How to fix it. `None` if all is well.
    #[serde(rename = "mend")]
    pub fix: Option<String>,
}

impl Finding {
    /// A finding of the level [`FindingLevel::Ok`].
    pub fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding { check, level: FindingLevel::Ok, what: what.into(), fix: None }
    }

    /// A finding of the level [`FindingLevel::Warn`].
    pub fn warn(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { check, level: FindingLevel::Warn, what: what.into(), fix: Some(fix.into()) }
    }

    /// A finding of the level [`FindingLevel::Error`].
    pub fn error(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { check, level: FindingLevel::Error, what: what.into(), fix: Some(fix.into()) }
    }
}

/// The findings as text, with a summary at the end.
pub fn render_findings(findings: &[Finding], colour: bool) -> String {
    let mut text = String::new();
    for f in findings {
        let (word, code) = match f.level {
            FindingLevel::Ok => ("ok", 32),
            FindingLevel::Warn => ("warn", 33),
            FindingLevel::Error => ("error", 31),
        };
        let what = f.what.replace('\n', "\n                 ");
        let _ = if colour {
            writeln!(text, "\x1b[{code}m{word:<5}\x1b[0m  {:<9} {what}", f.check)
        } else {
            writeln!(text, "{word:<5}  {:<9} {what}", f.check)
        };
        if let Some(fix) = &f.fix {
            let _ = writeln!(text, "                 → {fix}");
        }
    }
    let errors = findings.iter().filter(|f| f.level == FindingLevel::Error).count();
    let warnings = findings.iter().filter(|f| f.level == FindingLevel::Warn).count();
    let _ = writeln!(text, "\nerrors: {errors}, warnings: {warnings}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_says_how_to_fix_it() {
        let findings = [Finding::ok("rest", "answers"), Finding::error("qos", "no grace time", "set one")];
        insta::assert_snapshot!(render_findings(&findings, false), @r"
        ok     rest      answers
        error  qos       no grace time
                         → set one

        errors: 1, warnings: 0
        ");
        assert!(render_findings(&findings, true).contains("\x1b[31merror\x1b[0m"));
    }
}
