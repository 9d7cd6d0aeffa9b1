//! The page and the report on a real cluster. A link opens one session, which reads as its owner. The map
//! agrees with accounting.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::harness::{Browser, Screen, Site, Slurm, Train, http};
use infill_testkit::skips::skip_test;

/// A link that this user requests.
fn link(site: &Site, user: &str) -> String {
    let text = site.must(user, &["infill", "web"]);
    let link = text.lines().next().filter(|line| line.contains("#ticket="));
    link.unwrap_or_else(|| panic!("no link: {text}")).trim().to_owned()
}

/// The ticket of a link.
fn ticket(site: &Site, user: &str) -> String {
    link(site, user).split_once("#ticket=").expect("a ticket").1.to_owned()
}

fn open(site: &Site, ticket: &str, headers: &[(&str, &str)]) -> http::Answer {
    let body = json!({ "ticket": ticket }).to_string();
    let headers: Vec<(&str, &str)> =
        headers.iter().copied().chain([("content-type", "application/json")]).collect();
    http::send(site.port(), "POST", "/v1/web/sessions", &headers, body.as_bytes()).expect("an answer")
}

/// Shows a user's page in a separate browser.
fn shown(site: &Site, user: &str, name: &'static str, screen: Screen) -> Browser {
    let browser = Browser::open(name, screen);
    browser.go_to(&link(site, user));
    browser.until("the page to know the daemon", 20.0, &contains("#standing", "mode act"));
    browser
}

fn contains(selector: &str, words: &str) -> String {
    format!("return document.querySelector({selector:?})?.innerText.includes({words:?}) ?? false")
}

