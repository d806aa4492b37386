//! `graphsieve serve`

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::moment::time;
use super::{Compute, Console, size};
use crate::error::Result;

/// Score nodes over HTTP while events arrive: a live graph that starts from a data directory
///
/// POST /v1/score, /v1/events and /v1/labels, GET and DELETE /v1/nodes/TYPE/ID; GET /openapi.json says all of it, GET /
/// is a page to look a node up. An event is on disk when it is answered. SIGHUP takes the model, tokens and
/// certificates anew, SIGTERM finishes what was asked for and ends.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory of a run, or of a bundle that was made of one
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// Data directory that the live graph starts from
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Directory of the log and of what it was compacted to; made where it is not there
    #[arg(long, value_name = "DIR", default_value = "artifacts/serve")]
    state: PathBuf,

    /// Address and port; beyond this machine only with --token-file or --client-ca
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// File of tokens, one a line: a request has to have one of them as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Certificate of the server and those between it and its root, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Certificates of authorities, in PEM: a client has to show a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,

    /// Threads that score [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Most targets that are scored in one pass
    #[arg(long, value_name = "N", default_value = "32")]
    batch_size: NonZeroUsize,

    /// Longest time that a request waits for others to share a pass with, such as 2ms; 0s takes those that are there
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    batch_delay: Duration,

    /// Neighbours that are drawn per relation at each hop, such as 15,10 [default: all]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    fanouts: Option<Vec<NonZeroUsize>>,

    /// Seed of the draws: the same neighbours for the same node
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// How often embeddings of known nodes are computed anew, such as 1h [default: at start only]
    #[arg(long, value_name = "TIME", value_parser = time)]
    refresh: Option<Duration>,

    /// Share of the base that may be appended before both are joined, above 0
    #[arg(long, value_name = "SHARE", value_parser = positive, default_value = "0.02")]
    compact_share: f64,

    /// Age of events, before the latest one, from which on they are dropped, such as 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = time)]
    retention: Option<Duration>,

    /// Most bytes of a body, with K, M or G for powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4M")]
    max_body: u64,

    /// Most nodes of a request, and as many edges
    #[arg(long, value_name = "N", default_value = "10000")]
    max_rows: NonZeroUsize,

    /// Most targets of a request
    #[arg(long, value_name = "N", default_value = "256")]
    max_targets: NonZeroUsize,

    /// Most bytes of an id
    #[arg(long, value_name = "N", default_value = "512")]
    max_id: NonZeroUsize,

    /// Most nodes of the neighbourhood of a target; what has more is refused: give --fanouts
    #[arg(long, value_name = "N", default_value = "50000")]
    max_neighbourhood: NonZeroUsize,

    /// Most connections at a time
    #[arg(long, value_name = "N", default_value = "1024")]
    max_connections: NonZeroUsize,

    /// Most requests that wait; further ones are answered with 429
    #[arg(long, value_name = "N", default_value = "1024")]
    max_queue: NonZeroUsize,

    /// Time for the headers of a request, and again for its body
    #[arg(long, value_name = "TIME", value_parser = some_time, default_value = "10s")]
    read_timeout: Duration,

    /// Time for the answer to a request
    #[arg(long, value_name = "TIME", value_parser = some_time, default_value = "5s")]
    timeout: Duration,

    /// Time for requests to be finished when the server is told to stop
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    grace: Duration,

    /// Log every request, not only those that are refused or fail; never with ids or values
    #[arg(long)]
    log_requests: bool,

    #[command(flatten)]
    compute: Compute,
}

#[cfg(not(feature = "serve"))]
pub(super) fn run(_: Arguments, _: Console) -> Result<()> {
    Err(crate::error::Error::Usage {
        argument: "serve".into(),
        expected: "a program that was built with the feature `serve`".into(),
        found: "one built without serve".into(),
        help: "cargo install --path . --features serve".into(),
    })
}

#[cfg(feature = "serve")]
pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    use crate::serve::{self, Server};

    let options = options(&arguments);
    let (mutual, limits) = (arguments.client_ca.is_some(), options.limits);
    let server = Server::bind(options.clone())?;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let address = format!("{scheme}://{}", server.address()?);
    let (device, _) = arguments.compute.choose(console)?;
    console.step("reading the model, the data and the log");
    let engine = serve::open(&options, device)?;
    let who = match (&options.token_file, mutual) {
        (Some(_), true) => "clients with a certificate and a token",
        (Some(_), false) => "clients with a token",
        (None, true) => "clients with a certificate",
        (None, false) => "all programs of this machine",
    };
    console.note(format_args!(
        "{} scores the live graph of {} for {who}: {} threads, up to {} targets in a pass, {} requests that wait, {} \
         bytes, {} nodes and {} targets a request, {} s to answer",
        engine.state().model,
        options.data.display(),
        options.threads,
        options.batch_size,
        limits.queue,
        limits.body,
        limits.rows,
        limits.targets,
        limits.answer.as_secs_f64(),
    ));
    let token = options.token_file.map_or(String::new(), |file| {
        format!(" -H \"Authorization: Bearer $(grep -v '^#' {} | head -1)\"", file.display())
    });
    super::print(&format_args!(
        "curl -s{token} {address}/v1/score -d '{{\"targets\": [\"TYPE:ID\"], \"explain\": true}}'"
    ))?;
    server.run(engine)
}

#[cfg(feature = "serve")]
fn options(arguments: &Arguments) -> crate::serve::Options {
    use std::thread::available_parallelism;

    use crate::serve::{Limits, Options, TlsFiles};

    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    let tls = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    Options {
        model: arguments.model.clone(),
        data: arguments.data.clone(),
        state: arguments.state.clone(),
        listen: arguments.listen,
        token_file: arguments.token_file.clone(),
        tls: tls.map(|(cert, key)| TlsFiles { cert, key, client_ca: arguments.client_ca.clone() }),
        limits: Limits {
            body: usize::try_from(arguments.max_body).unwrap_or(usize::MAX),
            rows: arguments.max_rows.get(),
            targets: arguments.max_targets.get(),
            id: arguments.max_id.get(),
            neighbourhood: arguments.max_neighbourhood.get(),
            connections: arguments.max_connections.get(),
            queue: arguments.max_queue.get(),
            read: arguments.read_timeout,
            answer: arguments.timeout,
        },
        threads: arguments.threads.map_or(cores, NonZeroUsize::get),
        batch_size: arguments.batch_size.get(),
        batch_delay: arguments.batch_delay,
        fanouts: arguments.fanouts.as_ref().map(|all| all.iter().map(|fanout| fanout.get()).collect()),
        seed: arguments.seed,
        refresh: arguments.refresh,
        compact_share: arguments.compact_share,
        retention: arguments.retention,
        grace: arguments.grace,
        log_requests: arguments.log_requests,
    }
}

/// A length of time above 0.
fn some_time(text: &str) -> std::result::Result<Duration, String> {
    time(text)
        .and_then(|time| if time.is_zero() { Err("expected more than no time, such as 10s".into()) } else { Ok(time) })
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "expected a share above 0, e.g. 0.1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_numbers_with_a_unit() {
        for (text, seconds) in [("2ms", 0.002), ("0s", 0.0), ("90m", 5400.0), ("1w", 604_800.0)] {
            assert_eq!(time(text).map(|time| time.as_secs_f64()), Ok(seconds), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5h", "1y", "18446744073709551615w", "9999999d"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(some_time("0ms").is_err() && positive("0").is_err() && positive("inf").is_err());
    }
}
