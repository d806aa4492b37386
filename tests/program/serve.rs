//! The server as a process: the same scores after every restart, nothing lost when it is killed, and clients that mean
//! no good beside one that does.
//!
//! `GRAPHSIEVE_SERVE_KILLS=50` kills it as often, `GRAPHSIEVE_SERVE_HOSTILE=600` keeps hostile clients at it for so
//! many seconds and then holds the latency of the good one against that of a quiet server.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::events::{BY_TIME, DAY, EVENTS, payments, tables};
use crate::support::Sandbox;
use crate::support::http::{Answer, Connection};

const STAGE2: &str = "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\nepochs = 2\n[loader]\n\
                      mode = \"sampled\"\nfanouts = [5, 3]\ndraw = \"latest\"\nbatch_size = 32\n";
pub const STAGE3: &str =
    "[features]\nmean = false\n[model]\nkind = \"booster\"\ntrees = 10\npatience = 0\nmin_data_in_leaf = 2\n";

/// Payments of the base.
const KNOWN: usize = 150;

fn from_environment<T: FromStr>(name: &str, otherwise: T) -> T {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A sandbox with imported payments in `data` and the run of a model on them.
pub fn trained(task: &str, settings: &str) -> (Sandbox, String) {
    let sandbox = tables(&payments(KNOWN), &format!("{BY_TIME}{EVENTS}"));
    sandbox.succeeds(["--quiet", "import", "tables", "graph.toml", "--out", "data"]);
    let output = "[output]\ndir = \"runs\"\nplots = false\n";
    sandbox.write("run.toml", format!("task = \"{task}\"\n{output}[data]\npath = \"data\"\n{settings}"));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    // That of a pipeline, of which those of its stages have longer names.
    let run = sandbox.runs("runs").into_iter().min_by_key(String::len).unwrap();
    (sandbox, run)
}

/// A payment that comes in, some minutes after the last known one for every `number`.
fn payment(number: u64) -> Value {
    json!({
        "type": "payment",
        "id": format!("new-{number}"),
        "time": KNOWN as i64 * DAY / 6 + 3_600 + 60 * number as i64,
        "card": format!("c{}", number % 9),
        "shop": format!("s{}", number % 6),
        "amount": 5 + number % 90,
    })
}

pub fn payments_of(numbers: impl IntoIterator<Item = u64>) -> Value {
    json!({"nodes": numbers.into_iter().map(payment).collect::<Vec<_>>(), "edges": []})
}

/// A server on a port of its own.
pub struct Server {
    child: Child,
    pub port: u16,
    /// Until it was ready.
    start: Duration,
}

impl Server {
    pub fn start(sandbox: &Sandbox, run: &str, more: &[&str]) -> Self {
        let begun = Instant::now();
        let log = File::options().create(true).append(true).open(sandbox.path("server.log")).unwrap();
        // Signals that these tests ignore, such as under `nohup`, are as usual in the server.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_graphsieve"), "serve", run]);
        command.args(["--data", "data", "--state", "state", "--listen", "127.0.0.1:0", "--device", "cpu"]).args(more);
        let mut child = command.current_dir(sandbox.path("")).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("http://127.0.0.1:")?;
            address.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        });
        let Some(port) = port else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it never listened:\n{}", String::from_utf8_lossy(&sandbox.read("server.log")));
        };
        let mut server = Self { child, port, start: Duration::ZERO };
        assert_eq!(server.ask("GET", "/readyz", &[], b"").status, 200);
        server.start = begun.elapsed();
        server
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port).unwrap()
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.connect().ask(method, path, headers, body).unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.ask("POST", path, &[], body.to_string().as_bytes());
        let said = answer.json();
        assert_eq!(answer.status, 200, "{path} {body}: {said}");
        said
    }

    /// Scores by target, as they are written.
    pub fn scores(&self, body: &Value) -> BTreeMap<String, String> {
        let said = self.post("/v1/score", body);
        let score = |of: &Value| (of["target"].as_str().unwrap().to_owned(), of["score"].to_string());
        said["scores"].as_array().unwrap().iter().map(score).collect()
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, after which it ends well.
    pub fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn has(connection: &mut Connection, node: &str) -> bool {
    connection.ask("GET", &format!("/v1/nodes/{node}"), &[], b"").unwrap().status == 200
}

/// No bug came to light.
fn is_sound(sandbox: &Sandbox) {
    let log = String::from_utf8_lossy(&sandbox.read("server.log")).into_owned();
    for word in ["panic", "internal error"] {
        assert!(!log.contains(word), "{log}");
    }
}

pub fn targets(known: impl IntoIterator<Item = u64>, new: impl IntoIterator<Item = u64>) -> Vec<String> {
    let known = known.into_iter().map(|number| format!("payment:{number}"));
    known.chain(new.into_iter().map(|number| format!("payment:new-{number}"))).collect()
}

fn the_same_before_and_after(task: &str, settings: &str) {
    let (sandbox, run) = trained(task, settings);
    let server = Server::start(&sandbox, &run, &[]);
    let known = json!({"targets": targets([3, 77, 149], [])});
    let before = server.scores(&known);
    // A payment that only the request knows has the score that it has when it has come in.
    let waits = server.scores(&json!({"nodes": [payment(0)], "targets": targets([], [0])}));
    assert_eq!(server.ask("GET", "/v1/nodes/payment/new-0", &[], b"").status, 404);
    let asked = json!({"nodes": [payment(0)], "targets": targets([], [0]), "explain": true});
    let said = server.post("/v1/score", &asked)["scores"][0].clone();
    let mut columns = said["reasons"]["columns"].as_array().unwrap().iter();
    let amount = columns.find(|of| of["column"] == "payment.amount").unwrap();
    assert_eq!((&amount["written"]["column"], &amount["written"]["value"]), (&json!("amount"), &json!("5")));
    // One line for the columns that a cell became, none for those that add nothing.
    let parts =
        |key: &str| said["reasons"][key].as_array().unwrap().iter().map(|of| of["contribution"].as_f64().unwrap());
    let (lines, columns): (f64, f64) = (parts("lines").sum(), parts("columns").sum());
    assert!((lines - columns).abs() < 1e-9 && parts("lines").count() < parts("columns").count(), "{said}");
    assert!(said.get("embeddings_age").is_none(), "the model reads none: {said}");
    for first in (0..40).step_by(8) {
        server.post("/v1/events", &payments_of(first..first + 8));
        if first == 0 {
            assert_eq!(server.scores(&json!({"targets": targets([], [0])})), waits);
        }
    }
    server.post("/v1/labels", &json!({"labels": [{"node": "payment:new-1", "label": 1, "known": 30 * DAY}]}));
    assert_eq!(server.scores(&known), before, "what comes later changes nothing of what was before it");
    let all = json!({"targets": targets([3, 77, 149], 0..40), "nodes": [payment(40)]});
    let together = server.scores(&all);
    for target in ["payment:77", "payment:new-0", "payment:new-39"] {
        assert_eq!(server.scores(&json!({"targets": [target]}))[target], together[target]);
    }
    server.stop();
    let server = Server::start(&sandbox, &run, &[]);
    assert_eq!(server.scores(&all), together);
    server.kill();
    let server = Server::start(&sandbox, &run, &[]);
    assert_eq!(server.scores(&all), together);
    // What is forgotten stays so, and counts for nothing that came behind it: a payment, and the card of others.
    for gone in ["payment/new-5", "card/c2"] {
        assert_eq!(server.ask("DELETE", &format!("/v1/nodes/{gone}"), &[], b"").status, 200);
    }
    let left = json!({"targets": targets([3, 77, 149], (0..40).filter(|&number| number != 5))});
    let without = server.scores(&left);
    server.kill();
    let server = Server::start(&sandbox, &run, &[]);
    let mut connection = server.connect();
    assert!(has(&mut connection, "payment/new-38") && !has(&mut connection, "payment/new-5"));
    assert_eq!(server.scores(&left), without);
    is_sound(&sandbox);
}

#[test]
fn attention_scores_the_same_to_the_byte_alone_together_and_after_restarts() {
    the_same_before_and_after("stage2", STAGE2);
}

#[test]
fn trees_score_the_same_to_the_byte_alone_together_and_after_restarts() {
    the_same_before_and_after("stage3", STAGE3);
}

#[test]
fn a_base_whose_embeddings_could_not_be_made_is_scored_with_those_of_the_last_one() {
    let (sandbox, stage1) = trained("stage1", "[model]\nhidden = 8\nout = 8\n[train]\nepochs = 1\n");
    let settings = format!("[data]\npath = \"data\"\nembeddings = {stage1:?}\n{STAGE3}");
    sandbox.write("run.toml", format!("task = \"stage3\"\n[output]\ndir = \"trees\"\nplots = false\n{settings}"));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let server = Server::start(&sandbox, &sandbox.only_run("trees"), &["--compact-share", "0.02"]);
    let known = json!({"targets": targets([3, 77, 149], [])});
    let before = server.scores(&known);
    let age = || server.post("/v1/score", &known)["scores"][0]["embeddings_age"].as_f64().unwrap();
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    // Nothing takes the place of a directory that is not empty: the new base is there, and its embeddings are not.
    let [file, aside] = ["state/serve.json", "state/aside"].map(|name| sandbox.path(name));
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    sandbox.write("state/serve.json/in", "the way");
    server.post("/v1/events", &payments_of(0..20));
    let log = || String::from_utf8_lossy(&sandbox.read("server.log")).into_owned();
    wait_until("it compacts", &|| log().contains("compact: "));
    assert_eq!(server.scores(&known), before);
    server.scores(&json!({"targets": targets([], [0, 19])}));
    // A new model computes them, too.
    let old = age();
    std::fs::remove_dir_all(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    assert!(Command::new("kill").args(["-HUP", &server.child.id().to_string()]).status().unwrap().success());
    wait_until("it reloads", &|| age() < old);
    server.stop();
    is_sound(&sandbox);
}

#[test]
fn clients_that_never_read_give_their_places_back() {
    let (sandbox, run) = trained("stage3", STAGE3);
    let server = Server::start(&sandbox, &run, &["--max-connections", "2", "--read-timeout", "1s"]);
    let pages = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4000);
    let deaf = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Until neither side has room for more.
        while stream.write(&pages).is_ok() {}
        stream
    };
    let all: Vec<TcpStream> = (0..2).map(deaf).collect();
    // Waits for a place, a minute at most.
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200);
    drop(all);
    is_sound(&sandbox);
}

