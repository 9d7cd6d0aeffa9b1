//! Slurm's host lists: `gpu[01-03,7],login` names five nodes.

use super::NodeName;

/// Most names in one list: ten times the largest machine. A wrong bracket must not use up all memory.
pub(crate) const MAX_NAMES: usize = 100_000;

/// Most digits of a number in brackets. Such numbers fit into `u64` without overflow.
const MAX_DIGITS: usize = 18;

/// The reason why a text is not a host list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// Unbalanced or nested brackets, an empty or reversed range, or a missing number.
    #[error("host list {list:?}: {what}")]
    Syntax {
        /// The list, cut to a readable length.
        list: String,
        /// The problem.
        what: &'static str,
    },
    /// The list has more than [`MAX_NAMES`] names.
    #[error("host list {0:?} names more than 100000 nodes")]
    TooMany(String),
}

/// All names of a list, sorted, each once. An empty text and Slurm's `(null)` name no nodes.
///
/// # Errors
/// If the text is not a host list, or names more than [`MAX_NAMES`] nodes.
pub fn expand_hostlist(list: &str) -> Result<Vec<NodeName>, HostlistError> {
    expand_hostlist_with(list, |name| NodeName::new(name))
}

/// Expands as [`expand_hostlist`] does, with names made by `name`.
///
/// # Errors
/// As for [`expand_hostlist`].
pub fn expand_hostlist_with(
    list: &str,
    mut name: impl FnMut(&str) -> NodeName,
) -> Result<Vec<NodeName>, HostlistError> {
    let list = list.trim();
    if list.is_empty() || list == "(null)" || list == "None assigned" {
        return Ok(Vec::new());
    }
    if !list.contains(['[', ']', ',']) {
        return Ok(vec![name(list)]);
    }
    let mut names = Vec::new();
    for item in split_outside_brackets(list)? {
        expand_item(list, item.trim(), &mut names)?;
    }
    names.sort_unstable();
    names.dedup();
    Ok(names.iter().map(|n| name(n)).collect())
}

/// Node names in Slurm's short form, sorted: `n[1-3,7],login1`.
pub fn compress_nodes(nodes: &[NodeName]) -> String {
    let mut split: Vec<(&str, &str)> = nodes.iter().map(|n| split_number(n.as_str())).collect();
    split.sort_by_key(|(prefix, digits)| (*prefix, digits.len(), *digits));
    split.dedup();
    let mut parts = Vec::new();
    for group in split.chunk_by(|a, b| a.0 == b.0) {
        let (prefix, digits) = group[0];
        if group.len() == 1 {
            parts.push(format!("{prefix}{digits}"));
        } else {
            parts.push(format!("{prefix}[{}]", number_ranges(group).join(",")));
        }
    }
    parts.join(",")
}

/// Splits a name into a prefix and its last digits, if these fit into a number.
fn split_number(name: &str) -> (&str, &str) {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[prefix.len()..];
    if digits.is_empty() || digits.parse::<u64>().is_err() { (name, "") } else { (prefix, digits) }
}

/// The numbers of one prefix as ranges. Numbers with different widths do not join.
fn number_ranges(group: &[(&str, &str)]) -> Vec<String> {
    group
        .chunk_by(|a, b| {
            let has_same_width = a.1.len() == b.1.len();
            has_same_width && number_or_zero(a.1) + 1 == number_or_zero(b.1)
        })
        .map(|run| match run {
            [only] => only.1.to_owned(),
            _ => format!("{}-{}", run[0].1, run[run.len() - 1].1),
        })
        .collect()
}

fn number_or_zero(digits: &str) -> u64 {
    digits.parse().unwrap_or(0)
}

fn syntax_error(list: &str, what: &'static str) -> HostlistError {
    HostlistError::Syntax { list: shorten(list), what }
}

fn shorten(list: &str) -> String {
    list.chars().take(80).collect()
}

