//! Pure values that every other module speaks in: ids, time, nodes, jobs, snapshots, gaps, profiles, plans,
//! traces.
//!
//! Nothing here does I/O, reads a clock or draws a random number.

#![warn(clippy::disallowed_types)]

mod assured;
mod bar;
pub mod causes;
mod change;
#[expect(clippy::disallowed_types, reason = "the one place that reads the clock, for edges")]
pub mod clock;
mod closed;
mod collectives;
pub mod config;
mod constraint;
mod contention;
mod control;
mod course;
mod credential;
mod declared;
mod delay;
pub mod dependency;
mod doing;
pub mod duration;
mod ended;
mod event;
mod excluded;
mod exec_plan;
mod facts;
mod gap;
mod generation;
pub mod hostlist;
mod hour;
mod ids;
mod job;
mod keep_idle;
mod layers;
mod lead_record;
pub mod malleable;
mod memory_size;
pub mod moment;
pub mod munge;
mod node;
mod node_reason;
mod note;
mod objective;
mod past;
mod plan;
mod plan_bounds;
mod portion;
mod prices;
mod private;
mod probe;
pub mod profile;
mod progress;
mod rate_source;
mod reason;
mod refusal;
mod report;
mod request;
mod resources;
mod round;
mod run;
mod sentence;
mod sizes;
mod snapshot;
mod spec;
mod spent;
mod state;
mod stops;
mod strike;
mod time;
mod topology;
pub mod trace;
mod turn;
mod window;
pub mod words;
mod worker;

pub use assured::{AskedRun, Assured, AssuredReason, AtLeast, EnoughSizes, Prospect, WantedRate};
pub use bar::{Bar, Hold};
pub use change::Change;
pub use closed::{ClosedJob, EstimateRow, SpeedRow};
pub use collectives::{
    CollectiveOp, CollectiveRow, CollectivesError, MAX_COLLECTIVE_RANKS, MAX_COLLECTIVE_ROWS,
    SiteCollectives, TypeCollectives,
};
pub use constraint::{Constraint, ConstraintError};
pub use contention::{Contention, SAVE_CLASSES, class_of};
pub use control::{Control, Lend, MetricsFor, Mode, Readers};
pub use course::{Course, OwnWord};
pub use credential::{Credential, Secret, bound_payload, hello_payload};
pub use declared::{DeclaredPlan, MOST_PLAN_CHARS, MOST_PLAN_TYPES, MOST_PLANS, PlanNeeds};
pub use delay::MainDelay;
pub use doing::Doing;
pub use ended::{EndedJob, without_numbers};
pub use event::{AgentEvent, Blame, EventKind, Opening};
pub use excluded::ExcludedNodes;
pub use exec_plan::{ModelFacts, Parallelism, PlanRun, Precision, Strategy};
pub use facts::{Changing, Claims, JobFacts, Pause, Place, Program};
pub use gap::{EndedGap, Gap, Gaps};
pub use generation::{GenerationRecord, of_the_last_job};
pub use hour::{PackedHour, UsedSecs};
pub use ids::{JobId, NodeName, NodeType, UserId};
pub use job::{Asks, BaseState, Job, JobState, is_for_nodes};
pub use keep_idle::KeepIdle;
pub use layers::{LAYERS_VERSION, LayerProfile, LayersError, MOST_PROFILED_LAYERS, ProfiledLayer};
pub use lead_record::LeadRecord;
pub use malleable::{HeldNode, MalleableJob, Standing};
pub use memory_size::{MOST_MEMORY_MIB, MemorySize, MemorySizeError};
pub use moment::MomentError;
pub use node::{Node, NodeState};
pub use node_reason::{NodeReason, NodeReasonKind, Wanted};
pub use note::Note;
pub use objective::Objective;
pub use past::{Past, Submission};
pub use plan::{JobPlan, Placement, Plan, Proof, Prover, SolveKind, SolveStatus};
pub use plan_bounds::{
    MOST_BATCH, MOST_HIDDEN, MOST_LAYERS, MOST_SEQUENCE, MOST_WAYS, MOST_ZERO, OutOfBounds,
};
pub use portion::{PlaceShare, Portion};
pub use prices::Prices;
pub use private::PrivateData;
pub use probe::Probe;
pub use profile::{
    BatchMode, ChangeCost, Curve, CurvePoint, ExecPlan, LiveChange, LiveCosts, MeasuredCosts, Profile,
    ProfileFilter, ProfileKey, RescaleCosts, SizePoint, Spread, Way,
};
pub use progress::{Progress, Startup};
pub use rate_source::RateSource;
pub use reason::{JobReason, JobReasonKind, Leaving, Shortage, Size};
pub use refusal::Refusal;
pub use report::{JobVerdict, NodeVerdict, Report};
pub use request::{
    Request, RequestError, Share, Wishes, lead_in, lead_of, order_in, place_in, wing_comment, wing_name,
};
pub use resources::{Allocation, Gpus, Parts, Resources, Unit, WithGpu};
pub use round::RoundSummary;
pub use run::Run;
pub(crate) use sizes::SizesError;
pub use sizes::{MAX_NODES_A_JOB, Sizes};
pub use snapshot::{Backfill, Doubt, LAUNCH_SECS, LEAST_LIMIT_SECS, Reservation, Snapshot};
pub use spec::{AskedSize, MAX_NAME_CHARS, MOST_GPUS_A_NODE, RunSpec, is_rate};
pub use spent::{Spent, SpentKey, SpentRow};
pub use state::MalleableState;
pub use stops::{Stop, StopEnd};
pub use strike::Strike;
pub use time::UnixTime;
pub use topology::{Oddity, SwitchId, SwitchRecord, Topology, TopologyError};
pub use trace::{
    EndedLog, IdleInterval, IdleLog, JobLog, LoggedJob, Malformed, NamedCurve, Reading, WorkloadJob,
};
pub use turn::{InLine, Turn};
pub use window::{WindowCause, WindowEnd};
pub use words::UnknownWord;
pub use worker::{Directive, Exit, Meeting, Member, WingOrder};
