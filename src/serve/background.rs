//! Work that goes on beside requests, each on a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::engine::Engine;
use super::http::App;
use crate::error::{Error, Result};

/// How often it is looked whether columns are to be filled in, and whether there is enough to compact.
const COMPACT: Duration = Duration::from_secs(1);
/// How often it is looked what has moved, which sorts every column, and what is too old.
const LOOK: Duration = Duration::from_secs(20);
/// After a failure, such as a full disk, the next try is so long away, and twice as long after each further one, up to
/// the longest time.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(3600);
/// The priority of work beside requests, the least that there is.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LEAST: libc::c_int = 19;

/// Threads for long work beside requests, which wait for them on no core.
///
/// # Errors
/// Threads that cannot be started.
pub(super) fn beside() -> Result<ThreadPool> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let builder = ThreadPoolBuilder::new().num_threads((cores - 1).max(1)).thread_name(|at| format!("beside-{at}"));
    let pool = builder.start_handler(|_| yield_to_others()).build();
    pool.map_err(|fault| Error::io("a thread", "start", io::Error::other(fault)))
}

/// This thread gets what time of the processor others leave.
fn yield_to_others() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call changes the priority of this thread alone. Where the system refuses, it stays as it was.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, LEAST);
    }
}

/// Threads that end when this value does; work that has begun then goes on until the process ends, which may be at any
/// moment. They hold what requests wait for, so they do not yield: their long work is done on those of [`beside`].
pub(super) struct Background(Arc<(Mutex<bool>, Condvar)>);

impl Background {
    /// Starts what the options of `app` ask for.
    pub fn start(app: &Arc<App>) -> io::Result<Self> {
        let background = Self(Arc::default());
        let options = &app.options;
        background.every(app, "fill", COMPACT, |engine| engine.fill())?;
        background.every(app, "compact", COMPACT, |engine| engine.compact().map(drop))?;
        background.every(app, "watch", LOOK, |engine| engine.watch())?;
        if options.retention.is_some() {
            background.every(app, "retain", LOOK, |engine| engine.retain().map(drop))?;
        }
        if let Some(interval) = options.refresh {
            background.every(app, "refresh", interval, |engine| engine.refresh())?;
        }
        Ok(background)
    }

    fn every(
        &self,
        app: &Arc<App>,
        name: &'static str,
        interval: Duration,
        work: impl Fn(&dyn Engine) -> Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (stop, app) = (self.0.clone(), app.clone());
        thread::Builder::new().name(name.into()).spawn(move || {
            let (stopped, changed) = &*stop;
            let mut wait = interval;
            loop {
                let lock = stopped.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(lock, wait, |stopped| !*stopped);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
                let started = Instant::now();
                // A fault of ours in one of them ends neither it nor the server; the message names the place.
                let outcome = catch_unwind(AssertUnwindSafe(|| work(&*app.engine)));
                let outcome = outcome.unwrap_or_else(|_| Err(Error::io(name, "do", io::Error::other("it panicked"))));
                app.metrics.task(name, started.elapsed(), outcome.is_err());
                wait = match outcome {
                    Ok(()) => interval,
                    Err(error) => {
                        let next = (2 * wait).clamp(AFTER_FAILURE, LONGEST).max(interval);
                        log::warn!("{name}: {error}; again in {} s", next.as_secs());
                        next
                    }
                };
            }
        })?;
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}
