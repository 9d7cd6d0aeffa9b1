//! Records of slurmrestd's lists: their form on the wire, their conversion, and fields that cannot be read.

use std::collections::HashSet;
use std::fmt;

use serde::de::Deserialize;

use super::field::WireNumber;
use infill_model::{NodeName, NodeType};

/// A type that is converted from the records of one of slurmrestd's lists.
pub(super) trait WireRecord: Sized {
    /// The answer's member that holds the list, such as `jobs`.
    const LIST: &'static str;
    /// The word for one record in messages, such as `job`.
    const KIND: &'static str;
    /// The form of the record on the wire.
    type Wire<'a>: Deserialize<'a>;
    /// The record's name, if it can be read.
    fn record_name(wire: &Self::Wire<'_>) -> Option<String>;
    /// Converts a record. A field that cannot be read gets its default and is added to `flaws`.
    fn from_wire(wire: &Self::Wire<'_>, shared: &mut SharedNames, flaws: &mut RecordFlaws) -> Self;
}

/// A record with fields that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BadRecord<M> {
    /// Its name, or its position in the list.
    pub name: String,
    /// The names of the fields that cannot be read.
    pub fields: Vec<&'static str>,
    /// The record with defaults for these fields; `None` if it is not an object.
    pub rest: Option<M>,
}

impl<M> BadRecord<M> {
    /// Whether this field cannot be read.
    pub(super) fn lacks_field(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }
}

impl<M: WireRecord> fmt::Display for BadRecord<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} has no readable {}", M::KIND, self.name, self.fields.join(", "))
    }
}

/// A field's value, or the name of the field if it cannot be read.
pub(super) type FieldResult<T> = Result<T, &'static str>;

/// A whole number, or `None` where it is not set.
///
/// # Errors
/// `field` if the value is not a number from 0 to `u32::MAX`.
pub(super) fn whole_number(n: WireNumber, field: &'static str) -> FieldResult<Option<u32>> {
    match n {
        WireNumber::Value(n) => u32::try_from(n).map(Some).map_err(|_| field),
        WireNumber::Unset => Ok(None),
        WireNumber::Infinite | WireNumber::Bad => Err(field),
    }
}

/// The names of the fields of one record that cannot be read.
#[derive(Debug, Default)]
pub(super) struct RecordFlaws(pub Vec<&'static str>);

impl RecordFlaws {
    /// The field's value. If it cannot be read, records the flaw and returns the default.
    pub(super) fn or_default<T: Default>(&mut self, field: FieldResult<T>) -> T {
        self.value_or(field, T::default())
    }

    /// The field's value. If it cannot be read, records the flaw and returns `fallback`.
    pub(super) fn value_or<T>(&mut self, field: FieldResult<T>, fallback: T) -> T {
        field.unwrap_or_else(|name| {
            self.0.push(name);
            fallback
        })
    }
}

/// Node names and node types that the records of one reading share, so that each is in memory once.
#[derive(Debug, Default)]
pub(super) struct SharedNames {
    names: HashSet<NodeName>,
    types: HashSet<NodeType>,
}

impl SharedNames {
    /// The shared copy of a node name.
    pub(super) fn intern_name(&mut self, name: &str) -> NodeName {
        self.names.get(name).cloned().unwrap_or_else(|| {
            let name = NodeName::new(name);
            self.names.insert(name.clone());
            name
        })
    }

    /// The shared copy of a node type.
    pub(super) fn intern_node_type(&mut self, node_type: NodeType) -> NodeType {
        self.types.get(&node_type).cloned().unwrap_or_else(|| {
            self.types.insert(node_type.clone());
            node_type
        })
    }
}
