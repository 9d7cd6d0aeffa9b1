//! What takes a processor or the store for a while: only so many at a time, and off the threads that serve
//! agents.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use super::RequestDenial;

/// What `work` finds, once there is a turn at this gate. Whoever hangs up has it found all the same: until
/// then it is nobody else's turn.
pub(crate) async fn run_limited<T: Send + 'static>(
    gate: &Arc<Semaphore>,
    work: impl Future<Output = Result<T, RequestDenial>> + Send + 'static,
) -> Result<T, RequestDenial> {
    let turn = gate
        .clone()
        .acquire_owned()
        .await
        .map_err(|_| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon stops"))?;
    let working = tokio::spawn(async move {
        let _turn = turn;
        work.await
    });
    working.await.map_err(internal_error)?
}

/// What `compute` finds, on a thread for such things.
pub(crate) async fn run_blocking<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestDenial> {
    tokio::task::spawn_blocking(compute).await.map_err(internal_error)
}

/// 500.
pub(crate) fn internal_error(why: impl fmt::Display) -> RequestDenial {
    RequestDenial::new(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_hangs_up_keeps_the_turn_until_all_is_found() {
        let gate = Arc::new(Semaphore::new(1));
        let (go, goes) = tokio::sync::oneshot::channel::<()>();
        let waits = run_limited(&gate, async move { goes.await.map_err(internal_error) });
        let hung_up = tokio::time::timeout(std::time::Duration::from_millis(20), waits).await;
        assert!(hung_up.is_err());
        assert!(gate.clone().try_acquire_owned().is_err());
        go.send(()).unwrap();
        assert_eq!(run_limited(&gate, async { Ok(7) }).await.unwrap(), 7);
    }
}
