//! The suite of `SlurmApi` against the real slurmrestd, over its Unix socket and over HTTP with tokens.

use std::path::PathBuf;

use infill_model::config::SlurmConfig;
use infill_model::{JobId, NodeName};
use infill_slurm::{
    RestSlurm, SlurmApi, SlurmError,
    conformance::{SuiteFixture, run_suite},
};

use crate::harness::Site;
use crate::harness::jobs::clock;

/// A held lead, a running main job on one node, a running job of three nodes in the partition, and two idle
/// nodes.
fn stage<'a>(site: &Site, submit: &'a dyn Fn(bool)) -> SuiteFixture<'a> {
    let foreign = site.main_job(600, &["--nodes=1", "--nodelist=n1"]);
    let options = ["-p", "infill", "-J", "wing:1", "--nodes=3", "--nodelist=n2,n3,n4"];
    let wide = site.sbatch("alice", &options, "sleep 600");
    let lead = site.sbatch("alice", &["-p", "infill", "--nodes=1"], "sleep 600");
    site.until("the stage to be set", 20.0, || {
        site.started_at(foreign).is_some() && site.queued(wide).is_some_and(|j| j.runs())
    });
    SuiteFixture {
        lead: JobId(lead),
        nodes: [NodeName::from("n5"), NodeName::from("n6")],
        foreign: JobId(foreign.id),
        wide: Some(JobId(wide)),
        partition: "infill".to_owned(),
        submit,
    }
}

/// Submits a job that waits, to the malleable partition or to another.
fn submit(site: &Site, malleable: bool) {
    let partition = if malleable { "infill" } else { "main" };
    site.sbatch("alice", &["-p", partition, "--hold", "--nodes=1"], "sleep 600");
}

/// `scontrol` of the cluster, for what old versions of REST lack; this process is outside.
fn scontrol(site: &Site) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = site.cluster().dir.join("run/scontrol-of-the-test");
    let minicluster = crate::harness::cluster::repository().join("slurm/minicluster/minicluster");
    let text = format!(
        "#!/bin/sh\nexec '{}' exec --user infill --dir '{}' -- scontrol \"$@\"\n",
        minicluster.display(),
        site.cluster().dir.display()
    );
    std::fs::write(&path, text).expect("cannot write the wrapper of scontrol");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .expect("cannot make it executable");
    path
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// A token of user infill's that expires in `secs`.
fn token(site: &Site, secs: u32) -> String {
    let said = site.must("root", &["scontrol", "token", "username=infill", &format!("lifespan={secs}")]);
    said.trim().strip_prefix("SLURM_JWT=").expect("a token").to_owned()
}

/// A client over HTTP; `scontrol` renews its token where that is the cluster's.
fn over_http(site: &Site, token_file: PathBuf, scontrol: PathBuf) -> RestSlurm {
    let config = SlurmConfig {
        rest: site.cluster().rest_jwt_url.clone(),
        token_file: Some(token_file),
        token_user: Some("infill".to_owned()),
        scontrol,
        ..SlurmConfig::default()
    };
    RestSlurm::new(&config).expect("a client over HTTP")
}

#[test]
fn slurmrestd_over_its_unix_socket() {
    let site = Site::bare();
    let submit = |malleable| submit(&site, malleable);
    let stage = stage(&site, &submit);
    let rest = format!("unix:{}", site.cluster().dir.join("run/host.sock").display());
    let config = SlurmConfig { rest, scontrol: scontrol(&site), ..SlurmConfig::default() };
    let slurm = RestSlurm::new(&config).expect("a client over the socket");
    block_on(run_suite(&slurm, &stage)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn slurmrestd_over_http_with_tokens() {
    let site = Site::bare();
    site.cluster().control(&["restd-jwt", "start"]);
    let submit = |malleable| submit(&site, malleable);
    let stage = stage(&site, &submit);
    let file = site.cluster().dir.join("run/token");
    std::fs::write(&file, token(&site, 600)).expect("cannot write the token");
    block_on(run_suite(&over_http(&site, file, scontrol(&site)), &stage)).unwrap_or_else(|e| panic!("{e}"));
    site.cluster().control(&["restd-jwt", "stop"]);
}

#[test]
fn tokens_are_read_again_and_bad_ones_are_an_error() {
    let site = Site::bare();
    site.cluster().control(&["restd-jwt", "start"]);
    let file = site.cluster().dir.join("run/token-of-the-test");
    let no_scontrol = || PathBuf::from("/nonexistent/scontrol");
    let missing = block_on(over_http(&site, file.clone(), no_scontrol()).rest_endpoint());
    assert!(missing.as_ref().is_err_and(|e| e.to_string().contains("token")), "{missing:?}");

    std::fs::write(&file, "no token at all").expect("cannot write the token");
    assert!(block_on(over_http(&site, file.clone(), no_scontrol()).rest_endpoint()).is_err());

    // Where nothing renews an expired token, it is refused. The running client then takes up a fresh file.
    std::fs::write(&file, token(&site, 2)).expect("cannot write the token");
    let expired = clock() + 3.0;
    site.until("the token to expire", 10.0, || clock() > expired);
    let slurm = over_http(&site, file.clone(), no_scontrol());
    let refused = block_on(slurm.read_snapshot());
    assert!(refused.is_err(), "an expired token was good: {refused:?}");
    std::fs::write(&file, token(&site, 600)).expect("cannot write the token");
    let snapshot = block_on(slurm.read_snapshot());
    assert!(snapshot.as_ref().is_ok_and(|s| s.nodes.len() == 8), "{snapshot:?}");

    // With scontrol the client renews the token itself.
    std::fs::write(&file, token(&site, 30)).expect("cannot write the token");
    let renewing = over_http(&site, file.clone(), scontrol(&site));
    assert!(block_on(renewing.read_snapshot()).is_ok());

    // Another user's token is refused.
    let alice = site.must("alice", &["scontrol", "token", "lifespan=600"]);
    std::fs::write(&file, alice.trim().trim_start_matches("SLURM_JWT=")).expect("cannot write the token");
    let foreign = over_http(&site, file, no_scontrol());
    let lead = JobId(site.sbatch("bob", &["-p", "infill", "--nodes=1"], "sleep 600"));
    let result = block_on(foreign.hold_job(lead));
    assert!(matches!(result, Err(SlurmError::Denied { .. })), "{result:?}");
    std::fs::remove_file(site.cluster().dir.join("run/token-of-the-test")).expect("the token is there");
    site.cluster().control(&["restd-jwt", "stop"]);
}
