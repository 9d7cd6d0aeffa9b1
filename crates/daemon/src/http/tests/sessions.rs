//! How browser sessions end.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::access_control::AccessControl;
use crate::daemon_names::DaemonNames;
use crate::http::browser_sessions::check_accounts;
use crate::session_store::{AuthenticatedUser, SESSIONS_SETTING};
use infill_model::Secret;

/// The login name of the user with this credential.
fn named(credential: &str) -> &str {
    match credential {
        "owner's" => OWNER,
        "other's" => OTHER,
        other => panic!("{other}"),
    }
}

/// The secret of a browser session of this user, and a link that was not opened.
async fn opened(daemon: &TestDaemon, credential: &str) -> (String, String) {
    let link = async || {
        let body = serde_json::json!({ "credential": { "munge": credential }, "nonce": "n" });
        let (status, link) = post(daemon, paths::WEB_LINKS, None, &body).await;
        assert_eq!(status, 200, "{link}");
        link["ticket"].as_str().unwrap().to_owned()
    };
    let ticket = link().await;
    let (status, session) = open(daemon, &ticket).await;
    assert_eq!((status, &session["user"]), (200, &named(credential).into()), "{session}");
    let (status, again) = open(daemon, &ticket).await;
    assert_eq!((status, again), (401, serde_json::json!({ "error": "not proved" })), "a link is for once");
    (session["secret"].as_str().unwrap().to_owned(), link().await)
}

async fn open(daemon: &TestDaemon, ticket: &str) -> (u16, serde_json::Value) {
    post(daemon, paths::WEB_SESSIONS, None, &serde_json::json!({ "ticket": ticket })).await
}

async fn post(
    daemon: &TestDaemon,
    path: &str,
    secret: Option<&str>,
    body: &serde_json::Value,
) -> (u16, serde_json::Value) {
    let mut request = daemon.http.post(format!("{}{path}", daemon.url)).json(body);
    if let Some(secret) = secret {
        request = request.bearer_auth(secret);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

async fn reads(daemon: &TestDaemon, secret: &str) -> u16 {
    let request = daemon.http.get(format!("{}{}", daemon.url, paths::STATUS)).bearer_auth(secret);
    request.send().await.unwrap().status().as_u16()
}

/// Whether the next daemon would restore this session from the store.
async fn is_kept(daemon: &TestDaemon, secret: &str) -> bool {
    let kept = daemon.context.store.get_setting(SESSIONS_SETTING).await.unwrap().unwrap();
    let next = AccessControl::new(DaemonNames::new(&Config::default()));
    next.sessions.load(&kept, Instant::now(), now());
    next.sessions.find_user(&Secret(secret.to_owned()), Instant::now()).is_some()
}

#[tokio::test]
async fn logging_out_ends_one_session_and_no_other() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    let (mine, _) = opened(&daemon, "owner's").await;
    let (second, link) = opened(&daemon, "owner's").await;
    assert!(is_kept(&daemon, &mine).await);
    let logout = async |secret: Option<&str>| {
        post(&daemon, paths::WEB_LOGOUT, secret, &serde_json::Value::Null).await.0
    };
    for foreign in [None, Some("guessed"), Some(""), Some(link.as_str())] {
        assert_eq!(logout(foreign).await, 401, "{foreign:?}");
    }
    assert_eq!((reads(&daemon, &mine).await, logout(Some(&mine)).await), (200, 204));
    assert_eq!((reads(&daemon, &mine).await, logout(Some(&mine)).await), (401, 401));
    assert!(!is_kept(&daemon, &mine).await && is_kept(&daemon, &second).await);
    assert_eq!(reads(&daemon, &second).await, 200);
}

#[tokio::test]
async fn users_end_their_own_sessions_and_operators_those_of_others() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.keep_private(PrivateData::default());
    let revoke = async |credential: serde_json::Value, user: Option<&str>| {
        let body = serde_json::json!({ "credential": credential, "nonce": "n", "user": user });
        let (status, answer) = post(&daemon, paths::WEB_REVOKE, None, &body).await;
        (status, answer["sessions"].as_u64())
    };
    let by = |text: &str| serde_json::json!({ "munge": text });
    let (owners, owners_link) = opened(&daemon, "owner's").await;
    let (others, _) = opened(&daemon, "other's").await;
    assert_eq!(revoke(by("other's"), Some(OWNER)).await, (403, None));
    assert_eq!(revoke(by("forged"), None).await, (401, None));
    assert_eq!((reads(&daemon, &owners).await, reads(&daemon, &others).await), (200, 200));
    assert_eq!(revoke(by("other's"), Some(OTHER)).await, (200, Some(1)), "one's own, by name");
    assert_eq!((reads(&daemon, &owners).await, reads(&daemon, &others).await), (200, 401));
    assert_eq!(revoke(by("operator's"), Some(OWNER)).await, (200, Some(1)));
    assert_eq!(reads(&daemon, &owners).await, 401);
    assert!(!is_kept(&daemon, &owners).await);
    assert_eq!(open(&daemon, &owners_link).await.0, 401, "links that were not opened count no more");
    let (mine, _) = opened(&daemon, "owner's").await;
    assert_eq!(revoke(by("owner's"), None).await, (200, Some(1)));
    assert_eq!((reads(&daemon, &mine).await, revoke(by("owner's"), None).await), (401, (200, Some(0))));
    // A credential for another purpose is refused.
    let foreign = by("owner's|infill1 web 0 n");
    assert_eq!(revoke(foreign, None).await.0, 401);
}

