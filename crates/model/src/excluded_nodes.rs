//! Nodes that a job cannot use.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::NodeName;

/// Names of nodes, sorted, each once. Clones share one list, so that thousands of jobs that ask for the same
/// cost no more than one.
#[derive(Clone, Debug, Default, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<NodeName>")]
pub struct ExcludedNodes(Arc<[NodeName]>);

impl ExcludedNodes {
    /// Whether the node is one of them.
    pub fn contains(&self, node: &NodeName) -> bool {
        self.0.binary_search(node).is_ok()
    }

    /// These and more: the same list where nothing comes to it.
    #[must_use]
    pub fn with_nodes(&self, more: impl IntoIterator<Item = NodeName>) -> ExcludedNodes {
        let more: Vec<NodeName> = more.into_iter().filter(|node| !self.contains(node)).collect();
        match more.is_empty() {
            true => self.clone(),
            false => self.0.iter().cloned().chain(more).collect(),
        }
    }

    /// A number that two lists have in common only if they are one, as long as both are there; 0 of an empty
    /// one.
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
    fn a_list_is_sorted_and_shared_until_something_comes_to_it() {
        let name = |text: &str| NodeName::new(text);
        let list: ExcludedNodes = serde_json::from_str(r#"["n3","n1","n3"]"#).unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["n1","n3"]"#);
        assert!(list.contains(&name("n3")) && !list.contains(&name("n2")));
        assert_eq!(list.with_nodes([name("n1")]).list_id(), list.list_id(), "nothing comes to it");
        let more = list.with_nodes([name("n2"), name("n3")]);
        assert_eq!(more[..], [name("n1"), name("n2"), name("n3")]);
        assert!(more.list_id() != list.list_id() && list.len() == 2);
    }
}
