//! Reads one list of an answer record by record while it arrives, so that neither the answer nor its wire
//! values are in memory as a whole. The jobs of a large site take 200 MB as JSON and 25 MB as values.

use std::io::Read;

use reqwest::StatusCode;
use serde::de::IgnoredAny;

use super::failure::{RequestFailure, check_response};
use super::field::{WireNumber, WireObject};
use super::json_repair;
use super::json_window::{JsonWindow, first_value, unreadable_answer};
use super::record::{BadRecord, RecordFlaws, SharedNames, WireRecord};

/// Bytes of an answer that are in memory at a time: about fifty jobs, which fit into a core's own cache.
const WINDOW_BYTES: usize = 256 * 1024;

/// The content of an answer with a list.
#[derive(Debug)]
pub(super) struct RecordList<M> {
    /// The readable records, in the answer's order.
    pub records: Vec<M>,
    /// The records with fields that cannot be read.
    pub bad: Vec<BadRecord<M>>,
    /// When backfill ran last; only the list of jobs has it.
    pub last_backfill: WireNumber,
}

/// Reads an answer to its end.
///
/// # Errors
/// The error that Slurm reports; or the position where the answer is not JSON; or the missing list.
pub(super) fn read_list<M: WireRecord>(
    source: impl Read,
    shared: &mut SharedNames,
) -> Result<RecordList<M>, RequestFailure> {
    read_list_with(WINDOW_BYTES, source, shared)
}

/// As [`read_list`], with a window of this many bytes.
pub(super) fn read_list_with<M: WireRecord>(
    window_bytes: usize,
    source: impl Read,
    shared: &mut SharedNames,
) -> Result<RecordList<M>, RequestFailure> {
    let mut window = JsonWindow::new(source, window_bytes);
    let mut members = AnswerMembers { listed: None, last_backfill: WireNumber::Unset, envelope: Vec::new() };
    window.expect_byte(b"{")?;
    if window.peek()? == Some(b'}') {
        window.expect_byte(b"}")?;
    } else {
        loop {
            let name = window.read_value::<String>()?;
            window.expect_byte(b":")?;
            members.read_member(&name, &mut window, shared)?;
            if window.expect_byte(b",}")? == b'}' {
                break;
            }
        }
    }
    window.expect_end()?;
    members.into_list()
}

/// The members of an answer that infill uses.
struct AnswerMembers<M> {
    listed: Option<(Vec<M>, Vec<BadRecord<M>>)>,
    last_backfill: WireNumber,
    /// Slurm's own errors, as JSON.
    envelope: Vec<u8>,
}

