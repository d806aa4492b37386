//! A server with an engine that stands in for a graph, asked over sockets as any client would.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::options::{Limits, Options};
use super::server::Server;
use super::stand_in::StandIn;
use super::tls::TlsFiles;
use crate::error::Result;

fn options() -> Options {
    Options {
        model: "model".into(),
        data: "data".into(),
        state: "state".into(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token_file: None,
        tls: None,
        limits: Limits {
            body: 2000,
            rows: 10,
            targets: 3,
            id: 20,
            queue: 2,
            read: Duration::from_millis(400),
            ..Limits::default()
        },
        threads: 1,
        batch_size: 1,
        batch_delay: Duration::ZERO,
        fanouts: None,
        seed: 1,
        refresh: None,
        compact_share: 0.1,
        retention: None,
        grace: Duration::from_secs(20),
        log_requests: false,
    }
}

struct Running {
    address: SocketAddr,
    engine: Arc<StandIn>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Running {
    fn start(options: Options) -> Self {
        let engine = Arc::new(StandIn::default());
        let server = Server::bind(options).unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let of = engine.clone();
        let thread = thread::spawn(move || server.run_until(of, async { drop(stopped.await) }));
        Self { address, engine, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends `head` (request line and headers without the last empty line) and a body.
    fn send(&self, head: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!("{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        stream
    }

    fn ask(&self, head: &str, body: &[u8]) -> Answer {
        Answer::read(&mut self.send(head, body))
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(&format!("POST {path} HTTP/1.1"), body.to_string().as_bytes())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1"), b"")
    }

    /// Tells it to stop and waits until it has.
    fn stop(&mut self) -> Result<()> {
        self.stop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn read(stream: &mut impl Read) -> Self {
        let mut bytes = Vec::new();
        // A connection that was cut behind its answer has given it all the same.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body: body.into() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|fault| panic!("{fault}: {self:?}"))
    }

    /// Status and code of an error.
    fn refused(&self) -> (u16, String) {
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        (self.status, error["code"].as_str().unwrap().to_owned())
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_is_written_is_scored_looked_up_and_forgotten() {
    let server = Running::start(options());
    let written = server.post("/v1/events", &json!({"nodes": [{"type": "payment", "id": "p/1 ü", "Amount": 1}]}));
    assert_eq!((written.status, written.json()["nodes"].clone()), (200, json!(1)), "{written:?}");
    let lines = b"{\"type\":\"payment\",\"id\":\"p2\"}\n{\"relation\":\"r\",\"src\":\"p2\",\"dst\":\"x\"}\n";
    let written = server.ask("POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson", lines);
    assert_eq!(
        written.json(),
        json!({"nodes": 1, "edges": 1, "labels": 0, "forgotten": 0, "position": 1, "repeated": false})
    );
    let asked = json!({"nodes": [{"type": "payment", "id": "new"}], "targets": ["payment:p2", "payment:new"]});
    let scored = server.ask("POST /v1/score HTTP/1.1\r\nX-Request-Id: mine-7", asked.to_string().as_bytes());
    assert_eq!(scored.status, 200, "{scored:?}");
    assert!(
        scored.head.contains("x-request-id: mine-7") && scored.head.contains("server-timing: queue;dur="),
        "{scored:?}"
    );
    let scores = &scored.json()["scores"];
    assert_eq!(
        [&scores[0]["known"], &scores[1]["known"], &scores[1]["score"]],
        [&json!(true), &json!(false), &json!(0.03)]
    );
    for path in ["/v1/nodes/payment/p%2F1%20%C3%BC?neighbours=3", "/v1/nodes/payment%3Ap%2F1%20%C3%BC"] {
        assert_eq!(server.get(path).json()["node"], "payment:p/1 ü", "{path}");
    }
    let label = json!({"labels": [{"node": "payment:p2", "label": 1, "known": "2026-11-17T09:30:00Z"}]});
    assert_eq!(server.post("/v1/labels", &label).json()["labels"], 1);
    assert_eq!(server.ask("DELETE /v1/nodes/payment/p2 HTTP/1.1", b"").json()["forgotten"], 1);
    assert_eq!(server.get("/v1/nodes/payment:p2").refused(), (404, "unknown_node".into()));
    let metrics = server.get("/metrics").body;
    for line in [
        "graphsieve_http_requests_total{route=\"/v1/events\",method=\"POST\",status=\"200\"} 2",
        "graphsieve_live_nodes 1.0",
        "graphsieve_written_rows_total{kind=\"forgotten\"} 1",
        "graphsieve_waiting_requests{of=\"score\"} 0.0",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn every_wrong_request_has_its_status_and_the_server_goes_on() {
    let server = Running::start(options());
    let post = |path: &str, body: &[u8]| server.ask(&format!("POST {path} HTTP/1.1"), body).refused();
    let long = "x".repeat(21);
    let cases: Vec<(&str, &[u8], u16)> = vec![
        ("/v1/score", b"{", 400),
        ("/v1/score", b"{\"targets\": [\"a:\xff\"]}", 400),
        ("/v1/score", b"", 400),
        ("/v1/score", b"{\"targets\": [\"payment:none\"]}", 404),
        ("/v1/score", b"{\"targets\": [\"a:1\", \"a:2\", \"a:3\", \"a:4\"]}", 413),
        ("/v1/score", b"{\"targets\": \"a:1\"}", 422),
        ("/v1/score", b"{\"targets\": [\"payment:panic\"]}", 500),
        ("/v1/events", b"{\"nodes\": [{\"type\": \"a\"}]}", 422),
        ("/v1/labels", b"{\"labels\": [{\"node\": \"a:1\", \"label\": 2}]}", 422),
        ("/v1/other", b"", 404),
        ("/metrics", b"", 405),
    ];
    for (path, body, status) in cases {
        assert_eq!(post(path, body).0, status, "{path} {}", String::from_utf8_lossy(body));
    }
    assert_eq!(post("/v1/score", format!("{{\"targets\": [\"a:{long}\"]}}").as_bytes()).0, 422);
    assert_eq!(post("/v1/events", &vec![b' '; 2001]).0, 413);
    let head = |head: &str, body: &[u8]| server.ask(head, body).refused();
    assert_eq!(head("POST /v1/score HTTP/1.1\r\nContent-Type: application/xml", b"{}").0, 415);
    assert_eq!(head("POST /v1/score HTTP/1.1\r\nContent-Encoding: gzip", b"{}").0, 415);
    assert_eq!(head("POST /v1/events HTTP/1.1\r\nIdempotency-Key: a b", b"{}"), (400, "bad_key".into()));
    assert_eq!(head("GET /v1/nodes/payment/%FF HTTP/1.1", b""), (400, "bad_path".into()));
    assert_eq!(head("GET /v1/nodes/..%2F..%2Fetc%2Fpasswd HTTP/1.1", b"").0, 422);
    assert_eq!(head("GET /v1/nodes/a:b?neighbours=-1 HTTP/1.1", b""), (400, "bad_query".into()));
    assert_eq!(head("POST /v1/events HTTP/1.1\r\nOrigin: http://evil.example", b"{}"), (403, "origin".into()));
    // Lengths that do not come: without a length, and with one that is never reached.
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{").unwrap();
    assert_eq!(Answer::read(&mut slow).refused(), (408, "slow_body".into()));
    for hosts in ["", "Host: localhost\r\nHost: localhost\r\n"] {
        let mut other = TcpStream::connect(server.address).unwrap();
        other.write_all(format!("GET /healthz HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(Answer::read(&mut other).refused(), (400, "bad_host".into()));
    }
    let mut older = TcpStream::connect(server.address).unwrap();
    older.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(Answer::read(&mut older).status, 200, "it need not name a host");
    let mut chunked = TcpStream::connect(server.address).unwrap();
    let chunk = [&b"7d1\r\n"[..], &vec![b' '; 2001], b"\r\n0\r\n\r\n"].concat();
    chunked.write_all(b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let _ = chunked.write_all(&chunk);
    assert_eq!(Answer::read(&mut chunked).refused().0, 413);
    let mut silent = TcpStream::connect(server.address).unwrap();
    silent.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").unwrap();
    assert!(Answer::read(&mut silent).status != 200, "a head that does not end is cut off");
    for (kind, status) in [(ErrorKind::StorageFull, 507), (ErrorKind::PermissionDenied, 503)] {
        *server.engine.refuse_writes.lock().unwrap() = Some(kind);
        let refused = server.post("/v1/events", &json!({"nodes": [{"type": "payment", "id": "p"}]}));
        assert_eq!(refused.refused().0, status);
        assert!(!refused.body.contains("secret"), "paths of the server stay there: {refused:?}");
    }
    *server.engine.refuse_writes.lock().unwrap() = None;
    assert_eq!(server.post("/v1/events", &json!({"nodes": [{"type": "payment", "id": "p"}]})).status, 200);
    assert!(server.get("/metrics").body.contains("graphsieve_panics_total 1"));
}

#[test]
fn a_full_queue_refuses_and_a_stop_finishes_what_has_begun() {
    let mut server = Running::start(options());
    server.post("/v1/events", &json!({"nodes": [{"type": "payment", "id": "p"}]}));
    server.engine.gate.shut(true);
    let score = json!({"targets": ["payment:p"]}).to_string();
    let send = || server.send("POST /v1/score HTTP/1.1", score.as_bytes());
    let mut begun = vec![send()];
    wait_for(|| server.engine.begun.load(Ordering::SeqCst) == 1);
    begun.extend([send(), send()]);
    wait_for(|| server.get("/metrics").body.contains("graphsieve_waiting_requests{of=\"score\"} 2.0"));
    let refused = Answer::read(&mut send());
    assert_eq!(refused.refused(), (429, "busy".into()));
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    let engine = server.engine.clone();
    let opened = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        engine.gate.shut(false);
    });
    server.stop().unwrap();
    opened.join().unwrap();
    for mut stream in begun {
        assert_eq!(Answer::read(&mut stream).status, 200, "it was taken before the stop");
    }
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_request_that_takes_too_long_is_told_so() {
    let limits = Limits { answer: Duration::from_millis(50), ..options().limits };
    let server = Running::start(Options { limits, ..options() });
    server.engine.gate.shut(true);
    assert_eq!(server.post("/v1/score", &json!({"targets": ["payment:p"]})).refused(), (503, "late".into()));
    server.engine.gate.shut(false);
}

#[test]
fn a_reload_under_load_loses_no_request_and_a_bad_model_leaves_the_old_one() {
    let limits = Limits { queue: 100, ..options().limits };
    let server = Running::start(Options { limits, ..options() });
    server.post("/v1/events", &json!({"nodes": [{"type": "payment", "id": "p"}]}));
    let ask = || server.post("/v1/score", &json!({"targets": ["payment:p"]}));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| (0..40).all(|_| ask().status == 200))).collect();
        for number in 1..=5 {
            assert_eq!(server.post("/v1/reload", &json!({})).json()["model"], format!("model-{number}"));
        }
        assert!(clients.into_iter().all(|client| client.join().unwrap()));
    });
    server.engine.bad_model.store(true, Ordering::SeqCst);
    assert_eq!(server.post("/v1/reload", &json!({})).refused(), (409, "not_reloaded".into()));
    assert_eq!(ask().json()["model"], "model-5");
}

#[test]
fn strangers_are_kept_out_by_tokens_and_a_server_for_all_is_refused_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    let refused = Server::bind(Options { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..options() }).err().unwrap();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("--token-file"), "{refused}");
    let server = Running::start(Options { token_file: Some(file.clone()), ..options() });
    for path in ["/metrics", "/openapi.json", "/v1/drift"] {
        let refused = server.get(path);
        assert_eq!(refused.refused(), (401, "no_token".into()), "{path}");
        assert!(refused.head.contains("www-authenticate: bearer"));
        let with =
            |token: &str| server.ask(&format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}"), b"").status;
        assert_eq!([with("0123456789abcdef"), with("0123456789abcdee")], [200, 401]);
    }
    for path in ["/", "/healthz", "/readyz"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    fs::write(&file, "fedcba9876543210\n").unwrap();
    let reload = |token: &str| server.ask(&format!("POST /v1/reload HTTP/1.1\r\nAuthorization: Bearer {token}"), b"");
    let with = |token: &str| reload(token).status;
    assert_eq!([with("0123456789abcdef"), with("0123456789abcdef"), with("fedcba9876543210")], [200, 401, 200]);
    // All is taken, or nothing: neither a model beside tokens that cannot be used, nor tokens beside such a model.
    let reloads = server.engine.reloads.load(Ordering::SeqCst);
    fs::write(&file, "short\n").unwrap();
    let refused = reload("fedcba9876543210");
    assert_eq!((refused.status, server.engine.reloads.load(Ordering::SeqCst)), (409, reloads));
    let error = &refused.json()["error"];
    assert!(error["message"].to_string().contains("a file of the server"), "{error}");
    assert!(error["place"].is_null() && !error.to_string().contains("tokens\""), "{error}");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    server.engine.bad_model.store(true, Ordering::SeqCst);
    assert_eq!([with("fedcba9876543210"), with("fedcba9876543210"), with("0123456789abcdef")], [409, 409, 401]);
}

#[test]
fn with_mutual_tls_only_a_client_with_a_certificate_is_answered() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve/test_certificates");
    let files = TlsFiles {
        cert: dir.join("server.pem"),
        key: dir.join("server.key"),
        client_ca: Some(dir.join("authority.pem")),
    };
    let wrong = TlsFiles { key: dir.join("client.key"), ..files.clone() };
    assert!(Server::bind(Options { tls: Some(wrong), ..options() }).err().unwrap().to_string().contains("client.key"));
    let server = Running::start(Options { tls: Some(files), listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..options() });
    let port = server.address.port();
    let ask = |with_certificate: bool| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(dir.join("authority.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match with_certificate {
            false => builder.with_no_client_auth(),
            true => {
                let chain = vec![CertificateDer::from_pem_file(dir.join("client.pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(dir.join("client.key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(("127.0.0.1", port)).unwrap());
        let sent = stream.write_all(b"GET /v1/drift HTTP/1.1\r\nHost: till.example\r\nConnection: close\r\n\r\n");
        sent.map_or(0, |()| Answer::read(&mut stream).status)
    };
    assert_eq!([ask(true), ask(false)], [200, 0]);
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "it speaks TLS alone");
}

#[test]
fn the_description_has_every_route_and_the_columns_of_the_tables() {
    let server = Running::start(options());
    let api = server.get("/openapi.json").json();
    let router = include_str!("http/mod.rs");
    let mut routes: Vec<&str> = router.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut told: Vec<&str> = api["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    routes.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, routes);
    for (path, methods) in api["paths"].as_object().unwrap() {
        let line = router.lines().find(|line| line.contains(&format!(".route(\"{path}\""))).unwrap();
        for method in methods.as_object().unwrap().keys() {
            assert!(line.contains(&format!("{method}(")), "{method} {path}");
        }
        assert_eq!(methods.as_object().unwrap().len(), line.matches("routes::").count(), "{path}");
    }
    for path in ["/", "/metrics", "/healthz"] {
        let told = api["paths"][path]["get"]["responses"]["200"]["content"].as_object().unwrap();
        let head = server.get(path).head;
        assert!(told.keys().all(|of| head.contains(&format!("content-type: {of}"))), "{path}: {told:?}, {head}");
    }
    let schemas = &api["components"]["schemas"];
    assert_eq!(schemas["Node_payment"]["properties"]["Amount"]["type"], json!(["number", "null"]));
    let text = api.to_string();
    for (_, name) in text.match_indices("#/components/schemas/").map(|(at, found)| (at, &text[at + found.len()..])) {
        let name = name.split('"').next().unwrap();
        assert!(schemas.get(name).is_some(), "{name} is named and not there");
    }
}
