//! Progress of long work on stderr: a bar on a terminal, one plain line per interval in a pipe, JSON for machines.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::log_line::{Level, LogLine};
use indicatif::{
    BinaryBytes, FormattedDuration, HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle,
};

/// Time between two plain lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A bar that is redrawn, for terminals.
    Bar,
    /// A plain line every ten seconds and at the end, for logs.
    Lines,
    /// The same lines as JSON objects, see [`LogLine`].
    Json,
    /// Nothing at all.
    Quiet,
}

impl Mode {
    /// [`Mode::Bar`] when stderr is a terminal that can redraw a line, otherwise [`Mode::Lines`]. Bars have no colours,
    /// so that `NO_COLOR` changes nothing.
    pub fn detect() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        if io::stderr().is_terminal() && !dumb { Mode::Bar } else { Mode::Lines }
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Epochs, rows, nodes: a grouped number.
    Items,
    /// Bytes: shown in KiB, MiB, GiB.
    Bytes,
}

impl Unit {
    fn format(self, count: u64) -> String {
        match self {
            Unit::Items => HumanCount(count).to_string(),
            Unit::Bytes => BinaryBytes(count).to_string(),
        }
    }
}

/// Progress of one piece of work. Shared between threads by reference; every method is cheap enough for a hot loop.
pub struct Progress(Display);

enum Display {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
    Quiet,
}

impl Progress {
    /// Progress towards `total` items (0 when unknown), shown as [`Mode::detect`] finds best.
    pub fn new(title: &str, total: u64) -> Self {
        Self::with_mode(title, total, Unit::Items, Mode::detect())
    }

    /// Progress towards `total` of a unit (0 when unknown), shown as told.
    pub fn with_mode(title: &str, total: u64, unit: Unit, mode: Mode) -> Self {
        Self(match mode {
            Mode::Bar => {
                Display::Bar(bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()), title, total, unit))
            }
            Mode::Lines | Mode::Json => {
                let lines = Lines::new(title, total, unit, INTERVAL, Box::new(io::stderr()));
                Display::Lines(Mutex::new(Lines { json: mode == Mode::Json, ..lines }))
            }
            Mode::Quiet => Display::Quiet,
        })
    }

    /// Starts at `done`, e.g. the epoch from which a run is resumed, so the time left counts only work of this process.
    pub fn start_at(&self, done: u64) {
        match &self.0 {
            Display::Bar(bar) => {
                bar.set_position(done);
                bar.reset_eta();
            }
            Display::Lines(lines) => {
                let mut lines = lock(lines);
                (lines.first, lines.done) = (done, done);
            }
            Display::Quiet => {}
        }
    }

    /// `done` of the total is done; `message` is what the reader wants to know now, e.g. loss, metric and edges/s.
    pub fn update(&self, done: u64, message: &str) {
        match &self.0 {
            Display::Bar(bar) => {
                bar.set_message(message.to_owned());
                bar.set_position(done);
            }
            Display::Lines(lines) => lock(lines).update(done, message, Instant::now()),
            Display::Quiet => {}
        }
    }

    /// Prints a line of its own above the bar (or between the lines).
    pub fn println(&self, line: &str) {
        match &self.0 {
            Display::Bar(bar) => bar.suspend(|| eprintln!("{line}")),
            Display::Lines(lines) => lock(lines).note(line),
            Display::Quiet => {}
        }
    }

    /// Ends the progress and leaves `message` as the last word.
    pub fn finish(&self, message: &str) {
        match &self.0 {
            // What was done is kept as it is: work that stopped early is not shown as complete.
            Display::Bar(bar) => bar.abandon_with_message(message.to_owned()),
            Display::Lines(lines) => lock(lines).finish(message, Instant::now()),
            Display::Quiet => {}
        }
    }
}

/// Progress of work that reports `(stage, done, total)`; stages may overlap and each gets a bar of its own.
///
/// A stage ends when it first reports `done` = `total`. What it reports after that is ignored: work in parallel may say
/// so more than once, or be overtaken on its way here.
pub struct StageProgress {
    unit: Unit,
    mode: Mode,
    bars: MultiProgress,
    /// Without a display once the stage has ended.
    stages: Mutex<Vec<(&'static str, Option<Progress>)>>,
}

impl StageProgress {
    /// Shown as [`Mode::detect`] finds best.
    pub fn new(unit: Unit) -> Self {
        Self::with_mode(unit, Mode::detect())
    }

    /// Shown as told.
    pub fn with_mode(unit: Unit, mode: Mode) -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        Self { unit, mode, bars, stages: Mutex::new(Vec::new()) }
    }

    /// Records that `done` of `total` (0 when unknown) of a stage are done; callable from any thread.
    pub fn report(&self, stage: &'static str, done: u64, total: u64) {
        let mut stages = lock(&self.stages);
        let at = stages.iter().position(|(name, _)| *name == stage).unwrap_or_else(|| {
            stages.push((stage, Some(self.start(stage, total))));
            stages.len() - 1
        });
        let Some(progress) = &stages[at].1 else { return };
        progress.update(done, "");
        if total > 0 && done >= total {
            progress.finish("");
            stages[at].1 = None;
        }
    }

