//! What a server reads: requests, its log and its state.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use graphsieve::Result;
use graphsieve::graph::Dataset;
use graphsieve::live::{Change, Columns, Draw, Live, Makes, NodeKey, RowReader};
use graphsieve::serve::engine::{
    Engine, EngineState, ScoreAnswer, ScoreRequest, Spent, TableColumns, WriteRequest, Written,
};
use graphsieve::serve::log::{Log, Position, Record};
use graphsieve::serve::state::State;
use graphsieve::serve::{Limits, Options, Refusal, Server};
use serde_json::{Value, json};

use super::files::{directory, file, get, put};
use super::tables;

pub const SCORE: &str = r#"{"nodes": [{"type": "payment", "id": "p1", "amount": 12.5, "time": "2026-01-01"}],
 "edges": [{"relation": "paid_with", "src": "c1", "dst": "p1"}], "targets": ["payment:p1"], "explain": true}"#;
pub const EVENTS: &str =
    r#"{"nodes": [{"type": "payment", "id": "p1", "a": null, "b": [1, {"c": "\ud83d\ude00"}]}], "edges": []}"#;
pub const LABELS: &str = r#"{"labels": [{"node": "payment:1", "label": 1, "known": 86400}, {"node": "payment:2", "label": 0, "known": "2026-01-01T00:00:00Z"}]}"#;

/// Answers every request alike: what is under test reads before it is asked.
struct Anything;

impl Engine for Anything {
    fn score(&self, requests: &[ScoreRequest]) -> Vec<Result<ScoreAnswer, Refusal>> {
        let answer = |_: &ScoreRequest| {
            Ok(ScoreAnswer { model: "m".into(), threshold: None, scores: Vec::new(), spent: Spent::default() })
        };
        requests.iter().map(answer).collect()
    }

    fn write(&self, requests: &[WriteRequest]) -> Vec<Result<Written, Refusal>> {
        requests.iter().map(|_| Ok(Written::default())).collect()
    }

    fn node(&self, node: &NodeKey, _: usize) -> Result<Value, Refusal> {
        Ok(json!({ "node": node.to_string() }))
    }

    fn drift(&self) -> Result<Value, Refusal> {
        Ok(Value::Null)
    }

    fn reload(&self) -> Result<String> {
        Ok("m".into())
    }

    fn state(&self) -> EngineState {
        EngineState { model: "m".into(), writable: true, figures: Vec::new() }
    }

    fn columns(&self) -> Vec<TableColumns> {
        Vec::new()
    }
}

fn options(token_file: Option<PathBuf>) -> Options {
    Options {
        model: "model".into(),
        data: "data".into(),
        state: "state".into(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token_file,
        tls: None,
        limits: Limits { read: Duration::from_secs(1), ..Limits::default() },
        threads: 1,
        batch_size: 1,
        batch_delay: Duration::ZERO,
        fanouts: None,
        seed: 1,
        refresh: None,
        compact_share: 0.1,
        retention: None,
        grace: Duration::ZERO,
        log_requests: false,
    }
}

/// Sends bytes to a server of this process; its answers.
fn answer(request: &[u8]) -> String {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    let address = SERVER.get_or_init(|| {
        let server = Server::bind(options(None)).expect("a free port");
        let address = server.address().expect("a bound port");
        thread::spawn(|| server.run(Arc::new(Anything)));
        address
    });
    let mut stream = TcpStream::connect(address).expect("a server that listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a time");
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes).map_err(|fault| fault.kind());
    assert!(!matches!(end, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "the server neither answers nor closes");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(!text.contains("HTTP/1.1 500"), "{text}");
    text
}

/// Whether a body is taken.
fn post(path: &str, kind: &str, body: &[u8]) -> bool {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n");
    let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    let answer = answer(&[head.as_bytes(), body].concat());
    assert!(answer.starts_with("HTTP/1.1 ") && answer.contains("\r\n\r\n"), "{answer:?}");
    answer.starts_with("HTTP/1.1 200 ")
}

pub fn score_body(bytes: &[u8]) -> bool {
    post("/v1/score", "application/json", bytes)
}

pub fn events_body(bytes: &[u8]) -> bool {
    let taken = ["application/json", "application/x-ndjson"].map(|kind| post("/v1/events", kind, bytes));
    taken.contains(&true)
}

pub fn labels_body(bytes: &[u8]) -> bool {
    post("/v1/labels", "application/json", bytes)
}

/// A whole conversation. What stands behind it fills a body that ends early and is no request: the server answers at
/// once, and closes. Where this end is shut first, it answers nothing.
pub fn http(bytes: &[u8]) -> bool {
    answer(&[bytes, b"\r\n\r\n", &[0; 256]].concat()).starts_with("HTTP/1.")
}

pub fn http_seeds() -> Vec<Vec<u8>> {
    let post = format!(
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\nContent-Type: application/x-ndjson\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{EVENTS}\r\n0\r\n\r\n",
        EVENTS.len()
    );
    let get = "GET /v1/nodes/payment/a%2Fb%20%C3%A9?neighbours=3 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\
               X-Request-Id: 7\r\nAuthorization: Bearer x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let delete = "DELETE /v1/nodes/payment:1 HTTP/1.0\r\n\r\n";
    vec![
        post.into(),
        get.into(),
        delete.into(),
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n".into(),
    ]
}

/// A live graph of the events, and what reads its rows.
struct Graph {
    reader: RowReader,
    live: Live,
}

impl Graph {
    fn open() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = dir.path().join("data");
        tables::imported(dir.path()).write(&data).expect("a new directory");
        let base = Dataset::open(&data).expect("data that were just written");
        let reader = RowReader::open(dir.path(), &data, &base).expect("an import that was just written");
        let columns = Columns::new(&reader, &base).expect("an import that was just written");
        Self { live: Live::open(base, columns).expect("a graph of an import"), reader }
    }
}

