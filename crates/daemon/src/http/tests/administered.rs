//! A daemon that root administers, for tests of administrators' requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::{DaemonContext, DaemonServices};
use crate::state::DaemonState;
use infill_api::BodyProof;
use infill_model::{Credential, Secret, UserId, clock::now, config::Config};
use infill_slurm::{
    fake::FakeSlurm,
    identity::{FakeIdentity, uid_of},
};
use infill_store::LeadStanding;

/// A daemon that knows root and a user who is not an administrator.
pub(in crate::http) async fn daemon() -> Arc<DaemonContext> {
    let other = uid_of("nobody").await.unwrap();
    let users = BTreeMap::from([("root's".to_owned(), UserId(0)), ("other's".to_owned(), other)]);
    let services = DaemonServices {
        slurm: Arc::new(FakeSlurm::new(1, "infill")),
        store: infill_store::open_store("sqlite::memory:", || ()).await.unwrap(),
        identity: Arc::new(FakeIdentity { users }),
    };
    let state = DaemonState::new(Arc::new(Config::default()), now());
    Arc::new(DaemonContext::new(services, state, LeadStanding::Alone, now()).0)
}

/// The proof of a user's request.
pub(in crate::http) fn proof(who: &str) -> BodyProof {
    let credential = Credential::Munge(Secret(who.to_owned()));
    BodyProof { credential: Some(credential), nonce: Some("n".to_owned()) }
}
