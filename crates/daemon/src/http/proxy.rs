//! The page behind a site's own web server, which knows its users by other means than MUNGE. It asks on a
//! Unix socket that it alone may open, and says with each request who reads. Nothing is changed that way.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::net::UnixListener;

use super::reader_auth::ProxyUser;
use super::route_access::RouteAccess;
use super::{RequestDenial, auth, browser_guard, routes};
use crate::context::DaemonContext;
use crate::session_store::AuthenticatedUser;
use infill_model::{Secret, config::WebConfig};
use infill_slurm::identity::{gid_of, name_of, uid_of};

/// Longest name that is looked up.
const MAX_USER_NAME: usize = 256;

/// The daemon's own user and one group.
const SOCKET_MODE: u32 = 0o660;

/// Opens the socket; `None` where the site has none. A socket that an earlier daemon left is replaced.
///
/// # Errors
/// When it cannot be opened, or the group is not known.
pub(crate) async fn open_socket(config: &WebConfig) -> anyhow::Result<Option<UnixListener>> {
    let path = config.socket.as_path();
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let doing = || format!("cannot open web.socket, {}", path.display());
    if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path).with_context(doing)?;
    }
    let listener = UnixListener::bind(path).with_context(doing)?;
    set_socket_owner(path, &config.group).await.with_context(doing)?;
    Ok(Some(listener))
}

async fn set_socket_owner(path: &Path, group: &str) -> anyhow::Result<()> {
    if !group.is_empty() {
        let gid = gid_of(group).await.with_context(|| format!("web.group: there is no group {group:?}"))?;
        std::os::unix::fs::chown(path, None, Some(gid))?;
    }
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?)
}

/// Answers the web server until `stop`.
///
/// # Errors
/// When the server ends by itself.
pub async fn serve_proxy(
    listener: Option<UnixListener>,
    context: Arc<DaemonContext>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    match listener {
        Some(listener) => axum::serve(listener, proxy_router(&context)).with_graceful_shutdown(stop).await,
        None => std::future::pending().await,
    }
}

/// The page and what it reads.
fn proxy_router(context: &Arc<DaemonContext>) -> Router {
    let vouched = middleware::from_fn_with_state(context.clone(), identify_user);
    routes::filter_routes(context, |access| {
        matches!(access, RouteAccess::Open | RouteAccess::Reads | RouteAccess::Computes)
    })
    .layer(vouched)
    .with_state(context.clone())
}

/// Tells the routes behind it who reads.
async fn identify_user(
    State(context): State<Arc<DaemonContext>>,
    mut request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    browser_guard::refuse_cross_site(request.headers())?;
    let _place = context
        .doors
        .gates
        .vouching
        .try_acquire()
        .map_err(|_| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "too many readers at a time"))?;
    let header = context.config.web.user_header.as_str();
    let mut values = request.headers().get_all(header).into_iter();
    if let Some(first) = values.next() {
        // Of several one would be the browser's own word.
        let name = first.to_str().ok().filter(|name| name.len() <= MAX_USER_NAME && values.next().is_none());
        let name = name.ok_or_else(RequestDenial::not_authenticated)?.to_owned();
        let person = find_user(&context, &name).await.ok_or_else(RequestDenial::not_authenticated)?;
        request.extensions_mut().insert(ProxyUser(person));
    }
    Ok(next.run(request).await)
}

/// A user of that name. Nobody is root by the word of a web server.
async fn find_user(context: &DaemonContext, name: &str) -> Option<AuthenticatedUser> {
    let known = &context.doors.vouched;
    let key = Secret(name.to_owned());
    let now = Instant::now();
    if let Some(person) = known.find_user(&key, now) {
        return Some(person);
    }
    // Each is a process.
    let _turn = context.doors.gates.people.acquire().await.ok()?;
    if let Some(person) = known.find_user(&key, now) {
        return Some(person);
    }
    let uid = uid_of(name).await.filter(|uid| !auth::is_daemon_user(*uid))?;
    // By the name that Slurm knows: the web server may write it otherwise.
    let person = AuthenticatedUser { uid, name: name_of(uid).await };
    known.add_session(&key, person.clone(), now);
    Some(person)
}
