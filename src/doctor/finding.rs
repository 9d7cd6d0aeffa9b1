//! What a check found.

use std::fmt::Write;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// In order.
    Ok,
    /// Works, but not as it should; or could not be checked.
    Warn,
    /// Does not work, or harms the main queue.
    Error,
}

/// One result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked, one word.
    pub check: &'static str,
    /// How bad it is.
    pub level: FindingLevel,
    /// What was found.
    pub what: String,
    /// How to mend it.
    pub mend: Option<String>,
}

impl Finding {
    /// In order.
    pub fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding { check, level: FindingLevel::Ok, what: what.into(), mend: None }
    }

    /// Works, but not as it should; or could not be checked.
    pub fn warn(check: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { check, level: FindingLevel::Warn, what: what.into(), mend: Some(mend.into()) }
    }

    /// Does not work, or harms the main queue.
    pub fn error(check: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { check, level: FindingLevel::Error, what: what.into(), mend: Some(mend.into()) }
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
        let (on, off) = if colour { (format!("\x1b[{code}m"), "\x1b[0m") } else { (String::new(), "") };
        let what = f.what.replace('\n', "\n                 ");
        let _ = writeln!(text, "{on}{word:<5}{off}  {:<9} {what}", f.check);
        if let Some(mend) = &f.mend {
            let _ = writeln!(text, "                 → {mend}");
        }
    }
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let _ =
        writeln!(text, "\nerrors: {}, warnings: {}", count(FindingLevel::Error), count(FindingLevel::Warn));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_says_how_to_mend_it() {
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
