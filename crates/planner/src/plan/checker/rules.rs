//! The violations of rules that the checker reports.

use std::fmt;

use super::rule::CheckerRule;
use infill_model::{AllowedSizes, CpuMemory, JobId, NodeCount, NodeName, UnixTime, UserId};

/// A broken rule with the values that show it. Values are in weighted samples, rates in samples a second.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// Breaks [`CheckerRule::Order`].
    Unsorted,
    /// Breaks [`CheckerRule::KnownJob`].
    UnknownJob {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::Moment`].
    OtherMoment,
    /// Breaks [`CheckerRule::Budget`].
    TooManyChanges {
        /// Voluntary changes of the plan.
        changes: usize,
        /// The budget of a round.
        budget: u32,
    },
    /// Breaks [`CheckerRule::ForecastNodes`].
    TooManyForeseen {
        /// End of the step.
        until: UnixTime,
        /// Nodes in all forecasts for that step, counted in places.
        nodes: u64,
        /// Places that last until then.
        available: u64,
    },
    /// Breaks [`CheckerRule::Objective`].
    WrongObjective {
        /// By the plan.
        stated: f64,
        /// By the checker's own computation.
        actual: f64,
    },
    /// Breaks [`CheckerRule::Bound`].
    WrongBound {
        /// By the proof.
        stated: f64,
        /// Its value.
        actual: f64,
    },
    /// Breaks [`CheckerRule::Gap`].
    WrongGap {
        /// By the proof.
        stated: f64,
        /// By the checker's own computation.
        actual: f64,
    },
    /// Breaks [`CheckerRule::Complete`].
    Missing {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::Busy`].
    Disturbed {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::Drain`].
    RunsInDrain {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::BackOff`].
    StartsTooSoon {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::Pause`].
    GrowsInPause {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::MinStay`].
    ChangedTooSoon {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::Turn`].
    ParkedInTurn {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::Promise`].
    BelowPromise {
        /// The job that breaks it.
        job: JobId,
        /// The promised rate, samples a second.
        promised: f64,
    },
    /// Breaks [`CheckerRule::Promise`].
    GrowsBesidePromise {
        /// The job that breaks it.
        job: JobId,
        /// A node beyond its minimum.
        node: NodeName,
        /// The job that waits for such a node.
        waits: JobId,
    },
    /// Breaks [`CheckerRule::Size`].
    NotAllowedSize {
        /// The job that breaks it.
        job: JobId,
        /// Nodes that it gets.
        nodes: usize,
        /// Sizes that it allows.
        sizes: AllowedSizes,
    },
    /// Breaks [`CheckerRule::ForecastSize`].
    NotAllowedLater {
        /// The job that breaks it.
        job: JobId,
        /// Nodes in its forecast.
        nodes: u32,
        /// Sizes that it allows.
        sizes: AllowedSizes,
    },
    /// Breaks [`CheckerRule::Rate`].
    WrongRate {
        /// The job that breaks it.
        job: JobId,
        /// By the plan.
        stated: f64,
        /// By the profile.
        actual: f64,
    },
    /// Breaks [`CheckerRule::KnownRate`].
    UnknownRate {
        /// The job that breaks it.
        job: JobId,
        /// Nodes that it gets.
        nodes: usize,
    },
    /// Breaks [`CheckerRule::ForecastSteps`].
    OtherSteps {
        /// The job that breaks it.
        job: JobId,
    },
    /// Breaks [`CheckerRule::HeldOnce`].
    HeldTwice {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
        /// The job that has it already.
        other: JobId,
    },
    /// Breaks [`CheckerRule::IsGap`].
    NoGap {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Window`].
    OutsideWindow {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::StartWindow`].
    ShortWindow {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Excluded`].
    ExcludedNode {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Foreign`].
    ForeignNode {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Block`].
    OtherBlock {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
        /// Places that the node should have.
        block: u32,
    },
    /// Breaks [`CheckerRule::OneType`].
    OtherType {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Host`].
    TooLittleOfHost {
        /// A job with a new or larger worker on the host.
        job: JobId,
        /// Its node there.
        node: NodeName,
        /// CPUs and memory that workers take.
        takes: CpuMemory,
        /// CPUs and memory that the host has for them.
        available: CpuMemory,
    },
    /// Breaks [`CheckerRule::LeadFirst`].
    LeadNotFirst {
        /// The job that breaks it.
        job: JobId,
        /// The lead's node.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Lease`].
    LeaseTooLong {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::AllowedNode`].
    ForbiddenNode {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::Blackout`].
    InBlackout {
        /// The job that breaks it.
        job: JobId,
        /// The node that breaks it.
        node: NodeName,
    },
    /// Breaks [`CheckerRule::SiteLimit`].
    AboveSiteLimit {
        /// The key in `[safety]`.
        key: &'static str,
        /// The user whose jobs break it; `None` where all jobs count.
        user: Option<UserId>,
        /// The limit.
        max: u32,
        /// Jobs, or nodes counted in places.
        count: usize,
    },
}

