//! Malformed input to the daemon, to an agent, and as configuration: clear errors, never a panic or an
//! action.

use serde_json::json;

use crate::harness::http::{self, Answer};
use crate::harness::{Site, Train};

fn post(site: &Site, path: &str, body: &[u8]) -> Option<Answer> {
    http::send(site.port(), "POST", path, &[("Content-Type", "application/json")], body)
}

#[track_caller]
fn assert_refused(site: &Site, path: &str, body: &[u8]) {
    let start = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
    let answer = post(site, path, body).unwrap_or_else(|| panic!("{path} gave no answer to {start}"));
    assert!((400..500).contains(&answer.status), "{path} answered {} to {start}", answer.status);
    let error = answer.json()["error"].as_str().map(str::to_owned);
    assert!(error.is_some_and(|e| !e.is_empty() && e.len() < 2000), "{path} gave no reason: {}", answer.body);
}

#[test]
fn the_daemon_refuses_nonsense_and_lives_on() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    let before = site.until_trains_on(job, 4, 30.0);
    let deep = "[".repeat(100_000);
    let deeper = format!("{}{}", r#"{"a":"#.repeat(50_000), "}".repeat(50_000));
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"{}".to_vec(),
        b"\xff\xfe\x00".to_vec(),
        b"NaN".to_vec(),
        br#"{"job":-1,"node":"n1","seen":0,"wait_secs":0}"#.to_vec(),
        br#"{"job":1e99,"node":"n1","seen":0,"wait_secs":0}"#.to_vec(),
        br#"{"job":"1","node":["n1"],"seen":null,"wait_secs":"long"}"#.to_vec(),
        br#"{"job":99999999999999999999999,"node":"n1","events":{}}"#.to_vec(),
        br#"{"credential":{"x509":"a"},"nonce":"","job":1,"role":"king","node":"n1","port":99999999,"version":1}"#.to_vec(),
        br#"{"credential":null,"nonce":null,"control":"reboot"}"#.to_vec(),
        deep.into_bytes(),
        deeper.into_bytes(),
    ];
    for path in ["/v1/agent/hello", "/v1/agent/poll", "/v1/agent/report", "/v1/control"] {
        bodies.iter().for_each(|body| assert_refused(&site, path, body));
        // 100 MB: the connection is closed long before the end.
        let huge = vec![b'"'; 100_000_000];
        if let Some(answer) = post(&site, path, &huge) {
            assert!([400, 401, 413].contains(&answer.status), "{path} answered {} to 100 MB", answer.status);
        }
    }
    let many = json!({ "job": job, "node": "n1", "events": vec!["leaving"; 100_000] });
    assert_refused(&site, "/v1/agent/report", many.to_string().as_bytes());
    for (path, status) in
        [("/v1/jobs/x/generations", 400), ("/v1/jobs/99999999999/generations", 400), ("/v1/nothing", 404)]
    {
        assert_eq!(http::get(site.port(), path).map(|a| a.status), Some(status), "{path}");
    }
    assert_eq!(http::send(site.port(), "DELETE", "/v1/status", &[], b"").map(|a| a.status), Some(405));
    for bytes in [
        &b"\r\n\r\n"[..],
        b"GET",
        b"\x16\x03\x01\x02\x00\x01",
        &[b'A'; 200_000],
        b"POST /v1/control HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ] {
        http::raw(site.port(), bytes);
    }
    site.rounds_go_by(2);
    let after = site.view(job).expect("the job");
    assert_eq!((after.generation, after.nodes.len()), (before.generation, 4), "nonsense led to an action");
    assert!(site.logged(&["panicked"]).is_empty());
    site.completes(job);
}

#[test]
fn an_agent_ignores_garbage_from_its_command() {
    let site = Site::acting();
    let job = Train::on("1-2").flags("--garbage").submit(&site);
    let before = site.until_trains_on(job, 2, 30.0);
    site.until_trains(job, 30, 30.0);
    let view = site.view(job).expect("the job");
    assert_eq!(view.generation, before.generation, "garbage led to an action");
    // Each step reports 2 samples, and the garbage at most one more that can be read (`samples=1 step=zwei`).
    let steps = site.diary(job).last_step() as f64;
    assert!(
        (0.0..=4.0 * steps + 10.0).contains(&view.samples),
        "garbage was counted: {view:?} at step {steps}"
    );
    assert!(view.loss.is_none_or(|l| (0.0..=1.0).contains(&l)), "{view:?}");
    assert!(view.step.is_some_and(|s| s <= site.diary(job).last_step() + 1), "{view:?}");
    let output = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
    assert!(!output.contains("panicked"), "{output}");
    assert!(output.lines().filter(|l| l.contains(" WARN ")).count() < 30, "the agent chatters: {output}");
    site.completes(job);
}

#[test]
fn wrong_configurations_are_refused_with_their_line() {
    let site = Site::bare();
    let check = |text: &str| {
        std::fs::write(site.cluster().dir.join("etc/wrong.toml"), text)
            .expect("cannot write the configuration");
        ["config check /etc/infill/wrong.toml", "--config /etc/infill/wrong.toml serve"].map(|line| {
            let words: Vec<&str> = ["infill"].into_iter().chain(line.split(' ')).collect();
            let output = site.exec("infill", &words);
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        })
    };
    let cases = [
        ("[daemon]\nmode = \"act\"\npol_interval_secs = 3\n", "line 3"),
        ("[deamon]\n", "line 1"),
        ("[daemon]\nmode = \"perhaps\"\n", "line 2"),
        ("[gaps]\nleave_secs = \"long\"\n", "line 2"),
        ("[planner]\nhorizon_secs = -5.0\n", "planner.horizon_secs"),
        ("[slurm]\nrest = \"gopher://x\"\n", "slurm.rest"),
        ("\u{0}\u{1}", "line 1"),
        ("[daemon", "line 1"),
    ];
    for (text, words) in cases {
        for (code, said) in check(text) {
            assert_eq!(code, Some(6), "{text:?}: {said}");
            assert!(said.contains("wrong.toml") && said.contains(words), "{text:?}: {said}");
        }
    }
}
