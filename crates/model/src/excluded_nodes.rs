//! The nodes that a job cannot use.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::NodeName;

/// Node names, sorted, each once. Clones share one list, so that thousands of jobs with equal requirements
/// cost as much memory as one.
#[derive(Clone, Debug, Default, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<NodeName>")]
pub struct ExcludedNodes(Arc<[NodeName]>);

impl ExcludedNodes {
    /// Whether the node is in this list.
    pub fn contains(&self, node: &NodeName) -> bool {
        self.0.binary_search(node).is_ok()
    }

    /// This list with more nodes. The same list if there are no new ones.
    #[must_use]
    pub fn with_nodes(&self, more: impl IntoIterator<Item = NodeName>) -> ExcludedNodes {
        let new: Vec<NodeName> = more.into_iter().filter(|node| !self.contains(node)).collect();
        if new.is_empty() {
            return self.clone();
        }
        self.0.iter().cloned().chain(new).collect()
    }

    /// A number that identifies the shared list while it exists. 0 if the list is empty.
    pub fn list_id(&self) -> usize {
        if self.is_empty() { 0 } else { Arc::as_ptr(&self.0).cast::<NodeName>().addr() }
    }
}

impl From<Vec<NodeName>> for ExcludedNodes {
    fn from(mut names: Vec<NodeName>) -> ExcludedNodes {
        names.sort_unstable();
        names.dedup();
        ExcludedNodes(names.into())
    }
}

impl FromIterator<NodeName> for ExcludedNodes {
    fn from_iter<T: IntoIterator<Item = NodeName>>(names: T) -> ExcludedNodes {
        names.into_iter().collect::<Vec<NodeName>>().into()
    }
}

impl Deref for ExcludedNodes {
    type Target = [NodeName];
    fn deref(&self) -> &[NodeName] {
        &self.0
    }
}

impl PartialEq for ExcludedNodes {
    fn eq(&self, other: &ExcludedNodes) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl PartialOrd for ExcludedNodes {
    fn partial_cmp(&self, other: &ExcludedNodes) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ExcludedNodes {
    fn cmp(&self, other: &ExcludedNodes) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl Hash for ExcludedNodes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sorted_and_shared_until_a_node_is_added() {
        let list: ExcludedNodes = serde_json::from_str(r#"["n3","n1","n3"]"#).unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["n1","n3"]"#);
        assert!(list.contains(&"n3".into()) && !list.contains(&"n2".into()));
        assert_eq!(list.with_nodes(["n1".into()]).list_id(), list.list_id(), "no new node");
        let longer = list.with_nodes(["n2".into(), "n3".into()]);
        assert_eq!(longer[..], ["n1", "n2", "n3"].map(NodeName::new));
        assert!(longer.list_id() != list.list_id() && list.len() == 2);
    }
}
