//! The page behind a site's own web server, which authenticates its users by other means than MUNGE.
//!
//! The web server connects to a Unix socket that only it may open, and names the reader with each request.
//! Requests on this socket can only read.

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

/// Permissions of the socket: the daemon's user and one group may use it.
const SOCKET_MODE: u32 = 0o660;

/// Opens the socket; `None` where the site has configured none. Replaces a socket that an earlier daemon
/// left.
///
/// # Errors
/// When the socket cannot be opened, or its group does not exist.
pub(crate) async fn open_socket(config: &WebConfig) -> anyhow::Result<Option<UnixListener>> {
    let path = config.socket.as_path();
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let listener = bind_socket(path, &config.group).await;
    listener.map(Some).with_context(|| format!("cannot open web.socket, {}", path.display()))
}

async fn bind_socket(path: &Path, group: &str) -> anyhow::Result<UnixListener> {
    if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    set_socket_owner(path, group).await?;
    Ok(listener)
}

async fn set_socket_owner(path: &Path, group: &str) -> anyhow::Result<()> {
    if !group.is_empty() {
        let gid = gid_of(group).await.with_context(|| format!("web.group: there is no group {group:?}"))?;
        std::os::unix::fs::chown(path, None, Some(gid))?;
    }
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?)
}

/// Serves the web server until `stop`.
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

/// A router with the page and the routes that the page reads.
fn proxy_router(context: &Arc<DaemonContext>) -> Router {
    let identify_user = middleware::from_fn_with_state(context.clone(), identify_user);
    routes::filter_routes(context, |access| {
        matches!(access, RouteAccess::Open | RouteAccess::Reads | RouteAccess::Computes)
    })
    .layer(identify_user)
    .with_state(context.clone())
}

/// Adds the reader whom the web server names to the request.
async fn identify_user(
    State(context): State<Arc<DaemonContext>>,
    mut request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    browser_guard::refuse_cross_site(request.headers())?;
    let _permit = context
        .access
        .limits
        .proxy
        .try_acquire()
        .map_err(|_| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "too many readers at a time"))?;
    let header = context.config.web.user_header.as_str();
    let mut values = request.headers().get_all(header).into_iter();
    if let Some(first) = values.next() {
        // With several headers, one could come from the browser, so all are refused.
        let name = first.to_str().ok().filter(|name| name.len() <= MAX_USER_NAME && values.next().is_none());
        let name = name.ok_or_else(RequestDenial::not_authenticated)?.to_owned();
        let person = find_user(&context, &name).await.ok_or_else(RequestDenial::not_authenticated)?;
        request.extensions_mut().insert(ProxyUser(person));
    }
    Ok(next.run(request).await)
}

/// The user of that name. A web server can never name root or the daemon's user.
async fn find_user(context: &DaemonContext, name: &str) -> Option<AuthenticatedUser> {
    let cached = &context.access.proxy_users;
    let key = Secret(name.to_owned());
    let now = Instant::now();
    if let Some(person) = cached.find_user(&key, now) {
        return Some(person);
    }
    // Each look-up is a process.
    let _permit = context.access.limits.people.acquire().await.ok()?;
    if let Some(person) = cached.find_user(&key, now) {
        return Some(person);
    }
    let uid = uid_of(name).await.filter(|uid| !auth::is_daemon_user(*uid))?;
    // The name that Slurm uses; the web server may write it differently.
    let person = AuthenticatedUser { uid, name: name_of(uid).await };
    cached.add_session(&key, person.clone(), now);
    Some(person)
}
