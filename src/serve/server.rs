//! A server from its start to its end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::auth::Tokens;
use super::background::Background;
use super::engine::Engine;
use super::http::{App, listen, router};
use super::notify::notify;
use super::openapi;
use super::options::Options;
use super::tls::Tls;
use crate::error::{Error, Result};

/// Threads that read and write connections; what takes longer is done elsewhere.
const IO_THREADS: usize = 2;
/// Threads for what reads long bodies or looks nodes up.
const BESIDE_THREADS: usize = 4;

/// A server that has its port and has not begun.
pub struct Server {
    options: Options,
    listener: TcpListener,
    tokens: Option<Tokens>,
    tls: Option<Tls>,
}

impl Server {
    /// Takes the port and reads tokens and certificates, so that what cannot work is known before data are read.
    ///
    /// # Errors
    /// An address beyond this machine without tokens or mutual TLS; files and ports that cannot be used.
    pub fn bind(options: Options) -> Result<Self> {
        options.check()?;
        let refused = |source| Error::io(options.listen.to_string(), "listen at", source);
        let listener = TcpListener::bind(options.listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let tokens = options.token_file.as_deref().map(Tokens::open).transpose()?;
        let tls = options.tls.as_ref().map(Tls::open).transpose()?;
        if !options.listen.ip().is_loopback() && tls.is_none() {
            log::warn!("tokens and data travel unencrypted: give --tls-cert and --tls-key, or put a proxy before it");
        }
        Ok(Self { options, listener, tokens, tls })
    }

    /// Where it listens; the system may have chosen the port.
    pub fn address(&self) -> Result<SocketAddr> {
        let address = self.listener.local_addr();
        address.map_err(|source| Error::io(self.options.listen.to_string(), "listen at", source))
    }

    /// Answers requests until the process is told to stop (SIGTERM, Ctrl-C), then finishes those that are there. SIGHUP
    /// reloads.
    ///
    /// # Errors
    /// What keeps it from beginning, or its engine from closing.
    pub fn run(self, engine: Arc<dyn Engine>) -> Result<()> {
        self.run_until(engine, signals::stop())
    }

    pub(super) fn run_until(self, engine: Arc<dyn Engine>, stop: impl Future<Output = ()>) -> Result<()> {
        let Self { options, listener, tokens, tls } = self;
        let failed = |source| Error::io("the server", "start", source);
        let runtime = runtime().map_err(failed)?;
        let grace = options.grace;
        let app = Arc::new(App::new(options, tokens, tls, engine.clone())?);
        let router = router(&app, openapi::describe(&engine.columns()));
        let background = Background::start(&app).map_err(failed)?;
        let finished = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            tokio::spawn(signals::reload(app.clone()));
            notify("READY=1");
            Ok::<_, Error>(listen(listener, router, &app, stop).await)
        })?;
        notify("STOPPING=1");
        drop(background);
        if finished {
            app.scoring.close();
            app.writing.close();
        } else {
            log::warn!("some requests were not finished within {} s", grace.as_secs_f64());
        }
        runtime.shutdown_background();
        // What was acknowledged is on the disk.
        Ok(())
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .max_blocking_threads(BESIDE_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
}

#[cfg(unix)]
mod signals {
    use std::process;
    use std::sync::Arc;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::App;

    /// Exit status after a second Ctrl-C, 128 + SIGINT.
    const INTERRUPTED: i32 = 130;

    /// Done when the process is asked to stop; a second time ends it.
    pub async fn stop() {
        let (mut term, mut int) = (catch(SignalKind::terminate()), catch(SignalKind::interrupt()));
        next(&mut term, &mut int).await;
        log::info!("stopping: requests are finished; once more ends at once");
        tokio::spawn(async move {
            next(&mut term, &mut int).await;
            process::exit(INTERRUPTED);
        });
    }

    /// Reloads as often as the process gets SIGHUP.
    pub async fn reload(app: Arc<App>) {
        let mut hup = catch(SignalKind::hangup());
        while received(&mut hup).await {
            let app = app.clone();
            // What it says is all that anybody can know of it.
            let _ = tokio::task::spawn_blocking(move || {
                if let Err(error) = app.reload() {
                    log::warn!("not reloaded, what was there stays: {error}");
                }
            })
            .await;
        }
    }

    fn catch(kind: SignalKind) -> Option<Signal> {
        let caught = signal(kind);
        caught.inspect_err(|refused| log::warn!("a signal cannot be caught: {refused}")).ok()
    }

    async fn next(one: &mut Option<Signal>, other: &mut Option<Signal>) {
        tokio::select! {
            _ = received(one) => (),
            _ = received(other) => (),
        }
    }

    /// Never done of a signal that cannot be caught.
    async fn received(signal: &mut Option<Signal>) -> bool {
        match signal {
            Some(signal) => signal.recv().await.is_some(),
            None => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
mod signals {
    use std::sync::Arc;

    use super::App;

    /// Done when the process is asked to stop.
    pub async fn stop() {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// There is no signal for it.
    pub async fn reload(_: Arc<App>) {}
}
