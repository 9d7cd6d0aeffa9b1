//! The rules that a plan must keep, and what is said of one that breaks them.

use std::fmt;

use infill_model::words;
use infill_model::{AllowedSizes, CpuMemory, JobId, NodeName, UnixTime};

words! {
    /// A rule.
    pub enum Rule {
        /// Jobs are sorted by id, each once.
        Order = "order",
        /// Every job is one of the problem's.
        KnownJob = "known_job",
        /// It is made for this moment and these steps.
        Moment = "moment",
        /// Voluntary changes keep within the budget.
        Budget = "budget",
        /// Nobody counts on more nodes in a later step than last through it.
        ForecastNodes = "forecast_nodes",
        /// The objective is what the plan is worth without reluctance.
        Objective = "objective",
        /// What is proved to be the most is not less than what the plan is worth.
        Bound = "bound",
        /// The plan falls no farther short of the bound than its proof says.
        Gap = "gap",
        /// Every job has a plan.
        Complete = "complete",
        /// A job in the middle of a change is left alone.
        Busy = "busy",
        /// While infill is drained, no job gets nodes.
        Drain = "drain",
        /// A job that backs off gets no nodes.
        BackOff = "back_off",
        /// While growth is paused, no job gets new nodes.
        Pause = "pause",
        /// A job stays as it is for a while after a change.
        MinStay = "min_stay",
        /// A job that has its turn keeps its smallest size while its nodes last.
        Turn = "turn",
        /// A job makes what it is promised while others have more than their least.
        Promise = "promise",
        /// The job allows the number of nodes.
        Size = "size",
        /// It allows those that are foreseen.
        ForecastSize = "forecast_size",
        /// The rate is that of its profile.
        Rate = "rate",
        /// There is a known rate on its nodes.
        KnownRate = "known_rate",
        /// The forecast is about the plan's steps.
        ForecastSteps = "forecast_steps",
        /// No node is given twice.
        HeldOnce = "held_once",
        /// Every node is a gap.
        IsGap = "is_gap",
        /// Every node lasts through the first step.
        Window = "window",
        /// No job starts in a window that is too short for it.
        StartWindow = "start_window",
        /// No job gets a node that it cannot use.
        Excluded = "excluded",
        /// No node of a job that is not planned here.
        Foreign = "foreign",
        /// Each node of a job is so many places of one node as the job's nodes are.
        Block = "block",
        /// All nodes of a job are of one type.
        OneType = "one_type",
        /// No host's CPUs and memory are given out twice.
        Host = "host",
        /// The lead's node stays the first.
        LeadFirst = "lead_first",
        /// No lease passes the moment at which the node must be free.
        Lease = "lease",
    }
}

