//! A record of one of slurmrestd's lists: how it looks on the wire, and what it becomes.

use std::collections::HashSet;
use std::fmt;

use serde::de::Deserialize;

use super::field::WireNumber;
use infill_model::{NodeName, NodeType};

/// A record of a list: how it looks on the wire, and what it becomes.
pub(super) trait WireRecord: Sized {
    /// The answer's member that holds the list.
    const LIST: &'static str;
    /// What one record is called.
    const KIND: &'static str;
    /// The record on the wire.
    type Wire<'a>: Deserialize<'a>;
    /// The record's name, if it can be read.
    fn record_name(wire: &Self::Wire<'_>) -> Option<String>;
    /// The record, with defaults where a field cannot be read.
    fn from_wire(wire: &Self::Wire<'_>, shared: &mut SharedNames, flaws: &mut RecordFlaws) -> Self;
}

/// A record of which something cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BadRecord<M> {
    /// Its name, or its place in the list.
    pub name: String,
    /// The fields that cannot be read.
    pub fields: Vec<&'static str>,
    /// What can be read of it; `None` if it has no fields at all.
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

/// Which field is bad; the caller knows of which record.
pub(super) type FieldResult<T> = Result<T, &'static str>;

/// A whole number, if there is one; `field` where it is none.
pub(super) fn whole_number(n: WireNumber, field: &'static str) -> FieldResult<Option<u32>> {
    match n {
        WireNumber::Value(n) => u32::try_from(n).map(Some).map_err(|_| field),
        WireNumber::Unset => Ok(None),
        WireNumber::Infinite | WireNumber::Bad => Err(field),
    }
}

/// The fields of one record that cannot be read.
#[derive(Debug, Default)]
pub(super) struct RecordFlaws(pub Vec<&'static str>);

impl RecordFlaws {
    /// The field's value; its default, and a flaw more, if it cannot be read.
    pub(super) fn or_default<T: Default>(&mut self, field: FieldResult<T>) -> T {
        self.value_or(field, T::default())
    }

    /// The field's value; `instead`, and a flaw more, if it cannot be read.
    pub(super) fn value_or<T>(&mut self, field: FieldResult<T>, instead: T) -> T {
        field.unwrap_or_else(|name| {
            self.0.push(name);
            instead
        })
    }
}

/// What the records of one reading have in common, so that it is in memory once.
#[derive(Debug, Default)]
pub(super) struct SharedNames {
    names: HashSet<NodeName>,
    types: HashSet<NodeType>,
}

impl SharedNames {
    /// The one copy of a node name.
    pub(super) fn intern_name(&mut self, name: &str) -> NodeName {
        self.names.get(name).cloned().unwrap_or_else(|| {
            let name = NodeName::new(name);
            self.names.insert(name.clone());
            name
        })
    }

    /// The one copy of a node type.
    pub(super) fn intern_node_type(&mut self, node_type: NodeType) -> NodeType {
        self.types.get(&node_type).cloned().unwrap_or_else(|| {
            self.types.insert(node_type.clone());
            node_type
        })
    }
}
