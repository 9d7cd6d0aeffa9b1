//! The rules that a plan must keep.

use infill_model::words;

words! {
    /// A rule that a plan must keep. Its word labels metrics.
    pub enum CheckerRule {
        /// Jobs are sorted by id, and each occurs once.
        Order = "order",
        /// Every job is in the problem.
        KnownJob = "known_job",
        /// The plan is made for this moment and these steps.
        Moment = "moment",
        /// Voluntary changes keep within the budget.
        Budget = "budget",
        /// Forecasts for a later step use no more nodes than last through it.
        ForecastNodes = "forecast_nodes",
        /// The objective is the value of the plan without reluctance.
        Objective = "objective",
        /// The proven upper bound is not below the value of the plan.
        Bound = "bound",
        /// The plan falls no further short of the bound than its proof says.
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
        /// A job reaches its promised rate while others have more than their minimum.
        Promise = "promise",
        /// The job allows the number of nodes.
        Size = "size",
        /// The job allows the numbers of nodes in its forecast.
        ForecastSize = "forecast_size",
        /// The rate is that of the job's profile.
        Rate = "rate",
        /// The profile has a rate on the job's nodes.
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
        /// No job gets a node of a job outside the problem.
        Foreign = "foreign",
        /// Each node of a job has as many places, on one host, as the job's block says.
        Block = "block",
        /// All nodes of a job are of one type.
        OneType = "one_type",
        /// No host's CPUs and memory are given out twice.
        Host = "host",
        /// The lead's node stays the first.
        LeadFirst = "lead_first",
        /// No lease passes the moment at which the node must be free.
        Lease = "lease",
        /// Every node is one that the administrator allows.
        AllowedNode = "allowed_node",
        /// Nodes are left before a blackout, and none is used in it.
        Blackout = "blackout",
        /// All jobs, and each user's, keep to the administrator's limits.
        SiteLimit = "site_limit",
    }
}

impl CheckerRule {
    /// The message of a violation that needs no values.
    pub(super) fn fixed_message(self) -> &'static str {
        match self {
            CheckerRule::Order => "jobs are not sorted, or one occurs twice",
            CheckerRule::Moment => "it was made for another moment or other steps",
            CheckerRule::Complete => "is missing from the plan",
            CheckerRule::Busy => "is in the middle of a change and must be left alone",
            CheckerRule::Drain => "gets nodes although all jobs are to be parked",
            CheckerRule::BackOff => "gets nodes although it backs off",
            CheckerRule::Pause => "gets new nodes although growth is paused",
            CheckerRule::MinStay => "is changed although it was changed a moment ago",
            CheckerRule::Turn => "is parked although its turn has not ended",
            CheckerRule::ForecastSteps => "has a forecast for other steps",
            CheckerRule::IsGap => "is not a gap",
            CheckerRule::Window => "ends before the first step does",
            CheckerRule::StartWindow => "has a window too short to start in",
            CheckerRule::Excluded => "cannot be used by the job",
            CheckerRule::Foreign => "is held by a job that is not planned here",
            CheckerRule::OneType => "is of another type than the lead's node",
            CheckerRule::LeadFirst => "holds the lead, which must stay the first",
            CheckerRule::Lease => "has a lease past the end of its window",
            CheckerRule::AllowedNode => "is not among the nodes of safety.nodes",
            CheckerRule::Blackout => "is used in a blackout",
            other => other.word(),
        }
    }
}
