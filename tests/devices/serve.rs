//! The page of a server in a real browser.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use graphsieve_kernels::testing::harness::{Trial, trial};
use serde_json::{Value, json};

use crate::report::{HOSTILE, Reported, reported};
use crate::webdriver::Browser;

/// Beside the report's, whose run they serve.
pub fn trials() -> Vec<Trial> {
    let name = "report::the_page_of_a_server_looks_a_node_up_and_nothing_of_its_data_runs";
    vec![trial(None, name, &[Browser::REQUIREMENT], the_page_of_a_server_looks_a_node_up_and_nothing_of_its_data_runs)]
}

/// A server of the run; it ends with this value.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(reported: &Reported) -> Self {
        let arguments = ["--quiet", "serve", &reported.run, "--data", "data", "--state", "state"];
        let arguments = arguments.into_iter().chain(["--listen", "127.0.0.1:0", "--device", "cpu"]);
        let mut process = reported.sandbox.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').find_map(|word| word.strip_suffix("/v1/score"));
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { process, address }
    }

    /// Asks it to stop, and whether it ended well.
    fn stop(mut self) -> bool {
        Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().unwrap();
        self.process.wait().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a script returns, as soon as it is true.
fn wait_for(browser: &Browser, script: &str) -> Value {
    for _ in 0..600 {
        let found = browser.script(script);
        if found != json!(false) && !found.is_null() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it never came: {script}; the page says {}", browser.script("return document.body.innerText"));
}

fn the_page_of_a_server_looks_a_node_up_and_nothing_of_its_data_runs() {
    let reported = reported();
    let server = Server::start(reported);
    let maps: Value = serde_json::from_slice(&reported.sandbox.read("data/node_id_mappings.json")).unwrap();
    let (node_type, ids) = maps.as_object().unwrap().iter().find(|(name, _)| name.starts_with("user")).unwrap();
    let node_type = node_type.trim_end_matches("_map");
    let id = ids.as_object().unwrap().keys().next().unwrap();
    assert!(id.ends_with(HOSTILE));
    let browser = Browser::open(&server.address);
    browser.type_into("#node", &format!("{node_type}:{id}"));
    browser.click("#ask button");
    let shown = wait_for(
        &browser,
        "const image = document.querySelector('#scored img');
         return !document.getElementById('answer').hidden && image?.complete && image.naturalWidth > 0
             && document.querySelector('#known table tbody') && document.getElementById('scored').innerText",
    );
    assert!(shown.as_str().unwrap().contains("score") && shown.as_str().unwrap().contains(HOSTILE), "{shown}");
    assert_eq!(browser.script("return [typeof window.owned, document.scripts.length]"), json!(["undefined", 1]));
    browser.resize(380, 900);
    let widths = browser.script("return [document.documentElement.scrollWidth, innerWidth]");
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{widths}");
    // From a neighbour in the table to the neighbour itself.
    let neighbour = browser.script("return document.querySelector('#known td a').textContent");
    browser.script("document.querySelector('#known td a').click()");
    let is_there = format!("return document.getElementById('scored').innerText.includes({neighbour})");
    wait_for(&browser, &is_there);
    assert!(browser.log("browser").is_empty());
    let requests = browser.requests();
    assert!(
        requests.iter().all(|asked| asked.starts_with(&server.address) || asked.starts_with("data:")),
        "{requests:?}"
    );
    browser.script("location.hash = '#user:nobody'");
    wait_for(&browser, "return document.getElementById('said').innerText.includes('no such node')");
    drop(browser);
    assert!(server.stop());
}
