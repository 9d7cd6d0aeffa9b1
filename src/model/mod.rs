//! Pure values that every other module speaks in: ids, time, nodes, jobs, snapshots, gaps, profiles, plans,
//! traces.
//!
//! Nothing here does I/O, reads a clock or draws a random number.

pub mod gap;
pub mod hostlist;
pub mod ids;
pub mod job;
pub mod malleable;
pub mod node;
pub mod node_reason;
pub mod note;
pub mod plan;
pub mod profile;
pub mod reason;
pub mod refusal;
pub mod report;
pub mod request;
pub mod snapshot;
pub mod time;
pub mod trace;
mod words;

pub use gap::{EndedGap, Gap, Gaps, WindowCause, WindowEnd};
pub use ids::{JobId, NodeName, NodeType, UserId};
pub use job::{BaseState, Job, JobState};
pub use malleable::{HeldNode, MalleableJob, Standing};
pub use node::{Node, NodeState};
pub use node_reason::{NodeReason, NodeReasonKind, Wanted};
pub use note::Note;
pub use plan::{JobPlan, Placement, Plan, Proof, Prover, SolveStatus};
pub use profile::{
    BatchMode, ChangeCost, Curve, CurvePoint, ExecPlan, MeasuredCosts, Profile, ProfileFilter, ProfileKey,
    RescaleCosts, SizePoint,
};
pub use reason::{JobReason, JobReasonKind, Leaving, Shortage, Size};
pub use refusal::Refusal;
pub use report::{JobVerdict, NodeVerdict, Report};
pub use request::{MAX_NODES_A_JOB, Request, RequestError, Sizes};
pub use snapshot::{Backfill, Doubt, Reservation, Snapshot};
pub use time::UnixTime;
pub use trace::{IdleInterval, IdleLog, JobLog, LoggedJob, Malformed, NamedCurve, Reading, WorkloadJob};
pub(crate) use words::words;
