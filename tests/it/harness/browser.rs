//! A real browser, without a screen. When a test fails, target/browser keeps a picture, the page and its
//! console output.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use fantoccini::error::CmdError;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::wait::{self, PATIENCE};

/// Time limit for the driver's answer, seconds.
const START_SECS: f64 = 20.0;

/// Time that a page has to draw itself again on another screen.
const REDRAW: Duration = Duration::from_millis(700);

/// Largest height of a picture, pixels.
const MAX_PICTURE: u64 = 4000;

/// A browser under the control of a test.
#[derive(Debug)]
pub struct Browser {
    name: &'static str,
    driver: Client,
    runtime: Runtime,
    /// The driver, which ends after the browser.
    _driven: Driver,
    /// The browser's profile, and the log of its console.
    dir: TempDir,
}

/// How a page is displayed.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Width, pixels.
    pub width: u32,
    /// Height, pixels.
    pub height: u32,
    /// Whether the reader prefers a dark page.
    pub dark: bool,
}

impl Screen {
    /// The screen of a desktop.
    pub const DESK: Screen = Screen { width: 1280, height: 900, dark: false };
    /// The screen of a phone.
    pub const PHONE: Screen = Screen { width: 360, height: 740, dark: false };
    /// The screen of a larger phone.
    pub const LARGE_PHONE: Screen = Screen { width: 390, height: 844, dark: false };
}

impl Browser {
    /// A fresh browser without any memory. `name` names the files that are kept of it.
    pub fn open(name: &'static str, screen: Screen) -> Browser {
        let dir = tempfile::tempdir().expect("no directory for a browser");
        let log = File::create(dir.path().join("driver.log")).expect("cannot log what the browser says");
        let port = free_port();
        let driven = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("two ends of a log"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .map(Driver)
            .expect("chromedriver (Debian's chromium-driver) is not installed");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("no runtime");
        let url = format!("http://127.0.0.1:{port}");
        let capabilities = capabilities(&dir);
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let driver = wait::look(START_SECS * PATIENCE, || runtime.block_on(builder.connect(&url)).ok())
            .expect("the browser does not start");
        let browser = Browser { name, driver, runtime, _driven: driven, dir };
        browser.show_on(screen);
        browser
    }

    /// Shows pages as on this screen.
    pub fn show_on(&self, Screen { width, height, dark }: Screen) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = json!({ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } });
        self.command("Emulation.setEmulatedMedia", &json!({ "features": [scheme] }));
    }

    /// A command of the browser's own protocol.
    pub fn command(&self, name: &str, parameters: &Value) -> Value {
        let command = OfChrome(json!({ "cmd": name, "params": parameters }));
        let answer = self.runtime.block_on(self.driver.issue_cmd(command));
        answer.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Loads a page.
    pub fn go_to(&self, url: &str) {
        self.runtime.block_on(self.driver.goto(url)).unwrap_or_else(|e| panic!("{url}: {e}"));
    }

    /// The result of a script in the page.
    pub fn run(&self, script: &str) -> Value {
        let answer = self.runtime.block_on(self.driver.execute(script, Vec::new()));
        answer.unwrap_or_else(|e: CmdError| panic!("{script}: {e}"))
    }

    /// The text of the first element that matches a selector; empty if none does.
    pub fn text(&self, selector: &str) -> String {
        let text = self.run(&format!("return document.querySelector({selector:?})?.innerText ?? ''"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a script returns true in the page.
    pub fn until(&self, what: &str, secs: f64, script: &str) {
        wait::look(secs * PATIENCE, || (self.run(script) == Value::Bool(true)).then_some(()))
            .unwrap_or_else(|| panic!("waited {secs} s for {what}"));
    }

    /// Presses keys, by their names: `Tab`, `Enter`, `ArrowLeft`.
    pub fn press(&self, keys: &[&str]) {
        for key in keys {
            for kind in ["keyDown", "keyUp"] {
                let text = if *key == "Enter" { "\r" } else { "" };
                self.command("Input.dispatchKeyEvent", &json!({ "type": kind, "key": key, "text": text }));
            }
        }
    }

    /// Lines of its console that are more than notes: errors, and violations of the page's content policy.
    pub fn complaints(&self) -> Vec<String> {
        let log =
            std::fs::read_to_string(self.dir.path().join("profile/chrome_debug.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect()
    }

    /// Waits until its console shows this text.
    pub fn until_complains(&self, words: &str) {
        wait::look(10.0 * PATIENCE, || {
            self.complaints().iter().any(|line| line.contains(words)).then_some(())
        })
        .unwrap_or_else(|| panic!("the console did not say {words:?}"));
    }

    /// Stores a picture of the whole page, as on this screen, however long it is.
    pub fn keep_whole(&self, what: &str, screen: Screen) {
        self.show_on(screen);
        std::thread::sleep(REDRAW);
        let height = self.run("return document.documentElement.scrollHeight");
        let height = height.as_u64().map_or(screen.height, |pixels| pixels.min(MAX_PICTURE) as u32);
        let clip = json!({ "x": 0, "y": 0, "width": screen.width, "height": height, "scale": 1 });
        let wanted = json!({ "captureBeyondViewport": true, "clip": clip });
        let picture = self.command("Page.captureScreenshot", &wanted);
        self.keep(what);
        let picture =
            picture["data"].as_str().map(|data| base64::engine::general_purpose::STANDARD.decode(data));
        if let Some(Ok(picture)) = picture {
            let _ = std::fs::write(self.kept_path(what, "png"), picture);
        }
    }

    /// Stores a picture and the present page.
    pub fn keep(&self, what: &str) {
        let path = |end: &str| self.kept_path(what, end);
        let _ = path("png").parent().map(std::fs::create_dir_all);
        if let Ok(picture) = self.runtime.block_on(self.driver.screenshot()) {
            let _ = std::fs::write(path("png"), picture);
        }
        if let Ok(source) = self.runtime.block_on(self.driver.source()) {
            let _ = std::fs::write(path("html"), source);
        }
        let _ = std::fs::copy(self.dir.path().join("profile/chrome_debug.log"), path("console"));
    }
}

impl Browser {
    fn kept_path(&self, what: &str, end: &str) -> PathBuf {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/browser");
        dir.join(format!("{}-{what}.{end}", self.name))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep("failed");
        }
        let _ = self.runtime.block_on(self.driver.clone().close());
    }
}

/// Ends chromedriver and all processes that it has started.
#[derive(Debug)]
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let group = -i32::try_from(self.0.id()).expect("a process");
        // SAFETY: kill only sends a signal, to the group that was made for it.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// A command of Chrome's own protocol.
#[derive(Debug)]
struct OfChrome(Value);

impl WebDriverCompatibleCommand for OfChrome {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.0.to_string()))
    }
}

/// A client that reaches this machine only.
fn capabilities(dir: &TempDir) -> Capabilities {
    let profile = format!("--user-data-dir={}", dir.path().join("profile").display());
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--enable-logging",
        "--v=0",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
        &profile,
    ];
    let options = json!({ "args": arguments });
    Capabilities::from_iter([
        ("browserName".to_owned(), "chrome".into()),
        ("goog:chromeOptions".to_owned(), options),
    ])
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("no port");
    listener.local_addr().expect("an address").port()
}