#[tokio::test]
async fn an_operator_ends_the_sessions_of_an_account_that_is_gone() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.keep_private(PrivateData::default());
    let person = AuthenticatedUser { uid: UserId(987_654), name: Some("gone-for-good".to_owned()) };
    daemon.context.access.sessions.add_session(&Secret("gone".to_owned()), person, Instant::now());
    for (credential, status) in [("other's", 403), ("operator's", 200)] {
        let body = serde_json::json!({ "credential": { "munge": credential }, "nonce": "n", "user": "gone-for-good" });
        assert_eq!(post(&daemon, paths::WEB_REVOKE, None, &body).await.0, status, "{credential}");
    }
    assert_eq!(reads(&daemon, "gone").await, 401);
}

#[tokio::test]
async fn sessions_end_with_the_account() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    let (owners, _) = opened(&daemon, "owner's").await;
    let (others, _) = opened(&daemon, "other's").await;
    let [owner, other] = [uid_of(OWNER).await.unwrap(), uid_of(OTHER).await.unwrap()];
    let nobody_is_missing = BTreeSet::new();
    let all = check_accounts(&daemon.context, &nobody_is_missing, infill_slurm::identity::name_of).await;
    assert!(all.is_empty(), "both accounts are there: {all:?}");
    // The name service does not answer at the first check, but does at the second.
    let missing = check_accounts(&daemon.context, &nobody_is_missing, async |_| None).await;
    assert_eq!(missing, BTreeSet::from([owner, other]));
    let missing = check_accounts(&daemon.context, &missing, infill_slurm::identity::name_of).await;
    assert!(missing.is_empty());
    assert_eq!((reads(&daemon, &owners).await, reads(&daemon, &others).await), (200, 200));
    // The owner's account is missing at both checks.
    let gone = async |uid| if uid == owner { None } else { Some(OTHER.to_owned()) };
    let missing = check_accounts(&daemon.context, &nobody_is_missing, gone).await;
    assert_eq!((reads(&daemon, &owners).await, missing.len()), (200, 1));
    check_accounts(&daemon.context, &missing, gone).await;
    assert_eq!((reads(&daemon, &owners).await, reads(&daemon, &others).await), (401, 200));
    // The number of the other user belongs to someone else now. One check suffices for that.
    check_accounts(&daemon.context, &nobody_is_missing, async |_| Some("newcomer".to_owned())).await;
    assert_eq!(reads(&daemon, &others).await, 401);
}
