//! The part of a job array that a Slurm record stands for.
//!
//! Slurm keeps the pending tasks of an array in one record, and gives a task a record of its own when
//! somebody starts or changes it. The last task keeps the array's id. So a request for that id alone may
//! mean the whole array, and only `123_4` always means one task.

use serde::{Deserialize, Serialize};

use super::JobId;

/// Most tasks that are listed of a record that stands for many.
pub const MAX_LISTED_TASKS: usize = 1000;

/// What the record of an array stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayPart {
    /// One task.
    Task {
        /// The array's id.
        array: JobId,
        /// The task's number in the array.
        task: u32,
        /// Most tasks of the array that may run at a time (`%N`); `None` without a limit.
        #[serde(default)]
        limit: Option<u32>,
    },
    /// Pending tasks that have no record of their own.
    Unsplit(UnsplitTasks),
}

/// Pending tasks that share the record of their array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsplitTasks {
    /// The array's id, which is also the record's.
    pub array: JobId,
    /// The first of the tasks, ascending.
    pub tasks: Vec<u32>,
    /// Whether there are more tasks than these. Slurm shortens long lists.
    pub has_more: bool,
    /// The tasks in Slurm's words: `0-1,3-5%3`.
    pub text: String,
    /// Most tasks of the array that may run at a time (`%N`); `None` without a limit.
    pub limit: Option<u32>,
}

impl ArrayPart {
    /// The part that a record stands for. `task` is its `array_task_id`, `text` its `array_task_string`, and
    /// `limit` its `array_max_tasks`. `None` for a job outside arrays.
    pub fn from_record(array: u32, task: Option<u32>, text: &str, limit: u32) -> Option<ArrayPart> {
        if array == 0 {
            return None;
        }
        let array = JobId(array);
        let limit = Some(limit).filter(|limit| *limit > 0);
        if let Some(task) = task {
            return Some(ArrayPart::Task { array, task, limit });
        }
        let list = TaskList::parse(text);
        match list.tasks.as_slice() {
            [task] if !list.has_more => Some(ArrayPart::Task { array, task: *task, limit }),
            _ => Some(ArrayPart::Unsplit(UnsplitTasks {
                array,
                tasks: list.tasks,
                has_more: list.has_more,
                text: text.to_owned(),
                limit,
            })),
        }
    }

    /// The array's id.
    pub fn array(&self) -> JobId {
        match self {
            ArrayPart::Task { array, .. } | ArrayPart::Unsplit(UnsplitTasks { array, .. }) => *array,
        }
    }

    /// The name that squeue shows: `123_4` or `123_[5-9%2]`.
    pub fn name(&self) -> String {
        match self {
            ArrayPart::Task { array, task, .. } => format!("{array}_{task}"),
            ArrayPart::Unsplit(unsplit) => format!("{}_[{}]", unsplit.array, unsplit.text),
        }
    }
}

/// The tasks that a text such as `0-1,3-9:2%3` lists.
struct TaskList {
    tasks: Vec<u32>,
    has_more: bool,
}

impl TaskList {
    /// Reads as many tasks as are readable and bounded. The rest counts as more tasks.
    fn parse(text: &str) -> TaskList {
        let bare = text.split('%').next().unwrap_or(text);
        let mut list = TaskList { tasks: Vec::new(), has_more: bare.is_empty() };
        for word in bare.split(',').filter(|word| !word.is_empty()) {
            let Some((first, last, step)) = parse_range(word) else {
                list.has_more = true;
                break;
            };
            let room = MAX_LISTED_TASKS.saturating_sub(list.tasks.len());
            let mut tasks = (first..=last).step_by(step);
            list.tasks.extend(tasks.by_ref().take(room));
            if tasks.next().is_some() {
                list.has_more = true;
                break;
            }
        }
        list
    }
}

/// First task, last task and step of `7`, `3-9` or `3-9:2`.
fn parse_range(word: &str) -> Option<(u32, u32, usize)> {
    let (range, step) = word.split_once(':').unwrap_or((word, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let step = step.parse().ok().filter(|step| *step > 0)?;
    Some((first.parse().ok()?, last.parse().ok()?, step))
}

/// Whether a text is the name of a task, such as `123_4`.
pub fn is_task_name(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('_').is_some_and(|(array, task)| is_number(array) && is_number(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsplit(text: &str) -> String {
        match ArrayPart::from_record(7, None, text, 0) {
            Some(ArrayPart::Unsplit(part)) => {
                let more = if part.has_more { " and more" } else { "" };
                format!("{:?}{more}", part.tasks)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn tasks_are_listed_as_slurm_writes_them() {
        assert_eq!(unsplit("0-1,3-5%3"), "[0, 1, 3, 4, 5]");
        assert_eq!(unsplit("15-27:3"), "[15, 18, 21, 24, 27]");
        assert_eq!(unsplit("0,2,4,6,8%2"), "[0, 2, 4, 6, 8]");
        assert_eq!(unsplit("15,18,..."), "[15, 18] and more");
        for text in ["", "x", "...", "1-2-3", "5-9:0", "-1"] {
            assert_eq!(unsplit(text), "[] and more", "{text:?}");
        }
    }

    #[test]
    fn a_huge_list_is_cut() {
        let Some(ArrayPart::Unsplit(part)) = ArrayPart::from_record(7, None, "0-4000000000,5", 0) else {
            panic!("not an array");
        };
        assert_eq!((part.tasks.len(), part.tasks.last(), part.has_more), (1000, Some(&999), true));
    }

    #[test]
    fn a_record_of_one_task_is_that_task() {
        let task = |task, limit| ArrayPart::Task { array: JobId(7), task, limit };
        assert_eq!(ArrayPart::from_record(7, Some(4), "", 3), Some(task(4, Some(3))));
        assert_eq!(ArrayPart::from_record(7, None, "3", 0), Some(task(3, None)), "the last of an array");
        assert_eq!(ArrayPart::from_record(0, Some(0), "", 0), None, "no array");
    }

    #[test]
    fn names_are_those_of_squeue() {
        let name = |task, text| ArrayPart::from_record(7, task, text, 2).map(|part| part.name());
        assert_eq!(name(Some(4), ""), Some("7_4".to_owned()));
        assert_eq!(name(None, "5-9%2"), Some("7_[5-9%2]".to_owned()));
        assert!(is_task_name("123_4"));
        for other in ["123", "n1_a", "_4", "123_", "n_4", "123_4_5", "123_[4]"] {
            assert!(!is_task_name(other), "{other}");
        }
    }
}