    /// The same as a callback, for functions that take `Fn(&'static str, u64, u64)`.
    pub fn callback(&self) -> impl Fn(&'static str, u64, u64) + Sync + '_ {
        |stage, done, total| self.report(stage, done, total)
    }

    fn start(&self, stage: &str, total: u64) -> Progress {
        match self.mode {
            Mode::Bar => Progress(Display::Bar(bar(self.bars.add(ProgressBar::no_length()), stage, total, self.unit))),
            mode => Progress::with_mode(stage, total, self.unit, mode),
        }
    }
}

/// A rate such as `12.3 M edges/s`.
pub fn rate(count: f64, elapsed: Duration, unit: &str) -> String {
    let per_second = count / elapsed.as_secs_f64().max(1e-9);
    let (value, prefix) = match per_second {
        rate if rate >= 1e9 => (rate / 1e9, "G "),
        rate if rate >= 1e6 => (rate / 1e6, "M "),
        rate if rate >= 1e3 => (rate / 1e3, "k "),
        rate => (rate, ""),
    };
    format!("{value:.1} {prefix}{unit}/s")
}

fn bar(bar: ProgressBar, title: &str, total: u64, unit: Unit) -> ProgressBar {
    let count = match (unit, total > 0) {
        (Unit::Items, true) => "{human_pos}/{human_len}",
        (Unit::Bytes, true) => "{binary_bytes}/{binary_total_bytes}",
        (Unit::Items, false) => "{human_pos}",
        (Unit::Bytes, false) => "{binary_bytes}",
    };
    let template = match total {
        0 => format!("{{prefix}} {{spinner}} {count} {{elapsed_precise}}  {{wide_msg}}"),
        _ => format!("{{prefix}} {{bar:24}} {count} {{elapsed_precise}}, {{eta_precise}} left  {{wide_msg}}"),
    };
    // The templates are constants; a mistake in one shows in the tests, not to a user.
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    if total > 0 {
        bar.set_length(total);
    }
    bar.with_style(style.progress_chars("=> ")).with_prefix(title.to_owned())
}

/// The plain lines of one piece of work.
struct Lines {
    title: String,
    total: u64,
    unit: Unit,
    interval: Duration,
    first: u64,
    done: u64,
    started: Instant,
    printed: Instant,
    json: bool,
    out: Box<dyn Write + Send>,
}

impl Lines {
    fn new(title: &str, total: u64, unit: Unit, interval: Duration, out: Box<dyn Write + Send>) -> Self {
        let now = Instant::now();
        let title = title.to_owned();
        Self { title, total, unit, interval, first: 0, done: 0, started: now, printed: now, json: false, out }
    }

    fn update(&mut self, done: u64, message: &str, now: Instant) {
        self.done = done;
        // The line with the whole total is that of `finish`.
        let running = self.total == 0 || done < self.total;
        if running && now.duration_since(self.printed) >= self.interval {
            self.printed = now;
            let line = self.line(message, now, true);
            self.write(&line);
        }
    }

    fn finish(&mut self, message: &str, now: Instant) {
        let line = self.line(message, now, false);
        self.write(&line);
    }

    /// `title: 40/100, 00:00:12, 00:00:18 left: message`
    fn line(&self, message: &str, now: Instant, running: bool) -> String {
        let elapsed = now.duration_since(self.started);
        if self.json {
            let done = self.done.saturating_sub(self.first) as f64;
            let line = LogLine::now(Level::Progress, message);
            return line.of_stage(&self.title, self.done, self.total, done / elapsed.as_secs_f64()).to_string();
        }
        let mut line = format!("{}: {}", self.title, self.unit.format(self.done));
        // Writing to a String cannot fail.
        if self.total > 0 {
            let _ = write!(line, "/{}", self.unit.format(self.total));
        }
        let _ = write!(line, ", {}", FormattedDuration(elapsed));
        let (finished, missing) = (self.done.saturating_sub(self.first), self.total.saturating_sub(self.done));
        if running && finished > 0 && missing > 0 {
            let left = elapsed.as_secs_f64() * missing as f64 / finished as f64;
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            let _ = write!(line, ", {} left", FormattedDuration(left));
        }
        if !message.is_empty() {
            let _ = write!(line, ": {message}");
        }
        line
    }

    fn note(&mut self, text: &str) {
        match self.json {
            true => self.write(&LogLine::now(Level::Note, text).to_string()),
            false => self.write(text),
        }
    }