/// A script that finds this text in a cell of a job's row.
fn says(job: u32, column: usize, words: &str) -> String {
    let row = format!(
        "[...document.querySelectorAll('#jobs tbody tr')].find(r => r.cells[0].innerText === '{job}')"
    );
    format!("return {row}?.cells[{column}].innerText.startsWith({words:?}) ?? false")
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
    let slurm = Slurm::default().set("PrivateData=jobs,users").kept();
    let site = Site::on(&slurm, |s| s.set("http.read", "proof"));
    let job = Train::on("1-2").submit(&site);
    site.until("the job to have two nodes", 60.0, || site.nodes_of(job).len() == 2);
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
    // The session may read, and nothing else.
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
    assert!(
        codes.contains(&6) && codes.iter().all(|code| *code <= 6),
        "hers shows as another user's: {codes:?}"
    );
    // Sessions end when their owner says so. Others' sessions stay.
    let refused = site.exec("bob", &["infill", "web", "--revoke", "alice"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let reads = || read(&site, &secret, "/v1/status").status;
    assert_eq!(reads(), 200);
    assert_eq!(site.must("alice", &["infill", "web", "--revoke"]).trim(), "one session has ended");
    assert_eq!(reads(), 401);
    assert_eq!(site.must("root", &["infill", "web", "--revoke", "bob"]).trim(), "one session has ended");
    let page = http::get(site.port(), "/").expect("the page");
    assert!(
        page.status == 200 && page.body.contains("page.js") && !page.body.contains("alice"),
        "{}",
        page.body
    );
}

/// The use of nodes, as codes.
fn codes(map: &Value) -> Vec<u64> {
    let rows = map["rows"].as_array().expect("rows");
    let runs = rows.iter().flat_map(|row| row["runs"].as_array().cloned().unwrap_or_default());
    runs.map(|run| run[2].as_u64().expect("a code")).collect()
}

/// The status and the text of an answer over `web.socket`.
fn vouched(site: &Site, request: &str, user: Option<&str>) -> (String, String) {
    let mut stream = UnixStream::connect(site.scratch().join("web.sock")).expect("the socket");
    let user = user.map(|user| format!("X-Remote-User: {user}\r\n")).unwrap_or_default();
    let text =
        format!("{request} HTTP/1.1\r\nHost: site\r\n{user}Connection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn the_sites_web_server_names_the_reader_but_never_root() {
    let slurm = Slurm::default().set("PrivateData=jobs,users").kept();
    let site = Site::on(&slurm, |s| s.set("http.read", "proof").set("web.socket", "/scratch/web.sock"));
    let job = Train::on("1").submit(&site);
    site.until("the job to have a node", 60.0, || site.nodes_of(job).len() == 1);
    let jobs = |user| {
        let (code, body) = vouched(&site, "GET /v1/status", Some(user));
        assert_eq!(code, "200", "{body}");
        serde_json::from_str::<Value>(&body).expect("a status")["jobs"].as_array().map(Vec::len)
    };
    site.until("alice to see her job", 20.0, || jobs("alice") == Some(1));
    assert_eq!(jobs("bob"), Some(0), "hers is private");
    for user in [None, Some("root"), Some("infill"), Some("nobody-of-that-name"), Some("-u"), Some("0")] {
        assert_eq!(vouched(&site, "GET /v1/status", user).0, "401", "{user:?}");
    }
    let (code, page) = vouched(&site, "GET /", Some("alice"));
    assert!(code == "200" && page.contains("page.js"));
    for request in
        ["POST /v1/control", "POST /v1/web/links", "POST /v1/agent/hello", "POST /v1/profiles/forget"]
    {
        assert_eq!(vouched(&site, request, Some("alice")).0, "404", "{request}");
    }
    let mode = site.must("root", &["stat", "-c", "%a %U", "/scratch/web.sock"]);
    assert_eq!(mode.trim(), "660 infill");
    // The next daemon opens it again.
    site.kill_daemon();
    site.start();
    site.until("alice to see her job again", 30.0, || jobs("alice") == Some(1));
}

#[test]
fn what_happens_is_on_the_page_as_it_happens() {
    let site = Site::with(|s| s.set("http.read", "proof"));
    let browser = shown(&site, "alice", "life", Screen::DESK);
    assert!(
        !browser.run("return location.href").to_string().contains("ticket"),
        "no secret stays in the URL"
    );
    let evil = "</script><img src=x onerror=alert(1)>";
    let job = Train::on("1-4").option("--job-name=</script><img src=x onerror=alert(1)>").submit(&site);
    browser.until("the job to appear", 10.0, &says(job, 1, evil));
    browser.until("the job to grow", 60.0, &says(job, 4, "4 of 1-4"));
    let trains = || site.diary(job).all("step").iter().any(|event| event.world == 4);
    site.until("it to train on them", 60.0, trains);
    assert_eq!(browser.run("return document.querySelectorAll('table img').length"), 0);
    let main = site.main_job(30, &["--nodes=6"]);
    site.wait("the main job to start", 60.0, || site.started_at(main));
    browser.until("the job to have fewer nodes", 20.0, &says(job, 4, "2 of 1-4"));
    browser.run(&format!(
        "[...document.querySelectorAll('#jobs button')].find(b => b.innerText === '{job}').click()"
    ));
    browser.until("the job's life", 10.0, &contains("#detail-table", "Why this size"));
    browser.until("what infill explain says", 10.0, &contains("#detail-words", "sizes: 1-4 nodes; now 2"));
    browser.until("the figures", 20.0, "return document.querySelectorAll('#figures figure').length === 3");
    browser.until("the day at a glance", 30.0, &contains("#tiles", "longest wait of"));
    let tiles = browser.text("#tiles").split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["Nodes now 8", "Harvested today", "Problems None"] {
        assert!(tiles.contains(words), "{words:?}: {tiles}");
    }
    browser.until("the job's lane", 30.0, &lane_says(job, "2 nodes from"));
    browser.run("document.getElementById('changes').open = true");
    browser.until("why its size changed", 10.0, &contains("#changes-table", "\t4\t"));
    goes_back_and_finds(&browser, job);
    let elsewhere = "return performance.getEntriesByType('resource').map(e => e.name)
        .filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'))";
    assert_eq!(browser.run(elsewhere), json!([]), "asked of others");
    assert_eq!(browser.complaints(), [""; 0]);
    browser.run("console.error('heard')");
    browser.until_complains("heard");
    browser.keep_whole("shown", Screen::DESK);
    site.kill_daemon();
    browser.until("the page to say so", 20.0, &contains("#notice", "The page shows old data"));
    site.start();
    browser.until("the page to go on", 10.0, "return document.querySelector('#notice').hidden");
    browser.until("the job to be there again", 10.0, &says(job, 1, evil));
    browser.run("document.getElementById('logout').click()");
    browser.until(
        "the page to lose its session",
        10.0,
        &contains("#notice", "For a new link, run: infill web"),
    );
    let rest = browser.run("return [sessionStorage.length, document.getElementById('logout').hidden]");
    assert_eq!(rest, json!([0, true]), "nothing is left of the session");
}

/// A script that finds this text in the words of a job's lane.
fn lane_says(job: u32, words: &str) -> String {
    let lane = format!("document.querySelector('.lane[data-key=\"lane {job}\"]')");
    format!("return {lane}?.getAttribute('aria-label').includes({words:?}) ?? false")
}

/// The address has what is shown, so that links can be shared and the browser goes back. A search finds a
/// job by its name, and a node.
fn goes_back_and_finds(browser: &Browser, job: u32) {
    assert_eq!(browser.run("return location.hash"), format!("#job={job}"));
    browser.run("history.back()");
    browser.until("the job to be left", 10.0, "return document.getElementById('detail').hidden");
    browser.run("history.forward()");
    browser.until("the job again", 10.0, &contains("#detail-title", &format!("Job {job}")));
    let search = |words: &str| {
        browser.run(&format!(
            "const field = document.getElementById('query'); field.value = {words:?};
             field.dispatchEvent(new Event('input')); document.getElementById('search').requestSubmit()"
        ));
    };
    search("n8");
    browser.until("a node", 10.0, &contains("#detail-title", "Node n8"));
    browser.until("what it was used for", 10.0, &contains("#detail-figure", "Used for"));
    search("no such thing");
    browser.until("a word about that", 10.0, &contains("#notice", "Nothing here is called"));
    search("onerror");
    browser.until("the job, by its name", 10.0, &contains("#detail-title", &format!("Job {job}")));
    // A link that somebody else sent shows the same.
    let link = browser.run("return location.href").as_str().expect("a link").to_owned();
    assert!(link.contains("search=onerror") && link.contains(&format!("job={job}")), "{link}");
    browser.go_to("about:blank");
    browser.go_to(&link.replace("search=onerror", "search=n8&span=900"));
    browser.until("the job of the link", 20.0, &contains("#detail-title", &format!("Job {job}")));
    let state = "return [document.getElementById('query').value,
        document.querySelector('[data-span=\"900\"]').getAttribute('aria-pressed')]";
    assert_eq!(browser.run(state), json!(["n8", "true"]));
    browser.go_to("about:blank");
    browser.go_to(link.split('#').next().unwrap_or_default());
}

#[test]
fn the_page_is_for_all_screens_and_for_the_keyboard() {
    let site = Site::acting();
    let job = Train::on("1-2").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    let browser = shown(&site, "alice", "screens", Screen::PHONE);
    browser.until("the job", 10.0, &says(job, 4, "2 of"));
    let reach = "return document.documentElement.scrollWidth";
    for screen in [Screen::PHONE, Screen::LARGE_PHONE] {
        browser.show_on(screen);
        let found = browser.run(reach);
        assert!(found.as_u64() <= Some(u64::from(screen.width)), "it is scrolled sideways: {found}");
    }
    browser.keep_whole("phone", Screen::LARGE_PHONE);
    let paper = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(paper);
    browser.show_on(Screen { dark: true, ..Screen::DESK });
    assert_ne!(browser.run(paper), light);
    browser.keep_whole("dark", Screen { dark: true, ..Screen::DESK });
    // The keyboard alone reaches the map and the details of the job.
    let focused = "return document.activeElement.id || document.activeElement.innerText";
    let reached: Vec<String> = (0..40)
        .map(|_| {
            browser.press(&["Tab"]);
            browser.run(focused).as_str().unwrap_or_default().to_owned()
        })
        .collect();
    assert!(reached.contains(&"map".to_owned()) && reached.contains(&job.to_string()), "{reached:?}");
    browser.run("document.getElementById('map').focus()");
    let words = browser.text("#map-words");
    browser.press(&["["]);
    browser.until(
        "a shorter stretch",
        10.0,
        &format!("return document.querySelector('#map-words').innerText !== {words:?}"),
    );
    browser.run(&format!(
        "[...document.querySelectorAll('#jobs button')].find(b => b.innerText === '{job}').focus()"
    ));
    browser.press(&["Enter"]);
    browser.until("the job's words", 10.0, &contains("#detail-title", &format!("Job {job}")));
    assert_eq!(browser.run(focused), "detail-title");
    let pdf = browser.command("Page.printToPDF", &json!({ "preferCSSPageSize": true }));
    assert!(pdf["data"].as_str().is_some_and(|data| data.len() > 10_000), "nothing to print");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_page_is_accessible() {
    let axe = std::env::var_os("INFILL_AXE").and_then(|path| std::fs::read_to_string(path).ok());
    let Some(axe) = axe else {
        return skip_test("no axe-core; INFILL_AXE names its file (tests/run.sh fetches it)");
    };
    let site = Site::acting();
    let job = Train::on("1-2").submit(&site);
    site.until_trains_on(job, 2, 60.0);
    let browser = shown(&site, "alice", "axe", Screen::DESK);
    browser.until("the job", 10.0, &says(job, 4, "2 of"));
    browser.run(&format!(
        "[...document.querySelectorAll('#jobs button')].find(b => b.innerText === '{job}').click()"
    ));
    browser.until("the job's life", 10.0, &contains("#detail-table", "Why this size"));
    browser.until("the figures", 20.0, "return document.querySelectorAll('#figures figure').length === 3");
    for dark in [false, true] {
        browser.show_on(Screen { dark, ..Screen::DESK });
        let script = "return axe.run().then((found) => found.violations
            .filter((v) => ['serious', 'critical'].includes(v.impact))
            .map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).join(', ')}`))";
        let found = browser.run(&format!("{axe};\n{script}"));
        assert_eq!(found, json!([]), "dark: {dark}");
    }
}

#[test]
fn the_map_and_the_report_agree_with_accounting() {
    let site = Site::acting();
    let begin = clock();
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 60.0);
    let main = site.main_job(20, &["--nodes=2"]);
    site.wait("the main job to start", 60.0, || site.started_at(main));
    assert!(site.end_of(main.id, 60.0).contains("COMPLETED"));
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
    site.must("root", &["infill", "report", "--since", &begin.to_string(), "--html", "/scratch/report.html"]);
    let browser = Browser::open("report", Screen::DESK);
    browser.go_to(&format!("file://{}", site.scratch().join("report.html").display()));
    assert!(
        browser.text("body").contains("additional nodes would have given the same"),
        "{}",
        browser.text("body")
    );
    let pdf =
        browser.command("Page.printToPDF", &json!({ "preferCSSPageSize": true, "printBackground": true }));
    let pdf = base64::engine::general_purpose::STANDARD.decode(pdf["data"].as_str().expect("a document"));
    let pdf = String::from_utf8_lossy(&pdf.expect("base64")).into_owned();
    let sheets = pdf.matches("/Type /Page").count() - pdf.matches("/Type /Pages").count();
    assert_eq!(sheets, 1, "what a director asks is on one sheet");
    browser.keep("shown");
}
