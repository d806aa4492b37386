//! What all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::serve::auth::{Tokens, check_origin};
use crate::serve::batcher::{Batcher, Batching};
use crate::serve::engine::{Engine, ScoreAnswer, ScoreRequest, WriteRequest, Written};
use crate::serve::metrics::Metrics;
use crate::serve::options::Options;
use crate::serve::refusal::Refusal;
use crate::serve::tls::Tls;

/// Rows of the requests that are made durable together.
const WRITE_BATCH: usize = 4096;

/// Bodies up to here are read where they arrive; larger ones would hold up other connections.
const SMALL_BODY: usize = 16 << 10;

/// What `curl -d` says of a body, whatever it is.
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const LINES: &[&str] = &["application/x-ndjson", "application/jsonl", "application/ndjson"];

pub(in crate::serve) struct App {
    pub engine: Arc<dyn Engine>,
    pub options: Options,
    pub metrics: Metrics,
    pub scoring: Arc<Batcher<ScoreRequest, ScoreAnswer>>,
    pub writing: Arc<Batcher<WriteRequest, Written>>,
    pub tls: Option<Tls>,
    tokens: Option<Tokens>,
    stopping: AtomicBool,
}

/// A body of one of two forms.
pub(in crate::serve) enum Body {
    Json(Bytes),
    /// One JSON object per line.
    Lines(Bytes),
}

impl App {
    pub fn new(options: Options, tokens: Option<Tokens>, tls: Option<Tls>, engine: Arc<dyn Engine>) -> Result<Self> {
        let limits = options.limits;
        let scoring = Batching {
            threads: options.threads,
            size: options.batch_size,
            delay: options.batch_delay,
            queue: limits.queue,
            again_alone: true,
        };
        let writing =
            Batching { threads: 1, size: WRITE_BATCH, delay: Duration::ZERO, queue: limits.queue, again_alone: false };
        let refused = |source| Error::io("a thread", "start", source);
        let of = engine.clone();
        let scoring = Batcher::start("score", scoring, move |jobs: &[ScoreRequest]| of.score(jobs)).map_err(refused)?;
        let of = engine.clone();
        let writing = Batcher::start("write", writing, move |jobs: &[WriteRequest]| of.write(jobs)).map_err(refused)?;
        let (scoring, writing) = (Arc::new(scoring), Arc::new(writing));
        let (scores, writes) = (scoring.clone(), writing.clone());
        let waiting = move || [("score", scores.waiting()), ("write", writes.waiting())];
        let metrics = Metrics::of(engine.clone(), waiting);
        Ok(Self { engine, options, metrics, scoring, writing, tls, tokens, stopping: AtomicBool::new(false) })
    }

    /// Whether a request may be answered at all; what is `open` needs no token.
    pub fn admit(&self, headers: &HeaderMap, open: bool) -> Result<(), Refusal> {
        check_origin(headers, self.tokens.is_some() || self.tls.is_some())?;
        match &self.tokens {
            Some(tokens) if !open => tokens.check(headers),
            _ => Ok(()),
        }
    }

    /// Model, tokens and certificates anew; the name of the model. All are taken, or none where one cannot be used.
    pub fn reload(&self) -> Result<String> {
        let tokens = self.tokens.as_ref().map(Tokens::reread).transpose()?;
        let tls = self.tls.as_ref().map(Tls::reread).transpose()?;
        let model = self.engine.reload()?;
        tokens.into_iter().for_each(|take| take());
        tls.into_iter().for_each(|take| take());
        log::info!("reloaded: {model} scores from now on");
        Ok(model)
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn stops(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Reads a body; `lines` says whether one object per line will do.
    pub(super) async fn body(&self, request: Request, lines: bool) -> Result<Body, Refusal> {
        let is_lines = check_type(request.headers(), lines)?;
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if length.and_then(|text| text.parse::<usize>().ok()).is_some_and(|length| length > self.options.limits.body) {
            return Err(self.too_long());
        }
        let read = timeout(self.options.limits.read, Bytes::from_request(request, &())).await;
        let read = read.map_err(|_| {
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "slow_body", "the body did not arrive in time")
                .expected(format!("all of it within {} s", self.options.limits.read.as_secs_f64()), "a part")
        })?;
        let bytes = read.map_err(|rejected| match rejected.status() {
            StatusCode::PAYLOAD_TOO_LARGE => self.too_long(),
            _ => Refusal::new(StatusCode::BAD_REQUEST, "bad_body", "the body ended early"),
        })?;
        Ok(if is_lines { Body::Lines(bytes) } else { Body::Json(bytes) })
    }

    fn too_long(&self) -> Refusal {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", "the body is too long")
            .expected(format!("at most {} bytes", self.options.limits.body), "more")
            .help("send several requests, or start the server with a larger --max-body")
    }
}

impl Body {
    pub fn bytes(&self) -> &Bytes {
        let (Self::Json(bytes) | Self::Lines(bytes)) = self;
        bytes
    }

    /// What `read` makes of the body, beside other connections where it is long.
    pub async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        match self.bytes().len() <= SMALL_BODY {
            true => read(&self),
            false => beside(move || read(&self)).await,
        }
    }
}

/// Does what takes longer than a moment on a thread of its own.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // The only way to fail is to panic: nobody aborts it.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Refusal::panicked()))
}

/// Whether a body is of lines, by its type; refuses what is neither.
fn check_type(headers: &HeaderMap, lines: bool) -> Result<bool, Refusal> {
    let refuse = |expected: &str, found: &[u8]| {
        let expected = expected.to_owned() + if lines { " or application/x-ndjson" } else { "" };
        Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", "a body of this type is not read")
            .expected(expected, String::from_utf8_lossy(found)))
    };
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|name| name.as_bytes() != b"identity") {
        return refuse("no Content-Encoding, and application/json", encoding.as_bytes());
    }
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(false) };
    let name = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match name.as_str() {
        JSON | FORM => Ok(false),
        name if lines && LINES.contains(&name) => Ok(true),
        _ => refuse(JSON, given.as_bytes()),
    }
}
