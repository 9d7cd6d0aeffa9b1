//! How long collective operations take on a site's nodes, as measured there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{MAX_NODES_A_JOB, NodeType, UnixTime, words};

/// Most rows of one node type.
pub const MAX_COLLECTIVE_ROWS: usize = 2000;

/// Most node types in a site's table.
pub const MAX_COLLECTIVE_TYPES: usize = 64;

/// Most ranks in a row.
pub const MAX_COLLECTIVE_RANKS: u32 = 1 << 20;

/// Most bytes of a tensor: 1 PiB.
const MAX_BYTES: u64 = 1 << 50;

/// The longest time that one operation may take, in seconds: a day.
const MAX_SECS: f64 = 86_400.0;

/// The longest name of a node type, in characters.
const MAX_TYPE_CHARS: usize = 200;

words! {
    /// An operation of several ranks. Its size is the size of the whole tensor.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum CollectiveOp {
        /// At the end, each rank has the sum.
        AllReduce = "all_reduce",
        /// At the end, each rank has all parts.
        AllGather = "all_gather",
        /// At the end, each rank has its part of the sum.
        ReduceScatter = "reduce_scatter",
        /// One rank sends to one other rank.
        PointToPoint = "point_to_point",
    }
}

/// The measured duration of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveRow {
    /// The operation.
    pub op: CollectiveOp,
    /// Bytes of the whole tensor.
    pub bytes: u64,
    /// The number of ranks that took part, at least 2.
    pub ranks: u32,
    /// The number of nodes that the ranks were on.
    pub nodes: u32,
    /// The median duration in seconds.
    pub secs: f64,
}

/// The measurements on nodes of one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TypeCollectives {
    /// The node type, or a word of its name: `a100` stands for `gpu:a100:4/cpu64`.
    pub node_type: String,
    /// When the table was imported.
    #[serde(default)]
    pub imported_at: UnixTime,
    /// One row per operation, size, number of ranks and number of nodes.
    pub rows: Vec<CollectiveRow>,
}

/// The site's table of collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteCollectives {
    /// One table per node type, sorted by its name.
    #[serde(default)]
    pub types: Vec<TypeCollectives>,
}

/// The reason why a table is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CollectivesError(String);

impl CollectiveRow {
    /// The problem with this row, if there is one.
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
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, problem)| problem)
    }
}

impl TypeCollectives {
    /// Checks that the table has a valid name and valid rows, each measured once.
    ///
    /// # Errors
    /// The problem, and the row that has it, counted from 1.
    pub fn check_rows(&self) -> Result<(), CollectivesError> {
        let name = &self.node_type;
        let is_valid_name = !name.is_empty()
            && name.chars().count() <= MAX_TYPE_CHARS
            && !name.chars().any(|c| c.is_control() || c.is_whitespace());
        if !is_valid_name {
            let problem = format!("the node type is {name:?}; expected a name without blanks");
            return Err(CollectivesError(problem));
        }
        if !(1..=MAX_COLLECTIVE_ROWS).contains(&self.rows.len()) {
            let problem = format!("{name} has {} rows; expected 1 to {MAX_COLLECTIVE_ROWS}", self.rows.len());
            return Err(CollectivesError(problem));
        }
        let mut seen = BTreeSet::new();
        for (i, row) in self.rows.iter().enumerate() {
            let is_new = seen.insert((row.op, row.bytes, row.ranks, row.nodes));
            let mut problem = row.find_problem();
            if problem.is_none() && !is_new {
                problem = Some("an earlier row has the same operation, bytes, ranks and nodes".to_owned());
            }
            if let Some(problem) = problem {
                return Err(CollectivesError(format!("row {} of {name} ({}): {problem}", i + 1, row.op)));
            }
        }
        Ok(())
    }
}

impl SiteCollectives {
    /// Adds the measurements on a node type. They replace earlier ones of the same type.
    ///
    /// # Errors
    /// If the table is not valid, or the site has too many node types.
    pub fn import_table(&mut self, table: TypeCollectives) -> Result<(), CollectivesError> {
        table.check_rows()?;
        self.types.retain(|other| other.node_type != table.node_type);
        if self.types.len() >= MAX_COLLECTIVE_TYPES {
            let problem = format!("there are {MAX_COLLECTIVE_TYPES} node types already; expected no more");
            return Err(CollectivesError(problem));
        }
        self.types.push(table);
        self.types.sort_by(|a, b| a.node_type.cmp(&b.node_type));
        Ok(())
    }

    /// The measurements on nodes of this type. A table with the whole name wins over one with a word of it.
    pub fn for_type(&self, node_type: &NodeType) -> Option<&TypeCollectives> {
        let by_whole_name = self.types.iter().find(|table| table.node_type == node_type.as_str());
        by_whole_name.or_else(|| self.types.iter().find(|table| node_type.matches_name(&table.node_type)))
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
        assert_eq!(median_secs(&site, "gpu:a100:4/cpu64"), Some(2e-4));
        assert_eq!(median_secs(&site, "gpu:a100:8/cpu64"), Some(3e-4));
        assert_eq!(median_secs(&site, "gpu:v100:4/cpu64"), None);
        assert_eq!(site.types.len(), 2, "a new import replaces the old table");
    }

    fn median_secs(site: &SiteCollectives, node_type: &str) -> Option<f64> {
        site.for_type(&NodeType::new(node_type)).map(|table| table.rows[0].secs)
    }

    fn problem_with(rows: Vec<CollectiveRow>) -> String {
        table("a100", rows).check_rows().unwrap_err().to_string()
    }

    #[test]
    fn an_invalid_table_is_refused_with_its_row() {
        let good = row(1024, 4, 2, 1e-4);
        for (bad, expected) in [
            (row(0, 4, 2, 1e-4), "0 bytes; expected 1 to"),
            (row(1024, 1, 1, 1e-4), "1 ranks; expected 2 to"),
            (row(1024, 2, 3, 1e-4), "3 nodes; expected 1 to as many as there are ranks (2)"),
            (row(1024, 2, 0, 1e-4), "0 nodes"),
            (row(1024, 2, 1, 0.0), "0 seconds; expected more than 0"),
            (row(1024, 2, 1, f64::NAN), "NaN seconds"),
            (good, "an earlier row has the same"),
        ] {
            let problem = problem_with(vec![good, bad]);
            assert!(
                problem.starts_with("row 2 of a100 (all_reduce): ") && problem.contains(expected),
                "{problem}"
            );
        }
        assert!(problem_with(Vec::new()).contains("0 rows"));
        assert!(table("a b", vec![good]).check_rows().unwrap_err().to_string().contains("without blanks"));
        let mut full = SiteCollectives::default();
        for i in 0..MAX_COLLECTIVE_TYPES {
            full.import_table(table(&format!("t{i}"), vec![good])).unwrap();
        }
        assert!(full.import_table(table("one-more", vec![good])).is_err());
        assert!(full.import_table(table("t3", vec![good])).is_ok(), "the table has this type already");
    }
}