/// Sends payments with the numbers `first`, `first + 2`, … until the server is gone. Returns those that were
/// acknowledged, and those of which nobody knows.
fn send_until_killed(server: &Server, first: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut acknowledged, mut next) = (Vec::new(), first);
    let Ok(mut connection) = Connection::open(server.port) else { return (acknowledged, Vec::new()) };
    loop {
        let batch: Vec<u64> = (0..1 + next / 2 % 4).map(|at| next + 2 * at).collect();
        let body = payments_of(batch.iter().copied()).to_string();
        let key = format!("Idempotency-Key: {next}");
        match connection.ask("POST", "/v1/events", &[&key], body.as_bytes()) {
            Ok(answer) => assert_eq!(answer.status, 200, "{}", answer.json()),
            Err(_) => return (acknowledged, batch),
        }
        next += 2 * batch.len() as u64;
        acknowledged.extend(batch);
    }
}

#[test]
fn a_kill_under_load_loses_and_doubles_nothing() {
    let kills: u64 = from_environment("GRAPHSIEVE_SERVE_KILLS", 3);
    let (sandbox, run) = trained("stage3", STAGE3);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    // Compactions happen all the time.
    let start = || Server::start(&sandbox, &run, &["--compact-share", "0.02"]);
    let (mut server, mut rows, mut slowest) = (start(), 0, Duration::ZERO);
    let (mut next, mut all) = ([0, 1], Vec::new());
    for _ in 0..kills {
        let wait = Duration::from_millis(rng.random_range(30..600));
        let of_server = &server;
        let sent = thread::scope(|scope| {
            let writers = next.map(|first| scope.spawn(move || send_until_killed(of_server, first)));
            let scorer = scope.spawn(|| {
                let mut connection = of_server.connect();
                let body = json!({"targets": targets([1, 2, 3], [])}).to_string();
                while let Ok(answer) = connection.ask("POST", "/v1/score", &[], body.as_bytes()) {
                    assert_eq!(answer.status, 200, "{}", answer.json());
                }
            });
            thread::sleep(wait);
            let id = of_server.child.id().to_string();
            assert!(Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
            scorer.join().unwrap();
            writers.map(|writer| writer.join().unwrap())
        });
        server.kill();
        server = start();
        slowest = slowest.max(server.start);
        let mut connection = server.connect();
        for ((acknowledged, unknown), next) in sent.into_iter().zip(&mut next) {
            for number in &acknowledged {
                assert!(has(&mut connection, &format!("payment/new-{number}")), "{number} was acknowledged");
            }
            // A client that got no answer asks again, with the same key.
            let mut done: Vec<u64> = acknowledged;
            if let Some(first) = unknown.first() {
                let key = format!("Idempotency-Key: {first}");
                let body = payments_of(unknown.iter().copied()).to_string();
                let answer = connection.ask("POST", "/v1/events", &[&key], body.as_bytes()).unwrap();
                assert_eq!(answer.status, 200, "{}", answer.json());
                done.extend(unknown);
            }
            rows += done.len() as u64;
            *next = done.last().map_or(*next, |last| last + 2);
            all.extend(done);
        }
    }
    assert!(rows > kills, "{rows}");
    let mut connection = server.connect();
    for number in &all {
        assert!(has(&mut connection, &format!("payment/new-{number}")), "{number} is still there");
    }
    // A position counts the rows of the log: none is in it twice.
    let last = payments_of([next[0].max(next[1]) + 10]);
    assert_eq!(server.post("/v1/events", &last)["position"], rows + 1);
    println!("{kills} kills, {rows} payments, slowest start {} ms", slowest.as_millis());
    is_sound(&sandbox);
}

/// A request that is wrong, and the status that it has to get.
struct Wrong {
    method: &'static str,
    path: &'static str,
    header: &'static str,
    body: Vec<u8>,
    status: u16,
}

fn wrong_requests() -> Vec<Wrong> {
    let plain = |method, path, body: &[u8], status| Wrong { method, path, header: "", body: body.to_vec(), status };
    let post = |path, body: &[u8], status| plain("POST", path, body, status);
    let with = |column: &str, value: Value| {
        let mut row = payment(9_999);
        row[column] = value;
        json!({"nodes": [row]}).to_string().into_bytes()
    };
    let nested = |depth| [vec![b'['; depth], vec![b']'; depth]].concat();
    let in_a_row =
        [&br#"{"nodes":[{"type":"payment","id":"deep","amount":"#[..], &nested(500)[..], &b"}]}"[..]].concat();
    let other = |mut row: Value| {
        row["amount"] = json!(1);
        row
    };
    let twice = json!({"nodes": [payment(9_998), other(payment(9_998))]}).to_string();
    let known = json!({"nodes": [{"type": "payment", "id": "5", "time": 1, "card": "c1", "shop": "s1", "amount": 1}]});
    let many = json!({"targets": targets(0..300, [])}).to_string();
    let headers = |path, header, status| Wrong { method: "POST", path, header, body: b"{}".to_vec(), status };
    vec![
        post("/v1/score", &vec![b' '; 1 << 20], 400),
        post("/v1/events", &vec![b' '; (1 << 20) + 1], 413),
        post("/v1/score", &nested(100_000), 400),
        post("/v1/events", &in_a_row, 400),
        post("/v1/score", b"{\"targets\": [\"payment:\xff\xfe\"]}", 400),
        post("/v1/events", b"\x00\x01\x02", 400),
        post("/v1/score", b"", 400),
        post("/v1/score", many.as_bytes(), 413),
        post("/v1/score", br#"{"targets": []}"#, 422),
        post("/v1/score", br#"{"targets": ["payment:nobody"]}"#, 404),
        post("/v1/score", br#"{"targets": ["payment"]}"#, 422),
        post("/v1/score", br#"{"targets": {"a": 1}}"#, 422),
        post("/v1/events", twice.as_bytes(), 409),
        post("/v1/events", known.to_string().as_bytes(), 409),
        post("/v1/events", &with("time", json!(4_102_444_800i64)), 422),
        post("/v1/events", &with("time", json!("yesterday")), 422),
        post("/v1/events", &with("time", json!(-1e300)), 422),
        post("/v1/events", &with("amount", json!("much")), 422),
        post("/v1/events", &with("amount", json!({"of": 1})), 422),
        post("/v1/events", &with("amount", json!([1])), 422),
        post("/v1/events", &with("id", json!(7)), 422),
        post("/v1/events", &with("id", json!("x".repeat(600))), 422),
        post("/v1/events", &with("type", json!("nothing")), 422),
        post("/v1/events", br#"{"edges": [{"relation": "nothing", "src": "1", "dst": "2"}]}"#, 422),
        post("/v1/labels", br#"{"labels": [{"node": "payment:5", "label": 2}]}"#, 422),
        post("/v1/labels", br#"{"labels": [{"node": "payment:5", "label": "1"}]}"#, 422),
        plain("GET", "/v1/nodes/payment/..%2F..%2Fetc%2Fpasswd", b"", 404),
        plain("GET", "/v1/nodes/../../etc/passwd", b"", 404),
        plain("GET", "/v1/nodes/payment/%00", b"", 404),
        plain("GET", "/v1/nodes/payment/%FF", b"", 400),
        plain("GET", "/v1/nodes/payment:5?neighbours=-1", b"", 400),
        plain("DELETE", "/v1/nodes/payment/nobody", b"", 404),
        plain("PUT", "/v1/score", b"{}", 405),
        plain("GET", "//etc/passwd", b"", 404),
        headers("/v1/events", "Content-Type: application/xml", 415),
        headers("/v1/events", "Content-Encoding: gzip", 415),
        headers("/v1/events", "Idempotency-Key: not one word", 400),
        headers("/v1/events", "Origin: http://evil.example", 403),
        headers("/v1/events", "Host: evil.example", 403),
    ]
}

/// Tells others at its end, be it that of a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Half a body and nothing more, many times over.
fn slow(server: &Server, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let mut open: Vec<Connection> = (0..20).map(|_| server.connect()).collect();
        let head = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"targets\"";
        open.iter_mut().for_each(|connection| connection.send(head).unwrap());
        for connection in &mut open {
            assert_eq!(connection.answer().unwrap().status, 408);
        }
    }
}

fn hostile(server: &Server, ends: &AtomicBool) {
    let requests = wrong_requests();
    while !ends.load(Ordering::Relaxed) {
        for Wrong { method, path, header, body, status } in &requests {
            let headers: Vec<&str> = [*header, "Connection: close"].into_iter().filter(|one| !one.is_empty()).collect();
            // A server that has seen enough may close before all of a long body is sent; then there may be no answer.
            match server.connect().ask(method, path, &headers, body) {
                Ok(answer) => assert_eq!(answer.status, *status, "{method} {path} {header}: {}", answer.json()),
                Err(cut) => assert_eq!(*status, 413, "{method} {path} {header}: {cut}"),
            }
        }
        for noise in [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"POST /v1/score HTTP/9.9\r\n\r\n", &[0; 4096]] {
            let mut connection = server.connect();
            let _ = connection.send(noise);
            if let Ok(answer) = connection.answer() {
                assert!((400..=505).contains(&answer.status), "{}", answer.status);
            }
        }
    }
}

/// Scores one after another for a while; how long each took, ascending.
fn good(server: &Server, length: Duration) -> Vec<Duration> {
    let mut connection = server.connect();
    let begun = Instant::now();
    let mut took = Vec::new();
    for number in 0.. {
        if begun.elapsed() >= length {
            break;
        }
        let body = json!({"nodes": [payment(50_000 + number)], "targets": targets([number % 150], [50_000 + number])});
        let asked = Instant::now();
        let answer = connection.ask("POST", "/v1/score", &[], body.to_string().as_bytes()).unwrap();
        took.push(asked.elapsed());
        assert_eq!(answer.status, 200, "{}", answer.json());
    }
    took.sort_unstable();
    took
}

#[test]
fn hostile_clients_are_refused_and_a_good_one_is_served() {
    let seconds = from_environment("GRAPHSIEVE_SERVE_HOSTILE", 0);
    let (sandbox, run) = trained("stage3", STAGE3);
    let server = Server::start(&sandbox, &run, &["--max-body", "1M", "--read-timeout", "1s"]);
    let place = |path, body: Value| {
        let answer = server.ask("POST", path, &[], body.to_string().as_bytes());
        (answer.status, answer.json()["error"]["place"].clone())
    };
    let mut much = payment(9_997);
    much["amount"] = json!("much");
    assert_eq!(place("/v1/events", json!({"nodes": [payment(9_998), much]})), (422, "nodes[1]".into()));
    let label = json!({"node": "payment:5", "label": 1, "known": "2999-01-01T00:00:00Z"});
    assert_eq!(place("/v1/labels", json!({"labels": [label]})), (422, "labels[0]".into()));
    let length = Duration::from_secs(if seconds == 0 { 3 } else { seconds });
    let quiet = good(&server, length.min(Duration::from_secs(20)));
    let ends = AtomicBool::new(false);
    let (server_of, ends_of) = (&server, &ends);
    let beside = thread::scope(|scope| {
        let clients = [scope.spawn(|| slow(server_of, ends_of)), scope.spawn(|| hostile(server_of, ends_of))];
        let end = End(ends_of);
        let took = good(server_of, length);
        drop(end);
        for client in clients {
            client.join().unwrap();
        }
        took
    });
    let at = |took: &[Duration], share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let told = |took: &[Duration]| format!("{} scores, P50 {:?}, P99 {:?}", took.len(), at(took, 0.5), at(took, 0.99));
    println!("quiet: {}; beside hostile clients: {}", told(&quiet), told(&beside));
    // A matter of minutes on a machine that does nothing else.
    if seconds > 0 {
        for share in [0.5, 0.99] {
            assert!(at(&beside, share) <= 2 * at(&quiet, share), "{share}");
        }
    }
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200);
    let metrics = String::from_utf8(server.ask("GET", "/metrics", &[], b"").body).unwrap();
    assert!(metrics.contains("graphsieve_panics_total 0"), "{metrics}");
    server.stop();
    is_sound(&sandbox);
}
