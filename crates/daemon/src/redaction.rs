//! Removes what a reader may not see. All documents pass through here, and each obeys Slurm's `PrivateData`.
//! Hidden jobs and nodes are counted, but not named.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::timeline::{MapRows, NodeUse, UsageMap};
use infill_api::{
    DaemonStatus, GenerationsView, JobLane, LanesView, NodeKind, NodeView, ReportView, RoundView, RoundsView,
};
use infill_model::{
    JobId, NodeTimeKey, NodeTimeRow, NodeTimeUsage, PrivateData, ProfileFilter, ProfileKey, UnixTime, UserId,
    generations_of_last_job,
};

/// Numbers of jobs in a sentence. Wherever infill writes a job's number, one of these words comes before it.
static JOB_NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(job|wing|lead)(s?)(?:_?ids?[ =:]+|[ =#]+)(\d+)((?:(?:, ?| and )\d+)*)").ok()
});

/// The name of a reservation in a sentence.
static RESERVATION_NAMES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\breservation [^\s,;)]+").ok());

/// The name of a node in a sentence.
static NODE_NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bnode ([^\s,;]+)").ok());

/// Replaces a sentence that could not be redacted.
const WITHHELD_TEXT: &str = "not shown";

/// Replaces problems of hidden jobs and nodes.
const HIDDEN_PROBLEM: &str = "something is wrong with a job or a node that is not shown to you";

/// A reader of the HTTP API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiReader {
    /// The proved user; `None` for an anonymous reader.
    pub uid: Option<UserId>,
    /// The user's login name, if there is one.
    pub name: Option<String>,
    /// Whether nothing is hidden from the reader: root, the daemon's user, administrators, Slurm's operators.
    pub all: bool,
}

/// Whether a sentence names a node. True where that cannot be found out.
fn names_a_node(sentence: &str) -> bool {
    let Some(names) = NODE_NAMES.as_ref() else { return true };
    // "no node at all" names none.
    names.captures_iter(sentence).any(|found| &found[1] != "at")
}

/// A class of readers who may see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisibilityClass {
    /// Readers who may see everything.
    All,
    /// Readers who may see what is not private, and this user's own. `None`: anonymous readers.
    Own(Option<UserId>, PrivateData),
}

impl VisibilityClass {
    /// The class of a reader.
    pub fn for_reader(viewer: &ApiReader, private: PrivateData) -> VisibilityClass {
        if viewer.all || private.is_nothing() {
            VisibilityClass::All
        } else {
            VisibilityClass::Own(viewer.uid, private)
        }
    }
}

/// Removes what one reader may not see.
pub(crate) struct RedactionFilter<'a> {
    viewer: &'a ApiReader,
    private: PrivateData,
    owner: &'a dyn Fn(JobId) -> Option<UserId>,
}

