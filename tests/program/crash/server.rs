//! The same for the server: what it has answered stays, what it has not can be asked again.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::tracer::{self, Call, Fault};
use super::*;
use crate::serve::{STAGE3, Server, payments_of, targets, trained};
use crate::support::http::Connection;

/// What a client asks for, one after the other; each may be asked again with the same key.
const STEPS: [(&str, &str, u64); 8] = [
    ("POST", "/v1/events", 0),
    ("POST", "/v1/events", 4),
    ("POST", "/v1/labels", 1),
    ("DELETE", "/v1/nodes/payment/new-2", 0),
    ("POST", "/v1/events", 8),
    ("POST", "/v1/events", 12),
    ("DELETE", "/v1/nodes/payment/new-5", 0),
    ("POST", "/v1/events", 16),
];

/// Asks for a step; the status, where there is an answer.
fn ask(port: u16, at: usize) -> Option<u16> {
    let (method, path, number) = STEPS[at];
    let body = match path {
        "/v1/events" => payments_of(number..number + 4).to_string(),
        "/v1/labels" => json!({"labels": [{"node": "payment:new-1", "label": 1, "known": 2_600_000}]}).to_string(),
        _ => String::new(),
    };
    let key = format!("Idempotency-Key: step-{at}");
    let mut connection = Connection::open(port).ok()?;
    let answer = connection.ask(method, path, &[&key], body.as_bytes()).ok()?;
    Some(answer.status)
}

/// What one life of a server came to.
struct Life {
    calls: Vec<Call>,
    status: ExitStatus,
    stderr: String,
    /// The answers to the steps.
    answers: Vec<Option<u16>>,
}

/// Starts a server on an empty state, asks for all steps and stops it, with a fault at a call.
fn live(sandbox: &Sandbox, run: &str, fault: Option<(usize, Fault)>) -> Life {
    let mut streams = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let of_child = streams.each_ref().map(|stream| stream.try_clone().unwrap());
    let arguments = ["serve", run, "--data", "data", "--state", "state", "--listen", "127.0.0.1:0", "--device", "cpu"];
    let mut command = sandbox.command([&arguments[..], &["--compact-share", "0.02"]].concat());
    let root = sandbox.path("").canonicalize().unwrap();
    let (is_over, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let traced = scope.spawn(move || {
            let _is_over = is_over;
            let [stdout, stderr] = of_child;
            command.stdout(stdout).stderr(stderr);
            tracer::run(command, &root, fault).unwrap()
        });
        let mut read = |of: usize| {
            let mut text = String::new();
            let mut file = streams[of].try_clone().unwrap();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        // Until it listens, or has ended.
        let port = loop {
            let said = read(0);
            let port = said.lines().find_map(|line| {
                let (_, address) = line.split_once("http://127.0.0.1:")?;
                address.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok()
            });
            if port.is_some() || over.recv_timeout(Duration::from_millis(2)) == Err(mpsc::RecvTimeoutError::Disconnected) {
                break port;
            }
        };
        let answers = (0..STEPS.len()).map(|at| port.and_then(|port| ask(port, at))).collect();
        todo!()
    })
}
