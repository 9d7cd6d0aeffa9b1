//! An hour of all nodes, and its packed format.
//!
//! The format holds the names, the use of each node at the begin, and the changes with a resolution of a
//! second. All are stored column by column as variable-length numbers, and compressed with xz. A day of
//! 10,000 nodes with 250,000 changes takes less than 2 MB.

use std::io::Read as _;

use liblzma::read::{XzDecoder, XzEncoder};

use super::HOUR_SECS;
use super::node_use::NodeUse;
use infill_model::{NodeName, PackedHour, UnixTime};

/// Most nodes of an hour.
pub(super) const MAX_HOUR_NODES: usize = 100_000;

/// Most changes of an hour: a thousand times those of an hour on a large cluster.
pub(super) const MAX_HOUR_CHANGES: usize = 10_000_000;

/// Most bytes of all names together.
const MAX_NAME_BYTES: usize = 16 * 1024 * 1024;

/// Most bytes of an uncompressed hour.
const MAX_UNPACKED_BYTES: u64 = 256 * 1024 * 1024;

/// The version of the format, in the first byte.
const FORMAT_VERSION: u64 = 1;

/// Level of the compression. A higher level saves one per cent and takes three times as long.
const XZ_LEVEL: u32 = 4;

/// A change of what a node is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UseChange {
    /// Seconds since the hour's begin.
    pub secs: u32,
    /// The node's index in the names.
    pub node: u32,
    /// The new use.
    pub to: NodeUse,
}

/// An unpacked hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageHour {
    /// When it began.
    pub from: UnixTime,
    /// The names of the nodes.
    pub names: Vec<NodeName>,
    /// What each node was used for at the begin.
    pub first: Vec<NodeUse>,
    /// All changes, the earliest first.
    pub(super) changes: Vec<UseChange>,
    /// Seconds from the begin that are recorded so far, at most [`HOUR_SECS`].
    pub secs: u32,
}

