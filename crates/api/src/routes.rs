//! The paths of the daemon's resources, and the addresses of daemons.

use infill_model::{JobId, UnixTime};

/// State of the daemon, nodes and jobs (`GET`).
pub const STATUS: &str = "/v1/status";

/// The last round (`GET`).
pub const ROUND: &str = "/v1/round";

/// Finished rounds, a summary each (`GET`).
pub const ROUNDS: &str = "/v1/rounds";

/// The last round at or before a time (`GET`), as a pattern; see [`round_path`].
pub const ROUND_AT: &str = "/v1/rounds/{at}";

/// A new round, computed without acting (`GET`).
pub const PLAN: &str = "/v1/plan";

/// The generations of a malleable job (`GET`), as a pattern; see [`generations_path`].
pub const GENERATIONS: &str = "/v1/jobs/{id}/generations";

/// Profiles (`GET`).
pub const PROFILES: &str = "/v1/profiles";

/// The measurements of one profile (`GET`).
pub const PROFILE_HISTORY: &str = "/v1/profiles/history";

/// Uses of nodes over time (`GET`).
pub const TIMELINE: &str = "/v1/timeline";

/// Drawings over time (`GET`), as a pattern.
pub const FIGURE: &str = "/v1/figures/{kind}";

/// Why a job or a node has what it has, in words (`GET`), as a pattern.
pub const EXPLAIN: &str = "/v1/explain/{subject}";

/// A profile's curve as a drawing (`GET`).
pub const PROFILE_FIGURE: &str = "/v1/profiles/figure";

/// A day at a glance (`GET`).
pub const SUMMARY: &str = "/v1/summary";

/// Sizes of malleable jobs over time (`GET`).
pub const LANES: &str = "/v1/lanes";

/// One node and its uses over time (`GET`), as a pattern.
pub const NODE: &str = "/v1/nodes/{name}";

/// The results of lending idle nodes, in numbers (`GET`).
pub const REPORT: &str = "/v1/report";

/// The web page (`GET`).
pub const PAGE: &str = "/";

/// The web page's script (`GET`).
pub const PAGE_SCRIPT: &str = "/page.js";

/// The web page's style sheet (`GET`).
pub const PAGE_STYLE: &str = "/page.css";

/// Makes a link to the web page (`POST`).
pub const WEB_LINKS: &str = "/v1/web/links";

/// Opens a session with the ticket of a link (`POST`).
pub const WEB_SESSIONS: &str = "/v1/web/sessions";

/// Ends the session whose secret the request carries (`POST`).
pub const WEB_LOGOUT: &str = "/v1/web/logout";

/// Ends all sessions of a user (`POST`).
pub const WEB_REVOKE: &str = "/v1/web/revoke";

/// Deletes profiles (`POST`).
pub const FORGET_PROFILES: &str = "/v1/profiles/forget";

/// Imports profiles (`POST`).
pub const IMPORT_PROFILES: &str = "/v1/profiles/import";

/// Imports jobs that have ended (`POST`).
pub const IMPORT_HISTORY: &str = "/v1/history/import";

/// Deletes everything that names a user (`POST`).
pub const FORGET_USER: &str = "/v1/history/forget";

/// How long collective operations take on the site's nodes (`GET`).
pub const COLLECTIVES: &str = "/v1/collectives";

/// Imports measurements of collective operations (`POST`).
pub const IMPORT_COLLECTIVES: &str = "/v1/collectives/import";

/// An administrator's order (`POST`).
pub const CONTROL: &str = "/v1/control";

/// An agent's first message (`POST`).
pub const AGENT_HELLO: &str = "/v1/agent/hello";

/// An agent's long poll for its assignment (`POST`).
pub const AGENT_POLL: &str = "/v1/agent/poll";

/// An agent's report of events (`POST`).
pub const AGENT_REPORT: &str = "/v1/agent/report";

/// Health of the daemon (`GET`).
pub const HEALTHZ: &str = "/healthz";

/// The description of these routes, in OpenAPI (`GET`).
pub const OPENAPI: &str = "/v1/openapi.json";

/// Metrics for Prometheus (`GET`).
pub const METRICS: &str = "/metrics";

/// [`GENERATIONS`] for one job.
pub fn generations_path(job: JobId) -> String {
    GENERATIONS.replace("{id}", &job.to_string())
}

/// [`ROUND_AT`] for one time.
pub fn round_path(at: UnixTime) -> String {
    ROUND_AT.replace("{at}", &at.0.to_string())
}

/// The URLs of the daemons in `agent.url`, without trailing slashes. Several are separated by commas; one of
/// these daemons leads.
pub fn daemon_urls(list: &str) -> Vec<String> {
    let urls = list.split(',').map(|url| url.trim().trim_end_matches('/').to_owned());
    urls.filter(|url| !url.is_empty()).collect()
}
