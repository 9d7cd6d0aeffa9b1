//! `infill observe` as an ordinary user: no daemon, no configuration, and nothing changed.

use serde_json::Value;

use crate::harness::Site;

/// The last report of what `infill observe --json` printed.
fn last_report(said: &str) -> Value {
    let line = said.trim().lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {said}"))
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key}: {report}"))
}

/// Somebody whom Slurm's accounting does not know.
const NOBODY: [&str; 6] = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];

/// Observes as a user without an account.
fn observe(site: &Site, words: &[&str]) -> String {
    site.must("root", &[&NOBODY[..], &["infill", "observe", "--every", "1"], words].concat())
}

/// Observes as a user without an account, and returns why that fails.
fn refused(site: &Site, words: &[&str]) -> String {
    let out = site.exec("root", &[&NOBODY[..], &["infill", "observe"], words].concat());
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn private_restd_count(site: &Site) -> usize {
    let of_observe =
        |p: &&crate::harness::processes::Process| p.args.iter().any(|arg| arg.contains("infill-observe"));
    site.processes().iter().filter(of_observe).count()
}

#[test]
fn an_ordinary_user_sees_what_would_have_been_harvested() {
    let site = Site::bare();
    let busy = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to start", 30.0, || site.started_at(busy).is_some());
    for (via, words) in [("rest", ["-p", "main"]), ("commands", ["--via", "commands"])] {
        let report = last_report(&observe(&site, &[&words[..], &["--for", "12", "--json"]].concat()));
        assert_eq!(report["via"], via);
        let nodes = number(&report, "nodes");
        let idle_share =
            number(&report, "idle_node_hours") * 3600.0 / number(&report, "observed_secs") / nodes;
        assert!((idle_share - (nodes - 4.0) / nodes).abs() < 0.15, "{report}");
        assert!(number(&report, "held_node_hours") > 0.5 * number(&report, "idle_node_hours"), "{report}");
        assert_eq!(number(&report, "late_main_jobs"), 0.0);
    }
    assert_eq!(private_restd_count(&site), 0, "its slurmrestd is still there");
    // Where no slurmrestd can be started, Slurm's commands do.
    let absent = ["--slurmrestd", "/no/such/program", "--for", "4"];
    let text = observe(&site, &absent);
    assert!(text.contains("by Slurm's commands") && text.contains("watch for a day"), "{text}");
    let said = refused(&site, &["--via", "rest", "--slurmrestd", "/no/such/program"]);
    assert!(said.contains("name a running one with --rest"), "{said}");
    let said = refused(&site, &["--nodes", "m[1-2]"]);
    assert!(said.contains("Slurm shows none of these nodes"), "{said}");
    assert!(site.queue().iter().all(|job| job.id == busy.id), "something was submitted");
}

#[test]
fn an_observation_outlasts_its_slurmrestd_and_gives_up_with_a_report() {
    let site = Site::bare();
    // Observes for a while, and kills the slurmrestd that it has started.
    let run = |words: &str| {
        let script =
            format!("infill observe --every 1 --via rest {words} & sleep 4; pkill -KILL -P $!; wait $!");
        site.exec("root", &[&NOBODY[..], &["bash", "-c", &script][..]].concat())
    };
    // It is started again once looks have failed for 30 s.
    let out = run("--for 45 --json");
    let report = last_report(&String::from_utf8_lossy(&out.stdout));
    assert!(number(&report, "observed_secs") > 20.0, "{out:?}");
    assert_eq!(private_restd_count(&site), 0, "its slurmrestd is still there");
    let out = run("--give-up 3");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("Slurm has not answered for"), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("observed  "), "{out:?}");
}

#[test]
fn a_main_job_that_comes_is_named_with_its_node_and_its_wait() {
    let site = Site::bare();
    let page = "/scratch/observed.html";
    let words = ["--nodes", "n[1-3]", "--html", page, "--events", "--report", "5", "--for", "25"];
    // It comes while the nodes are watched, and nothing announces it for long.
    let job = site.main_job(3, &["--nodelist=n2", "--begin=now+12"]);
    let text = observe(&site, &[&["--via", "commands"], &words[..]].concat());
    let event = format!("node n2, main job {}, not planned, scales-", job.id);
    assert!(text.lines().any(|line| line.starts_with("held ") && line.contains(&event)), "{text}");
    assert_eq!(text.matches("held ").count(), 1, "an event is printed once: {text}");
    assert!(text.contains(", 3 nodes, "), "{text}");
    let html = site.must("root", &["cat", page]);
    assert!(html.contains(&format!("<td>n2</td><td>{}</td><td>no</td>", job.id)), "{html}");
    // Ctrl-C gives a last report.
    let script = "infill observe --every 1 --json & sleep 6; kill -INT $!; wait $!";
    let script = format!("set -m; {script}");
    let report = last_report(&site.must("root", &[&NOBODY[..], &["bash", "-c", &script][..]].concat()));
    assert!(number(&report, "observed_secs") > 1.0, "{report}");
}
