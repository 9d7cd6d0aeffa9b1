//! What each user sees on a real Slurm that keeps jobs private. Readers prove who they are by MUNGE, and the
//! command line does so by itself.

use infill_api::DaemonStatus;
use serde_json::Value;

use crate::harness::{Site, Slurm, Train, http};

fn status(site: &Site, user: &str) -> DaemonStatus {
    let text = site.must(user, &["infill", "status", "--json"]);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("infill status --json as {user}: {e}: {text}"))
}

#[test]
fn on_a_private_site_users_see_their_own_jobs() {
    let slurm = Slurm::default().set("PrivateData=jobs,users").kept();
    let site = Site::on(&slurm, |s| s.set("http.read", "proof"));
    let job = Train::on("1-2").submit(&site);
    let id = job.to_string();
    let runs = |user: &str| status(&site, user).jobs.iter().any(|j| j.job.0 == job && j.nodes.len() == 2);
    site.until("alice to see her job", 40.0, || runs("alice"));

    // No route answers without a proof.
    for path in ["/v1/status", "/v1/round", "/v1/plan", "/v1/rounds", "/v1/profiles"] {
        let answer = http::get(site.port(), path).expect("an answer");
        assert_eq!(answer.status, 401, "{path}: {}", answer.body);
        assert!(!answer.body.contains("alice"), "{path}: {}", answer.body);
    }
    // The totals include jobs that the user does not see.
    let seen = status(&site, "bob");
    assert!(seen.jobs.is_empty() && seen.hidden.jobs == 1 && seen.hidden.job_nodes == 2, "{seen:?}");
    assert!(seen.nodes.len() == 8 && seen.nodes.iter().all(|n| n.job.is_none()), "{seen:?}");
    for words in [vec!["status"], vec!["jobs"], vec!["gaps"], vec!["plan"], vec!["rounds"], vec!["profiles"]]
    {
        let words: Vec<&str> = ["infill"].into_iter().chain(words).collect();
        let text = site.must("bob", &words);
        let named = text.contains("alice") || text.contains(&format!("job {id}"));
        assert!(!named, "{words:?} tells bob: {text}");
    }
    assert_eq!(
        site.exec("bob", &["infill", "explain", &id]).status.code(),
        Some(5),
        "as if it were not there"
    );
    // Its owner, Slurm's operator (the daemon's user is one too) and root.
    for user in ["alice", "root", "infill"] {
        assert!(site.must(user, &["infill", "explain", &id]).contains("alice"), "{user}");
        let round: Value = serde_json::from_str(&site.read(user, "/v1/round").body).expect("a round");
        assert!(
            round["report"]["jobs"].as_array().is_some_and(|j| j.iter().any(|v| v["job"] == job)),
            "{round}"
        );
    }
    // Everyone sees the other numbers.
    let metrics = http::get(site.port(), "/metrics").expect("metrics").body;
    assert!(metrics.contains("infill_held_nodes 2") && !metrics.contains("alice"), "{metrics}");
}

#[test]
fn without_munge_it_says_what_to_do() {
    let site = Site::with(|s| s.set("http.read", "proof"));
    // The path has only these programs.
    let status = |hide: &str, programs: &str| {
        let link = format!("for p in {programs}; do ln -s $(command -v $p) $d; done; i=$(command -v infill)");
        let script = format!(
            "d=$(mktemp -d) && chmod 755 $d && {link} && {hide} && exec runuser -u alice -- env PATH=$d $i status"
        );
        site.exec("root", &["unshare", "-m", "bash", "-c", &script])
    };
    let by_token = status("true", "scontrol id");
    assert_eq!(by_token.status.code(), Some(0), "{}", String::from_utf8_lossy(&by_token.stderr));
    let ailing = status("mount --bind /bin/false $(command -v munge)", "munge unmunge scontrol id");
    let said = String::from_utf8_lossy(&ailing.stderr);
    assert_eq!(ailing.status.code(), Some(4), "{said}");
    assert!(said.contains("Slurm uses MUNGE here, so no token is sent"), "{said}");
    let output = status("true", "id");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("munged") && said.contains("http.read"), "{said}");
}

#[test]
fn what_names_a_user_is_deleted_on_request() {
    let site = Site::acting();
    let job = Train::on("1-2").run("--profile bert").submit(&site);
    site.until_trains_on(job, 2, 40.0);
    let forget = |user: &str| {
        let out = site.exec(user, &["infill", "history", "forget", "--user", "alice"]);
        let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (out.status.code(), said)
    };
    assert_eq!(forget("alice").0, Some(4), "only administrators may");
    let (code, said) = forget("root");
    assert!(code == Some(1) && said.contains("they must end first"), "{code:?} {said}");
    site.completes(job);
    site.until("alice's job to be over", 60.0, || forget("root").0 == Some(0));
    // Times and rounds may name jobs and users by number, and only the present hour has the name.
    let names = "select count(*) from profiles where owner='alice'; select count(*) from ended_jobs where owner='alice'; \
                 select count(*) from leads where ended; select count(*) from settings where content like '%alice%'";
    let counts = site.must("infill", &["sqlite3", "-readonly", "/var/lib/infill/infill.db", names]);
    assert_eq!(counts.split_whitespace().collect::<Vec<_>>(), ["0", "0", "0", "0"]);
}