impl<'a> RedactionFilter<'a> {
    /// The filter for this reader. `owner` returns the owner of a job.
    pub fn new(
        viewer: &'a ApiReader,
        private: PrivateData,
        owner: &'a dyn Fn(JobId) -> Option<UserId>,
    ) -> RedactionFilter<'a> {
        RedactionFilter { viewer, private, owner }
    }

    fn sees_everything(&self) -> bool {
        self.viewer.all || self.private.is_nothing()
    }

    fn owns_job(&self, job: JobId) -> bool {
        self.viewer.uid.is_some() && (self.owner)(job) == self.viewer.uid
    }

    /// Whether the reader may see a job.
    pub fn may_see_job(&self, job: JobId) -> bool {
        self.viewer.all || !self.private.jobs || self.owns_job(job)
    }

    /// Whether the reader may see a node on which these jobs are. Owners of a job there may.
    fn may_see_node(&self, jobs: [Option<JobId>; 2]) -> bool {
        !self.private.nodes || jobs.into_iter().flatten().any(|job| self.owns_job(job))
    }

    /// A sentence without the numbers of jobs and names of reservations that are hidden.
    pub(crate) fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        if self.private.jobs {
            let Some(jobs) = JOB_NUMBERS.as_ref() else { return WITHHELD_TEXT.into() };
            text = Cow::Owned(
                jobs.replace_all(&text, |found: &Captures<'_>| self.redact_job_numbers(found)).into_owned(),
            );
        }
        if self.private.reservations {
            let Some(names) = RESERVATION_NAMES.as_ref() else { return WITHHELD_TEXT.into() };
            text = Cow::Owned(names.replace_all(&text, "a reservation").into_owned());
        }
        text
    }

    /// `job 7` unchanged if the reader may see that job, else `a job`.
    fn redact_job_numbers(&self, found: &Captures<'_>) -> String {
        let numbers = format!("{}{}", &found[3], &found[4]);
        let mut ids = numbers.split(|c: char| !c.is_ascii_digit()).filter(|t| !t.is_empty());
        if ids.all(|id| id.parse().is_ok_and(|id| self.may_see_job(JobId(id)))) {
            return found[0].to_owned();
        }
        match &found[2] {
            "" => format!("a {}", found[1].to_lowercase()),
            plural => format!("{}{plural}", found[1].to_lowercase()),
        }
    }

    fn redact_in_place(&self, text: &mut String) {
        *text = self.redact_text(text).into_owned();
    }

    /// Redacts a status.
    pub fn redact_status(&self, mut status: DaemonStatus) -> DaemonStatus {
        if self.sees_everything() {
            return status;
        }
        if self.private.users
            && let Some(origin) = &mut status.control_origin
            && origin.by != self.viewer.name
        {
            origin.by = None;
        }
        let hidden = &mut status.hidden;
        status.jobs.retain(|job| {
            let is_visible = self.may_see_job(job.job);
            if !is_visible {
                hidden.jobs += 1;
                hidden.job_nodes += job.nodes.len() as u32;
            }
            is_visible
        });
        status.nodes.retain(|node| {
            let is_visible = self.may_see_node([node.job, node.main_job]);
            if !is_visible {
                *hidden.nodes.entry(node.kind).or_default() += 1;
            }
            is_visible
        });
        for job in &mut status.jobs {
            if self.private.users && !self.owns_job(job.job) {
                job.user.clear();
            }
            self.redact_in_place(&mut job.why);
            self.redact_in_place(&mut job.advice);
            self.redact_in_place(&mut job.leaving);
            if !self.owns_job(job.job) {
                // These follow from others' usage, and from measurements of their programs.
                if self.private.usage || self.private.users {
                    job.turn.clear();
                }
                if self.private.hides_profiles() {
                    job.ends = None;
                    job.plans = Vec::new();
                    job.profile = None;
                }
            }
            self.redact_in_place(&mut job.turn);
            job.shortage.iter_mut().for_each(|what| self.redact_in_place(what));
        }
        status.nodes.iter_mut().for_each(|n| self.redact_node(n));
        status.problems.iter_mut().for_each(|p| self.redact_problem(p));
        status
    }

    /// Replaces those parts of a problem that name hidden jobs or nodes.
    fn redact_problem(&self, problem: &mut String) {
        let parts: Vec<&str> = problem.split("; ").collect();
        let mut kept: Vec<&str> =
            parts.iter().copied().filter(|part| self.may_see_problem_part(part)).collect();
        if kept.len() < parts.len() {
            kept.push(HIDDEN_PROBLEM);
        }
        *problem = kept.join("; ");
    }

    fn may_see_problem_part(&self, part: &str) -> bool {
        self.redact_text(part) == part && !(self.private.nodes && names_a_node(part))
    }

    fn redact_node(&self, node: &mut NodeView) {
        node.job = node.job.filter(|job| self.may_see_job(*job));
        node.main_job = node.main_job.filter(|job| self.may_see_job(*job));
        node.wanted_by.iter_mut().for_each(|by| self.redact_in_place(by));
        node.why.iter_mut().for_each(|why| self.redact_in_place(why));
        for failure in &mut node.failures {
            failure.job = failure.job.filter(|job| self.may_see_job(*job));
            self.redact_in_place(&mut failure.what);
        }
    }

    /// Redacts a round.
    pub fn redact_round(&self, mut view: RoundView) -> RoundView {
        view.report.owners.clear();
        if self.sees_everything() {
            return view;
        }
        let plan = &mut view.plan;
        let report = &mut view.report;
        let hidden = &mut view.hidden;
        plan.jobs.retain(|job| self.may_see_job(job.job));
        report.jobs.retain(|verdict| {
            let is_visible = self.may_see_job(verdict.job);
            if !is_visible {
                hidden.jobs += 1;
                hidden.job_nodes += verdict.gets;
            }
            is_visible
        });
        report.nodes.retain(|node| {
            let is_visible = self.may_see_node([node.job, None]);
            if !is_visible {
                let kind = if node.job.is_some() { NodeKind::Held } else { NodeKind::Refused };
                *hidden.nodes.entry(kind).or_default() += 1;
            }
            is_visible
        });
        for node in &mut report.nodes {
            node.job = node.job.filter(|job| self.may_see_job(*job));
            node.why = self.redact_text(&node.why.to_string()).into_owned().into();
        }
        for verdict in &mut report.jobs {
            verdict.why = self.redact_text(&verdict.why.to_string()).into_owned().into();
        }
        for note in &mut report.notes {
            *note = self.redact_text(&note.to_string()).into_owned().into();
        }
        view
    }

    /// Redacts a list of rounds.
    pub fn redact_rounds(&self, mut view: RoundsView) -> RoundsView {
        if !self.sees_everything() {
            for note in view.rounds.iter_mut().flat_map(|round| &mut round.notes) {
                *note = self.redact_text(&note.to_string()).into_owned().into();
            }
        }
        view
    }

    /// Redacts the generations of a job. `submitted`: when it was submitted, if known; earlier generations
    /// are those of another job that had the same number. A hidden job looks like an unknown one and has
    /// none.
    pub fn redact_generations(
        &self,
        job: JobId,
        submitted: Option<UnixTime>,
        mut view: GenerationsView,
    ) -> GenerationsView {
        if !self.may_see_job(job) {
            view.generations.clear();
        }
        if !self.viewer.all && self.private.jobs {
            view.generations = generations_of_last_job(view.generations);
            view.generations.retain(|generation| submitted.is_none_or(|at| generation.started_at >= at));
        }
        if !self.sees_everything() {
            view.generations.iter_mut().for_each(|generation| self.redact_in_place(&mut generation.why));
        }
        view
    }

    /// Redacts lanes. A job that has ended is its owner's by name.
    pub fn redact_lanes(&self, mut view: LanesView) -> LanesView {
        if self.sees_everything() {
            return view;
        }
        let before = view.lanes.len();
        view.lanes.retain(|lane| self.may_see_job(lane.job) || self.owns_lane(lane));
        view.hidden = (before - view.lanes.len()) as u32;
        for lane in &mut view.lanes {
            if self.private.users && !self.owns_lane(lane) {
                lane.user.clear();
            }
            lane.changes.iter_mut().for_each(|change| self.redact_in_place(&mut change.why));
        }
        view
    }

    fn owns_lane(&self, lane: &JobLane) -> bool {
        self.owns_job(lane.job) || (lane.ended_at.is_some() && self.viewer.name.as_ref() == Some(&lane.user))
    }

    /// Redacts a report. Where usage, users or accounts are private, the node-time of all others becomes one
    /// row without names.
    pub fn redact_report(&self, mut view: ReportView) -> ReportView {
        if self.viewer.all || !self.private.hides_spending() {
            return view;
        }
        let reader = self.viewer.name.as_ref();
        let (own, others): (Vec<NodeTimeRow>, Vec<NodeTimeRow>) =
            view.spent.into_iter().partition(|row| reader == Some(&row.key.user));
        let key = NodeTimeKey {
            from: view.from,
            account: String::new(),
            user: String::new(),
            node_type: String::new(),
        };
        let spent = others.iter().fold(NodeTimeUsage::default(), |sum, row| sum.sum_with(&row.spent));
        view.spent = own;
        view.spent.extend((!others.is_empty()).then_some(NodeTimeRow { key, spent }));
        view
    }

    /// Redacts a map. Hidden malleable jobs lose their numbers. Where nodes are private, there are no rows of
    /// single nodes; readers get the mixture of all nodes.
    pub fn redact_map(&self, map: &mut UsageMap) {
        let MapRows::Nodes(rows) = &mut map.rows else { return };
        if !self.viewer.all && self.private.nodes {
            rows.clear();
        }
        for run in rows.iter_mut().flat_map(|(_, runs)| runs) {
            if let NodeUse::Job(job) = &mut run.used {
                *job = if self.may_see_job(*job) { *job } else { JobId(0) };
            }
        }
    }

    /// Restricts a filter to the profiles that the reader may see; `None` where they may see none of them.
    pub fn restrict_filter(&self, asked: ProfileFilter) -> Option<ProfileFilter> {
        if self.viewer.all || !self.private.hides_profiles() {
            return Some(asked);
        }
        let name = self.viewer.name.clone()?;
        if asked.user.as_ref().is_some_and(|user| *user != name) {
            return None;
        }
        Some(ProfileFilter { user: Some(name), ..asked })
    }

    /// Whether the reader may see the measurements of a profile.
    pub fn may_see_profile(&self, key: &ProfileKey) -> bool {
        self.viewer.all || !self.private.hides_profiles() || self.viewer.name.as_ref() == Some(&key.user)
    }
}