impl Violation {
    /// The rule that is broken.
    pub fn rule(&self) -> CheckerRule {
        match self {
            Violation::Unsorted => CheckerRule::Order,
            Violation::UnknownJob { .. } => CheckerRule::KnownJob,
            Violation::OtherMoment => CheckerRule::Moment,
            Violation::TooManyChanges { .. } => CheckerRule::Budget,
            Violation::TooManyForeseen { .. } => CheckerRule::ForecastNodes,
            Violation::WrongObjective { .. } => CheckerRule::Objective,
            Violation::WrongBound { .. } => CheckerRule::Bound,
            Violation::WrongGap { .. } => CheckerRule::Gap,
            Violation::Missing { .. } => CheckerRule::Complete,
            Violation::Disturbed { .. } => CheckerRule::Busy,
            Violation::RunsInDrain { .. } => CheckerRule::Drain,
            Violation::StartsTooSoon { .. } => CheckerRule::BackOff,
            Violation::GrowsInPause { .. } => CheckerRule::Pause,
            Violation::ChangedTooSoon { .. } => CheckerRule::MinStay,
            Violation::ParkedInTurn { .. } => CheckerRule::Turn,
            Violation::BelowPromise { .. } | Violation::GrowsBesidePromise { .. } => CheckerRule::Promise,
            Violation::NotAllowedSize { .. } => CheckerRule::Size,
            Violation::NotAllowedLater { .. } => CheckerRule::ForecastSize,
            Violation::WrongRate { .. } => CheckerRule::Rate,
            Violation::UnknownRate { .. } => CheckerRule::KnownRate,
            Violation::OtherSteps { .. } => CheckerRule::ForecastSteps,
            Violation::HeldTwice { .. } => CheckerRule::HeldOnce,
            Violation::NoGap { .. } => CheckerRule::IsGap,
            Violation::OutsideWindow { .. } => CheckerRule::Window,
            Violation::ShortWindow { .. } => CheckerRule::StartWindow,
            Violation::ExcludedNode { .. } => CheckerRule::Excluded,
            Violation::ForeignNode { .. } => CheckerRule::Foreign,
            Violation::OtherBlock { .. } => CheckerRule::Block,
            Violation::OtherType { .. } => CheckerRule::OneType,
            Violation::TooLittleOfHost { .. } => CheckerRule::Host,
            Violation::LeadNotFirst { .. } => CheckerRule::LeadFirst,
            Violation::LeaseTooLong { .. } => CheckerRule::Lease,
            Violation::ForbiddenNode { .. } => CheckerRule::AllowedNode,
            Violation::InBlackout { .. } => CheckerRule::Blackout,
            Violation::AboveSiteLimit { .. } => CheckerRule::SiteLimit,
        }
    }