fn split_outside_brackets(list: &str) -> Result<Vec<&str>, HostlistError> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut in_brackets = false;
    for (index, c) in list.char_indices() {
        match c {
            '[' if in_brackets => return Err(syntax_error(list, "nested brackets")),
            '[' => in_brackets = true,
            ']' if !in_brackets => {
                return Err(syntax_error(list, "a closing bracket without an opening one"));
            }
            ']' => in_brackets = false,
            ',' if !in_brackets => {
                items.push(&list[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if in_brackets {
        return Err(syntax_error(list, "a bracket is not closed"));
    }
    items.push(&list[start..]);
    Ok(items)
}

/// Adds the names of one item. It may have several brackets (`rack[1-2]n[1-4]`): every combination is a name.
fn expand_item(list: &str, item: &str, names: &mut Vec<String>) -> Result<(), HostlistError> {
    if item.is_empty() {
        return Err(syntax_error(list, "an empty name"));
    }
    let mut stems = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (inner, tail) =
            after.split_once(']').ok_or_else(|| syntax_error(list, "a bracket is not closed"))?;
        let numbers = expand_numbers(list, inner)?;
        if stems.len().saturating_mul(numbers.len()).saturating_add(names.len()) > MAX_NAMES {
            return Err(HostlistError::TooMany(shorten(list)));
        }
        stems = stems
            .iter()
            .flat_map(|stem| numbers.iter().map(move |number| format!("{stem}{before}{number}")))
            .collect();
        rest = tail;
    }
    if names.len() + stems.len() > MAX_NAMES {
        return Err(HostlistError::TooMany(shorten(list)));
    }
    names.extend(stems.into_iter().map(|stem| stem + rest));
    Ok(())
}

fn expand_numbers(list: &str, inner: &str) -> Result<Vec<String>, HostlistError> {
    let mut numbers = Vec::new();
    for part in inner.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let first = parse_number(list, low)?;
        let last = parse_number(list, high)?;
        if first > last {
            return Err(syntax_error(list, "a range runs backwards"));
        }
        if last - first >= (MAX_NAMES - numbers.len().min(MAX_NAMES)) as u64 {
            return Err(HostlistError::TooMany(shorten(list)));
        }
        // As in Slurm, all numbers of the range are padded to the width of the lower end.
        let width = low.len();
        numbers.extend((first..=last).map(|n| format!("{n:0width$}")));
    }
    Ok(numbers)
}

fn parse_number(list: &str, digits: &str) -> Result<u64, HostlistError> {
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(syntax_error(list, "a number is missing in brackets"));
    }
    digits.parse().map_err(|_| syntax_error(list, "a number is missing in brackets"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use infill_testkit::effort;

    fn names(list: &str) -> String {
        match expand_hostlist(list) {
            Ok(names) => names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" "),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn lists_expand_as_slurm_writes_them() {
        assert_eq!(names(""), "");
        assert_eq!(names("(null)"), "");
        assert_eq!(names("n1"), "n1");
        assert_eq!(names("n[1-3,7],gpu01"), "gpu01 n1 n2 n3 n7");
        assert_eq!(names("gpu[08-11]"), "gpu08 gpu09 gpu10 gpu11");
        assert_eq!(names("r[1-2]n[01-02]-ib"), "r1n01-ib r1n02-ib r2n01-ib r2n02-ib");
        assert_eq!(names("n2,n1,n[1-2]"), "n1 n2");
    }

    #[test]
    fn invalid_lists_are_refused() {
        for bad in ["n[1-3", "n]1", "n[[1]]", "n[]", "n[3-1]", "n[a-b]", "n1,,n2", "n[1-]", "n[-1]"] {
            assert!(expand_hostlist(bad).is_err(), "{bad}");
        }
        assert_eq!(names("n[1-100001]"), "host list \"n[1-100001]\" names more than 100000 nodes");
        assert!(expand_hostlist("n[0-999][0-999]").is_err());
        assert!(expand_hostlist("n[0-999999999999999999]").is_err());
    }

    #[test]
    fn node_names_are_compressed() {
        for (names, compressed) in [
            ("", ""),
            ("n7", "n7"),
            ("n3 n1 n2 n7", "n[1-3,7]"),
            ("n9 n10 n11", "n[9,10-11]"),
            ("a001 a002 b1 head", "a[001-002],b1,head"),
            ("r1c2 r1c3 r2c2", "r1c[2-3],r2c2"),
            ("n1 n1", "n1"),
            ("x99999999999999999999999", "x99999999999999999999999"),
        ] {
            let nodes: Vec<NodeName> = names.split_whitespace().map(NodeName::from).collect();
            assert_eq!(compress_nodes(&nodes), compressed, "{names}");
        }
    }

    proptest! {
        #![proptest_config(effort::property(256))]

        #[test]
        fn no_text_panics(text in "[a-c0-9,\\[\\]\\- ]{0,40}|.{0,30}") {
            if let Ok(names) = expand_hostlist(&text) {
                prop_assert!(names.len() <= MAX_NAMES);
                prop_assert!(names.windows(2).all(|w| w[0] < w[1]));
            }
        }

        #[test]
        fn a_range_has_all_its_numbers(first in 0u64..5000, count in 1u64..300) {
            let names = expand_hostlist(&format!("n[{first}-{}]", first + count - 1))?;
            prop_assert_eq!(names.len() as u64, count);
            for n in first..first + count {
                let width = first.to_string().len();
                let name = NodeName::new(format!("n{n:0width$}"));
                prop_assert!(names.contains(&name));
            }
        }

        #[test]
                fn a_compressed_list_expands_to_the_same_names(numbers in prop::collection::vec((0u32..300, 1usize..5), 0..40)) {
            let mut names: Vec<NodeName> =
                numbers.iter().map(|(n, width)| NodeName::new(format!("n{n:0width$}"))).collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(expand_hostlist(&compress_nodes(&names))?, names);
        }
    }
}
