//! One list of an answer, read record by record while it arrives: neither the answer nor the wire's values
//! are ever held as a whole. The jobs of a large site have 200 MB as JSON and 25 MB as values.

use std::io::Read;

use reqwest::StatusCode;
use serde::de::IgnoredAny;

use super::failure::{Failure, judge};
use super::field::{Number, Object};
use super::mend;
use super::record::{BadRecord, Flaws, Record, Shared};
use super::window::{Window, first, unreadable};

/// Bytes of an answer that are held at a time: some fifty jobs, and little enough to stay in a core's own
/// cache.
const WINDOW_BYTES: usize = 256 * 1024;

/// What an answer with a list says.
#[derive(Debug)]
pub(super) struct Listed<M> {
    /// The records, in the answer's order.
    pub records: Vec<M>,
    /// Those of which something cannot be read.
    pub bad: Vec<BadRecord<M>>,
    /// When backfill ran last; only the jobs come with it.
    pub last_backfill: Number,
}

/// Reads an answer to its end.
///
/// # Errors
/// What Slurm says went wrong; or where the answer is no JSON, or has no list of this name.
pub(super) fn read<M: Record>(source: impl Read, shared: &mut Shared) -> Result<Listed<M>, Failure> {
    read_by(WINDOW_BYTES, source, shared)
}

/// As [`read`], with a window of this many bytes.
pub(super) fn read_by<M: Record>(
    window_bytes: usize,
    source: impl Read,
    shared: &mut Shared,
) -> Result<Listed<M>, Failure> {
    let mut window = Window::new(source, window_bytes);
    let mut members = Members { listed: None, last_backfill: Number::Unset, envelope: Vec::new() };
    window.one_of(b"{")?;
    if window.peek()? == Some(b'}') {
        window.one_of(b"}")?;
    } else {
        loop {
            let name = window.take::<String>()?;
            window.one_of(b":")?;
            members.take(&name, &mut window, shared)?;
            if window.one_of(b",}")? == b'}' {
                break;
            }
        }
    }
    window.finish()?;
    members.conclude()
}

/// The members of an answer that count.
struct Members<M> {
    listed: Option<(Vec<M>, Vec<BadRecord<M>>)>,
    last_backfill: Number,
    /// Slurm's own errors, as JSON.
    envelope: Vec<u8>,
}

impl<M: Record> Members<M> {
    fn take<R: Read>(
        &mut self,
        name: &str,
        window: &mut Window<R>,
        shared: &mut Shared,
    ) -> Result<(), Failure> {
        match name {
            _ if name == M::LIST && self.listed.is_some() => {
                return Err(unreadable(format!("duplicate field `{name}`"), false));
            }
            // Whatever else stands in the list's place may come with an error that says why.
            _ if name == M::LIST && window.peek()? == Some(b'[') => {
                self.listed = Some(records(window, shared)?)
            }
            "last_backfill" => self.last_backfill = window.take::<Number>()?,
            "errors" | "status" => {
                self.envelope.push(if self.envelope.is_empty() { b'{' } else { b',' });
                self.envelope.extend(format!("\"{name}\":").bytes());
                let text = |b: &[u8]| first::<IgnoredAny>(b).map(|(_, n)| (b[..n].to_vec(), n));
                self.envelope.append(&mut window.value(text)?);
            }
            _ => drop(window.take::<IgnoredAny>()?),
        }
        Ok(())
    }

    /// Slurm's errors count first, whatever else it says.
    fn conclude(mut self) -> Result<Listed<M>, Failure> {
        if !self.envelope.is_empty() {
            self.envelope.push(b'}');
            judge(StatusCode::OK, &mend::text(self.envelope))?;
        }
        let (records, bad) =
            self.listed.ok_or_else(|| unreadable(format!("it has no list `{}`", M::LIST), false))?;
        Ok(Listed { records, bad, last_backfill: self.last_backfill })
    }
}