    /// The job, and the node if there is one; `None` where the violation is about the plan as a whole.
    fn job_and_node(&self) -> Option<(JobId, Option<&NodeName>)> {
        match self {
            Violation::Unsorted
            | Violation::UnknownJob { .. }
            | Violation::OtherMoment
            | Violation::TooManyChanges { .. }
            | Violation::TooManyForeseen { .. }
            | Violation::WrongObjective { .. }
            | Violation::WrongBound { .. }
            | Violation::WrongGap { .. }
            | Violation::AboveSiteLimit { .. } => None,
            Violation::Missing { job }
            | Violation::Disturbed { job }
            | Violation::RunsInDrain { job }
            | Violation::StartsTooSoon { job }
            | Violation::GrowsInPause { job }
            | Violation::ChangedTooSoon { job }
            | Violation::ParkedInTurn { job }
            | Violation::BelowPromise { job, .. }
            | Violation::NotAllowedSize { job, .. }
            | Violation::NotAllowedLater { job, .. }
            | Violation::WrongRate { job, .. }
            | Violation::UnknownRate { job, .. }
            | Violation::OtherSteps { job } => Some((*job, None)),
            Violation::HeldTwice { job, node, .. }
            | Violation::GrowsBesidePromise { job, node, .. }
            | Violation::NoGap { job, node }
            | Violation::OutsideWindow { job, node }
            | Violation::ShortWindow { job, node }
            | Violation::ExcludedNode { job, node }
            | Violation::ForeignNode { job, node }
            | Violation::OtherBlock { job, node, .. }
            | Violation::OtherType { job, node }
            | Violation::TooLittleOfHost { job, node, .. }
            | Violation::LeadNotFirst { job, node }
            | Violation::LeaseTooLong { job, node }
            | Violation::ForbiddenNode { job, node }
            | Violation::InBlackout { job, node } => Some((*job, Some(node))),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.job_and_node() {
            None => {}
            Some((job, None)) => write!(f, "job {job}: ")?,
            Some((job, Some(node))) => write!(f, "job {job}: node {node}: ")?,
        }
        match self {
            Violation::UnknownJob { job } => write!(f, "job {job} is not in the problem"),
            Violation::TooManyChanges { changes, budget } => {
                write!(f, "{changes} voluntary changes exceed the {budget} allowed")
            }
            Violation::TooManyForeseen { until, nodes, available } => {
                write!(f, "{nodes} nodes are foreseen until {until}, but only {available} last that long")
            }
            Violation::WrongObjective { stated, actual } => {
                write!(f, "its objective is {actual:.3}, not {stated:.3}")
            }
            Violation::WrongBound { stated, actual } => {
                write!(f, "its value is {actual:.3}, above the proven maximum of {stated:.3}")
            }
            Violation::WrongGap { stated, actual } => write!(
                f,
                "it is {:.3} % short of the bound, not {:.3} % as its proof says",
                actual * 100.0,
                stated * 100.0
            ),
            Violation::BelowPromise { promised, .. } => {
                write!(f, "makes less than the {promised:.3} samples/s promised to it")
            }
            Violation::GrowsBesidePromise { waits, .. } => {
                write!(f, "is beyond the job's minimum while job {waits} waits for its promised rate")
            }
            Violation::NotAllowedSize { nodes, sizes, .. } => {
                write!(f, "gets {}, but allows {sizes}", NodeCount(*nodes))
            }
            Violation::NotAllowedLater { nodes, sizes, .. } => {
                write!(f, "is foreseen on {}, but allows {sizes}", NodeCount(*nodes))
            }
            Violation::WrongRate { stated, actual, .. } => {
                write!(f, "has {stated:.3} samples/s in the plan, but {actual:.3} in its profile")
            }
            Violation::UnknownRate { nodes, .. } => write!(f, "has no known rate on {nodes} of these nodes"),
            Violation::HeldTwice { other, .. } => write!(f, "is given to job {other} too"),
            Violation::TooLittleOfHost { takes, available, .. } => write!(
                f,
                "{} CPUs and {} MiB of its host are given out, but it has {} and {}",
                takes.cpus, takes.memory_mib, available.cpus, available.memory_mib
            ),
            Violation::AboveSiteLimit { key, user, max, count } => {
                let whose = user.map_or_else(String::new, |user| format!(" for user {user}"));
                write!(f, "{count} exceed the {max} that safety.{key} allows{whose}")
            }
            Violation::OtherBlock { block, .. } => write!(f, "is not {block} places of one node"),
            _ => f.write_str(self.rule().fixed_message()),
        }
    }
}
