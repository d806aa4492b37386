//! Chromium through the WebDriver protocol: HTTP/1.1 with JSON to chromedriver, which listens on this machine only.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use graphsieve_kernels::testing::harness::Requirement;
use serde_json::{Value, json};

use crate::support::http::Connection;

/// Key under which the protocol hides the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page; it ends with this value.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Fresh, so nothing of another test or of the user is in it.
    _profile: tempfile::TempDir,
}

impl Browser {
    pub const REQUIREMENT: Requirement = Requirement {
        name: "a browser",
        demand: "GRAPHSIEVE_REQUIRE_BROWSER",
        probe: || {
            let version = Command::new("chromedriver").arg("--version").stdout(Stdio::null()).status();
            version
                .map(drop)
                .map_err(|refused| format!("chromedriver: {refused} (install chromium and chromium-driver)"))
        },
    };

    /// A browser that shows a file.
    pub fn show(page: &Path) -> Self {
        Self::open(&format!("file://{}", page.canonicalize().unwrap().display()))
    }

    /// A browser at an address.
    pub fn open(address: &str) -> Self {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = driver.unwrap();
        let mut said = BufReader::new(driver.stdout.take().unwrap());
        let mut line = String::new();
        let port = loop {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "chromedriver ended before it listened");
            let port = line.trim().strip_suffix('.').and_then(|line| line.rsplit_once("on port "));
            if let Some(port) = port.and_then(|(_, port)| port.parse().ok()) {
                break port;
            }
        };
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let data = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &data,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let session = browser.ask("POST", "/session", &wanted);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser.command("url", json!({"url": address}));
        browser
    }

    /// The value of JavaScript (`return …`), which has `arguments`.
    pub fn script(&self, script: &str) -> Value {
        self.command("execute/sync", json!({"script": script, "args": []}))
    }

    /// Clicks where the element is, as a hand would: what is hidden or covered cannot be clicked.
    pub fn click(&self, selector: &str) {
        let id = self.element(selector);
        self.command(&format!("element/{id}/click"), json!({}));
    }

    pub fn type_into(&self, selector: &str, text: &str) {
        let id = self.element(selector);
        self.command(&format!("element/{id}/value"), json!({"text": text}));
    }

    /// Whether an element can be seen.
    pub fn sees(&self, selector: &str) -> bool {
        let id = self.element(selector);
        self.ask("GET", &format!("/session/{}/element/{id}/displayed", self.session), &Value::Null).as_bool().unwrap()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.command("element", json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// A command of the browser's own protocol.
    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// Width and height of the window in pixels of the page.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size);
    }

    /// What the system of the reader prefers, e.g. `prefers-color-scheme` = `dark`.
    pub fn prefer(&self, name: &str, value: &str) {
        self.devtools("Emulation.setEmulatedMedia", json!({"features": [{"name": name, "value": value}]}));
    }

    /// Entries of a log since the last call: `browser` is the console, `performance` the requests.
    pub fn log(&self, kind: &str) -> Vec<Value> {
        match self.command("se/log", json!({"type": kind})) {
            Value::Array(entries) => entries,
            other => panic!("{other}"),
        }
    }

    /// Addresses that the page asked for.
    pub fn requests(&self) -> Vec<String> {
        let address = |entry: Value| -> Option<String> {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &message["message"];
            // The browser's own first page asks for much.
            let by_page = event["params"]["documentURL"]
                .as_str()
                .is_some_and(|page| page.starts_with("file:") || page.starts_with("http:"));
            let asked = by_page && event["method"] == "Network.requestWillBeSent";
            asked.then(|| event["params"]["request"]["url"].as_str().map(str::to_owned)).flatten()
        };
        self.log("performance").into_iter().filter_map(address).collect()
    }

    fn command(&self, path: &str, body: Value) -> Value {
        self.ask("POST", &format!("/session/{}/{path}", self.session), &body)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.exchange(method, path, body).unwrap();
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = ["Content-Type: application/json", "Connection: close"];
        let answer = Connection::open(self.port)?.ask(method, path, &headers, body.as_bytes())?;
        Ok((answer.status, serde_json::from_slice(&answer.body)?))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser goes with its session, the driver with its process.
        if !self.session.is_empty() {
            let _ = self.exchange("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
