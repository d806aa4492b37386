//! One line of a log for machines: what the program says on stderr with `--log-format json`.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::{Map, Value};

use super::provenance::UtcTime;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something that only a close look needs, with `--verbose`.
    Detail,
    /// Something that the user may miss.
    Note,
    /// How far a piece of work is.
    Progress,
    /// Something that the user should not miss.
    Warning,
    /// Why the program failed.
    Error,
}

/// A line; `Display` is the JSON object `{"time", "level", "message"}`, of progress also with `stage`, `done`, `total`
/// (0 when unknown) and `rate` (done per second), of a request with what is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct LogLine<'a> {
    time: String,
    level: Level,
    message: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    work: Option<Work<'a>>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize)]
struct Work<'a> {
    stage: &'a str,
    done: u64,
    total: u64,
    rate: f64,
}

impl<'a> LogLine<'a> {
    /// A line of this moment.
    pub fn now(level: Level, message: &'a str) -> Self {
        Self { time: UtcTime::now().to_string(), level, message, work: None, fields: Map::new() }
    }

    /// With more that is known.
    pub fn with(self, fields: Map<String, Value>) -> Self {
        Self { fields, ..self }
    }

    /// With the state of a piece of work; a rate that is not finite becomes 0.
    pub fn of_stage(self, stage: &'a str, done: u64, total: u64, rate: f64) -> Self {
        let rate = if rate.is_finite() { rate } else { 0.0 };
        Self { work: Some(Work { stage, done, total, rate }), ..self }
    }
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        // JSON leaves these controls as they are, and a terminal obeys them.
        line.chars().try_for_each(|c| match c {
            '\u{7f}'..='\u{9f}' => write!(f, "\\u{:04x}", u32::from(c)),
            _ => f.write_char(c),
        })
    }
}
