//! A table that stores each node name once, because a log names every node thousands of times.

use std::collections::HashMap;

use infill_model::NodeName;

/// Names by number, in the order of their first use.
#[derive(Default)]
pub(super) struct NodeNameTable {
    numbers: HashMap<Box<str>, u32>,
    names: Vec<NodeName>,
}

impl NodeNameTable {
    /// The number of a name. There are fewer lines than `u32::MAX`, so there are fewer names, too.
    pub(super) fn intern_name(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(NodeName::new(name));
        number
    }

    /// The shared copy of a name.
    pub(super) fn shared_name(&mut self, name: NodeName) -> NodeName {
        let number = self.intern_name(name.as_str());
        self.names.get(number as usize).cloned().unwrap_or(name)
    }

    /// All names in natural order, and the rank of each number in that order.
    pub(super) fn into_ranked(self) -> (Vec<NodeName>, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.names.len() as u32).collect();
        order.sort_by(|a, b| self.names[*a as usize].cmp_natural(&self.names[*b as usize]));
        let mut ranks = vec![0; order.len()];
        for (rank, number) in (0..).zip(&order) {
            ranks[*number as usize] = rank;
        }
        (order.iter().map(|number| self.names[*number as usize].clone()).collect(), ranks)
    }
}
