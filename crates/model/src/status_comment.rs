//! The part of a Slurm job's comment that infill writes, so that `squeue` shows why a job waits.
//!
//! A comment belongs to the job's owner. Infill writes into an empty one, and adds to one that addresses
//! infill (`infill:nodes=1-4`). Slurm lets an operator write neither the admin comment nor the system
//! comment.

use super::job_request::TAG;

/// The beginning of infill's part. It differs from [`TAG`], so that no status is read as a request.
const MARK: &str = "[infill]";

/// Most characters of a status. Comments are in each answer of slurmctld about all jobs.
const MAX_STATUS_CHARS: usize = 160;

/// The comment with this status in place of an earlier one; `None` if the comment is its owner's alone.
pub fn comment_with_status(comment: &str, status: &str) -> Option<String> {
    let own = comment.split(MARK).next().unwrap_or_default().trim_end();
    if !own.is_empty() && !own.contains(TAG) {
        return None;
    }
    let space = if own.is_empty() { "" } else { " " };
    Some(format!("{own}{space}{MARK} {}", to_status(status)))
}

/// A sentence as it may stand in a comment: one line, not too long, without anything that infill reads.
fn to_status(sentence: &str) -> String {
    let words = sentence.replace(TAG, "infill ").replace(MARK, "infill");
    let line = words.split(|c: char| c.is_whitespace() || c.is_control());
    let line = line.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_STATUS_CHARS) {
        None => line,
        Some((end, _)) => {
            let cut = line[..end].rfind(' ').unwrap_or(end);
            format!("{}...", &line[..cut])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BaseState, Job, JobId, JobRequest};

    #[test]
    fn a_status_takes_the_place_of_the_last_one_and_never_of_the_owners_words() {
        let check = |comment: &str, expected: Option<&str>| {
            assert_eq!(comment_with_status(comment, "waits").as_deref(), expected, "{comment:?}");
        };
        check("", Some("[infill] waits"));
        check("[infill] trains on 4 nodes", Some("[infill] waits"));
        check("infill:gpus=1-4", Some("infill:gpus=1-4 [infill] waits"));
        check("infill:gpus=1-4 [infill] trains", Some("infill:gpus=1-4 [infill] waits"));
        check("for the paper", None);
        check("for the paper [infill] waits", None);
    }

    #[test]
    fn a_status_is_one_short_line_that_asks_for_nothing() {
        let status = "waits:\n infill:nodes=9 [infill] \u{7}".to_owned() + &"word ".repeat(100);
        let comment = comment_with_status("infill:nodes=1-4", &status).unwrap();
        assert!(
            comment.starts_with("infill:nodes=1-4 [infill] waits: infill nodes=9 infill word"),
            "{comment}"
        );
        assert!(comment.chars().count() < 200 && comment.ends_with("word..."), "{comment}");
        let request = |comment: &str| {
            let job = Job { comment: comment.to_owned(), ..Job::new(JobId(7), "infill", BaseState::Pending) };
            JobRequest::from_job(&job)
        };
        assert_eq!(request(&comment), request("infill:nodes=1-4"));
        assert_eq!(request(&comment_with_status("", &status).unwrap()), Ok(None));
        assert_eq!(comment_with_status(&comment, &status), Some(comment), "it does not grow");
        let umlauts = comment_with_status("", &"\u{e4}".repeat(1000)).unwrap();
        assert_eq!(umlauts.chars().count(), MARK.len() + 1 + MAX_STATUS_CHARS + 3);
    }
}