/// Why a packed hour cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UsageHourError {
    /// It cannot be decompressed.
    #[error("cannot decompress it: {0}")]
    Packed(#[from] std::io::Error),
    /// It has another version of the format.
    #[error("its format has version {0}; expected {FORMAT_VERSION}")]
    Version(u64),
    /// Its content is invalid. The text says what was expected.
    #[error("expected {0}")]
    Expected(&'static str),
}

impl UsageHour {
    /// Packs the hour.
    ///
    /// # Errors
    /// When xz gets no memory.
    pub fn pack(&self) -> Result<PackedHour, UsageHourError> {
        let mut bytes = Vec::new();
        let names = self.names.iter().map(NodeName::to_string).collect::<Vec<_>>().join("\n");
        put_number(&mut bytes, FORMAT_VERSION);
        put_number(&mut bytes, u64::from(self.secs));
        put_number(&mut bytes, self.names.len() as u64);
        put_number(&mut bytes, names.len() as u64);
        bytes.extend_from_slice(names.as_bytes());
        self.first.iter().for_each(|used| put_number(&mut bytes, used.to_code()));
        put_number(&mut bytes, self.changes.len() as u64);
        let mut previous = 0;
        for change in &self.changes {
            put_number(&mut bytes, u64::from(change.secs - previous));
            previous = change.secs;
        }
        self.changes.iter().for_each(|change| put_number(&mut bytes, u64::from(change.node)));
        self.changes.iter().for_each(|change| put_number(&mut bytes, change.to.to_code()));
        let mut packed = Vec::new();
        XzEncoder::new(bytes.as_slice(), XZ_LEVEL).read_to_end(&mut packed)?;
        Ok(PackedHour { from: self.from, packed })
    }

    /// Unpacks an hour.
    ///
    /// # Errors
    /// When the bytes are not an hour in this version of the format.
    pub fn unpack(hour: &PackedHour) -> Result<UsageHour, UsageHourError> {
        let mut bytes = Vec::new();
        XzDecoder::new(hour.packed.as_slice()).take(MAX_UNPACKED_BYTES).read_to_end(&mut bytes)?;
        let mut rest = ByteReader(&bytes);
        match rest.read_number()? {
            FORMAT_VERSION => {}
            other => return Err(UsageHourError::Version(other)),
        }
        let secs = rest.read_count(HOUR_SECS as usize, "seconds of an hour")? as u32;
        let nodes = rest.read_count(MAX_HOUR_NODES, "a number of nodes")?;
        let length = rest.read_count(MAX_NAME_BYTES, "the length of the names")?;
        let names = rest.read_text(length)?;
        let names: Vec<NodeName> = names.lines().map(NodeName::new).collect();
        if names.len() != nodes {
            return Err(UsageHourError::Expected("as many names as nodes"));
        }
        let first = (0..nodes).map(|_| rest.read_use()).collect::<Result<_, _>>()?;
        let changes = rest.read_changes(nodes)?;
        if !changes.iter().all(|change| change.secs <= secs) {
            return Err(UsageHourError::Expected("no change after the recorded seconds"));
        }
        Ok(UsageHour { from: hour.from, names, first, changes, secs })
    }

    /// What each node was used for last.
    pub(super) fn last_uses(&self) -> Vec<NodeUse> {
        let mut last = self.first.clone();
        self.changes.iter().for_each(|change| last[change.node as usize] = change.to);
        last
    }

    /// The time of the first known use; `None` if all are unknown.
    pub(crate) fn first_known(&self) -> Option<UnixTime> {
        if self.first.iter().any(|used| *used != NodeUse::Unknown) {
            return Some(self.from);
        }
        let first = self.changes.iter().find(|change| change.to != NodeUse::Unknown)?;
        Some(self.from + i64::from(first.secs))
    }

    /// All stretches in which a node had one use: the node's index in the names, begin and end in seconds
    /// since the hour's begin, and the use. They are sorted by their ends.
    pub fn use_spans(&self) -> Vec<(u32, u32, u32, NodeUse)> {
        let mut open: Vec<(u32, NodeUse)> = self.first.iter().map(|used| (0, *used)).collect();
        let mut spans = Vec::with_capacity(self.changes.len() + open.len());
        for change in &self.changes {
            let (from, used) = std::mem::replace(&mut open[change.node as usize], (change.secs, change.to));
            if from < change.secs {
                spans.push((change.node, from, change.secs, used));
            }
        }
        let rest = (0..).zip(open).filter(|(_, (from, _))| *from < self.secs);
        spans.extend(rest.map(|(node, (from, used))| (node, from, self.secs, used)));
        spans
    }
}

/// Appends a number with seven bits a byte, the lowest bits first (LEB128).
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The bytes that are not read yet.
struct ByteReader<'b>(&'b [u8]);

