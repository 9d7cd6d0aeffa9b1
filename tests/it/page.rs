//! The page and the report on a real cluster: a link opens one session, which reads as its owner; what the map
//! tells agrees with accounting.

use serde_json::{Value, json};

use crate::harness::{Site, Slurm, Train, http};

/// The ticket of a link that this user asks for.
fn ticket(site: &Site, user: &str) -> String {
    let text = site.must(user, &["infill", "web"]);
    let rest = text.split_once("#ticket=").unwrap_or_else(|| panic!("no link: {text}")).1;
    rest.lines().next().unwrap_or_default().trim().to_owned()
}

fn open(site: &Site, ticket: &str, headers: &[(&str, &str)]) -> http::Answer {
    let body = json!({ "ticket": ticket }).to_string();
    let headers: Vec<(&str, &str)> =
        headers.iter().copied().chain([("content-type", "application/json")]).collect();
    http::send(site.port(), "POST", "/v1/web/sessions", &headers, body.as_bytes()).expect("an answer")
}

fn read(site: &Site, secret: &str, path: &str) -> http::Answer {
    let bearer = format!("Bearer {secret}");
    http::send(site.port(), "GET", path, &[("authorization", &bearer)], b"").expect("an answer")
}

fn clock() -> i64 {
    crate::harness::jobs::clock() as i64
}

#[test]
fn a_link_opens_one_session_which_reads_as_its_owner() {
    let slurm = Slurm::default().set("PrivateData=jobs,users");
    let site = Site::on(&slurm, |s| s.set("http.read", "proof"));
    let job = Train::on("1-2").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    let ticket = ticket(&site, "alice");
    for headers in [
        vec![("host", "evil.example"), ("sec-fetch-site", "same-origin")],
        vec![("host", "localhost"), ("origin", "http://evil.example")],
    ] {
        let refused = open(&site, &ticket, &headers).status;
        assert!(matches!(refused, 403 | 421), "{headers:?}: {refused}");
    }
    let opened = open(&site, &ticket, &[]);
    assert_eq!(opened.status, 200, "{}", opened.body);
    let session = opened.json();
    assert_eq!(session["user"], "alice");
    let secret = session["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(open(&site, &ticket, &[]).status, 401, "a link is for once");
    let status = read(&site, &secret, "/v1/status?nodes=false").json();
    assert_eq!(
        (status["jobs"][0]["job"].as_u64(), status["nodes"].as_array().map(Vec::len)),
        (Some(u64::from(job)), Some(0))
    );
    // It reads, and nothing else.
    let order = json!({ "control": "paused" });
    let answer = http::post(site.port(), "/v1/control", &order, Some(&secret)).expect("an answer");
    assert!((400..500).contains(&answer.status), "{}", answer.body);
    assert!(!site.log().contains(&secret) && !site.log().contains(&ticket), "secrets are in no log");
    // Bob's session does not show alice's job.
    let bobs = open(&site, &self::ticket(&site, "bob"), &[]).json();
    let map = read(
        &site,
        bobs["secret"].as_str().expect("a secret"),
        &format!("/v1/timeline?from={}&to={}", clock() - 600, clock()),
    );
    let codes = codes(&map.json());
    assert!(codes.contains(&6) && codes.iter().all(|code| *code <= 6), "hers is one of somebody: {codes:?}");
    let page = http::get(site.port(), "/").expect("the page");
    assert!(
        page.status == 200 && page.body.contains("page.js") && !page.body.contains("alice"),
        "{}",
        page.body
    );
}

/// What nodes were used for, as codes.
fn codes(map: &Value) -> Vec<u64> {
    let rows = map["rows"].as_array().expect("rows");
    let runs = rows.iter().flat_map(|row| row["runs"].as_array().cloned().unwrap_or_default());
    runs.map(|run| run[2].as_u64().expect("a code")).collect()
}

#[test]
fn the_map_and_the_report_agree_with_accounting() {
    let site = Site::acting();
    let begin = clock();
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 60.0);
    let main = site.main_job(20, &["--nodes=2"]);
    site.wait("the main job to start", 60.0, || site.started_at(main));
    site.until("the main job to be over", 60.0, || site.end_of(main.id, 1.0).contains("COMPLETED"));
    site.must("root", &["scancel", &job.to_string()]);
    site.until("all to be idle", 60.0, || site.nodes_of(job).is_empty());
    site.rounds_go_by(3);
    let end = clock();
    let map = site.read("alice", &format!("/v1/timeline?from={begin}&to={end}&rows=100")).json();
    assert_eq!((map["detail"].as_str(), map["nodes"].as_u64()), (Some("nodes"), Some(8)), "{map}");
    let mut secs = [0_u64; 3];
    for row in map["rows"].as_array().expect("rows") {
        for run in row["runs"].as_array().expect("runs") {
            let [from, to, code] = [0, 1, 2].map(|i| run[i].as_u64().expect("a number"));
            secs[match code {
                1 => 0,
                2..=5 => 1,
                _ => 2,
            }] += to - from;
        }
    }
    let report = site.must(
        "root",
        &["infill", "report", "--since", &begin.to_string(), "--until", &end.to_string(), "--json"],
    );
    let report: Value = serde_json::from_str(&report).expect("a report");
    let hours = |name: &str| report[name].as_f64().expect("hours") * 3600.0;
    let near = |map: u64, accounting: f64| (map as f64 - accounting).abs() <= 0.1 * accounting + 16.0;
    assert!(near(secs[0], hours("main_node_hours")), "main jobs: {secs:?} and {report}");
    assert!(near(secs[2], hours("node_hours")), "malleable ones: {secs:?} and {report}");
    assert_eq!(report["main_jobs"], 1, "{report}");
    let table = site.must("root", &["infill", "report", "--since", &begin.to_string(), "--by", "user"]);
    assert!(table.contains("alice") && table.contains("node-hours"), "{table}");
}
