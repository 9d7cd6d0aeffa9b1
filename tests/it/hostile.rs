//! What an ordinary user can do to others: at the daemon's port while the daemon is away, and between the
//! daemon and its clients.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{Settings, Site, Train, http};

/// Bob's program, which ends with the test.
struct Bob<'a> {
    site: &'a Site,
    child: Child,
    log: &'static str,
}

impl Bob<'_> {
    fn starts<'a>(site: &'a Site, kind: &str, port: u16, rest: &[&str]) -> Bob<'a> {
        let log = "/scratch/heard.json";
        site.must("bob", &["sh", "-c", &format!("umask 022; : >{log}")]);
        let port = port.to_string();
        let mut words = vec!["python3", "/opt/infill/tests/it/hostile.py", kind, &port, log];
        words.extend(rest);
        let mut command = site.cluster().command("bob", &words);
        let child = command.stdin(Stdio::null()).spawn().expect("nsenter cannot be run");
        Bob { site, child, log }
    }

    /// The requests that bob was sent and has answered: `path`, `headers`, `body`, `status`, `answer`,
    /// `answer_headers`.
    fn heard(&self) -> Vec<Value> {
        let path = self.site.cluster().dir.join(self.log.trim_start_matches('/'));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// How often bob was asked for this.
    fn asked(&self, path: &str) -> usize {
        self.heard().iter().filter(|said| said["path"] == path).count()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Bob<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends everything that bob has received to the daemon once more. It must give bob no advantage: nothing of
/// a session is accepted twice, and the answer to a hello is sealed for another process.
fn assert_worth_nothing(site: &Site, heard: &[Value]) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for said in heard.iter().filter(|said| text(&said["path"]).starts_with("/v1/")) {
        let sent: Vec<(String, String)> = said["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.to_ascii_lowercase(), text(value)))
            .filter(|(name, _)| {
                name.starts_with("infill-") || name == "authorization" || name == "content-type"
            })
            .collect();
        let bearer = sent.iter().find(|(name, value)| name == "authorization" && value.starts_with("Bearer"));
        assert_eq!(bearer, None, "a secret that anyone can use went to bob");
        let sent: Vec<(&str, &str)> = sent.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let path = text(&said["path"]);
        let body = text(&said["body"]);
        let whole = http::whole(site.port(), &text(&said["method"]), &path, &sent, body.as_bytes());
        let whole = whole.expect("an answer");
        let (head, answer) = whole.split_once("\r\n\r\n").expect("an answer");
        let refused = head.starts_with("HTTP/1.1 401") || head.starts_with("HTTP/1.1 421");
        let seal = head.lines().find_map(|line| line.strip_prefix("infill-seal: munge "));
        match seal {
            Some(seal) => {
                let opened = site.exec_with("bob", &["unmunge"], seal);
                assert!(!opened.status.success(), "bob opens what is sealed: {path}");
                assert!(!answer.contains("secret"), "{path} brings a secret: {answer}");
            }
            None => assert!(refused, "{path} is taken once more: {head}"),
        }
    }
}

#[test]
fn a_stranger_at_the_daemons_port_ends_no_job_and_learns_nothing_useful() {
    let site = Site::acting();
    let main = site.main_job(600, &["--nodes=2"]);
    site.starts_within(main, 20.0);
    let job = Train::on("1-8").submit(&site);
    site.until_trains_on(job, 6, 60.0);
    assert_eq!(site.stop_daemon(), Some(0));
    let alice = site.must("alice", &["id", "-u"]);
    let mut bob = Bob::starts(&site, "impostor", site.port(), &[alice.trim()]);
    let before = site.diary(job).last_step();
    // Three polls of each of six sessions, then hellos. Some 25 s: agents ask rarely where no daemon proves
    // itself.
    site.until("bob to get polls and hellos", 60.0, || {
        bob.asked("/v1/agent/poll") >= 18 && bob.asked("/v1/agent/hello") >= 24
    });
    assert!(site.queued(job).is_some_and(|j| j.runs()), "bob has ended alice's job");
    assert!(site.diary(job).last_step() > before);
    site.until_trains(job, 10, 20.0);

    for (user, words) in
        [("alice", ["infill", "web"]), ("alice", ["infill", "jobs"]), ("root", ["infill", "pause"])]
    {
        let output = site.exec(user, &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{words:?}: {said}");
        assert!(said.contains("does not prove that it is infill's daemon"), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?} prints what bob says");
    }
    let heard = bob.heard();
    assert!(heard.iter().all(|said| said["path"] != "/v1/control"), "bob got an order");
    bob.end();
    site.start();
    assert_worth_nothing(&site, &heard);
    assert_eq!(
        site.status().expect("a status").control,
        infill_model::ControlState::Normal,
        "bob has paused it"
    );
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 8, 60.0);
    let diary = site.diary(job);
    assert!(diary.lost().iter().all(|lost| *lost == 0), "{:?}", diary.lost());
    site.completes(job);
}

#[test]
fn a_relay_can_neither_use_nor_alter_messages() {
    let site = Site::bare();
    let relay = site.port() + 2;
    site.configure(&Settings::quick(site.port()).set("agent.url", format!("http://127.0.0.1:{relay}")));
    site.start();
    let port = site.port().to_string();
    let switch = "/scratch/alter";
    let bob = Bob::starts(&site, "relay", relay, &[&port, switch]);
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 60.0);
    site.must("bob", &["touch", switch]);
    let polls = bob.asked("/v1/agent/poll");
    site.until("bob to alter some orders", 60.0, || bob.asked("/v1/agent/poll") >= polls + 8);
    site.until_trains(job, 10, 20.0);
    assert!(site.queued(job).is_some_and(|j| j.runs()), "bob has ended alice's job");
    let seals: Vec<String> = bob
        .heard()
        .iter()
        .filter_map(|said| {
            said["answer_headers"]["infill-seal"].as_str()?.strip_prefix("munge ").map(str::to_owned)
        })
        .collect();
    assert!(seals.len() >= 4, "{} hellos were passed on", seals.len());
    for seal in &seals {
        assert!(!site.exec_with("bob", &["unmunge"], seal).status.success(), "bob opens what is alice's");
    }
    assert_worth_nothing(&site, &bob.heard());
    site.must("bob", &["rm", switch]);
    site.until_trains(job, 10, 40.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
    site.completes(job);
}

#[test]
fn a_hello_that_is_for_another_daemon_is_refused_and_the_next_one_asked() {
    let site = Site::bare();
    let relay = site.port() + 2;
    let urls = format!("http://127.0.0.1:{relay},http://127.0.0.1:{}", site.port());
    site.configure(&Settings::quick(site.port()).set("agent.url", urls));
    site.start();
    let port = site.port().to_string();
    let bob = Bob::starts(&site, "relay", relay, &[&port, "/scratch/never"]);
    site.until("bob to listen", 10.0, || http::get(relay, "/healthz").is_some());
    let job = Train::on("1-2").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    let heard = bob.heard();
    let hellos: Vec<&Value> = heard.iter().filter(|said| said["path"] == "/v1/agent/hello").collect();
    assert!(!hellos.is_empty(), "no agent has asked bob");
    for hello in hellos {
        assert_eq!(hello["status"], 421, "{hello}");
        assert!(hello["answer"].as_str().is_some_and(|text| text.contains("daemon.names")), "{hello}");
    }
    assert_eq!(bob.asked("/v1/agent/poll"), 0);
    site.completes(job);
}