/// A rule that a plan breaks, with the values that show it. Worths are in weighted samples, rates in samples
/// a second.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// [`ConfigRule::Order`].
    Unsorted,
    /// [`ConfigRule::KnownJob`].
    UnknownJob {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::Moment`].
    OtherMoment,
    /// [`ConfigRule::Budget`].
    TooManyChanges {
        /// Voluntary changes of the plan.
        changes: usize,
        /// Those of a round.
        most: u32,
    },
    /// [`ConfigRule::ForecastNodes`].
    TooManyForeseen {
        /// End of the step.
        until: UnixTime,
        /// Nodes that jobs are foreseen on.
        nodes: u64,
        /// Nodes that last so long.
        there: u64,
    },
    /// [`ConfigRule::Objective`].
    WrongObjective {
        /// As the plan says.
        said: f64,
        /// As it is.
        is: f64,
    },
    /// [`ConfigRule::Bound`].
    WrongBound {
        /// As the proof says.
        said: f64,
        /// What the plan is worth.
        is: f64,
    },
    /// [`ConfigRule::Gap`].
    WrongGap {
        /// As the proof says.
        said: f64,
        /// As it is.
        is: f64,
    },
    /// [`ConfigRule::Complete`].
    Missing {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::Busy`].
    Disturbed {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::Drain`].
    RunsInDrain {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::BackOff`].
    StartsTooSoon {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::Pause`].
    GrowsInPause {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::MinStay`].
    ChangedTooSoon {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::Turn`].
    ParkedInTurn {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::Promise`].
    BelowPromise {
        /// The job.
        job: JobId,
        /// What it is promised.
        promised: f64,
    },
    /// [`ConfigRule::Promise`].
    GrowsBesidePromise {
        /// The job.
        job: JobId,
        /// A node that it gets.
        node: NodeName,
        /// Who waits for such a node.
        waits: JobId,
    },
    /// [`ConfigRule::Size`].
    NotAllowedSize {
        /// The job.
        job: JobId,
        /// Nodes that it gets.
        nodes: usize,
        /// What it allows.
        sizes: AllowedSizes,
    },
    /// [`ConfigRule::ForecastSize`].
    NotAllowedLater {
        /// The job.
        job: JobId,
        /// Nodes that it is foreseen on.
        nodes: u32,
        /// What it allows.
        sizes: AllowedSizes,
    },
    /// [`ConfigRule::Rate`].
    WrongRate {
        /// The job.
        job: JobId,
        /// As the plan says.
        said: f64,
        /// As the profile says.
        is: f64,
    },
    /// [`ConfigRule::KnownRate`].
    UnknownRate {
        /// The job.
        job: JobId,
        /// Nodes that it gets.
        nodes: usize,
    },
    /// [`ConfigRule::ForecastSteps`].
    OtherSteps {
        /// The job.
        job: JobId,
    },
    /// [`ConfigRule::HeldOnce`].
    HeldTwice {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
        /// The job that has it already.
        other: JobId,
    },
    /// [`ConfigRule::IsGap`].
    NoGap {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
    /// [`ConfigRule::Window`].
    OutsideWindow {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
    /// [`ConfigRule::StartWindow`].
    ShortWindow {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
    /// [`ConfigRule::Excluded`].
    ExcludedNode {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
    /// [`ConfigRule::Foreign`].
    ForeignNode {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
    /// [`ConfigRule::Block`].
    OtherBlock {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
        /// Places that it should have.
        block: u32,
    },
    /// [`ConfigRule::OneType`].
    OtherType {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
    /// [`ConfigRule::Host`].
    TooLittleOfHost {
        /// A job that asks for some of it.
        job: JobId,
        /// Its node there.
        node: NodeName,
        /// What workers take of the host.
        takes: CpuMemory,
        /// What it has for them.
        there: CpuMemory,
    },
    /// [`ConfigRule::LeadFirst`].
    LeadNotFirst {
        /// The job.
        job: JobId,
        /// The lead's node.
        node: NodeName,
    },
    /// [`ConfigRule::Lease`].
    LeaseTooLong {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeName,
    },
}

impl Violation {
    /// The rule that is broken.
    pub fn rule(&self) -> Rule {
        match self {
            Violation::Unsorted => Rule::Order,
            Violation::UnknownJob { .. } => Rule::KnownJob,
            Violation::OtherMoment => Rule::Moment,
            Violation::TooManyChanges { .. } => Rule::Budget,
            Violation::TooManyForeseen { .. } => Rule::ForecastNodes,
            Violation::WrongObjective { .. } => Rule::Objective,
            Violation::WrongBound { .. } => Rule::Bound,
            Violation::WrongGap { .. } => Rule::Gap,
            Violation::Missing { .. } => Rule::Complete,
            Violation::Disturbed { .. } => Rule::Busy,
            Violation::RunsInDrain { .. } => Rule::Drain,
            Violation::StartsTooSoon { .. } => Rule::BackOff,
            Violation::GrowsInPause { .. } => Rule::Pause,
            Violation::ChangedTooSoon { .. } => Rule::MinStay,
            Violation::ParkedInTurn { .. } => Rule::Turn,
            Violation::BelowPromise { .. } | Violation::GrowsBesidePromise { .. } => Rule::Promise,
            Violation::NotAllowedSize { .. } => Rule::Size,
            Violation::NotAllowedLater { .. } => Rule::ForecastSize,
            Violation::WrongRate { .. } => Rule::Rate,
            Violation::UnknownRate { .. } => Rule::KnownRate,
            Violation::OtherSteps { .. } => Rule::ForecastSteps,
            Violation::HeldTwice { .. } => Rule::HeldOnce,
            Violation::NoGap { .. } => Rule::IsGap,
            Violation::OutsideWindow { .. } => Rule::Window,
            Violation::ShortWindow { .. } => Rule::StartWindow,
            Violation::ExcludedNode { .. } => Rule::Excluded,
            Violation::ForeignNode { .. } => Rule::Foreign,
            Violation::OtherBlock { .. } => Rule::Block,
            Violation::OtherType { .. } => Rule::OneType,
            Violation::TooLittleOfHost { .. } => Rule::Host,
            Violation::LeadNotFirst { .. } => Rule::LeadFirst,
            Violation::LeaseTooLong { .. } => Rule::Lease,
        }
    }

    /// The job that it is about, and the node, unless it is about the plan as a whole.
    fn job_and_node(&self) -> Option<(JobId, Option<&NodeName>)> {
        match self {
            Violation::Unsorted
            | Violation::UnknownJob { .. }
            | Violation::OtherMoment
            | Violation::TooManyChanges { .. }
            | Violation::TooManyForeseen { .. }
            | Violation::WrongObjective { .. }
            | Violation::WrongBound { .. }
            | Violation::WrongGap { .. } => None,
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
            | Violation::LeaseTooLong { job, node } => Some((*job, Some(node))),
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
            Violation::UnknownJob { job } => write!(f, "job {job} is not one of ours"),
            Violation::TooManyChanges { changes, most } => {
                write!(f, "{changes} voluntary changes exceed the {most} allowed")
            }
            Violation::TooManyForeseen { until, nodes, there } => {
                write!(f, "{nodes} nodes are foreseen until {until}, but {there} last so long")
            }
            Violation::WrongObjective { said, is } => write!(f, "its objective is {is:.3}, not {said:.3}"),
            Violation::WrongBound { said, is } => {
                write!(f, "it is worth {is:.3}, more than the {said:.3} that are proved to be the most")
            }
            Violation::WrongGap { said, is } => write!(
                f,
                "it is {:.3} % short of the bound, not {:.3} % as its proof says",
                is * 100.0,
                said * 100.0
            ),
            Violation::BelowPromise { promised, .. } => {
                write!(f, "makes less than the {promised:.3} samples/s that it is promised")
            }
            Violation::GrowsBesidePromise { waits, .. } => {
                write!(f, "is more than its least, and job {waits} waits for what it is promised")
            }
            Violation::NotAllowedSize { nodes, sizes, .. } => {
                write!(f, "gets {nodes} nodes, but allows {sizes}")
            }
            Violation::NotAllowedLater { nodes, sizes, .. } => {
                write!(f, "is foreseen on {nodes} nodes, but allows {sizes}")
            }
            Violation::WrongRate { said, is, .. } => {
                write!(f, "is promised {said:.3} samples/s, its profile says {is:.3}")
            }
            Violation::UnknownRate { nodes, .. } => write!(f, "has no known rate on {nodes} of these nodes"),
            Violation::HeldTwice { other, .. } => write!(f, "is given to job {other} too"),
            Violation::TooLittleOfHost { takes, there, .. } => write!(
                f,
                "{} CPUs and {} MiB of its host are given out, but it has {} and {}",
                takes.cpus, takes.memory_mib, there.cpus, there.memory_mib
            ),
            Violation::OtherBlock { block, .. } => write!(f, "is not {block} places of one node"),
            _ => f.write_str(self.fixed_message()),
        }
    }
}

impl Violation {
    /// What needs no values to be said.
    fn fixed_message(&self) -> &'static str {
        match self.rule() {
            Rule::Order => "jobs are not sorted, or one is there twice",
            Rule::Moment => "it was made for another moment or other steps",
            Rule::Complete => "is missing from the plan",
            Rule::Busy => "is in the middle of a change and must be left alone",
            Rule::Drain => "gets nodes although all jobs are to be parked",
            Rule::BackOff => "gets nodes although it backs off",
            Rule::Pause => "gets new nodes although growth is paused",
            Rule::MinStay => "is changed although it was changed a moment ago",
            Rule::Turn => "is parked although its turn has not ended",
            Rule::ForecastSteps => "has a forecast for other steps",
            Rule::IsGap => "is no gap",
            Rule::Window => "ends before the first step does",
            Rule::StartWindow => "has a window too short to start in",
            Rule::Excluded => "cannot be used by the job",
            Rule::Foreign => "is held by a job that is not planned here",
            Rule::OneType => "is of another type than the lead's",
            Rule::LeadFirst => "holds the lead, which must stay the first",
            Rule::Lease => "has a lease past the end of its window",
            other => other.word(),
        }
    }
}
