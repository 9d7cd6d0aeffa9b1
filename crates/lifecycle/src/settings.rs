//! The times that the machine waits, and what it takes from the configuration.

/// Seconds after which an effect that Slurm does not show is asked for again.
pub(crate) const RETRY_SECS: f64 = 5.0;

/// The same for a launch that Slurm could not take just then: a job that was requeued is still being cleaned
/// up for about a second.
pub(crate) const RELAUNCH_SECS: f64 = 1.0;

/// Seconds for which a lead that could start waits for wings under way, so that it need not be rescaled at
/// once. A wing needs 1–2 s from its order to its hello.
pub(crate) const SETTLE_SECS: f64 = 4.0;

/// Seconds beyond the grace time until a worker that has not stopped is given up.
pub(crate) const STOP_MARGIN_SECS: f64 = 5.0;

/// Seconds without a sign of life after which an agent counts as gone while others wait for it.
/// An agent's back-off is at most 5 s, so a restarted daemon has heard all of them by then.
pub(crate) const SILENT_SECS: f64 = 12.0;

/// The same for an agent that has said that Slurm takes its node: it has little time left to speak.
pub(crate) const LEAVING_SECS: f64 = 4.0;

/// Within so many seconds an agent that Slurm tells to leave has said so: Slurm tells once, in whole seconds,
/// and on some sites by a signal that has to be asked about.
pub(crate) const HEARS_SECS: f64 = 5.0;

/// Seconds of silence, and of others' training standing still meanwhile, after which a worker that Slurm
/// shows running is given up all the same. Silence alone is none: the command may well run on.
pub(crate) const LOST_SECS: f64 = 60.0;

/// First back-off of a job that Slurm preempted; doubles up to [`PREEMPTED_BACKOFF_MAX_SECS`]. Short, because
/// the planner looks at the gaps anyway: it only keeps a job from being thrown out of the same hole again and
/// again.
pub const PREEMPTED_BACKOFF_SECS: f64 = 2.0;

/// Longest back-off after preemptions: seconds are enough to see what the main queue does next.
pub const PREEMPTED_BACKOFF_MAX_SECS: f64 = 8.0;

/// First pause before a command that failed is started again; doubles up to [`FAILED_BACKOFF_MAX_SECS`]. Its
/// nodes are kept meanwhile.
pub(crate) const FAILED_BACKOFF_SECS: f64 = 1.0;

/// Longest pause after failures of a command.
pub(crate) const FAILED_BACKOFF_MAX_SECS: f64 = 30.0;

/// A generation that ran so long before it failed ends a row of failures.
pub(crate) const FAILURES_END_SECS: f64 = 3600.0;

/// Seconds for which a generation must have run on a node, if it tells of no progress, to show that it can.
pub(crate) const PROOF_SECS: f64 = 120.0;

/// Seconds from the launch of a lead, besides what starting takes there, for which it counts as holding all
/// that the planner gave it. After that only its own node: it may be a script that never comes to
/// `infill run`.
pub(crate) const CLAIM_SECS: f64 = 20.0;

/// By how many times that may grow.
pub(crate) const MOST_CLAIMS: u32 = 9;

/// Seconds from its release after which a lead is called back that backfill has looked at since, and that
/// still waits for a node that is idle.
pub(crate) const START_SECS: f64 = 4.0;

/// What happened so many seconds after something else, by clocks that tell whole seconds, came later.
pub(crate) const LATER_SECS: f64 = 1.0;

/// Seconds after which a lead that was sent off, and is shown held or made to wait, was requeued since: by
/// then Slurm has been told, and its answer is not of before.
pub(crate) const UNDONE_SECS: f64 = 10.0;

/// A job that ran so long without preemption starts its back-off from the beginning.
pub const CALM_SECS: f64 = 120.0;

/// Seconds for which a lead waits that was requeued: times of nodes are whole seconds, and the next one has
/// begun by then.
pub(crate) const BACK_SECS: f64 = 1.0;

/// Seconds that an order or submission may take to show in Slurm's answers.
pub(crate) const SHOW_SECS: f64 = 3.0;

/// Seconds after which a newcomer is given up whose command has not said that it is ready, at least: a large
/// model takes minutes to build, and its node does nothing meanwhile.
pub(crate) const WARM_SECS: f64 = 300.0;

/// It gets so many times as long as the job's command took before, up to an hour.
pub(crate) const WARM_TIMES: f64 = 3.0;
pub(crate) const MOST_WARM_SECS: f64 = 3600.0;

/// Seconds that newcomers which are ready wait for others: a change for each would cost more.
pub const JOIN_SECS: f64 = 5.0;

/// Seconds in which whoever is there answers when the roll is called: an agent asks again at once. Times are
/// whole seconds, so that up to one less has gone by.
pub(crate) const ROLL_SECS: f64 = 3.0;

/// Seconds from a failed step until the members meet again, if nobody was named lost meanwhile: an agent
/// tells of a process that has died within milliseconds, and the roll names those that do not answer.
pub(crate) const DOUBT_SECS: f64 = ROLL_SECS;

/// Seconds that members have to meet, over all tries; a restart takes less.
pub(crate) const REGROUP_SECS: f64 = 30.0;

/// Tries to meet, with fewer members or at another store.
pub(crate) const MOST_TRIES: u32 = 5;

/// Seconds after which a lead that is lost to the others is requeued by us, unless Slurm has done so: it does
/// at once where it takes a node, and only after minutes where one has died.
pub(crate) const LEAVES_SECS: f64 = 5.0;

/// Seconds after which a lead that was released, and is shown held, was requeued since.
pub(crate) const RETURN_SECS: f64 = UNDONE_SECS;

/// Seconds for which a lead may be away besides what starting it takes: Slurm lets a job that it has requeued
/// wait for as long.
pub(crate) const AWAY_SECS: f64 = 120.0;

/// Times and names that the machine takes from the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleSettings {
    /// The malleable partition.
    pub partition: String,
    /// QOS for wings.
    pub qos: Option<String>,
    /// Seconds until a wing that was ordered must have said hello.
    pub wing_start_secs: f64,
    /// The same for a wing that Slurm shows running: it may be in its prolog.
    pub prolog_secs: f64,
    /// Seconds from its launch for which a lead claims what the planner gave it.
    pub claim_secs: f64,
    /// Seconds until a released lead must run.
    pub lead_start_secs: f64,
    /// First back-off after a failed start, seconds.
    pub backoff_secs: f64,
    /// Longest back-off, seconds.
    pub backoff_max_secs: f64,
}
