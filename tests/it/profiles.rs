//! Profiles as users and administrators use them: listed, exported, deleted, imported again.

use infill_api::ProfilesView;
use serde_json::Value;

use crate::harness::{Site, Train};

/// A job name that no other test uses.
const NAME: &str = "carried";

fn exit(site: &Site, user: &str, words: &[&str]) -> Option<i32> {
    let words: Vec<&str> = ["infill", "profiles"].iter().chain(words).copied().collect();
    site.exec(user, &words).status.code()
}

fn listed(site: &Site, words: &[&str]) -> ProfilesView {
    let words: Vec<&str> = ["infill", "profiles", "list", "--json"].iter().chain(words).copied().collect();
    serde_json::from_str(&site.must("bob", &words)).expect("a document of profiles")
}

#[test]
fn a_job_is_measured_and_its_profile_is_carried_around() {
    let site = Site::acting();
    let job = Train::on("1-4").run(&format!("--profile {NAME}")).submit(&site);
    site.until_trains_on(job, 4, 30.0);
    site.until("a size of the job to be measured", 90.0, || {
        listed(&site, &["-n", NAME, "-u", "alice"]).profiles.iter().any(|p| !p.profile.points.is_empty())
    });
    site.completes(job);
    let shown = site.must("bob", &["infill", "profiles", "show", NAME]);
    assert!(shown.contains(&format!("{NAME} of alice on ")) && shown.contains('●'), "{shown}");
    assert!(site.must("bob", &["infill", "profiles", "show", NAME, "--svg", "-"]).starts_with("<svg"));
    // A row is stored when a part of the job has ended.
    let history = ["infill", "profiles", "show", NAME, "-u", "alice", "--history", "--json"];
    site.until("the measurements to be stored", 30.0, || {
        let history: Value = serde_json::from_str(&site.must("bob", &history)).expect("a document");
        history["histories"][0]["rows"].as_array().is_some_and(|rows| rows.iter().any(|r| r["job"] == job))
    });

    let exported = site.must("alice", &["infill", "profiles", "export", "-n", NAME, "--me"]);
    assert_eq!(exit(&site, "bob", &["forget", "-n", NAME, "-u", "alice"]), Some(4), "bob may not");
    assert_eq!(exit(&site, "alice", &["forget", "-n", NAME]), Some(4), "alice may not for all users");
    assert_eq!(exit(&site, "alice", &["forget", "-n", NAME, "--me"]), Some(0));
    assert_eq!(exit(&site, "alice", &["show", NAME]), Some(5), "it is forgotten");

    let import = ["infill", "profiles", "import", "-"];
    assert_eq!(site.exec_with("bob", &import, &exported).status.code(), Some(4), "it is not bob's");
    assert_eq!(site.exec_with("alice", &import, "{}").status.code(), Some(7), "no export");
    let taken = site.exec_with("alice", &import, &exported);
    assert_eq!(taken.status.code(), Some(0), "{taken:?}");
    let back = listed(&site, &["-n", NAME]);
    assert!(back.profiles.iter().any(|p| !p.profile.points.is_empty()), "{back:?}");
    assert_eq!(exit(&site, "root", &["forget", "-n", NAME]), Some(0), "administrators may");
    assert_eq!(listed(&site, &["-n", NAME]).profiles.len(), 0);
}
