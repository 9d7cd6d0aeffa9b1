//! The table of all routes: path, access and handler.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};
use axum::{Router, middleware};

use crate::context::DaemonContext;
use infill_api::routes as paths;

use super::route_access::RouteAccess;
use super::{
    agents, browser_guard, browser_sessions, collectives, control, day_summary, explain, figures,
    forget_user, history, job_lanes, live_status, node_history, openapi, profiles, reader_auth, report,
    rounds, sealed_sessions, standby, timeline, web_page,
};

/// A route.
pub(crate) struct ApiRoute {
    /// The pattern of its path.
    pub path: &'static str,
    /// Who may use it.
    pub access: RouteAccess,
    /// Makes its handler.
    handler: fn() -> MethodRouter<Arc<DaemonContext>>,
}

const fn route(
    path: &'static str,
    access: RouteAccess,
    handler: fn() -> MethodRouter<Arc<DaemonContext>>,
) -> ApiRoute {
    ApiRoute { path, access, handler }
}

/// All routes.
pub(crate) const ROUTES: &[ApiRoute] = &[
    route(paths::HEALTHZ, RouteAccess::Open, || get(live_status::get_health)),
    route(paths::METRICS, RouteAccess::Open, || get(live_status::get_metrics)),
    route(paths::OPENAPI, RouteAccess::Open, || get(openapi::get_document)),
    route(paths::PAGE, RouteAccess::Open, || get(web_page::get_page)),
    route(paths::PAGE_SCRIPT, RouteAccess::Open, || get(web_page::get_script)),
    route(paths::PAGE_STYLE, RouteAccess::Open, || get(web_page::get_style)),
    route(paths::WEB_LINKS, RouteAccess::Changes, || post(web_page::create_link)),
    route(paths::WEB_SESSIONS, RouteAccess::Changes, || post(browser_sessions::open_session)),
    route(paths::WEB_LOGOUT, RouteAccess::Changes, || post(browser_sessions::log_out)),
    route(paths::WEB_REVOKE, RouteAccess::Changes, || post(browser_sessions::revoke_sessions)),
    route(paths::REPORT, RouteAccess::Reads, || get(report::get_report)),
    route(paths::TIMELINE, RouteAccess::Reads, || get(timeline::get_timeline)),
    route(paths::SUMMARY, RouteAccess::Reads, || get(day_summary::get_summary)),
    route(paths::LANES, RouteAccess::Reads, || get(job_lanes::get_lanes)),
    route(paths::NODE, RouteAccess::Reads, || get(node_history::get_node)),
    route(paths::FIGURE, RouteAccess::Reads, || get(figures::get_figure)),
    route(paths::EXPLAIN, RouteAccess::Reads, || get(explain::explain_subject)),
    route(paths::STATUS, RouteAccess::Reads, || get(live_status::get_status)),
    route(paths::ROUND, RouteAccess::Reads, || get(live_status::get_round)),
    route(paths::ROUNDS, RouteAccess::Reads, || get(rounds::list_rounds)),
    route(paths::ROUND_AT, RouteAccess::Reads, || get(rounds::get_round_at)),
    route(paths::PLAN, RouteAccess::Computes, || get(live_status::get_plan)),
    route(paths::GENERATIONS, RouteAccess::Reads, || get(live_status::list_generations)),
    route(paths::PROFILES, RouteAccess::Computes, || get(profiles::list_profiles)),
    route(paths::PROFILE_HISTORY, RouteAccess::Reads, || get(profiles::profile_history)),
    route(paths::PROFILE_FIGURE, RouteAccess::Computes, || get(profiles::profile_figure)),
    route(paths::FORGET_PROFILES, RouteAccess::Changes, || post(profiles::forget_profiles)),
    route(paths::IMPORT_PROFILES, RouteAccess::Changes, || {
        post(profiles::import_profiles).layer(DefaultBodyLimit::max(profiles::MAX_IMPORT_BODY))
    }),
    route(paths::IMPORT_HISTORY, RouteAccess::Changes, || {
        post(history::import_history).layer(DefaultBodyLimit::max(history::MAX_IMPORT_BODY))
    }),
    route(paths::FORGET_USER, RouteAccess::Changes, || post(forget_user::forget_user)),
    route(paths::COLLECTIVES, RouteAccess::Reads, || get(collectives::show_collectives)),
    route(paths::IMPORT_COLLECTIVES, RouteAccess::Changes, || {
        post(collectives::import_collectives).layer(DefaultBodyLimit::max(collectives::MAX_IMPORT_BODY))
    }),
    route(paths::CONTROL, RouteAccess::Changes, || post(control::handle_control)),
    route(paths::AGENT_HELLO, RouteAccess::Agents, || post(agents::handle_hello)),
    route(paths::AGENT_POLL, RouteAccess::Agents, || post(agents::handle_poll)),
    route(paths::AGENT_REPORT, RouteAccess::Agents, || post(agents::handle_report)),
];

