//! What a reader may see: all documents pass through here, and `PrivateData` is obeyed in each. What is
//! hidden is counted, and not named.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::timeline::{MapRows, NodeUse, UsageMap};
use infill_api::{DaemonStatus, GenerationsView, NodeKind, NodeView, ReportView, RoundView, RoundsView};
use infill_model::{
    JobId, NodeTimeKey, NodeTimeRow, NodeTimeUsage, PrivateData, ProfileFilter, ProfileKey, UnixTime, UserId,
    generations_of_last_job,
};

/// Numbers of jobs in a sentence. Wherever infill names a job in words, one of these stands before the
/// number.
static JOB_NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(job|wing|lead)(s?)(?:_?ids?[ =:]+|[ =#]+)(\d+)((?:(?:, ?| and )\d+)*)").ok()
});

/// The name of a reservation in a sentence.
static RESERVATION_NAMES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\breservation [^\s,;)]+").ok());

/// The name of a node in a sentence.
static NODE_NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bnode ([^\s,;]+)").ok());

/// What stands in for a sentence that could not be cleaned.
const WITHHELD_TEXT: &str = "not shown";

/// What stands in for what is wrong with jobs that are hidden.
const HIDDEN_PROBLEM: &str = "something is wrong with a job or a node that is not shown to you";

/// Who reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiReader {
    /// The user who was proved; `None` for somebody who proved nothing.
    pub uid: Option<UserId>,
    /// Their login name, if they have one.
    pub name: Option<String>,
    /// Whether nothing is hidden from them: root, the daemon's user, administrators, Slurm's operators.
    pub all: bool,
}

/// Readers who see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisibilityClass {
    /// Everything.
    All,
    /// What is not private, and this user's own.
    Own(Option<UserId>, PrivateData),
}

impl VisibilityClass {
    /// Of a reader.
    pub fn for_reader(viewer: &ApiReader, private: PrivateData) -> VisibilityClass {
        if viewer.all || private.is_nothing() {
            VisibilityClass::All
        } else {
            VisibilityClass::Own(viewer.uid, private)
        }
    }
}

/// What one reader may see of other people's jobs.
pub(crate) struct RedactionFilter<'a> {
    viewer: &'a ApiReader,
    private: PrivateData,
    owner: &'a dyn Fn(JobId) -> Option<UserId>,
}

impl<'a> RedactionFilter<'a> {
    /// Of this reader, where `owner` says whose each job is.
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

    /// Whether a job may be named.
    pub fn may_see_job(&self, job: JobId) -> bool {
        self.viewer.all || !self.private.jobs || self.owns_job(job)
    }

    /// A node may be named to those whose job is on it.
    fn may_see_node(&self, jobs: [Option<JobId>; 2]) -> bool {
        !self.private.nodes || jobs.into_iter().flatten().any(|j| self.owns_job(j))
    }

    /// A sentence without the numbers of jobs and names of reservations that are hidden.
    fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
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

    /// `job 7` as it was if it may be named, else `a job`.
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

    /// How things stand.
    pub fn redact_status(&self, mut status: DaemonStatus) -> DaemonStatus {
        if self.sees_everything() {
            return status;
        }
        let hidden = &mut status.hidden;
        status.jobs.retain(|job| {
            let seen = self.may_see_job(job.job);
            if !seen {
                hidden.jobs += 1;
                hidden.job_nodes += job.nodes.len() as u32;
            }
            seen
        });
        status.nodes.retain(|n| {
            let seen = self.may_see_node([n.job, n.main_job]);
            if !seen {
                *hidden.nodes.entry(n.kind).or_default() += 1;
            }
            seen
        });
        for job in &mut status.jobs {
            if self.private.users && !self.owns_job(job.job) {
                job.user.clear();
            }
            self.redact_in_place(&mut job.why);
            self.redact_in_place(&mut job.advice);
            self.redact_in_place(&mut job.leaving);
            if !self.owns_job(job.job) {
                // What it rests on is others' use, and what was measured of their programs.
                if self.private.usage || self.private.users {
                    job.turn.clear();
                }
                if self.private.hides_profiles() {
                    (job.ends, job.plans, job.profile) = (None, Vec::new(), None);
                }
            }
            self.redact_in_place(&mut job.turn);
            job.shortage.iter_mut().for_each(|what| self.redact_in_place(what));
        }
        status.nodes.iter_mut().for_each(|n| self.redact_node(n));
        status.problems.iter_mut().for_each(|p| self.redact_problem(p));
        status
    }