impl<M: WireRecord> AnswerMembers<M> {
    fn read_member<R: Read>(
        &mut self,
        name: &str,
        window: &mut JsonWindow<R>,
        shared: &mut SharedNames,
    ) -> Result<(), RequestFailure> {
        match name {
            _ if name == M::LIST && self.listed.is_some() => {
                return Err(unreadable_answer(format!("duplicate field `{name}`"), false));
            }
            // A value that is not a list may come with an error that says why.
            _ if name == M::LIST && window.peek()? == Some(b'[') => {
                self.listed = Some(read_records(window, shared)?)
            }
            "last_backfill" => self.last_backfill = window.read_value::<WireNumber>()?,
            "errors" | "status" => {
                self.envelope.push(if self.envelope.is_empty() { b'{' } else { b',' });
                self.envelope.extend(format!("\"{name}\":").bytes());
                self.envelope.append(
                    &mut window
                        .read_with(|b| first_value::<IgnoredAny>(b).map(|(_, n)| (b[..n].to_vec(), n)))?,
                );
            }
            _ => drop(window.read_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    /// The list, unless Slurm reports an error or the list is missing.
    fn into_list(mut self) -> Result<RecordList<M>, RequestFailure> {
        if !self.envelope.is_empty() {
            self.envelope.push(b'}');
            check_response(StatusCode::OK, &json_repair::repair_text(self.envelope))?;
        }
        let (records, bad) =
            self.listed.ok_or_else(|| unreadable_answer(format!("it has no list `{}`", M::LIST), false))?;
        Ok(RecordList { records, bad, last_backfill: self.last_backfill })
    }
}

/// Reads the list itself: the good records and the bad ones.
fn read_records<M: WireRecord, R: Read>(
    window: &mut JsonWindow<R>,
    shared: &mut SharedNames,
) -> Result<(Vec<M>, Vec<BadRecord<M>>), RequestFailure> {
    let mut good = Vec::new();
    let mut bad = Vec::new();
    window.expect_byte(b"[")?;
    if window.peek()? == Some(b']') {
        window.expect_byte(b"]")?;
        return Ok((good, bad));
    }
    loop {
        let at = good.len() + bad.len();
        let record = window.read_with(|bytes| {
            first_value::<WireObject<M::Wire<'_>>>(bytes)
                .map(|(wire, count)| (convert_record(&wire, at, shared), count))
                .or_else(|why| read_repaired(bytes, why, at, shared))
        });
        let record = record.map_err(|f| RequestFailure {
            what: format!("{} ({} {at} of the list)", f.what, M::KIND),
            ..f
        })?;
        match record {
            Ok(record) => good.push(record),
            Err(bad_record) => bad.push(bad_record),
        }
        if window.expect_byte(b",]")? == b']' {
            return Ok((good, bad));
        }
    }
}

/// Reads a record that serde_json refuses in its original form. Only the odd value is lost, not the answer.
fn read_repaired<M: WireRecord>(
    bytes: &[u8],
    why: serde_json::Error,
    at: usize,
    shared: &mut SharedNames,
) -> serde_json::Result<(Result<M, BadRecord<M>>, usize)> {
    if why.is_eof() {
        return Err(why);
    }
    let count = match first_value::<IgnoredAny>(bytes) {
        Ok((IgnoredAny, count)) => count,
        // The rest of the record may still arrive.
        Err(e) if e.is_eof() => return Err(e),
        Err(_) => return Err(why),
    };
    let repaired = json_repair::repair_record(&bytes[..count]);
    let wire = serde_json::from_slice::<WireObject<M::Wire<'_>>>(&repaired)?;
    Ok((convert_record(&wire, at, shared), count))
}

/// Converts the record at position `at` of the list.
fn convert_record<M: WireRecord>(
    wire: &WireObject<M::Wire<'_>>,
    at: usize,
    shared: &mut SharedNames,
) -> Result<M, BadRecord<M>> {
    let WireObject::Value(wire) = wire else {
        return Err(BadRecord { name: list_position(at), fields: vec!["fields"], rest: None });
    };
    let mut flaws = RecordFlaws::default();
    let record = M::from_wire(wire, shared, &mut flaws);
    if flaws.0.is_empty() {
        return Ok(record);
    }
    let name = M::record_name(wire).unwrap_or_else(|| list_position(at));
    Err(BadRecord { name, fields: flaws.0, rest: Some(record) })
}

fn list_position(at: usize) -> String {
    format!("at place {at} of the list")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rest::failure::FailureKind;
    use infill_model::{Job, Node};
    use infill_testkit::effort;

    /// A source that returns at most this number of bytes at a time.
    struct SmallReads<'a>(&'a [u8], usize);

    impl Read for SmallReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn nodes(text: &str) -> String {
        match read_list::<Node>(text.as_bytes(), &mut SharedNames::default()) {
            Ok(listed) => format!("{} nodes, {} bad", listed.records.len(), listed.bad.len()),
            Err(f) => format!("{:?}: {}", f.kind, f.what),
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_refused_with_the_position() {
        let node = r#"{"name": "n1", "state": ["IDLE"]}"#;
        let not = "the answer is not what was asked for";
        let said = |text: &str| nodes(text).replace(not, "NOT");
        assert_eq!(said(&format!(r#" {{"meta": {{}}, "nodes" : [{node} , null]}} "#)), "1 nodes, 1 bad");
        assert_eq!(said(r#"{"nodes": []}"#), "0 nodes, 0 bad");
        assert_eq!(said("{}"), "Permanent: NOT: it has no list `nodes`");
        assert_eq!(said(r#"{"nodes": {"a": 1}}"#), "Permanent: NOT: it has no list `nodes`");
        assert_eq!(said(r#"{"nodes": [], "nodes": []}"#), "Permanent: NOT: duplicate field `nodes`");
        assert_eq!(said(""), "Transient: NOT: expected `{` at byte 0");
        assert_eq!(said("<html>"), "Permanent: NOT: expected `{` at byte 0");
        assert_eq!(said(r#"{"nodes": []} 1"#), "Permanent: NOT: trailing characters at byte 14");
        assert_eq!(said(r#"{"nodes": [] "a": 1}"#), "Permanent: NOT: expected `,` or `}` at byte 13");
        assert_eq!(
            said(&format!(r#"{{"nodes": [{node}, {{"name": nix}}]}}"#)),
            "Permanent: NOT: expected ident at line 1 column 11 of what begins at byte 46 (node 1 of the list)"
        );
        assert_eq!(
            said(&format!(r#"{{"nodes": [{node}, {{"name": "#)),
            "Transient: NOT: EOF while parsing a value at line 1 column 9 of what begins at byte 46 (node 1 of the list)"
        );
    }

    #[test]
    fn slurms_own_errors_count_first_wherever_they_stand() {
        let error = r#""errors": [{"error_number": 2002, "error": "Access/permission denied"}]"#;
        for text in [
            format!(r#"{{{error}, "nodes": []}}"#),
            format!(r#"{{"nodes": null, {error}}}"#),
            format!("{{{error}}}"),
        ] {
            assert!(nodes(&text).starts_with("Denied: Access/permission denied"), "{text}: {}", nodes(&text));
        }
        assert_eq!(nodes(r#"{"errors": [], "nodes": []}"#), "0 nodes, 0 bad");
    }

    /// The same members, read in one piece by serde_json alone.
    #[derive(serde::Deserialize)]
    struct Reference {
        jobs: Vec<IgnoredAny>,
        #[serde(default)]
        last_backfill: WireNumber,
    }

    fn recorded() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/rest/24.11/v0.0.42/jobs.json");
        std::fs::read_to_string(path).unwrap()
    }

    proptest! {
        #![proptest_config(effort::property(300))]

        #[test]
        fn in_pieces_it_says_the_same(window in 1usize..3000, drops in 1usize..3000) {
            let text = recorded();
            let whole = read_list::<Job>(text.as_bytes(), &mut SharedNames::default()).map_err(|f| f.what);
            let whole = whole.unwrap();
            let source = SmallReads(text.as_bytes(), drops);
            let pieces = read_list_with::<Job>(window, source, &mut SharedNames::default()).map_err(|f| f.what);
            let pieces = pieces.unwrap();
            prop_assert_eq!(whole.records.len(), 6);
            prop_assert_eq!(whole.records, pieces.records);
            prop_assert_eq!(whole.last_backfill, pieces.last_backfill);
        }

        #[test]
        fn damaged_bytes_are_refused_as_by_serde_json(
            at in 0usize..60_000, byte in 0x20u8..0x7f, window in 1usize..9000, cut: bool,
        ) {
            let mut text = recorded().into_bytes();
            let at = at % text.len();
            text[at] = byte;
            if cut {
                text.truncate(at);
            }
            let reference = serde_json::from_slice::<Reference>(&text);
            let ours = read_list_with::<Job>(window, SmallReads(&text, 700), &mut SharedNames::default());
            match (reference, ours) {
                (Ok(reference), Ok(ours)) => {
                    prop_assert_eq!(reference.jobs.len(), ours.records.len() + ours.bad.len());
                    prop_assert_eq!(reference.last_backfill, ours.last_backfill);
                }
                // The reference does not look into jobs: it finds no repeated members and no numbers that
                // are too large.
                (Ok(_), Err(f)) => prop_assert!(["duplicate field", "out of range"].iter().any(|w| f.what.contains(w)), "{}", f.what),
                (Err(e), Ok(_)) => prop_assert!(false, "serde_json refuses it: {e}"),
                (Err(e), Err(f)) => prop_assert!(!e.is_eof() || f.kind == FailureKind::Transient, "{e}: {}", f.what),
            }
        }
    }
}
