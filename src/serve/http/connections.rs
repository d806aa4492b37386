//! Connections: how many, how long they may take, and their end.

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::app::App;

/// Bytes of the headers of a request.
const LONGEST_HEAD: usize = 32 << 10;

/// Serves until `stop` is done; then takes no more connections and lets those that are there finish what they asked
/// for. Whether they did within the grace.
pub(in crate::serve) async fn listen(
    listener: TcpListener,
    router: Router,
    app: &Arc<App>,
    stop: impl Future<Output = ()>,
) -> bool {
    let free = Arc::new(Semaphore::new(app.options.limits.connections));
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        // Those that find no place wait where the system queues them.
        let place = tokio::select! {
            place = free.clone().acquire_owned() => place,
            () = &mut stop => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(refused) => {
                log::warn!("cannot take a connection: {refused}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Answers are small and complete: they must not wait for each other. It only costs time where it is refused.
        let _ = stream.set_nodelay(true);
        let (router, watcher, read) = (router.clone(), graceful.watcher(), app.options.limits.read);
        let tls = app.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config()));
        give_up_behind(&stream, read);
        tokio::spawn(async move {
            match tls {
                None => drive(stream, router, watcher, read).await,
                // Who does not speak TLS in time has no connection to be told on.
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(read, tls.accept(stream)).await {
                        drive(stream, router, watcher, read).await;
                    }
                }
            }
            drop(place);
        });
    }
    app.stop();
    drop(listener);
    timeout(app.options.grace, graceful.shutdown()).await.is_ok()
}

/// Ends a connection whose client has taken nothing of what waits for it for so long.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
fn give_up_behind(stream: &TcpStream, time: Duration) {
    #[cfg(target_os = "linux")]
    {
        let time = libc::c_uint::try_from(time.as_millis()).unwrap_or(libc::c_uint::MAX);
        let size = size_of_val(&time) as libc::socklen_t;
        // SAFETY: the socket is open, and the option is one of these bytes, which are read before the call returns.
        // Where the system refuses, all is as it was.
        unsafe {
            let option = libc::TCP_USER_TIMEOUT;
            libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const time).cast(), size);
        }
    }
}

async fn drive<S>(stream: S, router: Router, watcher: Watcher, read: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // What goes wrong on a connection is its client's business, who has been answered or has gone.
    let _ = watcher.watch(connection).await;
}