    /// What is wrong with a job or a node may quote it.
    fn redact_problem(&self, problem: &mut String) {
        let parts: Vec<&str> = problem.split("; ").collect();
        // Slurm that shows "no node at all" names none.
        let is_name = |found: Captures<'_>| &found[1] != "at";
        let names_a_node =
            |part: &str| NODE_NAMES.as_ref().is_none_or(|nodes| nodes.captures_iter(part).any(is_name));
        let is_hidden = |part: &str| self.private.nodes && names_a_node(part);
        let mut kept: Vec<&str> = parts
            .iter()
            .copied()
            .filter(|part: &&str| self.redact_text(part) == **part && !is_hidden(part))
            .collect();
        if kept.len() < parts.len() {
            kept.push(HIDDEN_PROBLEM);
        }
        *problem = kept.join("; ");
    }

    fn redact_node(&self, node: &mut NodeView) {
        node.job = node.job.filter(|j| self.may_see_job(*j));
        node.main_job = node.main_job.filter(|j| self.may_see_job(*j));
        node.wanted_by.iter_mut().for_each(|by| self.redact_in_place(by));
        node.why.iter_mut().for_each(|why| self.redact_in_place(why));
        for failure in &mut node.failures {
            failure.job = failure.job.filter(|j| self.may_see_job(*j));
            self.redact_in_place(&mut failure.what);
        }
    }

    /// A round.
    pub fn redact_round(&self, mut view: RoundView) -> RoundView {
        view.report.owners.clear();
        if self.sees_everything() {
            return view;
        }
        let plan = &mut view.plan;
        let report = &mut view.report;
        let hidden = &mut view.hidden;
        plan.jobs.retain(|j| self.may_see_job(j.job));
        report.jobs.retain(|verdict| {
            let seen = self.may_see_job(verdict.job);
            if !seen {
                hidden.jobs += 1;
                hidden.job_nodes += verdict.gets;
            }
            seen
        });
        report.nodes.retain(|n| {
            let seen = self.may_see_node([n.job, None]);
            if !seen {
                let kind = if n.job.is_some() { NodeKind::Held } else { NodeKind::Refused };
                *hidden.nodes.entry(kind).or_default() += 1;
            }
            seen
        });
        for node in &mut report.nodes {
            node.job = node.job.filter(|j| self.may_see_job(*j));
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

    /// Lines of rounds: numbers, and notes.
    pub fn redact_rounds(&self, mut view: RoundsView) -> RoundsView {
        if !self.sees_everything() {
            for note in view.rounds.iter_mut().flat_map(|r| &mut r.notes) {
                *note = self.redact_text(&note.to_string()).into_owned().into();
            }
        }
        view
    }

    /// The generations of a job, which was submitted at this moment, where that is known: earlier ones are
    /// those of another job that had the same number. Of a hidden job there are none, as of an unknown one.
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
            view.generations.retain(|g| submitted.is_none_or(|at| g.started_at >= at));
        }
        if !self.sees_everything() {
            view.generations.iter_mut().for_each(|g| self.redact_in_place(&mut g.why));
        }
        view
    }

    /// What became of node-time: where usage, users or accounts are private, that of others is one row
    /// without names.
    pub fn redact_report(&self, mut view: ReportView) -> ReportView {
        if self.viewer.all || !self.private.hides_spending() {
            return view;
        }
        let own = |row: &NodeTimeRow| self.viewer.name.as_ref() == Some(&row.key.user);
        let (own, others): (Vec<NodeTimeRow>, Vec<NodeTimeRow>) = view.spent.into_iter().partition(own);
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

    /// What nodes were used for: of jobs that are hidden only that they are malleable ones. Where nodes are
    /// private, whoever asks is given all of them as one.
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

    /// Which of the profiles that a reader asks for they may see; `None` for none of them.
    pub fn restrict_filter(&self, asked: ProfileFilter) -> Option<ProfileFilter> {
        if self.viewer.all || !self.private.hides_profiles() {
            return Some(asked);
        }
        let name = self.viewer.name.clone()?;
        asked
            .user
            .as_ref()
            .is_none_or(|user| *user == name)
            .then_some(ProfileFilter { user: Some(name), ..asked })
    }

    /// Whether a reader may see what was measured for a profile.
    pub fn may_see_profile(&self, key: &ProfileKey) -> bool {
        self.viewer.all || !self.private.hides_profiles() || self.viewer.name.as_ref() == Some(&key.user)
    }
}