/// Reads the list itself.
fn records<M: Record, R: Read>(
    window: &mut Window<R>,
    shared: &mut Shared,
) -> Result<(Vec<M>, Vec<BadRecord<M>>), Failure> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    window.one_of(b"[")?;
    if window.peek()? == Some(b']') {
        window.one_of(b"]")?;
        return Ok((good, bad));
    }
    loop {
        let at = good.len() + bad.len();
        let record = window.value(|bytes| {
            first::<Object<M::Wire<'_>>>(bytes)
                .map(|(wire, count)| (one(&wire, at, shared), count))
                .or_else(|why| odd(bytes, why, at, shared))
        });
        match record
            .map_err(|f| Failure { what: format!("{} ({} {at} of the list)", f.what, M::KIND), ..f })?
        {
            Ok(record) => good.push(record),
            Err(why) => bad.push(why),
        }
        if window.one_of(b",]")? == b']' {
            return Ok((good, bad));
        }
    }
}

/// Reads a record that serde_json refuses as it is: one odd value costs that value, and not the whole answer.
fn odd<M: Record>(
    bytes: &[u8],
    why: serde_json::Error,
    at: usize,
    shared: &mut Shared,
) -> serde_json::Result<(Result<M, BadRecord<M>>, usize)> {
    if why.is_eof() {
        return Err(why);
    }
    let count = match first::<IgnoredAny>(bytes) {
        Ok((IgnoredAny, count)) => count,
        // More of it may come.
        Err(e) if e.is_eof() => return Err(e),
        Err(_) => return Err(why),
    };
    let mended = mend::record(&bytes[..count]);
    let wire = serde_json::from_slice::<Object<M::Wire<'_>>>(&mended)?;
    Ok((one(&wire, at, shared), count))
}

/// Converts one record.
fn one<M: Record>(wire: &Object<M::Wire<'_>>, at: usize, shared: &mut Shared) -> Result<M, BadRecord<M>> {
    let place = || format!("at place {at} of the list");
    let Object::Value(wire) = wire else {
        return Err(BadRecord { name: place(), fields: vec!["fields"], rest: None });
    };
    let mut flaws = Flaws::default();
    let record = M::convert(wire, shared, &mut flaws);
    if flaws.0.is_empty() {
        return Ok(record);
    }
    Err(BadRecord { name: M::name(wire).unwrap_or_else(place), fields: flaws.0, rest: Some(record) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rest::failure::Kind;
    use infill_model::{Job, Node};
    use infill_testkit::effort;

    /// Gives a few bytes at a time.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn nodes(text: &str) -> String {
        match read::<Node>(text.as_bytes(), &mut Shared::default()) {
            Ok(listed) => format!("{} nodes, {} bad", listed.records.len(), listed.bad.len()),
            Err(f) => format!("{:?}: {}", f.kind, f.what),
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_refused_with_the_place() {
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
        last_backfill: Number,
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
            let whole = read::<Job>(text.as_bytes(), &mut Shared::default()).map_err(|f| f.what);
            let pieces = Drops(text.as_bytes(), drops);
            let pieces = read_by::<Job>(window, pieces, &mut Shared::default()).map_err(|f| f.what);
            let (whole, pieces) = (whole.unwrap(), pieces.unwrap());
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
            let ours = read_by::<Job>(window, Drops(&text, 700), &mut Shared::default());
            match (reference, ours) {
                (Ok(reference), Ok(ours)) => {
                    prop_assert_eq!(reference.jobs.len(), ours.records.len() + ours.bad.len());
                    prop_assert_eq!(reference.last_backfill, ours.last_backfill);
                }
                // The reference looks into no job: not for repeated members, nor for numbers that are too
                // large.
                (Ok(_), Err(f)) => prop_assert!(["duplicate field", "out of range"].iter().any(|w| f.what.contains(w)), "{}", f.what),
                (Err(e), Ok(_)) => prop_assert!(false, "serde_json refuses it: {e}"),
                (Err(e), Err(f)) => prop_assert!(!e.is_eof() || f.kind == Kind::Transient, "{e}: {}", f.what),
            }
        }
    }
}
