//! What a server is told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::tls::TlsFiles;
use crate::error::{Error, Result};

/// How a server listens, what it takes, and what it does meanwhile.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the run whose model scores.
    pub model: PathBuf,
    /// Data directory, the base of the live graph.
    pub data: PathBuf,
    /// Directory of the log and of compacted bases.
    pub state: PathBuf,
    pub listen: SocketAddr,
    pub token_file: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub limits: Limits,
    /// Threads that score.
    pub threads: usize,
    /// Targets that are scored in one forward pass.
    pub batch_size: usize,
    /// How long a request waits for others while a thread is idle.
    pub batch_delay: Duration,
    /// Neighbours that are drawn per relation and hop; `None` takes all.
    pub fanouts: Option<Vec<usize>>,
    /// Seed of the draws.
    pub seed: u64,
    /// How often embeddings are computed anew.
    pub refresh: Option<Duration>,
    /// What was appended is joined with the base when it is this share of it.
    pub compact_share: f64,
    /// Events older than this, before the latest one, are dropped.
    pub retention: Option<Duration>,
    /// How long a stop waits for requests.
    pub grace: Duration,
    /// Whether every request is logged, not only those that fail.
    pub log_requests: bool,
}

/// What a client may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Nodes of a request, and as many edges.
    pub rows: usize,
    /// Targets of a request.
    pub targets: usize,
    /// Bytes of an id.
    pub id: usize,
    /// Nodes of the neighbourhood of a target.
    pub neighbourhood: usize,
    pub connections: usize,
    /// Requests that wait.
    pub queue: usize,
    /// For the headers, and again for the body.
    pub read: Duration,
    /// From the headers to the answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            rows: 10_000,
            targets: 256,
            id: 512,
            neighbourhood: 50_000,
            connections: 1024,
            queue: 1024,
            read: Duration::from_secs(10),
            answer: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Refuses what would let strangers in.
    pub(super) fn check(&self) -> Result<()> {
        let mutual = self.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if self.listen.ip().is_loopback() || self.token_file.is_some() || mutual {
            return Ok(());
        }
        Err(Error::Usage {
            argument: format!("--listen {}", self.listen),
            expected: "an address of this machine alone (127.0.0.1), or clients that show who they are".into(),
            found: "neither --token-file nor --client-ca".into(),
            help: "`openssl rand -hex 32 > tokens` makes a token: give --token-file tokens, best with --tls-cert and \
                   --tls-key; or --tls-cert, --tls-key and --client-ca for mutual TLS"
                .into(),
        })
    }
}
