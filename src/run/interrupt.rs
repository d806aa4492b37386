//! Ctrl-C: the first asks the run to stop at the end of its step, the second ends the process. So does the first where
//! the step goes on for too long, and where the work has no steps.
//!
//! SIGTERM (a scheduler that ends a job) and SIGHUP (a closed terminal) count as Ctrl-C. A process that is ended leaves
//! its last checkpoint and no temporary files.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::graph::formats::remove_own;

/// Exit status after an interruption, 128 + SIGINT.
const INTERRUPTED: i32 = 130;
/// How long a step may go on that was asked to be the last, unless longer ones were seen.
const GRACE: Duration = Duration::from_secs(30);

static REQUESTED: AtomicBool = AtomicBool::new(false);
static CAUGHT: OnceLock<bool> = OnceLock::new();
/// Whether steps of this process end, so that one that does not is ended.
static STEPS: AtomicBool = AtomicBool::new(false);
/// Whether the run has seen the request and is saving.
static HEARD: AtomicBool = AtomicBool::new(false);
/// Of the longest step so far.
static LONGEST_MS: AtomicU64 = AtomicU64::new(0);
static GIVEN: OnceLock<Duration> = OnceLock::new();
/// What the user is told when work without steps is ended.
static WITHOUT_STEPS: Mutex<Option<String>> = Mutex::new(None);

/// Catches Ctrl-C for the rest of the process and says whether that worked; further calls change nothing.
///
/// Signals that somebody handles or ignores already (`nohup`, a program that embeds this library) stay as they are: a
/// run under `nohup` must survive its terminal. Then, and where the system refuses, a line on stderr says that the run
/// cannot save before it ends.
pub fn install() -> bool {
    *CAUGHT.get_or_init(|| {
        let installed = ctrlc::try_set_handler(|| {
            if !press(&REQUESTED) {
                end("at once");
            }
            if let Some(told) = without_steps().take() {
                leave(&told);
            }
            let grace = grace();
            let within = match STEPS.load(Ordering::Relaxed) {
                true => format!(" if it ends within {} s", grace.as_secs_f64().ceil()),
                false => String::new(),
            };
            tell(&format!(
                "\nstopping: the current step is finished and saved{within}; press Ctrl-C again to end at once"
            ));
            thread::spawn(move || {
                loop {
                    thread::sleep(grace.max(Duration::from_millis(10)));
                    match HEARD.load(Ordering::Relaxed) {
                        true => return,
                        false if STEPS.load(Ordering::Relaxed) => {
                            end("within a step, which went on for too long (--grace)")
                        }
                        false => {}
                    }
                }
            });
        });
        if let Err(error) = &installed {
            let reason = match error {
                ctrlc::Error::MultipleHandlers => "it is ignored (nohup, background job) or handled already".to_owned(),
                other => other.to_string(),
            };
            tell(&format!("note: Ctrl-C does not save first: {reason}; an ended run goes on from its last checkpoint"));
        }
        installed.is_ok()
    })
}

/// A line that the user should see even where a program that embeds this library has no logger.
fn tell(text: &str) {
    match log::max_level() {
        log::LevelFilter::Off => eprintln!("{text}"),
        _ => log::warn!("{text}"),
    }
}

/// Ends the process, and says how.
fn end(how: &str) -> ! {
    leave(&format!("ended {how}; what was not saved yet is lost"))
}

/// Ends the process with this last word.
fn leave(told: &str) -> ! {
    tell(&format!("\n{told}"));
    remove_own();
    process::exit(INTERRUPTED)
}

/// Lets a step that was asked to be the last go on for so long; otherwise for 30 s, or three times as long as the
/// longest: a request is seen at the end of a step, and the next one is the last.
pub fn set_grace(grace: Duration) {
    let _ = GIVEN.set(grace);
}

fn grace() -> Duration {
    let longest = Duration::from_millis(LONGEST_MS.load(Ordering::Relaxed));
    GIVEN.get().copied().unwrap_or(GRACE.max(longest.saturating_mul(3)))
}

/// Work begins that has no steps: a request ends the process at once, as one that came before does, and the user is
/// `told` so.
pub fn steps_end(told: String) {
    install();
    if requested() {
        leave(&told);
    }
    *without_steps() = Some(told);
}

fn without_steps() -> MutexGuard<'static, Option<String>> {
    WITHOUT_STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Promises to ask [`stops`] after every step; `last` is how long the last one took.
pub fn step_begins(last: Option<Duration>) {
    STEPS.store(true, Ordering::Relaxed);
    *without_steps() = None;
    let last = last.map_or(0, |last| u64::try_from(last.as_millis()).unwrap_or(u64::MAX));
    LONGEST_MS.fetch_max(last, Ordering::Relaxed);
}

/// Whether the run was asked to stop. Ask between steps.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// [`requested`], by a run that saves and stops now if it is so, for as long as that takes.
pub fn stops() -> bool {
    let requested = requested();
    HEARD.fetch_or(requested, Ordering::Relaxed);
    requested
}

/// Records a Ctrl-C; true for the first.
fn press(requested: &AtomicBool) -> bool {
    !requested.swap(true, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn only_the_first_press_asks_to_stop() {
        let requested = AtomicBool::new(false);
        assert_eq!([press(&requested), press(&requested), press(&requested)], [true, false, false]);
        assert!(requested.load(Ordering::Relaxed));
    }

    /// Set for the process that `ctrl_c_…` below starts; without it the "test" that runs there does nothing.
    const CHILD: &str = "GRAPHSIEVE_TEST_INTERRUPT";

    #[test]
    fn interrupted_process() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        println!("{}", if install() && install() { "ready" } else { "not caught" });
        let deadline = Instant::now() + Duration::from_secs(20);
        while !requested() && Instant::now() < deadline {
            sleep(Duration::from_millis(1));
        }
        println!("saved");
        sleep(deadline.saturating_duration_since(Instant::now()));
    }

    /// In a process of its own, because signals are caught for a whole process; `env` lets it have signals that these
    /// tests ignore, such as under `nohup`.
    #[cfg(unix)]
    #[test]
    fn ctrl_c_asks_to_stop_and_a_second_one_exits_with_130() {
        let test = format!("{}::interrupted_process", module_path!().split_once("::").unwrap().1);
        let mut child = Command::new("env")
            .arg("--default-signal=HUP,INT,TERM")
            .arg(std::env::current_exe().unwrap())
            .args([test.as_str(), "--exact", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for expected in ["ready", "saved"] {
            let is_expected = lines.any(|line| line.ends_with(expected));
            assert!(is_expected, "the process ended before it was {expected}");
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(INTERRUPTED));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("press Ctrl-C again") && told.contains("ended at once"), "{told}");
    }
}
