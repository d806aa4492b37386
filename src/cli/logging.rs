//! What the program says on stderr: one place for text and JSON, for the command line and the library.

use std::env;
use std::fmt::Display;
use std::process::ExitCode;

use clap::ValueEnum;
use log::kv::{Error, Key, Value as Known, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};
use serde_json::{Map, Value};

use crate::run::log_line::{Level, LogLine};

/// How lines on stderr look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line: time, level, message; progress also stage, done, total, rate; requests also what they
    /// were and took
    Json,
}

/// Writes records of this program to stderr; those of libraries, of the graphics stack say, are theirs.
struct Stderr(LogFormat);

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("graphsieve")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut fields = Fields(Map::new());
        // What cannot be read is left out; the message says it as well.
        let _ = record.key_values().visit(&mut fields);
        eprintln!("{}", line(self.0, record.level(), &record.args().to_string(), fields.0));
    }

    fn flush(&self) {}
}

/// What a record knows beside its message, for machines.
struct Fields(Map<String, Value>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Known<'kvs>) -> Result<(), Error> {
        let whole = value.to_u64().map(Value::from);
        let number = whole.or_else(|| value.to_f64().map(Value::from));
        self.0.insert(key.as_str().into(), number.unwrap_or_else(|| value.to_string().into()));
        Ok(())
    }
}

/// A record as it is shown.
fn line(format: LogFormat, level: log::Level, message: &str, fields: Map<String, Value>) -> String {
    let level = match level {
        log::Level::Error => Level::Error,
        log::Level::Warn => Level::Warning,
        log::Level::Info => Level::Note,
        log::Level::Debug | log::Level::Trace => Level::Detail,
    };
    match (format, level) {
        // A line end at the start leaves a progress bar alone; an object needs none.
        (LogFormat::Json, _) => LogLine::now(level, message.trim()).with(fields).to_string(),
        (LogFormat::Text, Level::Error) => format!("error: {}", plain(message)),
        (LogFormat::Text, _) => plain(message),
    }
}

/// A text without what a terminal would obey: names and values of a user's files may hold escape sequences.
pub(super) fn plain(text: &str) -> String {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        match obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
        shown
    })
}

/// From here on records are shown as the command line wants; a logger that somebody else has set stays.
pub(super) fn start(format: LogFormat, most: LevelFilter) {
    if log::set_boxed_logger(Box::new(Stderr(format))).is_ok() {
        log::set_max_level(most);
    }
}

/// Shows why the program failed.
pub fn report_error(error: &dyn Display) {
    match log::max_level() {
        // Before the command line was read.
        LevelFilter::Off => {
            eprintln!("{}", line(asked_for(env::args()), log::Level::Error, &error.to_string(), Map::new()))
        }
        _ => log::error!("{error}"),
    }
}

/// Shows what is wrong with a command line, or the help that it asks for, and returns the exit status.
pub fn refuse(refused: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(refused.exit_code()).unwrap_or(2));
    match asked_for(env::args()) {
        LogFormat::Json if refused.use_stderr() => {
            let text = refused.render().to_string();
            eprintln!("{}", line(LogFormat::Json, log::Level::Error, text.trim_start_matches("error: "), Map::new()));
        }
        // Nobody is left to tell that stdout is closed.
        _ => drop(refused.print()),
    }
    code
}

/// The format that a command line asks for which could not be read.
fn asked_for(arguments: impl Iterator<Item = String>) -> LogFormat {
    let arguments: Vec<String> = arguments.collect();
    let together = arguments.iter().any(|argument| argument == "--log-format=json");
    let apart = arguments.windows(2).any(|pair| pair[0] == "--log-format" && pair[1] == "json");
    if together || apart { LogFormat::Json } else { LogFormat::Text }
}

#[cfg(test)]
mod tests {
    use log::kv::Source;

    use super::*;

    #[test]
    fn machines_get_an_object_and_people_a_line() {
        let mut fields = Fields(Map::new());
        [("status", Known::from(404u16)), ("route", Known::from("/v1"))].visit(&mut fields).unwrap();
        let shown = line(LogFormat::Json, log::Level::Error, "\nrun.toml:3: \"x\"\n  help: y", fields.0);
        let object: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(object["level"], "error");
        assert_eq!([&object["status"], &object["route"]], [&Value::from(404), &Value::from("/v1")]);
        assert_eq!(object["message"], "run.toml:3: \"x\"\n  help: y");
        assert_eq!(object["time"].as_str().map(str::len), Some("2026-01-31T09:30:00Z".len()));
        assert!(!shown.contains('\n'));
        let shown = line(LogFormat::Json, log::Level::Error, "\u{1b}\u{7f}\u{9b}é", Map::new());
        assert!(shown.contains(r#""message":"\u001b\u007f\u009bé""#), "{shown}");
        assert_eq!(line(LogFormat::Text, log::Level::Error, "x", Map::new()), "error: x");
        assert_eq!(line(LogFormat::Text, log::Level::Info, "x", Map::new()), "x");
        assert_eq!(
            line(LogFormat::Text, log::Level::Warn, "\n\t\u{1b}[31m\u{9b}é", Map::new()),
            "\n\t\\u{1b}[31m\\u{9b}é"
        );
    }

    #[test]
    fn a_command_line_that_cannot_be_read_still_says_its_format() {
        let asked = |line: &str| asked_for(line.split(' ').map(str::to_owned));
        assert_eq!(asked("graphsieve --log-format json trian"), LogFormat::Json);
        assert_eq!(asked("graphsieve trian --log-format=json"), LogFormat::Json);
        assert_eq!(asked("graphsieve json --log-format text"), LogFormat::Text);
    }
}
