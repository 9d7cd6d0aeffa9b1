//! Limits work that takes a processor or the store for a while, and keeps it off the threads that serve
//! agents.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use super::RequestDenial;

/// Runs `work` once there is a permit. The work goes on even if its client hangs up, and keeps the permit
/// until it is done.
pub(crate) async fn run_limited<T: Send + 'static>(
    limit: &Arc<Semaphore>,
    work: impl Future<Output = Result<T, RequestDenial>> + Send + 'static,
) -> Result<T, RequestDenial> {
    let permit = limit
        .clone()
        .acquire_owned()
        .await
        .map_err(|_| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"))?;
    let working = tokio::spawn(async move {
        let _permit = permit;
        work.await
    });
    working.await.map_err(internal_error)?
}

/// Runs `compute` on a thread for blocking work.
pub(crate) async fn run_blocking<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestDenial> {
    tokio::task::spawn_blocking(compute).await.map_err(internal_error)
}

/// 500 with the error as its text.
pub(crate) fn internal_error(why: impl fmt::Display) -> RequestDenial {
    RequestDenial::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_keeps_its_permit_after_its_client_hangs_up() {
        let limit = Arc::new(Semaphore::new(1));
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let work = run_limited(&limit, async move { finished.await.map_err(internal_error) });
        let hung_up = tokio::time::timeout(std::time::Duration::from_millis(20), work).await;
        assert!(hung_up.is_err());
        assert!(limit.clone().try_acquire_owned().is_err());
        finish.send(()).unwrap();
        assert_eq!(run_limited(&limit, async { Ok(7) }).await.unwrap(), 7);
    }
}
