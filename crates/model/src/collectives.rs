//! How long collectives take on a site's nodes, as measured there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{MAX_NODES_A_JOB, NodeType, UnixTime, words};

/// Most rows of a type of nodes.
pub const MAX_COLLECTIVE_ROWS: usize = 2000;

/// Most types of nodes of a site's table.
pub const MAX_COLLECTIVE_TYPES: usize = 64;

/// Most ranks of a row.
pub const MAX_COLLECTIVE_RANKS: u32 = 1 << 20;

/// Most bytes of a tensor.
const MAX_BYTES: u64 = 1 << 50;

/// The longest that one takes, s.
const MAX_SECS: f64 = 86_400.0;

/// Longest name of a type, characters.
const MAX_TYPE_CHARS: usize = 200;

words! {
    /// What several ranks do together. Bytes are those of the whole tensor.
    pub enum CollectiveOp {
        /// Each has the sum in the end.
        AllReduce = "all_reduce",
        /// Each has all parts in the end.
        AllGather = "all_gather",
        /// Each has its part of the sum in the end.
        ReduceScatter = "reduce_scatter",
        /// One way, between two.
        PointToPoint = "point_to_point",
    }
}

/// How long one operation took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveRow {
    /// The operation.
    pub op: CollectiveOp,
    /// Bytes of the whole tensor.
    pub bytes: u64,
    /// Ranks that did it together, at least 2.
    pub ranks: u32,
    /// Nodes that they were on.
    pub nodes: u32,
    /// Median seconds.
    pub secs: f64,
}

/// What was measured on nodes of a type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeCollectives {
    /// The type, or a word that means it: `a100` of `gpu:a100:4/cpu64`.
    pub node_type: String,
    /// When it was imported.
    #[serde(default)]
    pub imported_at: UnixTime,
    /// What was measured.
    pub rows: Vec<CollectiveRow>,
}

/// The site's table of collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteCollectives {
    /// By type of nodes.
    #[serde(default)]
    pub types: Vec<TypeCollectives>,
}

/// Why a table is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CollectivesError(String);

impl CollectiveRow {
    /// What is wrong with it, if anything.
    fn find_problem(&self) -> Option<String> {
        let CollectiveRow { bytes, ranks, nodes, secs, .. } = *self;
        let rules = [
            ((1..=MAX_BYTES).contains(&bytes), format!("{bytes} bytes; expected 1 to {MAX_BYTES}")),
            (
                (2..=MAX_COLLECTIVE_RANKS).contains(&ranks),
                format!("{ranks} ranks; expected 2 to {MAX_COLLECTIVE_RANKS}"),
            ),
            (
                (1..=ranks.min(MAX_NODES_A_JOB)).contains(&nodes),
                format!("{nodes} nodes; expected 1 to as many as there are ranks ({ranks})"),
            ),
            (secs > 0.0 && secs <= MAX_SECS, format!("{secs} seconds; expected more than 0, a day at most")),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what)
    }
}

impl TypeCollectives {
    /// Whether it is what a table can be: named, with rows, each measured once.
    ///
    /// # Errors
    /// What is wrong, and in which row, counted from 1.
    pub fn check_rows(&self) -> Result<(), CollectivesError> {
        let name = &self.node_type;
        let is_name = !name.is_empty()
            && name.chars().count() <= MAX_TYPE_CHARS
            && !name.chars().any(|c| c.is_control() || c.is_whitespace());
        if !is_name {
            let what = format!("the type of nodes is {name:?}; expected a name without blanks");
            return Err(CollectivesError(what));
        }
        if !(1..=MAX_COLLECTIVE_ROWS).contains(&self.rows.len()) {
            let what = format!("{name} has {} rows; expected 1 to {MAX_COLLECTIVE_ROWS}", self.rows.len());
            return Err(CollectivesError(what));
        }
        let mut seen = BTreeSet::new();
        for (i, row) in self.rows.iter().enumerate() {
            let is_new = seen.insert((row.op, row.bytes, row.ranks, row.nodes));
            if let Some(what) = row
                .find_problem()
                .or_else(|| (!is_new).then(|| "the same was measured in an earlier row".to_owned()))
            {
                return Err(CollectivesError(format!("row {} of {name} ({}): {what}", i + 1, row.op)));
            }
        }
        Ok(())
    }
}

