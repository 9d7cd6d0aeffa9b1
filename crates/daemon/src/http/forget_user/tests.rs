//! The route from the request to store and memory.

use axum::extract::{FromRequest as _, Request};

use super::super::tests::administered::{daemon, proof};
use super::*;
use crate::control_orders::{self, ControlOrder};
use infill_api::ControlOrigin;
use infill_model::{ControlState, EndedJob};
use infill_testkit::samples;

async fn forget(context: &Arc<DaemonContext>, who: &str, user: &str) -> Result<ForgottenUser, u16> {
    let request = ForgetUserRequest { proof: proof(who), user: user.to_owned() };
    let body = serde_json::to_vec(&request).unwrap();
    let request = Request::post("/").header("content-type", "application/json").body(body.into()).unwrap();
    let answer = async {
        forget_user(State(context.clone()), VerifiedRequest::from_request(request, context).await?).await
    };
    answer.await.map(|Json(forgotten)| forgotten).map_err(|denial| denial.status.as_u16())
}

#[tokio::test]
async fn an_administrator_forgets_a_user_in_store_and_memory() {
    let daemon = daemon().await;
    let job = |id, user: &str| EndedJob { user: user.to_owned(), ..samples::sample_ended_job(id) };
    daemon.store.add_ended_jobs(&[job(1, "gone"), job(2, "stays")]).await.unwrap();
    // A job that waits for the store must not come back later.
    daemon.lock_state().write_queue.add_ended_job(job(3, "gone"));
    daemon.store.put_profiles(&[samples::sample_profile("gone", "bert", "cpu")]).await.unwrap();
    daemon.lock_state().round_state.priorities_mut().usage.load(r#"{"used_secs":{"gone":9.0},"at":1}"#);
    let forgotten = forget(&daemon, "root's", "gone").await.unwrap();
    assert_eq!((forgotten.ended_jobs, forgotten.profiles, forgotten.has_account), (2, 1, false));
    write_history(&daemon).await.unwrap();
    let left = daemon.store.recent_ended_jobs(9).await.unwrap();
    assert_eq!(left.iter().map(|job| job.user.as_str()).collect::<Vec<_>>(), ["stays"]);
    assert_eq!(daemon.lock_state().round_state.priorities_mut().usage.used_by("gone"), 0.0);
    let usage = daemon.store.get_setting(crate::history_writer::USAGE_SETTING).await.unwrap().unwrap();
    assert!(!usage.contains("gone"), "{usage}");
}

#[tokio::test]
async fn an_order_stays_without_the_name_of_who_gave_it() {
    let daemon = daemon().await;
    let origin = ControlOrigin { at: now(), by: Some("gone".to_owned()), automatic: false };
    let order = ControlOrder { state: ControlState::Paused, origin: Some(origin) };
    daemon.lock_state().set_control(order.clone());
    order_storage::store_order_in_force(&daemon).await.unwrap();
    forget(&daemon, "root's", "stays").await.unwrap();
    assert_eq!(daemon.lock_state().control, order);
    forget(&daemon, "root's", "gone").await.unwrap();
    let stored = control_orders::restore_order(daemon.store.as_ref()).await.unwrap();
    assert_eq!(stored, daemon.lock_state().control);
    assert_eq!((stored.state, stored.origin.unwrap().by), (ControlState::Paused, None));
}

#[tokio::test]
async fn only_administrators_do_and_a_name_is_needed() {
    let daemon = daemon().await;
    daemon.store.add_ended_jobs(&[samples::sample_ended_job(1)]).await.unwrap();
    let user = samples::sample_ended_job(1).user;
    assert_eq!(forget(&daemon, "other's", &user).await, Err(403));
    assert_eq!(forget(&daemon, "forged", &user).await, Err(401));
    assert_eq!(forget(&daemon, "root's", "").await, Err(422));
    assert_eq!(forget(&daemon, "root's", &"x".repeat(MAX_NAME_CHARS + 1)).await, Err(422));
    assert_eq!(daemon.store.recent_ended_jobs(9).await.unwrap().len(), 1);
}
