//! The same for the server: what it has answered stays, and what it has not can be asked for again.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::serve::{STAGE3, Server, has, payments_of, targets, trained};
use crate::support::http::Connection;

/// What a client asks for in turn: four payments from a number on, a label, or that one is forgotten.
#[derive(Clone, Copy)]
enum Step {
    Payments(u64),
    Label(u64),
    Forget(u64),
}

/// No payment that comes later has the card or the shop of one that is forgotten: it would be told by it until a
/// restart.
const STEPS: [Step; 6] =
    [Step::Payments(0), Step::Payments(4), Step::Label(1), Step::Forget(7), Step::Payments(8), Step::Forget(11)];

impl Step {
    /// The status, where there is an answer. It may be asked for again.
    fn ask(self, port: u16) -> Option<u16> {
        let (method, path, body) = match self {
            Self::Payments(first) => ("POST", "/v1/events".into(), payments_of(first..first + 4)),
            Self::Label(of) => {
                let label = json!({"node": format!("payment:new-{of}"), "label": 1, "known": 2_600_000});
                ("POST", "/v1/labels".into(), json!({"labels": [label]}))
            }
            Self::Forget(of) => ("DELETE", format!("/v1/nodes/payment/new-{of}"), Value::Null),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let key = format!("Idempotency-Key: {path}-{}", body.len());
        let mut connection = Connection::open(port).ok()?;
        connection.ask(method, &path, &[&key], body.as_bytes()).ok().map(|answer| answer.status)
    }
}

/// Scores that tell of all that came in.
fn scores(server: &Server) -> BTreeMap<String, String> {
    server.scores(&json!({"targets": targets([3, 77, 149], (0..11).filter(|of| *of != 7))}))
}

/// What one life of a server came to.
struct Life {
    calls: Vec<Call>,
    said: Said,
    /// Whether it listened.
    listened: bool,
    answers: Vec<Option<u16>>,
}

/// Starts a server with a fault at a call, asks for all steps and stops it.
fn live(sandbox: &Sandbox, run: &str, fault: Option<(usize, Fault)>) -> Life {
    let serve = ["serve", run, "--data", "data", "--state", "state", "--listen", "127.0.0.1:0", "--device", "cpu"];
    let command = sandbox.command([&serve[..], &["--compact-share", "0.02"]].concat());
    let (begun, process) = channel();
    let (running, over) = channel::<()>();
    thread::scope(|scope| {
        // Whoever begins a process traces it.
        let traced = scope.spawn(move || {
            let _running = running;
            disturbed(sandbox, command, fault, |process, [stdout, _]| begun.send((process, stdout)).unwrap())
        });
        let (process, mut stdout) = process.recv().unwrap();
        let port = loop {
            let mut said = String::new();
            stdout.rewind().unwrap();
            stdout.read_to_string(&mut said).unwrap();
            let port = said.lines().find_map(|line| {
                let (_, address) = line.split_once("http://127.0.0.1:")?;
                address.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            });
            if port.is_some() || over.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Disconnected) {
                break port;
            }
        };
        // What is refused is asked for once more, before what comes behind it.
        let ask = |step: &Step, port| {
            step.ask(port).map(|status| if status == 200 { 200 } else { step.ask(port).unwrap_or(0) })
        };
        let answers = STEPS.iter().map(|step| port.and_then(|port| ask(step, port))).collect();
        // One that has ended already is no longer there.
        let _ = Command::new("kill").args(["-TERM", &process.to_string()]).output().unwrap();
        let (calls, said) = traced.join().unwrap();
        Life { calls, said, listened: port.is_some(), answers }
    })
}

/// What is wrong after a life with a fault.
fn check(
    sandbox: &Sandbox,
    run: &str,
    expected: &BTreeMap<String, String>,
    (at, fault): (usize, Fault),
) -> Result<(), String> {
    let Life { calls, said, listened, answers } = live(sandbox, run, Some((at, fault)));
    // Compactions begin when they begin: it may have had fewer calls.
    let Some(call) = calls.get(at) else { return Ok(()) };
    let holds = |holds: bool, what: &str| match holds {
        true => Ok(()),
        false => Err(format!("{fault:?} at {at}, {call}: {what}: {answers:?}\n{}", said.stderr)),
    };
    holds(!said.stderr.contains("panicked"), "a panic")?;
    if !fault.kills() {
        let is_refused = said.code == Some(1) && said.stderr.contains("error: ") && said.stderr.contains("help: ");
        holds(listened || is_refused, "no error that helps")?;
        let is_known = |number: u64| {
            let mut steps = STEPS.iter().zip(&answers);
            steps.any(|(step, answer)| {
                *answer == Some(200) && matches!(step, Step::Payments(first) if *first == number / 4 * 4)
            })
        };
        let is_told = |(step, answer): (&Step, &Option<u16>)| match (fault, step) {
            // What had no room once has it when it is asked for again.
            (Fault::Once(libc::ENOSPC), _) => *answer == Some(200),
            (_, Step::Forget(of) | Step::Label(of)) if !is_known(*of) => matches!(answer, Some(404 | 503 | 507)),
            _ => matches!(answer, Some(200 | 503 | 507)),
        };
        holds(!listened || STEPS.iter().zip(&answers).all(is_told), "an answer without a reason")?;
    }
    let server = Server::start(sandbox, run, &[]);
    let mut connection = server.connect();
    let mut has = |number: u64| has(&mut connection, &format!("payment/new-{number}"));
    let forgotten = [7, 11];
    for (step, answer) in STEPS.iter().zip(&answers).filter(|(_, answer)| **answer == Some(200)) {
        match *step {
            Step::Payments(first) => {
                let mut own = (first..first + 4).filter(|number| !forgotten.contains(number));
                holds(own.all(&mut has), &format!("payments from {first} were acknowledged, {answer:?}"))?;
            }
            Step::Label(_) => {}
            Step::Forget(of) => holds(!has(of), "it was forgotten")?,
        }
    }
    for (step, _) in STEPS.iter().zip(&answers).filter(|(_, answer)| **answer != Some(200)) {
        let status = step.ask(server.port);
        // What was forgotten, and the answer lost, is not there.
        let is_done = status == Some(200) || matches!(step, Step::Forget(_)) && status == Some(404);
        holds(is_done, &format!("asked for again: {status:?}"))?;
    }
    holds(scores(&server) == *expected, "other scores")?;
    server.stop();
    let files = sandbox.files();
    let names = |bytes: &[u8], id: u64| {
        let id = format!("\"id\":\"new-{id}\"");
        bytes.windows(id.len()).any(|part| part == id.as_bytes())
    };
    let is_forgotten = |bytes: &Vec<u8>| !forgotten.iter().any(|id| names(bytes, *id));
    holds(files.values().all(is_forgotten), "what was forgotten is in a file")?;
    holds(leftovers(&files).is_empty(), &format!("left over: {:?}", leftovers(&files)))
}

#[test]
fn a_server_keeps_what_it_has_answered_from_any_moment() {
    let (sandbox, run) = trained("stage3", STAGE3);
    let reset = || fs::remove_dir_all(sandbox.path("state")).unwrap_or_default();
    let Life { calls, said, answers, .. } = live(&sandbox, &run, None);
    assert_eq!((said.code, answers), (Some(0), vec![Some(200); STEPS.len()]), "{}", said.stderr);
    let server = Server::start(&sandbox, &run, &[]);
    let expected = scores(&server);
    server.stop();
    meet("server", &faults(&calls), |at, fault| {
        reset();
        check(&sandbox, &run, &expected, (at, fault))
    });
}