impl<'b> ByteReader<'b> {
    fn read_number(&mut self) -> Result<u64, UsageHourError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(UsageHourError::Expected("more bytes"))?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(UsageHourError::Expected("a number of 64 bits"))
    }

    fn read_u32(&mut self, what: &'static str) -> Result<u32, UsageHourError> {
        self.read_number()?.try_into().map_err(|_| UsageHourError::Expected(what))
    }

    fn read_count(&mut self, max: usize, what: &'static str) -> Result<usize, UsageHourError> {
        let count = self.read_u32(what)? as usize;
        if count > max { Err(UsageHourError::Expected(what)) } else { Ok(count) }
    }

    fn read_text(&mut self, length: usize) -> Result<&'b str, UsageHourError> {
        let (text, rest) = self.0.split_at_checked(length).ok_or(UsageHourError::Expected("more bytes"))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| UsageHourError::Expected("names in UTF-8"))
    }

    fn read_use(&mut self) -> Result<NodeUse, UsageHourError> {
        NodeUse::from_code(self.read_number()?).ok_or(UsageHourError::Expected("what a node is used for"))
    }

    fn read_changes(&mut self, nodes: usize) -> Result<Vec<UseChange>, UsageHourError> {
        let count = self.read_count(MAX_HOUR_CHANGES, "a number of changes")?;
        let what = "seconds of an hour";
        let mut secs = Vec::new();
        let mut last: u32 = 0;
        for _ in 0..count {
            last = last.checked_add(self.read_u32(what)?).ok_or(UsageHourError::Expected(what))?;
            secs.push(last);
        }
        let mut changes = Vec::with_capacity(count);
        for secs in secs {
            let node = self.read_u32("a node")?;
            if node as usize >= nodes {
                return Err(UsageHourError::Expected("a node that has a name"));
            }
            changes.push(UseChange { secs, node, to: NodeUse::Unknown });
        }
        for change in &mut changes {
            change.to = self.read_use()?;
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    fn hour() -> UsageHour {
        UsageHour {
            from: UnixTime(7200),
            names: vec![NodeName::new("n1"), NodeName::new("n2")],
            first: vec![NodeUse::Idle, NodeUse::Unknown],
            changes: vec![
                UseChange { secs: 0, node: 1, to: NodeUse::Main },
                UseChange { secs: 300, node: 0, to: NodeUse::Job(JobId(u32::MAX)) },
                UseChange { secs: 300, node: 1, to: NodeUse::Down },
                UseChange { secs: 3600, node: 0, to: NodeUse::Idle },
            ],
            secs: 3600,
        }
    }

    #[test]
    fn packing_loses_nothing() {
        assert_eq!(UsageHour::unpack(&hour().pack().unwrap()).unwrap(), hour());
        let empty = UsageHour::default();
        assert_eq!(UsageHour::unpack(&empty.pack().unwrap()).unwrap(), empty);
    }

    #[test]
    fn spans_leave_nothing_out() {
        let job = NodeUse::Job(JobId(u32::MAX));
        let spans = [
            (0, 0, 300, NodeUse::Idle),
            (1, 0, 300, NodeUse::Main),
            (0, 300, 3600, job),
            (1, 300, 3600, NodeUse::Down),
        ];
        assert_eq!(hour().use_spans(), spans);
    }

    #[test]
    fn damaged_hours_are_refused_with_a_reason() {
        fn says(bytes: &[u8]) -> String {
            let mut packed = Vec::new();
            XzEncoder::new(bytes, XZ_LEVEL).read_to_end(&mut packed).unwrap();
            UsageHour::unpack(&PackedHour { from: UnixTime(7200), packed }).unwrap_err().to_string()
        }
        let whole = hour().pack().unwrap();
        assert_eq!(says(&[]), "expected more bytes");
        assert_eq!(says(&[9]), "its format has version 9; expected 1");
        assert_eq!(says(&[1, 5, 2, 2, b'n', b'1']), "expected as many names as nodes");
        assert_eq!(says(&[1, 5, 1, 2, b'n', b'1', 2, 1, 1, 7, 1]), "expected a node that has a name");
        assert_eq!(
            says(&[1, 5, 1, 2, b'n', b'1', 2, 1, 9, 0, 1]),
            "expected no change after the recorded seconds"
        );
        assert_eq!(says(&[0xff; 11]), "expected a number of 64 bits");
        for length in 0..whole.packed.len() {
            let cut = PackedHour { packed: whole.packed[..length].to_vec(), ..whole.clone() };
            assert!(UsageHour::unpack(&cut).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_day_of_a_large_cluster_is_small() {
        fn hash(number: u64) -> u64 {
            let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33
        }
        fn use_of(group: u64) -> NodeUse {
            match hash(group) % 8 {
                0 => NodeUse::Idle,
                1..=3 => NodeUse::Main,
                kind => NodeUse::Job(JobId(1_000_000 + (kind * 25 + hash(group * 3) % 25) as u32)),
            }
        }
        // Jobs begin and end on eight nodes at once.
        let mut changes = Vec::new();
        for number in 0..10_416 {
            let group = number / 8;
            let first_node = hash(group) % 10_000;
            changes.push(UseChange {
                secs: (group * 8 * 3600 / 10_416) as u32,
                node: ((first_node + number % 8) % 10_000) as u32,
                to: use_of(group),
            });
        }
        let hour = UsageHour {
            from: UnixTime(0),
            names: (0..10_000).map(|number| NodeName::new(format!("nid{number:06}"))).collect(),
            first: (0..10_000).map(|number| use_of(number / 16)).collect(),
            changes,
            secs: 3600,
        };
        let bytes = 24 * hour.pack().unwrap().packed.len();
        assert!(bytes < 2_000_000, "{bytes} bytes a day");
    }
}
