//! The route from the request to the store: permissions, refused requests, and stored rows.

use axum::extract::{FromRequest as _, Request};

use super::super::tests::administered::{daemon, proof};
use super::*;
use infill_model::EndedJob;
use infill_testkit::samples;

async fn bring(context: &Arc<DaemonContext>, who: &str, jobs: Vec<EndedJob>) -> Result<(u64, u64), u16> {
    let request = ImportEndedRequest { proof: proof(who), jobs };
    let body = serde_json::to_vec(&request).unwrap();
    let request = Request::post("/").header("content-type", "application/json").body(body.into()).unwrap();
    let answer = async {
        import_history(State(context.clone()), VerifiedRequest::from_request(request, context).await?).await
    };
    answer.await.map(|Json(taken)| (taken.taken, taken.known)).map_err(|denial| denial.status.as_u16())
}

#[tokio::test]
async fn administrators_bring_jobs_and_bring_them_again() {
    let daemon = daemon().await;
    let two = vec![samples::sample_ended_job(1), samples::sample_ended_job(2)];
    assert_eq!(bring(&daemon, "root's", two.clone()).await, Ok((2, 0)));
    let three = [two.clone(), vec![samples::sample_ended_job(3)]].concat();
    assert_eq!(bring(&daemon, "root's|infill1 history 0 n", three.clone()).await, Ok((1, 2)));
    assert_eq!(daemon.store.recent_ended_jobs(9).await.unwrap(), three);
}

#[tokio::test]
async fn nobody_else_does_nor_all_at_once() {
    let daemon = daemon().await;
    assert_eq!(bring(&daemon, "forged", vec![samples::sample_ended_job(1)]).await, Err(401));
    assert_eq!(
        bring(&daemon, "root's|infill1 control 0 n", vec![samples::sample_ended_job(1)]).await,
        Err(401)
    );
    assert_eq!(bring(&daemon, "other's", vec![samples::sample_ended_job(1)]).await, Err(403));
    assert_eq!(bring(&daemon, "root's", vec![samples::sample_ended_job(1); MAX_ENDED + 1]).await, Err(413));
    let odd = EndedJob { min_nodes: 0, ..samples::sample_ended_job(2) };
    assert_eq!(bring(&daemon, "root's", vec![samples::sample_ended_job(1), odd]).await, Err(422));
    assert_eq!(daemon.store.recent_ended_jobs(9).await.unwrap(), []);
}

#[test]
fn the_largest_jobs_fit_into_a_request() {
    let wide = || "\u{10348}".repeat(infill_model::MAX_NAME_CHARS);
    let job = EndedJob {
        user: wide(),
        account: wide(),
        name: wide(),
        command_hash: wide(),
        why: wide(),
        ..samples::sample_ended_job(1)
    };
    let jobs = vec![job; MAX_ENDED];
    let request = ImportEndedRequest { proof: proof(&"x".repeat(1000)), jobs };
    assert!(serde_json::to_vec(&request).unwrap().len() < MAX_IMPORT_BODY);
}