impl SiteCollectives {
    /// Takes in what was measured on a type of nodes, in place of what was known of it.
    ///
    /// # Errors
    /// Where it is not what a table can be, or there are too many types.
    pub fn import_table(&mut self, table: TypeCollectives) -> Result<(), CollectivesError> {
        table.check_rows()?;
        self.types.retain(|known| known.node_type != table.node_type);
        if self.types.len() >= MAX_COLLECTIVE_TYPES {
            let what = format!("there are {MAX_COLLECTIVE_TYPES} types already; expected no more");
            return Err(CollectivesError(what));
        }
        self.types.push(table);
        self.types.sort_by(|a, b| a.node_type.cmp(&b.node_type));
        Ok(())
    }

    /// What was measured on nodes of a type: by its whole name, else by a word that means it.
    pub fn for_type(&self, node_type: &NodeType) -> Option<&TypeCollectives> {
        let whole = self.types.iter().find(|known| known.node_type == node_type.as_str());
        whole.or_else(|| self.types.iter().find(|known| node_type.matches_name(&known.node_type)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, ranks: u32, nodes: u32, secs: f64) -> CollectiveRow {
        CollectiveRow { op: CollectiveOp::AllReduce, bytes, ranks, nodes, secs }
    }

    fn table(node_type: &str, rows: Vec<CollectiveRow>) -> TypeCollectives {
        TypeCollectives { node_type: node_type.to_owned(), imported_at: UnixTime(1), rows }
    }

    #[test]
    fn a_type_is_found_by_its_name_or_by_a_word_of_it() {
        let mut site = SiteCollectives::default();
        site.import_table(table("a100", vec![row(1024, 2, 1, 1e-4)])).unwrap();
        site.import_table(table("gpu:a100:4/cpu64", vec![row(1024, 4, 1, 2e-4)])).unwrap();
        site.import_table(table("a100", vec![row(1024, 2, 1, 3e-4)])).unwrap();
        let secs = |name: &str| site.for_type(&NodeType::new(name)).map(|table| table.rows[0].secs);
        assert_eq!((secs("gpu:a100:4/cpu64"), secs("gpu:a100:8/cpu64")), (Some(2e-4), Some(3e-4)));
        assert_eq!(secs("gpu:v100:4/cpu64"), None);
        assert_eq!(site.types.len(), 2, "what is imported anew is in place of what was");
    }

    #[test]
    fn what_no_table_can_be_is_refused_with_its_row() {
        let refused = |rows: Vec<CollectiveRow>| table("a100", rows).check_rows().unwrap_err().to_string();
        let good = row(1024, 4, 2, 1e-4);
        for (bad, says) in [
            (row(0, 4, 2, 1e-4), "0 bytes; expected 1 to"),
            (row(1024, 1, 1, 1e-4), "1 ranks; expected 2 to"),
            (row(1024, 2, 3, 1e-4), "3 nodes; expected 1 to as many as there are ranks (2)"),
            (row(1024, 2, 0, 1e-4), "0 nodes"),
            (row(1024, 2, 1, 0.0), "0 seconds; expected more than 0"),
            (row(1024, 2, 1, f64::NAN), "NaN seconds"),
            (good, "the same was measured"),
        ] {
            let said = refused(vec![good, bad]);
            assert!(said.starts_with("row 2 of a100 (all_reduce): ") && said.contains(says), "{said}");
        }
        assert!(refused(Vec::new()).contains("0 rows"));
        assert!(table("a b", vec![good]).check_rows().unwrap_err().to_string().contains("without blanks"));
        let mut full = SiteCollectives::default();
        (0..MAX_COLLECTIVE_TYPES)
            .for_each(|i| full.import_table(table(&format!("t{i}"), vec![good])).unwrap());
        assert!(full.import_table(table("one-more", vec![good])).is_err());
        assert!(full.import_table(table("t3", vec![good])).is_ok(), "it is known already");
    }
}
