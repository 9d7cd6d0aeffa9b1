//! The idle nodes that are left alone, as a number or as a share of all nodes.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many idle nodes are left alone. In a file it is `4`, or `"5%"` of the nodes of the malleable
/// partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeepIdle {
    /// This number of nodes.
    Nodes(u32),
    /// This percentage of the nodes, rounded up.
    Percent(f64),
}

impl KeepIdle {
    /// The number of nodes out of `all` nodes.
    pub fn node_count(self, all: usize) -> usize {
        let nodes = match self {
            KeepIdle::Nodes(nodes) => nodes as usize,
            KeepIdle::Percent(percent) => (all as f64 * percent / 100.0).ceil() as usize,
        };
        nodes.min(all)
    }

    fn parse(text: &str) -> Option<KeepIdle> {
        let percent: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
        if (0.0..=100.0).contains(&percent) { Some(KeepIdle::Percent(percent)) } else { None }
    }
}

impl Default for KeepIdle {
    fn default() -> Self {
        KeepIdle::Nodes(0)
    }
}

/// As in a file, but without quotes.
impl fmt::Display for KeepIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepIdle::Nodes(nodes) => write!(f, "{nodes}"),
            KeepIdle::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for KeepIdle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            KeepIdle::Nodes(nodes) => serializer.serialize_u32(*nodes),
            KeepIdle::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for KeepIdle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrShare)
    }
}

struct NumberOrShare;

impl NumberOrShare {
    fn nodes<E: Error>(number: Result<u32, std::num::TryFromIntError>) -> Result<KeepIdle, E> {
        number
            .map(KeepIdle::Nodes)
            .map_err(|_| E::custom("expected a number of nodes, or a share like \"5%\""))
    }
}

impl Visitor<'_> for NumberOrShare {
    type Value = KeepIdle;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of nodes, or a share like \"5%\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<KeepIdle, E> {
        NumberOrShare::nodes(number.try_into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<KeepIdle, E> {
        NumberOrShare::nodes(number.try_into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<KeepIdle, E> {
        KeepIdle::parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_a_share_is_read_and_written() {
        for (text, in_ten, in_a_thousand) in
            [("0", 0, 0), ("4", 4, 4), (r#""5%""#, 1, 50), (r#""100 %""#, 10, 1000)]
        {
            let keep: KeepIdle = serde_json::from_str(text).unwrap();
            assert_eq!((keep.node_count(10), keep.node_count(1000)), (in_ten, in_a_thousand), "{text}");
            let written = serde_json::to_string(&keep).unwrap();
            assert_eq!(serde_json::from_str::<KeepIdle>(&written).unwrap(), keep);
        }
        assert_eq!(KeepIdle::Nodes(20).node_count(10), 10);
        for text in ["-1", "1.5", r#""5""#, r#""101%""#, r#""nan%""#, "true", "99999999999"] {
            assert!(serde_json::from_str::<KeepIdle>(text).is_err(), "{text}");
        }
    }
}
