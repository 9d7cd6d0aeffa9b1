//! A record of one of slurmrestd's lists: how it looks on the wire, and what it becomes.

use std::collections::HashSet;
use std::fmt;

use serde::de::Deserialize;

use super::field::Number;
use infill_model::{NodeName, NodeType};

/// A record of a list: how it looks on the wire, and what it becomes.
pub(super) trait Record: Sized {
    /// The answer's member that holds the list.
    const LIST: &'static str;
    /// What one record is called.
    const KIND: &'static str;
    /// The record on the wire.
    type Wire<'a>: Deserialize<'a>;
    /// The record's name, if it can be read.
    fn name(wire: &Self::Wire<'_>) -> Option<String>;
    /// The record, with defaults where a field cannot be read.
    fn convert(wire: &Self::Wire<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Self;
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
    pub(super) fn lacks(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }
}

impl<M: Record> fmt::Display for BadRecord<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} has no readable {}", M::KIND, self.name, self.fields.join(", "))
    }
}

/// Which field is bad; the caller knows of which record.
pub(super) type Field<T> = Result<T, &'static str>;

/// A whole number, if there is one; `field` where it is none.
pub(super) fn natural(n: Number, field: &'static str) -> Field<Option<u32>> {
    match n {
        Number::Value(n) => u32::try_from(n).map(Some).map_err(|_| field),
        Number::Unset => Ok(None),
        Number::Infinite | Number::Bad => Err(field),
    }
}

/// The fields of one record that cannot be read.
#[derive(Debug, Default)]
pub(super) struct Flaws(pub Vec<&'static str>);

impl Flaws {
    /// The field's value; its default, and a flaw more, if it cannot be read.
    pub(super) fn or_default<T: Default>(&mut self, field: Field<T>) -> T {
        self.or(field, T::default())
    }

    /// The field's value; `instead`, and a flaw more, if it cannot be read.
    pub(super) fn or<T>(&mut self, field: Field<T>, instead: T) -> T {
        field.unwrap_or_else(|name| {
            self.0.push(name);
            instead
        })
    }
}

/// What the records of one reading have in common, so that it is in memory once.
#[derive(Debug, Default)]
pub(super) struct Shared {
    names: HashSet<NodeName>,
    types: HashSet<NodeType>,
}

impl Shared {
    /// The one copy of a node name.
    pub(super) fn name(&mut self, name: &str) -> NodeName {
        self.names.get(name).cloned().unwrap_or_else(|| {
            let name = NodeName::new(name);
            self.names.insert(name.clone());
            name
        })
    }

    /// The one copy of a node type.
    pub(super) fn node_type(&mut self, node_type: NodeType) -> NodeType {
        self.types.get(&node_type).cloned().unwrap_or_else(|| {
            self.types.insert(node_type.clone());
            node_type
        })
    }
}
