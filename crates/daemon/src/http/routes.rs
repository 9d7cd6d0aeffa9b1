//! The one table of routes: which path, for whom, and who answers.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};
use axum::{Router, middleware};

use crate::context::Context;
use infill_api::routes as paths;

use super::access::Access;
use super::{
    agents, browsers, collectives, control, explain, figures, history, profiles, read, readers, report,
    rounds, seals, sessions, standby, timeline, web,
};

/// A route.
pub(crate) struct Route {
    /// Its path, as a pattern.
    pub path: &'static str,
    /// For whom it is.
    pub access: Access,
    /// Who answers.
    handler: fn() -> MethodRouter<Arc<Context>>,
}

const fn route(path: &'static str, access: Access, handler: fn() -> MethodRouter<Arc<Context>>) -> Route {
    Route { path, access, handler }
}

/// All routes.
pub(crate) const ROUTES: &[Route] = &[
    route(paths::HEALTHZ, Access::Open, || get(read::healthz)),
    route(paths::METRICS, Access::Open, || get(read::numbers)),
    route(paths::PAGE, Access::Open, || get(web::page)),
    route(paths::PAGE_SCRIPT, Access::Open, || get(web::script)),
    route(paths::PAGE_STYLE, Access::Open, || get(web::style)),
    route(paths::WEB_LINKS, Access::Changes, || post(web::link)),
    route(paths::WEB_SESSIONS, Access::Changes, || post(sessions::session)),
    route(paths::WEB_LOGOUT, Access::Changes, || post(sessions::log_out)),
    route(paths::WEB_REVOKE, Access::Changes, || post(sessions::revoke)),
    route(paths::REPORT, Access::Reads, || get(report::report)),
    route(paths::TIMELINE, Access::Reads, || get(timeline::timeline)),
    route(paths::FIGURE, Access::Reads, || get(figures::figure)),
    route(paths::EXPLAIN, Access::Reads, || get(explain::explained)),
    route(paths::STATUS, Access::Reads, || get(read::status)),
    route(paths::ROUND, Access::Reads, || get(read::round)),
    route(paths::ROUNDS, Access::Reads, || get(rounds::list)),
    route(paths::ROUND_AT, Access::Reads, || get(rounds::at)),
    route(paths::PLAN, Access::Computes, || get(read::plan)),
    route(paths::GENERATIONS, Access::Reads, || get(read::generations)),
    route(paths::PROFILES, Access::Computes, || get(profiles::list)),
    route(paths::PROFILE_HISTORY, Access::Reads, || get(profiles::history)),
    route(paths::PROFILE_FIGURE, Access::Computes, || get(profiles::figure)),
    route(paths::FORGET_PROFILES, Access::Changes, || post(profiles::forget)),
    route(paths::IMPORT_PROFILES, Access::Changes, || {
        post(profiles::import).layer(DefaultBodyLimit::max(profiles::MAX_IMPORT_BODY))
    }),
    route(paths::IMPORT_HISTORY, Access::Changes, || {
        post(history::import).layer(DefaultBodyLimit::max(history::MAX_IMPORT_BODY))
    }),
    route(paths::COLLECTIVES, Access::Reads, || get(collectives::show)),
    route(paths::IMPORT_COLLECTIVES, Access::Changes, || {
        post(collectives::import).layer(DefaultBodyLimit::max(collectives::MAX_IMPORT_BODY))
    }),
    route(paths::CONTROL, Access::Changes, || post(control::control)),
    route(paths::AGENT_HELLO, Access::Agents, || post(agents::hello)),
    route(paths::AGENT_POLL, Access::Agents, || post(agents::poll)),
    route(paths::AGENT_REPORT, Access::Agents, || post(agents::report)),
];

/// The table as a router: whoever is not let in reaches no handler, nor do browsers that come from elsewhere.
pub(crate) fn table(context: &Arc<Context>) -> Router<Arc<Context>> {
    let guard = middleware::from_fn_with_state(context.clone(), browsers::only_ours);
    some(context, |_| true).route_layer(guard)
}

/// Some of it.
pub(crate) fn some(context: &Arc<Context>, is_one: impl Fn(Access) -> bool) -> Router<Arc<Context>> {
    let mut router = Router::new();
    for Route { path, access, handler } in ROUTES.iter().filter(|route| is_one(route.access)) {
        let mut methods = handler();
        if matches!(access, Access::Reads | Access::Computes) {
            let known = middleware::from_fn_with_state((context.clone(), *access), readers::known);
            methods = methods.route_layer(known);
        }
        if *access != Access::Open {
            let leads = middleware::from_fn_with_state(context.clone(), standby::leader_only);
            methods = methods.route_layer(leads);
        }
        if *path == paths::HEALTHZ {
            methods =
                methods.route_layer(middleware::from_fn_with_state(context.clone(), readers::of_health));
        }
        let proving = middleware::from_fn_with_state(context.clone(), seals::proving);
        router = router.route(path, methods.route_layer(proving));
    }
    router
}