    fn write(&mut self, line: &str) {
        // One write per line, so lines of several threads do not mix. Progress that cannot be shown is no failure.
        let _ = self.out.write_all(format!("{line}\n").as_bytes());
    }
}

/// A panic of another thread leaves nothing half-done here worth a second panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Captured {
        fn text(&self) -> String {
            String::from_utf8(lock(&self.0).clone()).unwrap()
        }
    }

    fn lines(total: u64, unit: Unit) -> (Lines, Captured) {
        let captured = Captured::default();
        (Lines::new("stage2", total, unit, Duration::from_secs(10), Box::new(captured.clone())), captured)
    }

    #[test]
    fn a_pipe_gets_one_line_per_interval_and_one_at_the_end() {
        let (mut lines, captured) = lines(100, Unit::Items);
        let start = lines.started;
        for epoch in 1..=30 {
            lines.update(epoch, "loss 0.5", start + Duration::from_secs(epoch));
        }
        lines.finish("stopped", start + Duration::from_secs(31));
        let expected = [
            "stage2: 10/100, 00:00:10, 00:01:30 left: loss 0.5",
            "stage2: 20/100, 00:00:20, 00:01:20 left: loss 0.5",
            "stage2: 30/100, 00:00:30, 00:01:10 left: loss 0.5",
            "stage2: 30/100, 00:00:31: stopped",
        ];
        assert_eq!(captured.text().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_last_line_is_printed_once_however_often_the_total_is_reported() {
        let (mut lines, captured) = lines(100, Unit::Items);
        let start = lines.started;
        for seconds in 10..40 {
            lines.update(100, "", start + Duration::from_secs(seconds));
        }
        lines.finish("edge AUC 0.9", start + Duration::from_secs(40));
        assert_eq!(captured.text(), "stage2: 100/100, 00:00:40: edge AUC 0.9\n");
    }

    #[test]
    fn the_time_left_of_a_resumed_run_counts_only_its_own_epochs() {
        let (mut lines, captured) = lines(100, Unit::Items);
        lines.first = 80;
        lines.update(90, "", lines.started + Duration::from_secs(20));
        assert_eq!(captured.text(), "stage2: 90/100, 00:00:20, 00:00:20 left\n");
    }

    #[test]
    fn machines_get_every_line_as_an_object() {
        let (lines, captured) = lines(100, Unit::Items);
        let mut lines = Lines { json: true, first: 4, ..lines };
        let start = lines.started;
        lines.update(24, "loss \"0.5\"", start + Duration::from_secs(10));
        lines.note("two\nlines");
        lines.finish("", start + Duration::from_secs(20));
        let text = captured.text();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let expected = serde_json::json!({
            "time": lines[0]["time"], "level": "progress", "message": "loss \"0.5\"",
            "stage": "stage2", "done": 24, "total": 100, "rate": 2.0
        });
        assert_eq!(lines[0], expected);
        assert_eq!((&lines[1]["level"], &lines[1]["message"]), (&"note".into(), &"two\nlines".into()));
        assert_eq!((&lines[2]["done"], &lines[2]["rate"], lines.len()), (&24.into(), &1.0.into(), 3));
    }

    #[test]
    fn bytes_and_unknown_totals_are_readable() {
        let (mut lines, captured) = lines(0, Unit::Bytes);
        lines.update(3 << 20, "", lines.started + Duration::from_secs(10));
        assert_eq!(captured.text(), "stage2: 3.00 MiB, 00:00:10\n");
        assert_eq!(Unit::Items.format(1_234_567), "1,234,567");
    }

    #[test]
    fn absurd_counts_do_not_panic() {
        let (mut lines, captured) = lines(u64::MAX, Unit::Items);
        lines.update(1, "", lines.started + Duration::from_secs(1 << 40));
        lines.update(u64::MAX - 1, "", lines.started + Duration::from_secs(1 << 41));
        lines.finish("", lines.started + Duration::from_secs(1 << 42));
        assert_eq!(captured.text().lines().count(), 3);
    }

    #[test]
    fn every_bar_has_a_valid_template() {
        for (total, unit) in [(0, Unit::Items), (0, Unit::Bytes), (9, Unit::Items), (9, Unit::Bytes)] {
            let progress = Progress(Display::Bar(bar(ProgressBar::hidden(), "stage1", total, unit)));
            progress.start_at(2);
            progress.update(5, "loss 0.5");
            progress.finish("done");
            let Display::Bar(bar) = &progress.0 else { panic!("a bar") };
            assert_eq!((bar.position(), bar.message().as_str(), bar.prefix().as_str()), (5, "done", "stage1"));
        }
    }

    #[test]
    fn stages_start_when_first_reported_and_end_when_complete() {
        let stages = StageProgress::with_mode(Unit::Bytes, Mode::Quiet);
        let report = stages.callback();
        report("read reviews", 10, 100);
        report("read products", 5, 0);
        report("read reviews", 100, 100);
        let open = || -> Vec<&str> {
            let stages = lock(&stages.stages);
            stages.iter().filter(|stage| stage.1.is_some()).map(|stage| stage.0).collect()
        };
        assert_eq!(open(), ["read products"]);
        // The total again, and a thread that comes late: neither starts the stage anew.
        report("read reviews", 100, 100);
        report("read reviews", 90, 100);
        assert_eq!(open(), ["read products"]);
    }

    #[test]
    fn rates_carry_a_prefix() {
        assert_eq!(rate(12_300_000.0, Duration::from_secs(1), "edges"), "12.3 M edges/s");
        assert_eq!(rate(50.0, Duration::from_secs(2), "nodes"), "25.0 nodes/s");
    }
}