/// Rows that a request brings, one a line, seen by a score of the first node.
pub fn live_row(bytes: &[u8]) -> bool {
    static GRAPH: OnceLock<Graph> = OnceLock::new();
    let Graph { reader, live } = GRAPH.get_or_init(Graph::open);
    let changes: Vec<Change> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let rows: Vec<_> = changes.iter().filter_map(|change| reader.read(change).ok()).flatten().collect();
    let Some(Change::Node(first)) = changes.first() else { return live.check(&rows).is_ok() };
    let target = NodeKey { node_type: first.node_type.clone(), id: first.id.clone() };
    let draw =
        Draw { hops: 2, makes: Makes::default(), fanouts: Some(vec![3, 2]), seed: 1, max_nodes: 1000, named: true };
    let taken = (live.check(&rows).is_ok(), live.part(&[target], &rows, &draw).is_ok());
    taken.0 || taken.1
}

pub fn live_row_seeds() -> Vec<Vec<u8>> {
    let payment = r#"{"type": "payment", "id": "n", "time": 777600, "card": "c1", "amount": 3.5, "kind": "b", "online": true, "memo": "red", "seen": "1970-01-10 00:00"}"#;
    let texts = r#"{"type": "payment", "id": "m", "time": "1970-01-10T00:00:00Z", "card": "new", "amount": "1e2", "kind": null, "online": "no", "memo": "", "seen": 777600, "fraud": 1}"#;
    let edge = r#"{"relation": "owns", "src": "ann", "dst": "c3", "share": 0.5, "role": "main"}"#;
    vec![format!("{payment}\n{edge}").into(), texts.into(), edge.into(), br#"{"type": "card", "id": "c9"}"#.into()]
}

const SEGMENT: &str = "00000000000000000001.log";

/// Opens a log whose only file holds these bytes, and replays it.
fn replayed(reader: &'static str, bytes: &[u8]) -> bool {
    let dir = directory(reader, |_| {}).join("log");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).expect("a new directory");
    put(&dir.join(SEGMENT), bytes);
    let Ok((log, recovered)) = Log::open(&dir, Position(0)) else { return false };
    let read = log.replay(Position(0), |entry| entry.position, |_| Ok(()));
    let _ = (log.position(), log.append(&[forget()], None), log.drop_until(Position(1)));
    read.is_ok() && recovered.damage.is_empty()
}

fn forget() -> Record {
    Record::Forget(NodeKey { node_type: "payment".into(), id: "1".into() })
}

pub fn log(bytes: &[u8]) -> bool {
    replayed("log", bytes)
}

/// A file of the log with three batches, of which one has a key.
pub fn log_seeds() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (log, _) = Log::open(dir.path(), Position(0)).expect("an empty directory");
    let change = |text: &str| Record::Change(serde_json::from_str(text).expect("a change"));
    let label = Record::Label { node: NodeKey { node_type: "payment".into(), id: "1".into() }, label: 1, known: 5 };
    let key = graphsieve::serve::log::Key::new("a key", b"a body");
    log.append(&[change(r#"{"type": "payment", "id": "n", "amount": 1.5}"#), label], Some(&key))
        .expect("a writable file");
    log.append(&[change(r#"{"relation": "owns", "src": "a", "dst": "b"}"#)], None).expect("a writable file");
    log.append(&[forget()], None).expect("a writable file");
    vec![get(&dir.path().join(SEGMENT))]
}

/// Bytes before the content of a batch: a mark, its length and its checksum.
const HEAD: usize = 12;

/// The content of a batch, under a checksum that fits.
pub fn log_frame(bytes: &[u8]) -> bool {
    let length = (bytes.len() as u32).to_le_bytes();
    let sum = crc32fast::hash(&[&length[..], bytes].concat()).to_le_bytes();
    let frame = [b"gsl\x01", &length[..], &sum, bytes].concat();
    replayed("log_frame", &[&log_seeds()[0], &frame[..]].concat())
}

pub fn log_frame_seeds() -> Vec<Vec<u8>> {
    let file = &log_seeds()[0];
    let length = u32::from_le_bytes([file[4], file[5], file[6], file[7]]) as usize;
    vec![file[HEAD..HEAD + length].to_vec()]
}

fn data(dir: &Path) {
    put(&dir.join("import.json"), b"{}");
}

pub fn serve_json(bytes: &[u8]) -> bool {
    let dir = directory("serve_json", data);
    fs::create_dir_all(dir.join("state")).expect("a directory");
    put(&dir.join("state/serve.json"), bytes);
    State::open(&dir.join("state"), &dir).is_ok()
}

pub fn serve_json_seeds() -> Vec<Vec<u8>> {
    let dir = directory("serve_json", data);
    State::open(&dir.join("state"), &dir).expect("a new state");
    vec![get(&dir.join("state/serve.json"))]
}

pub fn tokens(bytes: &[u8]) -> bool {
    Server::bind(options(Some(file("tokens", "tokens", bytes)))).is_ok()
}