/// A router with all routes. Clients without access, and browsers on other sites' pages, reach no handler.
pub(crate) fn all_routes(context: &Arc<DaemonContext>) -> Router<Arc<DaemonContext>> {
    let guard = middleware::from_fn_with_state(context.clone(), browser_guard::check_origin);
    filter_routes(context, |_| true).route_layer(guard)
}

/// A router with the routes whose access is selected.
pub(crate) fn filter_routes(
    context: &Arc<DaemonContext>,
    is_selected: impl Fn(RouteAccess) -> bool,
) -> Router<Arc<DaemonContext>> {
    let mut router = Router::new();
    for ApiRoute { path, access, handler } in ROUTES.iter().filter(|route| is_selected(route.access)) {
        let mut methods = handler();
        if matches!(access, RouteAccess::Reads | RouteAccess::Computes) {
            let authenticate =
                middleware::from_fn_with_state((context.clone(), *access), reader_auth::authenticate_reader);
            methods = methods.route_layer(authenticate);
        }
        if *access != RouteAccess::Open {
            let leader_only = middleware::from_fn_with_state(context.clone(), standby::leader_only);
            methods = methods.route_layer(leader_only);
        }
        if *path == paths::HEALTHZ {
            let prove_health = middleware::from_fn_with_state(context.clone(), reader_auth::prove_health);
            methods = methods.route_layer(prove_health);
        }
        let prove_answers = middleware::from_fn_with_state(context.clone(), sealed_sessions::prove_answers);
        router = router.route(path, methods.route_layer(prove_answers));
    }
    router
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::openapi::document::{access_word, answer_name, describe_route};
    use super::openapi::validation::PUBLISHED;
    use super::*;

    /// What stands above the routes.
    const HEAD: &str = "\
# HTTP interface

<!-- Written by the tests of crates/daemon/src/http/routes.rs. -->

The daemon listens at `daemon.listen`. Bodies and answers are JSON, except where the table says otherwise. Each document
for readers has a field `schema`. [API stability](../api-stability.md) says what later versions keep.

Most requests carry a proof of who asks, by MUNGE or by one of Slurm's tokens, and name the daemon that they are meant
for. So programs should not build them by hand. The command line does, and prints the same documents: `infill status
--json`, `infill jobs --json`, `infill rounds --json`, `infill report --json`. With `http.read = \"open\"`, `curl` reads the
routes for readers, as a user without jobs:

    curl http://ctl:6810/v1/status

[openapi.json](openapi.json) describes all routes in OpenAPI 3.1, without the files of the page: parameters, bodies,
answers, refusals and proofs. The daemon serves it too. From it, programs such as openapi-generator make clients, and `jq`
prints the fields of an answer:

    curl http://ctl:6810/v1/openapi.json | jq .components.schemas.DaemonStatus

The table names the schema of each answer.

Who may use a route:

| word | who |
|---|---|
| open | anyone who reaches the port. The answers name no user |
| reader | users who prove themselves, browsers with a session, and with `http.read = \"open\"` anyone |
| proved reader | the same, but always with a proof, because the answer is computed for each reader |
| user | users who prove themselves. For orders to the daemon, administrators |
| agent | agents of jobs, with their job's proof |

## Routes

| method | path | who | answer | what |
|---|---|---|---|---|
";

    #[test]
    fn the_page_of_routes_is_the_table() {
        let mut page = HEAD.to_owned();
        for route in ROUTES {
            let described = describe_route(route.path);
            let cells = [
                described.method,
                &format!("`{}`", route.path),
                access_word(route.access),
                &answer_name(&PUBLISHED, route.path),
                &described.text,
            ];
            let _ = writeln!(page, "| {} |", cells.join(" | "));
        }
        let update = "cargo test -p infill-daemon page_of_routes";
        infill_testkit::goldens::check_golden("docs/reference/http-api.md", &page, update);
    }

    #[test]
    fn the_openapi_document_describes_the_table() {
        let document = serde_json::to_string_pretty(&*PUBLISHED).unwrap() + "\n";
        let update = "cargo test -p infill-daemon openapi_document";
        infill_testkit::goldens::check_golden("docs/reference/openapi.json", &document, update);
    }
}
