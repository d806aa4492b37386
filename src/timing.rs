//! Where the time of a command goes, with `--verbose`.

use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// When the first piece of work began.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Does a piece of work and says how long it took and when it began, so that what runs beside it is seen.
pub(crate) fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let from = START.elapsed();
    let done = work();
    let (from, seconds) = (from.as_secs_f64(), (START.elapsed() - from).as_secs_f64());
    log::debug!(from, seconds; "{what} took {seconds:.2} s, from {from:.2} s on");
    done
}

/// Does `other`, which is timed, on a thread of its own beside `own`. It uses rayon's global pool, whatever pool this
/// is called in.
pub(crate) fn alongside<T: Send, U>(what: &str, other: impl FnOnce() -> T + Send, own: impl FnOnce() -> U) -> (T, U) {
    thread::scope(|scope| {
        let other = scope.spawn(|| timed(what, other));
        let own = own();
        (other.join().unwrap_or_else(|panic| resume_unwind(panic)), own)
    })
}

/// Work that is done again and again: says at its end how long all of it took.
#[derive(Debug)]
pub(crate) struct Total {
    what: &'static str,
    times: u32,
    time: Duration,
}

impl Total {
    /// Nothing yet.
    pub fn of(what: &'static str) -> Self {
        Self { what, times: 0, time: Duration::ZERO }
    }

    /// Does it once more.
    pub fn add<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        (self.times, self.time) = (self.times + 1, self.time + started.elapsed());
        done
    }
}

impl Drop for Total {
    fn drop(&mut self) {
        let Self { what, times, time } = self;
        if *times > 0 {
            let (times, seconds) = (*times, time.as_secs_f64());
            log::debug!(times, seconds; "{what}: {times} times, {seconds:.2} s in all");
        }
    }
}
